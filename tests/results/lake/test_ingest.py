"""Stores are ingested into a lake; known, unfinished and broken runs are reported."""

import json
import os
import shutil

import msgspec
import pyarrow as pa
import pytest

from harness.case import Case
from harness.errors import EXIT_UNKNOWN, EXIT_VALID, InfrastructureError, UsageError
from harness.ops import CheckResult, History, Op, OpType, Verdict
from harness.store import load_run
from harness.verdict.signature import Failure
from results.lake.log.files import BATCH
from results.lake.log.lake import Lake
from results.lake.tables.schema import schemas
from results.lake.tables.sealed_run import read_source
from results.lake.transfer.ingest import ingest
from results.lake.transfer.ingest_verb import main as ingest_verb
from results.lake.verb import main as lake_verb
from results.run.page.summary import about, facts_of_case
from tests.support.run_folders import keep_run

pytestmark = pytest.mark.lake


def history(seed, ops=3):
    """Build answered operations of one client, each with a value `[key, value]`."""
    lines = []
    for number in range(ops):
        value = [f"k{number % 2}", {"name": f"t{seed}"}]
        answer = [value[0], {"result": "ok", "revision": number}]
        lines.append(Op(2 * number, number * 10, 0, OpType.INVOKE, "get", value))
        lines.append(Op(2 * number + 1, number * 10 + seed, 0, OpType.OK, "get", answer))
    return History(lines)


FAILURE = Failure("crash", "m1 crashed", "crash · exit")
FINDING = CheckResult("crash", Verdict.INVALID, "m1 crashed", (), (2,), {"rule": "exit"})


@pytest.fixture(name="store")
def store_fixture(tmp_path):
    """Build a store of a valid, a labelled, a failed (with a log) and an unfinished run."""
    store = tmp_path / "store"
    keep_run(store, "ddl-none", "r1", Case(seed=1), history(1))
    keep_run(store, "ddl-none", "r2", Case(seed=2), history(2), label="v1")
    folder = keep_run(
        store, "ddl-kill", "r3", Case(seed=3), history(3), [FINDING],
        verdict=Verdict.INVALID, failure=FAILURE,
    )  # fmt: skip
    (folder / "logs").mkdir()
    (folder / "logs" / "m1.log").write_text("I crashed")
    keep_run(store, "ddl-kill", "r4", Case(seed=4), history(4), finished=False)
    return store


def declared(seed, name):
    options = {"system": "[client]\n", **({} if name is None else {"system_name": name})}
    return Case(seed=seed, target="declared", target_options=options)


def test_a_declared_system_has_its_own_name_in_tables_and_on_pages(tmp_path):
    store = tmp_path / "store"
    for seed, name in enumerate(["shop", "bank", None], start=1):
        keep_run(store, "register-none", f"r{seed}", declared(seed, name), history(seed))

    assert ingest_verb([str(store), "--lake", str(tmp_path / "lake")]) == 0

    assert column(opened(tmp_path / "lake"), "runs", "target") == ["bank", "declared", "shop"]
    run = load_run(store / "register-none" / "r1")
    assert about(run).startswith("shop/strict")
    facts = dict(facts_of_case(run))
    assert facts["target"] == "shop, profile strict"
    assert facts["target options"] == "system_name shop"


def opened(uri):
    return Lake.open(str(uri))


def column(lake, table, name):
    return sorted(lake.dataset(table).to_table([name])[name].to_pylist())


def test_a_store_goes_in_once_and_comes_out_equal(store, tmp_path, capsys):
    uri = tmp_path / "lake"

    assert ingest_verb([str(store), "--lake", str(uri)]) == EXIT_VALID
    assert "3 runs appended, 0 known, 1 not finished" in capsys.readouterr().out
    assert ingest_verb([str(store), "--lake", str(uri), "--unfinished"]) == EXIT_VALID
    assert "1 run appended, 3 known" in capsys.readouterr().out
    assert column(opened(uri), "runs", "id") == ["r1", "r2", "r3", "r4"]
    assert column(opened(uri), "findings", "index") == [2]

    again = tmp_path / "again"
    assert lake_verb(["export", str(uri), "--store", str(again)]) == EXIT_VALID
    for before in store.glob("*/r?"):
        old, new = load_run(before), load_run(again / before.relative_to(store))
        assert (new.case, new.record, new.history) == (old.case, old.record, old.history)
        assert (before / "history").exists() == (new.folder / "history").exists()
    assert (again / "ddl-kill/r3/logs/m1.log").read_text() == "I crashed"
    assert (again / "ddl-kill/r3/results.json").exists()

    assert ingest_verb([str(again), "--lake", str(uri), "--unfinished"]) == EXIT_VALID
    assert "0 runs appended, 4 known" in capsys.readouterr().out


def test_only_folders_of_runs_that_are_not_valid_are_kept(store, tmp_path):
    uri = tmp_path / "lake"
    ingest_verb([str(store), "--lake", str(uri)])

    rows = opened(uri).dataset("runs").to_table(["id", "folder"]).to_pylist()

    assert {row["id"] for row in rows if row["folder"] is not None} == {"r3"}
    (kept,) = (row["folder"] for row in rows if row["folder"] is not None)
    assert sorted(path.name for path in (uri / kept).iterdir()) == [
        "case.json", "logs", "results.json", "run.json",
    ]  # fmt: skip


def test_export_takes_runs_and_labels_and_refuses_unknown_ones(store, tmp_path):
    uri = str(tmp_path / "lake")
    ingest_verb([str(store), "--lake", uri])

    lake_verb(["export", uri, "--store", str(tmp_path / "a"), "--label", "v1"])
    assert [path.name for path in (tmp_path / "a").glob("*/*")] == ["r2"]
    (key,) = (key for key in column(opened(uri), "runs", "run") if "r3" in key)
    lake_verb(["export", uri, "--store", str(tmp_path / "b"), "--run", key])
    assert [path.name for path in (tmp_path / "b").glob("*/*")] == ["r3"]
    with pytest.raises(UsageError, match="nope"):
        lake_verb(["export", uri, "--store", str(tmp_path / "c"), "--run", "nope"])


def test_another_run_of_the_same_id_is_not_written_over(store, tmp_path, capsys):
    uri, other = str(tmp_path / "lake"), tmp_path / "other"
    ingest_verb([str(store), "--lake", uri])
    keep_run(other, "ddl-none", "r1", Case(seed=1), history(7))

    assert lake_verb(["export", uri, "--store", str(other)]) == EXIT_UNKNOWN
    assert "holds another run of this id" in capsys.readouterr().err
    assert load_run(other / "ddl-none/r1").history == history(7)
    ingest_verb([str(other), "--lake", uri])
    assert column(opened(uri), "runs", "id") == ["r1", "r1", "r2", "r3"]


def test_a_lake_within_the_store_would_be_taken_for_runs(store, monkeypatch):
    monkeypatch.chdir(store.parent)
    with pytest.raises(UsageError, match="keep lake and store apart"):
        ingest_verb(["store", "--lake", "store/lake"])
    assert not (store / "lake").exists()


@pytest.mark.parametrize("other", [{"label": "v2"}, {"started": "2026-01-02T00:00:00+00:00"}])
def test_the_same_history_of_another_label_or_day_is_another_run(tmp_path, capsys, other):
    uri = str(tmp_path / "lake")
    for store, fields in (("a", {}), ("b", {**other, "verdict": Verdict.UNKNOWN})):
        keep_run(tmp_path / store, "ddl", "r", Case(seed=1), history(1), **fields)
        ingest_verb([str(tmp_path / store), "--lake", uri])

    assert lake_verb(["export", uri, "--store", str(tmp_path / "again")]) == EXIT_UNKNOWN

    output = capsys.readouterr()
    assert "1 run written" in output.out
    assert "0 already there" in output.out
    assert "holds another run of this id" in output.err


def record_with(folder, **fields):
    changed_in(folder / "run.json", **fields)


def changed_in(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda run: (run / "history.parquet").write_bytes(b"PAR1"), "not a readable Parquet"),
        (lambda run: (run / "history.parquet").unlink(), "holds neither"),
        (lambda run: (run / "run.json").write_text("{"), "run.json"),
        (lambda run: (run / "case.json").write_text("{"), "not a valid case file"),
        (lambda run: record_with(run, started="yesterday"), "started is 'yesterday'"),
        (lambda run: record_with(run, started="0001-01-01T00:00:00+12:00"), "started is '0001"),
        (lambda run: record_with(run, label=""), "the label is ''"),
        (lambda run: record_with(run, digest="0" * 64), "is not the one that run.json describes"),
        (lambda run: changed_in(run / "case.json", schema=99), "schema 99"),
    ],
)
def test_unreadable_runs_are_named_and_others_are_ingested(store, tmp_path, capsys, spoil, said):
    spoil(store / "ddl-none" / "r1")

    assert ingest_verb([str(store), "--lake", str(tmp_path / "lake")]) == EXIT_UNKNOWN

    output = capsys.readouterr()
    assert "ddl-none/r1" in output.err
    assert said in output.err
    assert "2 runs appended" in output.out
    assert column(opened(tmp_path / "lake"), "runs", "id") == ["r2", "r3"]


def test_numbers_that_no_column_holds_and_names_of_any_bytes_are_named(store, tmp_path, capsys):
    far = msgspec.structs.replace(FINDING, operations=(1 << 70,))
    (store / "ddl-kill" / "r3" / "results.json").write_bytes(
        msgspec.json.encode({"checkers": [far]})
    )
    shutil.copytree(store / "ddl-none" / "r1", store / "ddl-none" / os.fsdecode(b"r\xff"))

    assert ingest_verb([str(store), "--lake", str(tmp_path / "lake")]) == EXIT_UNKNOWN

    output = capsys.readouterr()
    assert "fits no column of findings" in output.err
    assert "ddl-none: holds a folder whose name is not UTF-8, 'r\\udcff'" in output.err
    assert "2 runs appended" in output.out


def test_ids_with_an_at_sign_come_in_the_order_of_their_keys(tmp_path, monkeypatch):
    monkeypatch.setattr("results.lake.transfer.ingest.RUNS_AT_ONCE", 1)
    store, uri = tmp_path / "store", tmp_path / "lake"
    for number in range(3, -1, -1):
        keep_run(store, "ddl", "r", Case(seed=number), history(number))
        if number:
            (store / "ddl" / "r").rename(store / "ddl" / ("r" + number * "@1"))

    ingest_verb([str(store), "--lake", str(uri)])

    lake = opened(uri)
    for file in lake.files("operations"):
        runs = pa.parquet.read_table(file.uri, partitioning=None)["run"].to_pylist()
        assert runs == sorted(runs)
    assert len(column(lake, "runs", "run")) == 4


def test_no_store_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        ingest_verb([str(tmp_path / "none"), "--lake", str(tmp_path / "lake")])


def refuse(name, content):
    """Fail every write, like a storage without rights or space."""
    raise InfrastructureError(f"cannot write {name}")


class Sink:
    """A fake lake that keeps appended rows; its first append may fail with an error."""

    def __init__(self, appends_max=1000):
        self.appended = []
        self.appends_max = appends_max

    def known(self):
        return {key for rows in self.appended for key in rows["runs"]["run"].to_pylist()}

    def append(self, buffer):
        if len(self.appended) >= self.appends_max:
            raise KeyboardInterrupt
        rows = {name: file.table().drop_columns([BATCH]) for name, file in buffer.files().items()}
        assert all(table.schema == schemas()[name] for name, table in rows.items())
        self.appended.append(rows)
        return []


def large_store(store):
    for number in range(12):
        keep_run(store, "ddl", f"r{number:02}", Case(seed=number), history(number, ops=20))
    return store


def test_an_append_ends_where_a_file_is_large_enough(tmp_path, monkeypatch):
    sink = Sink()

    monkeypatch.setattr("results.lake.transfer.ingest.RUNS_AT_ONCE", 2)

    found, problems = ingest(large_store(tmp_path), sink, refuse, append_bytes=1_000)

    assert (found.appended, problems.total) == (12, 0)
    assert 1 < found.appends < 12
    for rows in sink.appended:
        own = set(rows["runs"]["run"].to_pylist())
        assert set(rows["operations"]["run"].to_pylist()) == own


def test_memory_is_bounded_over_all_partitions(tmp_path, monkeypatch):
    for number in range(12):
        keep_run(
            tmp_path, "ddl", f"r{number:02}", Case(seed=number), history(number), label=f"v{number}"
        )
    few = read_source(tmp_path / "ddl" / "r00").table.nbytes * 9 // 2
    monkeypatch.setattr("results.lake.transfer.ingest.HELD_BYTES_MAX", few)
    looked, at = [], []

    class Noting(Sink):
        def append(self, buffer):
            at.append(looked[-1])
            return super().append(buffer)

    ingest(tmp_path, Noting(), refuse, progress=lambda found: looked.append(found.looked))

    assert (at[0], at[-1], len(at)) == (5, 12, 12)


def test_an_ingest_that_was_stopped_goes_on(tmp_path, monkeypatch):
    store, first = large_store(tmp_path), Sink(appends_max=1)
    monkeypatch.setattr("results.lake.transfer.ingest.RUNS_AT_ONCE", 2)
    with pytest.raises(KeyboardInterrupt):
        ingest(store, first, refuse, append_bytes=1_000)
    kept = len(first.known())
    assert 0 < kept < 12

    first.appends_max = 1000
    found, _ = ingest(store, first, refuse)

    assert (found.present, found.appended) == (kept, 12 - kept)
    keys = [key for rows in first.appended for key in rows["runs"]["run"].to_pylist()]
    assert len(keys) == len(set(keys)) == 12


def test_one_bad_history_does_not_keep_the_others_of_its_batch_out(tmp_path):
    store = large_store(tmp_path)
    bad = History([Op(0, 0, 0, OpType.INVOKE, "get"), Op(1, 1, 0, OpType.OK, "get")])
    folder = keep_run(store, "ddl", "bad", Case(seed=99), bad)
    table = pa.parquet.read_table(folder / "history.parquet", partitioning=None)
    twice = pa.concat_tables([table, table]).replace_schema_metadata(
        {**table.schema.metadata, b"harness.n_ops": b"4"}
    )
    pa.parquet.write_table(twice, folder / "history.parquet", write_page_checksum=True)

    found, problems = ingest(store, Sink(), refuse)

    assert found.appended == 12
    assert [problem.run for problem in problems.kept] == ["ddl/bad"]


def test_runs_of_several_partitions_are_appended_apart(tmp_path):
    store, sink = tmp_path, Sink()
    for number, label in enumerate(["v1", "v2", None, "v1"]):
        keep_run(store, "ddl", f"r{number}", Case(seed=number), history(number), label=label)

    ingest(store, sink, refuse)

    labels = [rows["runs"]["label"].to_pylist() for rows in sink.appended]
    assert sorted(map(str, labels)) == ["['v1', 'v1']", "['v2']", "[None]"]


def test_a_run_whose_folder_cannot_be_kept_ends_the_ingest_and_has_no_row(store):
    sink = Sink()

    with pytest.raises(InfrastructureError, match=r"folders/ddl-kill/r3@[0-9a-f]{12}$"):
        ingest(store, sink, refuse)
    assert sink.known() == set()


def test_links_out_of_a_folder_are_not_followed(store, tmp_path):
    (tmp_path / "secret").write_text("s")
    (store / "ddl-kill/r3/logs/link").symlink_to(tmp_path / "secret")
    kept = {}

    ingest(store, Sink(), kept.__setitem__)

    (files,) = kept.values()
    assert sorted(files) == ["case.json", "logs/m1.log", "results.json", "run.json"]


def test_a_run_that_lies_twice_in_a_store_goes_in_once(tmp_path):
    sink = Sink()
    folder = keep_run(tmp_path, "n", "r1", Case(seed=1), history(1))
    shutil.copytree(folder, tmp_path / "n" / "n" / "r1")

    found, _ = ingest(tmp_path / "n", sink, refuse)

    assert (found.appended, found.present) == (1, 1)
    assert len(sink.known()) == 1
