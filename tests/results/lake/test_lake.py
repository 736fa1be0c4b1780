"""A lake on local disks stores appended runs exactly once, and refuses other folders."""

import contextlib
import datetime as dt

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from harness.errors import InfrastructureError, InternalError, UsageError
from results.lake.log.append_buffer import AppendBuffer
from results.lake.log.files import coded_schema
from results.lake.log.lake import Lake
from results.lake.log.storage_errors import AgainError
from results.lake.upkeep.compaction import compact
from results.lake.upkeep.soundness import check
from tests.results.lake.toy import (
    DAY,
    HEAD,
    SCHEMAS,
    contents,
    damage,
    lake_at,
    operations_of,
    rows,
)

pytestmark = pytest.mark.lake


def test_appends_are_seen_by_all(tmp_path):
    lake = lake_at(tmp_path / "lake")
    assert lake.append(rows(["r2", "r1"])) == []
    assert lake.append(rows(["r3"], label=None, day=None)) == []
    other = Lake.open(str(tmp_path / "lake"), schemas=SCHEMAS, version=1)
    assert contents(other) == {"r1", "r2", "r3"}
    assert other.known() == {"r1", "r2", "r3"}
    assert other.known({"label": None}) == {"r3"}
    assert other.known({"label": "nightly", "day": DAY}) == {"r1", "r2"}
    assert damage(other) == []


def test_runs_that_are_there_are_left_out(tmp_path):
    lake = lake_at(tmp_path / "lake")
    lake.append(rows(["r1", "r2"]))
    assert lake.append(rows(["r0", "r1", "r3"])) == ["r1"]
    assert contents(lake) == {"r0", "r1", "r2", "r3"}
    assert lake.append(rows(["r0"])) == ["r0"]


def test_a_run_may_have_no_rows_in_other_tables(tmp_path):
    lake = lake_at(tmp_path / "lake")
    lake.append({"runs": rows(["r1"])["runs"]})
    assert lake.known() == {"r1"}
    assert lake.dataset("operations").count_rows() == 0
    assert damage(lake) == []


def test_partitions_and_runs_prune_files(tmp_path):
    lake = lake_at(tmp_path / "lake")
    for label in ("a b/é%", "001", None):
        lake.append(rows([f"{label}-1", f"{label}-2"], label=label))
    assert len(lake.files("operations")) == 3
    data = lake.dataset("operations")
    for condition in (
        ds.field("label") == "001",
        ds.field("run") == "None-1",
        ds.field("label").is_null(),
    ):
        assert len(list(data.get_fragments(filter=condition))) == 1
        assert data.to_table(filter=condition).num_rows > 0


def test_others_read_it_with_delta_and_with_the_list_of_files(tmp_path):
    from deltalake import DeltaTable

    lake = lake_at(tmp_path / "lake")
    lake.append(rows(["r1"], label="001"))
    lake.append(rows(["r2"], day=dt.date(2025, 1, 2)))
    table = DeltaTable(str(tmp_path / "lake" / "operations"))
    assert table.metadata().partition_columns == ["target", "label", "day"]
    found = table.to_pyarrow_dataset().to_table()
    ours = lake.dataset("operations").to_table().select(found.column_names)
    assert sorted(found.to_pylist(), key=str) == sorted(ours.to_pylist(), key=str)
    files = [file.uri for file in lake.files("operations")]
    answer = duckdb.execute(
        "select label, day, count(*) from read_parquet($1) group by all order by all", [files]
    ).fetchall()
    assert answer == [
        ("001", DAY, operations_of("r1")),
        ("nightly", dt.date(2025, 1, 2), operations_of("r2")),
    ]


def test_statistics_are_kept(tmp_path):
    from deltalake import DeltaTable

    lake = lake_at(tmp_path / "lake")
    lake.append(rows(["r1", "r2"]))
    lake.append(rows(["r3"]))
    compact(lake)
    actions = pa.table(
        DeltaTable(str(tmp_path / "lake" / "operations")).get_add_actions(flatten=True)
    )
    (row,) = actions.to_pylist()
    count = sum(map(operations_of, ["r1", "r2", "r3"]))
    assert (row["num_records"], row["min.run"], row["max.run"]) == (count, "r1", "r3")
    assert (row["min.index"], row["null_count.index"]) == (0, 0)
    main = pa.table(DeltaTable(str(tmp_path / "lake" / "runs")).get_add_actions(flatten=True))
    assert main["min.started"].to_pylist() == [dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)]


def test_invalid_rows_are_refused_and_nothing_is_appended(tmp_path):
    lake = lake_at(tmp_path / "lake")
    good = rows(["r1", "r2"])
    for bad in (
        {"operations": good["operations"]},
        {**good, "strange": good["runs"]},
        {**good, "runs": pa.concat_tables([good["runs"], good["runs"]])},
        {**good, "runs": good["runs"].slice(1)},
        {**good, "operations": rows(["r1"], label="other")["operations"]},
        {**good, "operations": good["operations"].drop_columns("index")},
    ):
        with pytest.raises(InternalError):
            lake.append(bad)
    with pytest.raises(UsageError, match="label of the run 'r1' is empty"):
        lake.append(rows(["r1"], label=""))
    assert lake.known() == set()


def failing_once(log, name, *, after):
    """Make the next call fail, before or after its execution."""
    call = getattr(log, name)

    def fail(*args, **options):
        setattr(log, name, call)
        if after:
            call(*args, **options)
        raise AgainError("a 503")

    setattr(log, name, fail)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("table", list(SCHEMAS))
def test_a_commit_whose_answer_is_lost_is_recognised(tmp_path, table, after):
    lake = lake_at(tmp_path / "lake")
    lake.append(rows(["r0"]))
    failing_once(lake.logs[table], "commit", after=after)
    assert lake.append(rows(["r1"])) == []
    assert contents(lake) == {"r0", "r1"}
    assert check(lake) == []


def test_a_merge_between_two_looks_of_a_reader_is_noticed(tmp_path):
    lake, writer = lake_at(tmp_path / "lake"), lake_at(tmp_path / "lake")
    writer.append(rows(["r0"]))
    log = lake.logs["operations"]
    refresh = log.refresh

    def meanwhile():
        log.refresh = refresh
        writer.append(rows(["r1"]))
        compact(writer)
        return refresh()

    log.refresh = meanwhile
    assert contents(lake) == {"r0", "r1"}


def test_a_reader_in_the_middle_of_an_append_sees_nothing_of_it(tmp_path):
    lake, reader = lake_at(tmp_path / "lake"), lake_at(tmp_path / "lake")
    lake.append(rows(["r0"]))
    commit = lake.main.commit

    def look(*args, **options):
        assert contents(reader) == {"r0"}
        compact(reader)
        assert contents(reader) == {"r0"}
        commit(*args, **options)

    lake.main.commit = look
    lake.append(rows(["r1"]))
    assert contents(reader) == {"r0", "r1"}


def test_a_foreign_place_is_refused_and_untouched(tmp_path):
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "delta"), pa.table({"run": ["x"]}))
    write_deltalake(str(tmp_path / "many" / "runs"), pa.table({"run": ["x"]}))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    for place, words in {
        "delta": "single Delta table",
        "many": "does not belong to a harness lake",
        "folder": "thesis.tex",
        "file": "not a folder",
    }.items():
        for create in (True, False):
            with pytest.raises(UsageError, match=words):
                Lake.open(str(tmp_path / place), schemas=SCHEMAS, version=1, create=create)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_killed_creation_goes_on(tmp_path):
    lake_at(tmp_path / "whole")
    (tmp_path / "half").mkdir()
    (tmp_path / "whole" / "faults").rename(tmp_path / "half" / "faults")
    again = lake_at(tmp_path / "half")
    again.append(rows(["r1"]))
    assert contents(again) == {"r1"}
    with pytest.raises(InfrastructureError, match="lacks faults"):
        lake_at(tmp_path / "whole")


def test_a_column_of_another_type_is_refused(tmp_path):
    lake_at(tmp_path / "lake")
    other = {**SCHEMAS, "runs": pa.schema([*HEAD, ("seed", pa.string())])}
    with pytest.raises(UsageError, match="are not the columns"):
        lake_at(tmp_path / "lake", schemas=other)


def test_a_torn_file_is_one_clear_line(tmp_path):
    lake = lake_at(tmp_path / "lake")
    lake.append(rows(["r1"]))
    lake.append(rows(["r2"]))
    path = tmp_path / "lake" / "runs" / lake.files("runs")[0].name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InfrastructureError, match="harness lake check"):
        lake_at(tmp_path / "lake").known()
    assert "size" in damage(lake)[0].text


def test_a_full_disk_is_one_clear_line_and_nothing_is_lost(tmp_path, monkeypatch):
    lake = lake_at(tmp_path / "lake")
    lake.append(rows(["r1"]))
    writing = lake.place.writing

    @contextlib.contextmanager
    def full(table, name):
        with writing(table, name) as sink:
            yield sink
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(lake.place, "writing", full)
    with pytest.raises(InfrastructureError, match="no space is left"):
        lake.append(rows(["r2"]))
    monkeypatch.setattr(lake.place, "writing", writing)
    assert contents(lake) == {"r1"}
    lake.append(rows(["r2"]))
    assert contents(lake) == {"r1", "r2"}


def test_buffered_runs_are_appended_as_they_are_and_once(tmp_path):
    lake, other = lake_at(tmp_path / "lake"), lake_at(tmp_path / "lake")
    buffer = AppendBuffer(SCHEMAS)
    for runs in (["a", "b"], ["c"]):
        buffer.add(rows(runs))

    assert lake.append(buffer) == []
    assert [file.batch for file in lake.files("runs")] == [buffer.batch]
    assert contents(lake) == {"a", "b", "c"}
    assert sorted(other.append(buffer)) == ["a", "b", "c"]


def test_buffered_runs_partly_appended_by_others_get_another_batch(tmp_path):
    lake, other = lake_at(tmp_path / "lake"), lake_at(tmp_path / "lake")
    buffer = AppendBuffer(SCHEMAS)
    buffer.add(rows(["a", "b", "c"]))
    other.append(rows(["b"]))

    assert lake.append(buffer) == ["b"]
    assert contents(lake) == {"a", "b", "c"}


def test_buffered_runs_are_of_one_partition_and_there_once():
    buffer = AppendBuffer(SCHEMAS)
    buffer.add(rows(["a"]))
    with pytest.raises(InternalError, match="twice"):
        buffer.add(rows(["a"]))
    with pytest.raises(InternalError, match="several partitions"):
        buffer.add(rows(["b"], label="other"))
    buffer.add(rows(["c"]))
    with pytest.raises(InternalError, match="out of order"):
        buffer.add(rows(["b"]))


def test_codes_that_no_row_has_are_in_no_statistics(tmp_path):
    lake, buffer = lake_at(tmp_path / "lake"), AppendBuffer(SCHEMAS)
    tables = rows(["a", "b", "c"])
    coded = tables["operations"].cast(coded_schema(SCHEMAS["operations"]))
    tables["operations"] = coded.filter(pc.equal(coded["run"], "b"))
    assert len(tables["operations"]["run"].chunk(0).dictionary) == 3
    buffer.add(tables)

    lake.append(buffer)

    (file,) = lake.files("operations")
    assert (file.first_run, file.last_run) == ("b", "b")
    assert pq.read_schema(file.uri).field("run").type == pa.string()


def test_row_groups_are_written_on_the_way_and_hold_whole_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("results.lake.log.append_buffer.GROUP_ROWS", 10)
    lake, buffer = lake_at(tmp_path / "lake"), AppendBuffer(SCHEMAS)
    runs = [f"r{number:02}" for number in range(12)]
    for run in runs:
        buffer.add(rows([run]))

    lake.append(buffer)

    (file,) = lake.files("operations")
    parquet = pq.ParquetFile(file.uri)
    groups = [parquet.read_row_group(number)["run"] for number in range(parquet.num_row_groups)]
    assert len(groups) > 2
    assert sum(len(set(group.to_pylist())) for group in groups) == len(runs)
    assert contents(lake) == set(runs)
