"""Rows made when a run is sealed: those of its history, and never those of another."""

from __future__ import annotations

import hashlib
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from harness.case import Case
from harness.cli import main
from harness.errors import HistoryError
from harness.ops import History, Op, OpType
from harness.soak.seed import add_extras
from harness.store import RunFolder, load_run
from results.lake.log.lake import Lake
from results.lake.tables.made import MADE, MADE_VERSION
from results.lake.tables.row_tables import history_rows, tables_of
from results.lake.tables.schema import SCHEMA_VERSION, schemas
from results.lake.tables.sealing import LakeRows
from results.lake.transfer.folders import writer_to
from results.lake.transfer.ingest import ingest
from results.lake.transfer.source import About, Source, read_about, read_source, source_of
from tests.run_folders import keep_run

HEADER = 92


def soak(store: Path, words: tuple[str, ...], name: str) -> None:
    common = ("--time-limit", "4", "--seeds", "1..2", "--store", str(store), "--name", name)
    main(["soak", "--env", "sim", *words, *common, "--quiet"])


def keyed_history() -> History:
    """Answered operations of one client, each with `[key, value]`."""
    lines = []
    for number in range(6):
        value = [f"k{number % 2}", {"name": "t1"}]
        answer = [value[0], {"result": "ok", "revision": number}]
        lines.append(Op(2 * number, number * 10, 0, OpType.INVOKE, "get", value))
        lines.append(Op(2 * number + 1, number * 10 + 5, 0, OpType.OK, "get", answer))
    return History(lines)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of soaks of several workloads and targets."""
    found = tmp_path_factory.mktemp("made") / "store"
    for words in (
        ("--workload", "ddl", "--nemesis", "any", "--draw", "2"),
        ("--target", "kudu", "--workload", "rows", "--nemesis", "kill"),
        ("--target", "hive", "--nemesis", "kill"),
    ):
        soak(found, words, f"{words[1]}-runs")
    return found


def folders(store: Path) -> list[Path]:
    return sorted(path.parent for path in store.glob("*/*/run.json") if not path.is_symlink()
                  and not path.parent.is_symlink())  # fmt: skip


def rows(folder: Path, *, made: bool) -> dict[str, Any]:
    source = read_source(folder, read_about(folder), rows=made)
    assert (source.made is not None) == made
    return tables_of([source])


def test_rows_made_at_sealing_are_those_of_the_history(store: Path) -> None:
    found = folders(store)
    assert len(found) == 6
    for folder in found:
        before, after = rows(folder, made=True), rows(folder, made=False)
        for name, table in after.items():
            assert before[name].equals(table), (folder, name)


def test_many_runs_together_are_as_each_alone(store: Path) -> None:
    sources = [
        [read_source(each, read_about(each), rows=made) for each in folders(store)]
        for made in (True, False)
    ]
    before, after = map(tables_of, sources)
    for name, table in after.items():
        assert before[name].equals(table), name
        assert before[name].schema.equals(table.schema)
    for name, table in tables_of(sources[0], coded=True).items():
        assert table.cast(after[name].schema).equals(after[name]), name


@pytest.fixture
def one(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders(store)[0], tmp_path / "name" / "run"))


@pytest.mark.parametrize("at", [0, 7, 9, 12, 16, 20, 24, 30, HEADER, HEADER + 300, -1])
def test_an_altered_byte_makes_rows_of_the_history(one: Path, at: int) -> None:
    content = bytearray((one / MADE).read_bytes())
    content[at] ^= 1
    (one / MADE).write_bytes(content)
    assert read_source(one, rows=True).made is None


@pytest.mark.parametrize("size", [0, 5, HEADER - 1, HEADER, HEADER + 100, -1])
def test_a_torn_file_makes_rows_of_the_history(one: Path, size: int) -> None:
    (one / MADE).write_bytes((one / MADE).read_bytes()[:size])
    assert read_source(one, rows=True).made is None


def test_rows_of_another_run_do_not_count(store: Path, one: Path) -> None:
    shutil.copy(folders(store)[1] / MADE, one / MADE)
    assert read_source(one, rows=True).made is None


def test_rows_do_not_stand_for_another_history_beside_them(store: Path, one: Path) -> None:
    shutil.copy(folders(store)[1] / "history.parquet", one / "history.parquet")
    with pytest.raises(Exception, match="another history"):
        read_source(one, rows=True)
    (one / "history.parquet").unlink()
    with pytest.raises(Exception, match="neither"):
        read_source(one, rows=True)


def changed(content: bytes, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> bytes:
    """The frame of a file's rows with another batch in it."""
    (size,) = struct.unpack_from("<I", content, 20)
    with pa.ipc.open_stream(pa.Codec("zstd").decompress(content[HEADER:], size)) as stream:
        batch = change(stream.read_next_batch())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return framed(content, sink.getvalue())


def framed(content: bytes, raw: Any) -> bytes:
    """The file with these bytes unpacked, and a checksum that is right."""
    packed = pa.Codec("zstd").compress(raw, asbytes=True)
    content = content[:20] + struct.pack("<I", len(raw)) + content[24:HEADER] + packed
    return content[:8] + zlib.crc32(content[12:]).to_bytes(4, "little") + content[12:]


def with_layout(batch: pa.RecordBatch, change: Callable[[Any], None]) -> pa.RecordBatch:
    layout = msgspec.json.decode(batch.schema.metadata[b"layout"])
    change(layout)
    return batch.replace_schema_metadata({"layout": msgspec.json.encode(layout)})


def more_operations(layout: Any) -> None:
    layout["rows"]["operations"] += 1


FORGED = {
    "nothing": lambda content: framed(content, b""),
    "no batch": lambda content: framed(content, b"not Arrow"),
    "no layout": lambda content: changed(content, lambda batch: batch.replace_schema_metadata({})),
    "no columns": lambda content: changed(
        content, lambda batch: with_layout(batch, lambda layout: layout.update(columns=1))
    ),
    "an unknown column": lambda content: changed(
        content,
        lambda batch: with_layout(batch, lambda layout: layout["columns"].append(["a", "b"])),
    ),
    "other rows": lambda content: changed(
        content, lambda batch: with_layout(batch, more_operations)
    ),
    "a text too many": lambda content: changed(
        content,
        lambda batch: batch.set_column(2, "texts", pa.array([[]], pa.list_(pa.string()))),
    ),
}


@pytest.mark.lake
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_of_rows_that_cannot_be_read_the_history_makes_others(
    store: Path, tmp_path: Path, forged: Callable[[bytes], bytes]
) -> None:
    again = Path(shutil.copytree(store, tmp_path / "store", symlinks=True))
    torn = folders(again)[0] / MADE
    torn.write_bytes(forged(torn.read_bytes()))
    source = read_source(torn.parent, rows=True)
    assert source.made is not None
    with pytest.raises(HistoryError):
        tables_of([source])
    found = {}
    for name, place in (("sound", store), ("forged", again)):
        lake = Lake.create_or_open(str(tmp_path / name), schemas=schemas(), version=SCHEMA_VERSION)
        ingested, problems = ingest(place, lake, writer_to(lake))
        assert (ingested.appended, problems.total) == (6, 0)
        snapshot = lake.snapshot()
        found[name] = {
            table: snapshot.dataset(table)
            .to_table()
            .drop_columns(["batch"])
            .sort_by(
                [("run", "ascending"), *(("index", "ascending") for _ in range(table != "runs"))]
            )
            for table in ("runs", "operations", "attempts")
        }
    assert found["sound"] == found["forged"]


@pytest.mark.lake
def test_a_run_whose_folder_goes_meanwhile_is_named_and_the_others_go_in(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Path(shutil.copytree(store, tmp_path / "store", symlinks=True))
    torn = folders(again)[0] / MADE
    torn.write_bytes(FORGED["nothing"](torn.read_bytes()))

    def read(folder: Path, about: About, *, rows: bool = False) -> Source:
        if not rows:
            raise FileNotFoundError(str(folder))
        return read_source(folder, about, rows=rows)

    monkeypatch.setattr("results.lake.transfer.ingest.read_source", read)
    lake = Lake.create_or_open(str(tmp_path / "lake"), schemas=schemas(), version=SCHEMA_VERSION)
    found, problems = ingest(again, lake, writer_to(lake))
    assert found.appended == 5
    assert [problem.run for problem in problems.kept] == ["/".join(torn.parent.parts[-2:])]


def test_the_same_rows_are_made_again(one: Path) -> None:
    made = LakeRows().made(load_run(one).history, one / "history.parquet")
    assert made == (one / MADE).read_bytes()


def test_of_buckets_rows_are_made_of_the_history(tmp_path: Path) -> None:
    history = keyed_history()
    whole = keep_run(tmp_path, "ddl-none", "r1", Case(seed=2), history)
    made = LakeRows().made(history, whole / "history.parquet")
    assert made is not None
    (whole / MADE).write_bytes(made)
    assert all(table.equals(rows(whole, made=False)[name])
               for name, table in rows(whole, made=True).items())  # fmt: skip
    keyed = keep_run(tmp_path, "ddl-none", "r2", Case(seed=2), history, buckets=2)
    (keyed / MADE).write_bytes(made)
    assert read_source(keyed, rows=True).made is None


def test_of_a_run_that_was_cut_short_rows_are_made_of_the_history(one: Path) -> None:
    (one / "run.json").unlink()
    assert read_source(one, rows=True).made is None


def test_rows_that_cannot_be_made_cost_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no rows")

    monkeypatch.setattr(LakeRows, "made", broken)
    folder = RunFolder(tmp_path, "ddl-none", "r1")
    folder.seal(keyed_history())
    add_extras(folder, keyed_history())
    assert [path.name for path in folder.path.iterdir()] == ["history.parquet"]
    monkeypatch.undo()
    add_extras(folder, keyed_history())
    assert (folder.path / MADE).exists()


def test_other_rows_are_another_version() -> None:
    """Who changes what rows a history has raises `MADE_VERSION` (or that of the schema)."""
    about = About(name="n", id="r", case=Case(seed=1), record=None)
    tables, _ = history_rows([source_of(keyed_history(), about)])
    text = msgspec.json.encode([MADE_VERSION, SCHEMA_VERSION, *(
        {**table.to_pydict()} for _, table in sorted(tables.items()))])  # fmt: skip
    assert hashlib.sha256(text).hexdigest()[:12] == "c316b1539cae"
