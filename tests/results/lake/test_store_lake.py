"""The lake of a store contains the store's current runs, and reads each run only once."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from harness.case import Case
from harness.errors import HarnessError, InfrastructureError, UsageError
from harness.ops import History, Verdict
from harness.store import RunFolder, is_being_written
from results.facts.problems import RUNNING, SEED_WITHOUT_RUN
from results.lake.log.lake import SCHEMA, Lake
from results.lake.tables.rebuild import HISTORY_TABLES, history_of
from results.lake.tables.schema import SCHEMA_VERSION, schemas
from results.lake.transfer import ingest, store_lake
from results.lake.transfer.folder_memo import MEMO
from results.lake.transfer.store_lake import LAKE_FOLDER, lake_of_store
from results.lake.upkeep import removal
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import check
from tests.results.lake.test_ingest import FAILURE, FINDING, history
from tests.support.programs import run_program
from tests.support.run_folders import keep_run, keep_torn
from tests.support.unprivileged import refusing

pytestmark = pytest.mark.lake

ROOT = Path(__file__).parents[3]


@pytest.fixture(name="store")
def store_fixture(tmp_path):
    store = tmp_path / "store"
    for number, name in enumerate(["ddl-kill", "ddl-none", "ddl-none"], 1):
        keep_run(store, name, f"r{number}", Case(seed=number), history(number))
    return store


@pytest.fixture(name="read")
def read_fixture(monkeypatch):
    """Record the folders of the runs that are decoded."""
    folders = []
    whole = ingest.read_source

    def noting(folder, about):
        folders.append(folder.name)
        return whole(folder, about)

    monkeypatch.setattr(ingest, "read_source", noting)
    return folders


def lake_at(uri):
    return Lake.open(str(uri))


def rows_of(uri):
    rows = lake_at(uri).dataset("runs").to_table().to_pylist()
    return {row["run"].partition("@")[0]: row for row in sorted(rows, key=lambda row: row["run"])}


def states_of(uri):
    return {run: row["state"] for run, row in rows_of(uri).items()}


def assert_whole(uri):
    """Assert that every run is complete and unique, and that all rows belong to known runs."""
    lake = lake_at(uri)
    assert not [finding for finding in check(lake) if finding.damaged]
    runs = lake.dataset("runs").to_table().to_pylist()
    assert len({row["run"] for row in runs}) == len(runs)
    tables = {name: lake.dataset(name).to_table() for name in HISTORY_TABLES}
    for row in runs:
        own = {
            name: table.filter(pa.compute.equal(table["run"], row["run"]))
            for name, table in tables.items()
        }
        assert history_of(own, digest=row["digest"]).digest() == row["digest"]
    known = {row["run"] for row in runs}
    assert {run for table in tables.values() for run in table["run"].to_pylist()} <= known


def test_new_runs_are_appended_and_known_ones_not_read_again(store, read):
    found = lake_of_store(store)

    assert found.uri == str(store / LAKE_FOLDER)
    assert [*rows_of(found.uri)] == ["ddl-kill/r1", "ddl-none/r2", "ddl-none/r3"]
    assert read == ["r1", "r2", "r3"]

    keep_run(store, "ddl-none", "r4", Case(seed=4), history(4))
    lake_of_store(store)

    assert read == ["r1", "r2", "r3", "r4"]
    assert len(rows_of(found.uri)) == 4
    assert found.problems.total == 0
    assert_whole(found.uri)


def test_a_store_that_did_not_change_costs_no_look_into_its_files(store, monkeypatch):
    uri = lake_of_store(store).uri
    version = lake_at(uri).snapshot().version

    def never(*_, **__):
        raise AssertionError("a file was read")

    for name in ("ingest_folders", "content_of", "remove", "compact", "vacuum", "write_memo"):
        monkeypatch.setattr(store_lake, name, never)

    assert lake_of_store(store).problems.total == 0
    assert lake_at(uri).snapshot().version == version


def test_progress_counts_the_runs_that_are_read(store):
    looked = []
    lake_of_store(store, progress=lambda found: looked.append((found.looked, found.total)))
    assert looked[-1] == (3, 3)


def test_every_state_is_a_row_or_is_named(store, tmp_path):
    keep_run(store, "ddl-none", "torn", Case(seed=4), history(4), finished=False)
    keep_torn(store, "ddl-none", "logged", Case(seed=5), [*history(5)][:3])
    damaged = keep_run(store, "ddl-none", "damaged", Case(seed=6), history(6))
    (damaged / "run.json").write_text("{")
    foreign = keep_run(
        store, "ddl-none", "foreign", Case(seed=7), history(7), [FINDING],
        verdict=Verdict.INVALID, failure=FAILURE,
    )  # fmt: skip
    other = keep_run(tmp_path / "other", "x", "y", Case(seed=7), history(8))
    shutil.copy(other / "history.parquet", foreign / "history.parquet")
    empty = RunFolder(store, "ddl-none", "empty")
    empty.write_case(Case(seed=8))
    del empty
    (store / "ddl-none" / "notes").mkdir()
    running = RunFolder(store, "ddl-none", "running")
    running.write_case(Case(seed=9))
    running.seal(history(9))
    (store / "ddl-none" / ".soak").mkdir()
    (store / "ddl-none" / ".soak" / "s-1.case.json").write_bytes(Case(seed=1).encode())

    found = lake_of_store(store)

    assert states_of(found.uri) == {
        "ddl-kill/r1": "finished",
        "ddl-none/damaged": "damaged",
        "ddl-none/foreign": "foreign",
        "ddl-none/logged": "torn",
        "ddl-none/r2": "finished",
        "ddl-none/r3": "finished",
        "ddl-none/torn": "torn",
    }
    assert [(problem.run, problem.kind) for problem in found.problems.kept] == [
        ("ddl-none/empty", "history"),
        ("ddl-none/notes", "case"),
        ("ddl-none/running", RUNNING),
        ("ddl-none/s-1", SEED_WITHOUT_RUN),
    ]
    rows = rows_of(found.uri)
    for state in ("torn", "damaged", "foreign"):
        row = rows[f"ddl-none/{state}"]
        assert (row["verdict"], row["finished"], row["signature"]) == (None, False, None)
    assert rows["ddl-none/foreign"]["digest"] == history(8).digest()
    assert "ddl-none/foreign" not in {
        run.partition("@")[0]
        for run in lake_at(found.uri).dataset("findings").to_table()["run"].to_pylist()
    }
    assert is_being_written(running.path)
    again = lake_of_store(store)
    assert again.problems.kept == found.problems.kept
    assert_whole(found.uri)


def test_a_torn_run_that_is_finished_after_all_takes_its_place(store):
    folder = RunFolder(store, "ddl-none", "r4")
    folder.write_case(Case(seed=4))
    log = folder.open_log()
    for op in [*history(4)][:4]:
        log.append(op)
    log.close()
    assert [problem.kind for problem in lake_of_store(store).problems.kept] == [RUNNING]
    del folder  # the run's lock is released, as at the end of the run's process
    uri = lake_of_store(store).uri
    assert states_of(uri)["ddl-none/r4"] == "torn"

    shutil.rmtree(store / "ddl-none" / "r4")
    keep_run(store, "ddl-none", "r4", Case(seed=4), history(4))
    lake_of_store(store)

    assert states_of(uri)["ddl-none/r4"] == "finished"
    assert lake_at(uri).snapshot().dataset("runs").count_rows() == 4
    assert_whole(uri)


@pytest.mark.parametrize("compacted", [False, True])
def test_runs_that_are_gone_leave_the_lake_and_others_stay_as_they_are(store, compacted):
    uri = lake_of_store(store).uri
    keep_run(store, "ddl-none", "r4", Case(seed=4), history(4))
    lake_of_store(store)
    if compacted:
        compact(lake_at(uri))
    before = {row["run"]: row["batch"] for row in rows_of(uri).values()}

    shutil.rmtree(store / "ddl-none" / "r2")
    shutil.rmtree(store / "ddl-kill")
    lake_of_store(store)

    after = {row["run"]: row["batch"] for row in rows_of(uri).values()}
    assert sorted(run[:11] for run in after) == ["ddl-none/r3", "ddl-none/r4"]
    assert after.items() <= before.items()
    assert_whole(uri)


def test_a_run_comes_back_under_the_same_key(store, tmp_path):
    uri = lake_of_store(store).uri
    before = rows_of(uri)["ddl-none/r2"]
    shutil.move(store / "ddl-none" / "r2", tmp_path / "r2")
    lake_of_store(store)
    assert "ddl-none/r2" not in rows_of(uri)

    shutil.move(tmp_path / "r2", store / "ddl-none" / "r2")
    lake_of_store(store)

    after = rows_of(uri)["ddl-none/r2"]
    assert after["run"] == before["run"]
    assert after["batch"] != before["batch"]
    assert_whole(uri)


def test_a_verdict_that_changed_is_read_again(store, read):
    uri = lake_of_store(store).uri
    path = store / "ddl-none" / "r2" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "verdict": "unknown"}))
    read.clear()

    lake_of_store(store)

    assert read == ["r2"]
    assert rows_of(uri)["ddl-none/r2"]["verdict"] == "unknown"
    assert_whole(uri)


def test_a_run_that_can_no_longer_be_read_leaves_the_lake_and_is_named(store):
    lake_of_store(store)
    path = store / "ddl-none" / "r2" / "history.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])

    found = lake_of_store(store)

    assert [(problem.run, problem.kind) for problem in found.problems.kept] == [
        ("ddl-none/r2", "history")
    ]
    assert [*rows_of(found.uri)] == ["ddl-kill/r1", "ddl-none/r3"]

    path.write_bytes(whole)

    assert lake_of_store(store).problems.total == 0
    assert "ddl-none/r2" in rows_of(found.uri)
    assert_whole(found.uri)


def test_files_that_were_written_again_as_they_were_change_nothing(store, read):
    uri = lake_of_store(store).uri
    version = lake_at(uri).snapshot().version
    for path in store.glob("*/*/*.json"):
        path.touch()
    read.clear()

    lake_of_store(store)

    assert read == []
    assert lake_at(uri).snapshot().version == version


def test_without_the_memo_no_run_is_appended_again(store, read):
    uri = lake_of_store(store).uri
    (store / LAKE_FOLDER / MEMO).write_text("[")
    shutil.rmtree(store / "ddl-kill")
    read.clear()

    lake_of_store(store)

    assert read == []
    assert [*rows_of(uri)] == ["ddl-none/r2", "ddl-none/r3"]


@pytest.mark.parametrize("table", ["runs", "operations"])
def test_a_removal_that_was_cut_short_is_completed(store, tmp_path, monkeypatch, table):
    uri = lake_of_store(store).uri
    shutil.move(store / "ddl-none" / "r2", tmp_path / "r2")
    rewrite = removal.rewrite

    def cut_short(lake, version, name, *rest, **more):
        done = rewrite(lake, version, name, *rest, **more)
        if name == table:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(removal, "rewrite", cut_short)
    with pytest.raises(KeyboardInterrupt):
        lake_of_store(store)
    monkeypatch.undo()
    shutil.move(tmp_path / "r2", store / "ddl-none" / "r2")
    lake_of_store(store)

    assert [*rows_of(uri)] == ["ddl-kill/r1", "ddl-none/r2", "ddl-none/r3"]
    assert_whole(uri)


def test_a_reader_keeps_its_version_while_runs_are_removed(store):
    uri = lake_of_store(store).uri
    snapshot = lake_at(uri).snapshot()
    shutil.rmtree(store / "ddl-none")

    lake_of_store(store)

    assert snapshot.dataset("operations").count_rows() == 9
    assert lake_at(uri).dataset("operations").count_rows() == 3


def test_many_small_files_are_merged(store, monkeypatch):
    monkeypatch.setattr(store_lake, "SMALL_FILES_MAX", 2)
    for number in range(4, 8):
        uri = lake_of_store(store).uri
        keep_run(store, "ddl-none", f"r{number}", Case(seed=number), history(number))
    lake_of_store(store)

    assert len(lake_at(uri).files("runs")) <= 3
    assert len(rows_of(uri)) == 7
    assert_whole(uri)


def test_reports_of_one_store_at_the_same_time(store):
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lake_of_store, [store] * 4)]

    assert {each.uri for each in found} == {str(store / LAKE_FOLDER)}
    assert len(rows_of(store / LAKE_FOLDER)) == 3
    assert_whole(store / LAKE_FOLDER)


@pytest.mark.parametrize("gone", [False, True])
def test_without_locks_the_protocol_keeps_every_run_once(store, monkeypatch, gone):
    monkeypatch.setattr(store_lake.fcntl, "flock", refuse_lock)
    if gone:
        lake_of_store(store)
        shutil.rmtree(store / "ddl-kill")
        keep_run(store, "ddl-none", "r4", Case(seed=4), history(4))
    whole = store_lake.ingest_folders

    def late(*words, **more):
        monkeypatch.setattr(store_lake, "ingest_folders", whole)
        lake_of_store(store)
        return whole(*words, **more)

    monkeypatch.setattr(store_lake, "ingest_folders", late)

    uri = lake_of_store(store).uri

    assert len(rows_of(uri)) == 3
    assert_whole(uri)


def refuse_lock(*_):
    raise OSError(37, "No locks available")


def test_a_user_without_rights_gets_the_lake_in_the_cache(store, tmp_path):
    (tmp_path / "link").symlink_to(store)
    begin = "from tests.support.unprivileged import renounce_capabilities; renounce_capabilities()"
    with refusing(store, 0o555):
        done, again = (
            update_in_a_process(begin, place, XDG_CACHE_HOME=str(tmp_path))
            for place in (store, tmp_path / "link")
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/catalog-harness/lakes/")
    assert len(rows_of(done.stdout.strip())) == 3
    assert not (store / LAKE_FOLDER).exists()
    assert again.stdout == done.stdout


def update_in_a_process(begin, store, **env):
    """Run statements and then `lake_of_store` in a new process, which prints the lake's URI."""
    code = (
        f"{begin}\nimport pathlib, sys\n"
        "from results.lake.transfer.store_lake import lake_of_store\n"
        "print(lake_of_store(pathlib.Path(sys.argv[1])).uri)"
    )
    return run_program(sys.executable, "-c", code, store, cwd=ROOT, **env)


def test_a_path_that_no_lake_can_have_is_no_hindrance(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = tmp_path / "a%20b"
    keep_run(store, "ddl", "r1", Case(seed=1), history(1))

    assert [*rows_of(lake_of_store(store).uri)] == ["ddl/r1"]


def test_an_older_lake_is_made_again(store, capsys):
    uri = lake_of_store(store).uri
    for table in schemas():
        deltalake.DeltaTable(f"{uri}/{table}").alter.set_table_properties(
            {SCHEMA: str(SCHEMA_VERSION - 1)}, raise_if_not_exists=False
        )
    batches = {row["batch"] for row in map(dict, deltalake_rows(uri))}

    lake_of_store(store)

    assert "older release" in capsys.readouterr().err
    assert len(rows_of(uri)) == 3
    assert not batches & {row["batch"] for row in rows_of(uri).values()}


def deltalake_rows(uri):
    return deltalake.DeltaTable(f"{uri}/runs").to_pyarrow_table().to_pylist()


def newer(lake):
    deltalake.DeltaTable(str(lake / "runs")).alter.set_table_properties(
        {SCHEMA: str(SCHEMA_VERSION + 1)}, raise_if_not_exists=False
    )


def torn_log(lake):
    for path in (lake / "runs" / "_delta_log").glob("*.json"):
        path.write_text("{")


def no_parquet(lake):
    for path in (lake / "runs").glob("*.parquet"):
        path.write_bytes(b"PAR1")


@pytest.mark.parametrize(
    "harm", [newer, torn_log, no_parquet, lambda lake: shutil.rmtree(lake / "operations")]
)
def test_a_damaged_lake_is_one_line_that_says_what_to_remove(store, harm):
    uri = lake_of_store(store).uri
    harm(store / LAKE_FOLDER)

    with pytest.raises((UsageError, InfrastructureError)) as raised:
        lake_of_store(store)

    text = str(raised.value)
    assert f"remove {uri}" in text
    assert "\n" not in text
    shutil.rmtree(uri)
    assert len(rows_of(lake_of_store(store).uri)) == 3


def test_a_file_in_the_place_of_the_lake_is_named(store):
    (store / LAKE_FOLDER).touch()
    with pytest.raises(UsageError, match="not a folder; remove it"):
        lake_of_store(store)


def test_a_full_disk_is_named_and_does_not_blame_the_lake(store, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("results.lake.log.location.Place._filesystem", full)
    with pytest.raises(HarnessError, match="no space is left") as raised:
        lake_of_store(store)
    assert "remove" not in str(raised.value)


NO_LARGE_LIBRARIES = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {"duckdb", "numba", "pandas", "pyspark", "scipy"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""


def test_an_update_needs_neither_duckdb_nor_pandas(store):
    done = update_in_a_process(NO_LARGE_LIBRARIES, store)
    assert done.returncode == 0, done.stderr
    assert len(rows_of(store / LAKE_FOLDER)) == 3


def test_an_empty_history_is_a_run(tmp_path):
    keep_run(tmp_path, "ddl", "r1", Case(seed=1), History([]))
    assert [*rows_of(lake_of_store(tmp_path).uri)] == ["ddl/r1"]
