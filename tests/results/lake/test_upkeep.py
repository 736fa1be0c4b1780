"""Lakes are compacted, vacuumed and checked, also from the command line."""

import dataclasses
import datetime as dt
import random
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cli import main
from harness.errors import UsageError
from results.judging.result_lake import ResultLake, result_schema
from results.lake.log import run_streams
from results.lake.log.files import KEY, MAIN, FileRef, batch_of
from results.lake.log.lake import Lake
from results.lake.log.row_files import write_parts
from results.lake.upkeep import compaction
from results.lake.upkeep.compaction import compact, planned
from results.lake.upkeep.soundness import check
from results.lake.upkeep.vacuum import vacuum
from tests.results.lake.toy import SCHEMAS, contents, damage, lake_at, operations_of, rows

pytestmark = pytest.mark.lake

RUNS = [f"r{number:02}" for number in range(12)]


class KilledError(BaseException):
    """The process was killed."""


def killed(*_, **__):
    raise KilledError


@pytest.fixture
def uri(tmp_path):
    """Build a lake by twelve appends in two partitions."""
    lake = lake_at(tmp_path / "lake")
    for number, run in enumerate(RUNS):
        lake.append(rows([run, f"{run}x"], label="odd" if number % 2 else None))
    return str(tmp_path / "lake")


ALL = {name for run in RUNS for name in (run, f"{run}x")}


def abandoned(uri, runs):
    """Kill a writer before it commits to `runs`; return its batch."""
    lake = lake_at(uri)
    lake.main.commit = killed
    with pytest.raises(KilledError):
        lake.append(rows(runs))
    names = lake.logs["operations"].refresh().files
    visible = {file.name for file in lake.files("operations")}
    (left,) = [name for name in names if name not in visible]
    return batch_of(left)


def test_a_compaction_leaves_one_file_a_partition_and_every_row(uri):
    lake, other = lake_at(uri), lake_at(uri)
    before = other.snapshot()
    done = {item.table: item for item in compact(lake)}
    assert {item.files_before for item in done.values()} == {12}
    assert {item.files_after for item in done.values()} == {2}
    assert done["operations"].bytes_after < done["operations"].bytes_before
    assert contents(lake) == contents(other) == ALL
    assert before.dataset("operations").count_rows() == sum(map(operations_of, ALL))
    assert [item.files_after for item in compact(lake)] == [2, 2, 2]
    for file in lake.files("operations"):
        runs = pq.read_table(file.uri)["run"].to_pylist()
        assert runs == sorted(runs)


def test_a_merged_file_is_in_the_order_of_its_runs_however_little_fits_into_memory(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(compaction, "PART_BYTES", 1)
    monkeypatch.setattr(run_streams, "ROWS_AT_ONCE", 3)
    lake = lake_at(tmp_path / "lake")
    lake.append(rows(RUNS[0::2]))
    lake.append(rows(RUNS[1::2]))
    compact(lake)
    for table in ("runs", "operations"):
        (file,) = lake.files(table)
        runs = pq.read_table(file.uri)["run"].to_pylist()
        assert runs == sorted(runs)
    assert contents(lake) == set(RUNS)


@pytest.mark.parametrize("rows_at_once", [1, 3, 8_192])
@pytest.mark.parametrize("seed", range(6))
def test_merged_rows_are_all_rows_by_run_and_of_a_run_those_of_earlier_files_first(
    tmp_path, monkeypatch, rows_at_once, seed
):
    monkeypatch.setattr(run_streams, "ROWS_AT_ONCE", rows_at_once)
    draw = random.Random(seed)
    results = ResultLake.beside(str(tmp_path / "lake"), {}, create=True)
    layout, main = result_schema("infos"), result_schema(MAIN)
    for append in range(draw.randint(2, 5)):
        first, last = sorted(draw.choices(range(9), k=2))
        runs = sorted(f"r{draw.randint(first, last)}" for _ in range(draw.randint(1, 20)))
        columns = {name: pa.nulls(len(runs), layout.field(name).type) for name in layout.names}
        columns[KEY] = pa.array(runs)
        columns["result_id"] = pa.array([f"{append}-{number}" for number in range(len(runs))])
        whole = pa.table(columns, schema=layout)
        listed = {name: pa.nulls(len(set(runs)), main.field(name).type) for name in main.names}
        listed[KEY] = pa.array(sorted(set(runs)))
        results.append({MAIN: pa.table(listed, schema=main), "infos": whole})
    group = sorted(results.files("infos"), key=lambda file: (file.first_run, file.name))
    found = [row for part in compaction.merged_rows(results, group)
             for row in part.to_pylist()]  # fmt: skip
    every = [row for file in group for row in pq.read_table(file.uri).to_pylist()]
    names = (KEY, "result_id")
    assert [[row[name] for name in names] for row in found] == [
        [row[name] for name in names] for row in sorted(every, key=lambda row: row[KEY])
    ]


def file_of(number, size_bytes, partition=("kudu", "nightly", None)):
    return FileRef(
        table="runs", name=f"f{number}", uri="", size_bytes=size_bytes, rows=1,
        partition=partition, first_run=f"r{number}", last_run=f"r{number}", modified_ms=0,
    )  # fmt: skip


def test_plans_keep_within_the_sizes_and_partitions():
    other = ("kudu", "nightly", dt.date(2026, 1, 1))
    sizes = [40, 10, 30, 30, 30, 99, 5]
    files = [file_of(number, size) for number, size in enumerate(sizes)]
    files += [file_of(8, 1, other), file_of(9, 2, other), file_of(7, 1, ("etcd", None, None))]
    groups = [[file.name for file in group] for group in planned(files, 50, 80)]
    assert groups == [["f0", "f1", "f2"], ["f3", "f4", "f6"], ["f8", "f9"]]


def compacts(other):
    compact(other)


def vacuums(other):
    assert len(vacuum(other, grace_hours=0).deleted) == 1


@pytest.mark.parametrize(("meanwhile", "abandoned_"), [(compacts, 2), (vacuums, 1)])
def test_a_compaction_that_another_or_a_vacuum_overtook_is_abandoned(uri, meanwhile, abandoned_):
    lake, other = lake_at(uri), lake_at(uri)
    commit = lake.logs["operations"].commit

    def late(*args, **options):
        lake.logs["operations"].commit = commit
        meanwhile(other)
        return commit(*args, **options)

    lake.logs["operations"].commit = late
    done = {item.table: item.abandoned for item in compact(lake)}
    assert done["operations"] == abandoned_
    if meanwhile is compacts:
        assert (done["faults"], done["runs"]) == (0, 0)
    assert contents(lake) == ALL
    assert damage(lake) == []


def test_leftovers_of_dead_writers_go_after_the_grace_period(uri):
    batch = abandoned(uri, ["lost"])
    lake = lake_at(uri)
    assert contents(lake) == ALL
    assert [finding.damaged for finding in check(lake)] == [False] * 3
    assert vacuum(lake, grace_hours=1) == ((), (), ())
    planned_ = vacuum(lake, grace_hours=0, dry_run=True)
    assert planned_.fenced == (batch,)
    assert vacuum(lake, grace_hours=0) == planned_
    vacuum(lake, grace_hours=0)
    assert check(lake) == []
    assert vacuum(lake, grace_hours=0) == ((), (), ())
    assert contents(lake) == ALL
    lake.append(rows(["lost"]))
    assert contents(lake) == {*ALL, "lost"}


@pytest.mark.parametrize("moment", ["upload", "commit"])
def test_a_writer_that_slept_through_a_vacuum_begins_again(uri, moment):
    lake, other = lake_at(uri), lake_at(uri)
    log = lake.logs["operations"] if moment == "upload" else lake.main
    commit = log.commit

    def late(*args, **options):
        log.commit = commit
        assert len(vacuum(other, grace_hours=0).fenced) == 1
        return commit(*args, **options)

    log.commit = late
    assert lake.append(rows(["r00", "slow"], label=None)) == ["r00"]
    assert contents(lake) == {*ALL, "slow"}
    assert damage(lake) == []
    vacuum(other, grace_hours=0)
    vacuum(other, grace_hours=0)
    assert check(other) == []


def test_files_that_a_compaction_replaced_stay_for_readers_of_old_versions(uri):
    lake = lake_at(uri)
    old = lake.snapshot()
    compact(lake)
    assert vacuum(lake, grace_hours=1).deleted == ()
    assert old.dataset("operations").count_rows() == sum(map(operations_of, ALL))
    assert len(vacuum(lake, grace_hours=0).deleted) == 36
    assert contents(lake) == ALL


def test_a_vacuum_leaves_files_that_are_not_ours(uri, tmp_path):
    strange = tmp_path / "lake" / "runs" / "notes.txt"
    strange.touch()
    vacuum(lake_at(uri), grace_hours=0)
    assert strange.exists()
    with pytest.raises(UsageError, match="-1 hours"):
        vacuum(lake_at(uri), grace_hours=-1)


def uploads_otherwise(monkeypatch, change):
    """Let appends store the rows of each table as `change` modifies them."""

    def upload(lake, buffer, table):
        (partition,) = {*buffer.partitions.values()}
        rows = change(table, buffer.files()[table].table())
        new = (lake.place, table, buffer.new_name(), lake.schemas[table])
        return write_parts(*new, iter([rows]), partition)

    monkeypatch.setattr(Lake, "_upload", upload)


def other_batch(table, part):
    index = part.schema.get_field_index("batch")
    if table != "operations":
        return part
    return part.set_column(index, "batch", part["run"])


def without_runs(table, part):
    return part.slice(1) if table == "runs" else part


def twice(table, part):
    import pyarrow as pa

    return pa.concat_tables([part, part]) if table == "runs" else part


@pytest.mark.parametrize("change", [other_batch, without_runs, twice])
def test_check_finds_rows_that_do_not_fit(uri, monkeypatch, change):
    lake = lake_at(uri)
    assert damage(lake) == []
    uploads_otherwise(monkeypatch, change)
    lake.append(rows(["bad1", "bad2"]))
    assert damage(lake) != []


def test_the_verb(uri, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("results.lake.actions.Lake", SimpleNamespace(open=lake_at))
    abandoned(uri, ["lost"])
    assert main(["lake", "check", uri]) == 0
    assert "sound  24 runs" in capsys.readouterr().out
    assert main(["lake", "compact", uri]) == 0
    assert "operations   12 files" in capsys.readouterr().out
    assert main(["lake", "vacuum", uri, "--grace-hours", "0"]) == 0
    assert "1 batch of dead writers" in capsys.readouterr().out
    (tmp_path / "lake" / "runs" / lake_at(uri).files("runs")[0].name).unlink()
    assert main(["lake", "check", uri]) == 1
    assert "damaged" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["lake", "check", "none"], ["lake"], ["lake", "mend", "x"], ["lake", "check", ""]]
)
def test_the_verb_refuses(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 254
    assert len(capsys.readouterr().err.splitlines()) == 1


def backwards(part):
    return part.take(list(range(len(part)))[::-1])


def scattered(part):
    """Move the first row to the end, so that other rows separate it from its run."""
    return part.take([*range(1, len(part)), 0])


@pytest.mark.parametrize(
    ("table", "spoil"),
    [*((table, backwards) for table in SCHEMAS), ("operations", scattered), ("faults", scattered)],
)
def test_check_finds_a_file_whose_runs_are_out_of_order(tmp_path, monkeypatch, table, spoil):
    lake = lake_at(tmp_path / "lake")
    lake.append(rows([f"r{index}" for index in range(6)]))
    assert damage(lake) == []
    uploads_otherwise(monkeypatch, lambda name, part: spoil(part) if name == table else part)
    lake.append(rows(["s1", "s2"]))
    (finding,) = damage(lake)
    assert (finding.table, "out of their order" in finding.text) == (table, True)


def test_check_finds_a_run_that_spans_two_files(tmp_path):
    assert operations_of("r1") > 1
    lake = lake_at(tmp_path / "lake")
    lake.append(rows(["r1", "r2"]))
    log, schema = lake.logs["operations"], lake.schemas["operations"]
    ((name, file),) = log.refresh().files.items()
    whole = pq.read_table(tmp_path / "lake" / "operations" / name, partitioning=None)
    halves = [
        write_parts(
            lake.place,
            "operations",
            f"b-{file.batch}-{9 + number}.parquet",
            schema,
            iter([part]),
            file.partition,
        )
        for number, part in enumerate([whole.slice(0, 1), whole.slice(1)])
    ]
    log.commit(schema, add=halves, remove=[file], exact=True)
    (finding,) = damage(lake)
    assert finding.table == "operations"
    assert "1 run in two files" in finding.text
    assert "r1" in finding.text


def test_check_finds_runs_that_the_log_has_out_of_bounds(tmp_path, monkeypatch):
    lake = lake_at(tmp_path / "lake")
    upload = Lake._upload

    def upload_and_lie(lake, buffer, table):
        addition = upload(lake, buffer, table)
        said = addition.statistics.replace('"run":"r3"', '"run":"r2"')
        return dataclasses.replace(addition, statistics=said)

    monkeypatch.setattr(Lake, "_upload", upload_and_lie)
    lake.append(rows(["r1", "r2", "r3"]))
    found = damage(lake)
    assert {finding.table for finding in found} == set(SCHEMAS)
    assert all("outside its range in the log: r3" in finding.text for finding in found)
