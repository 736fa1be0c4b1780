"""Rows of a run that were made when it was sealed: `rows.arrow` in its folder.

To make a run's rows takes milliseconds more than to read them, which nobody notices in a run that
took hundreds, and an ingest of many. So a soak leaves them beside the history: a header, and one
zstd frame with an Arrow stream of one batch and one row. In that are all whole numbers of the run's
tables in one list, all texts as numbers of a dictionary in another, and in the same order as the
list of columns that the schema's metadata has; columns of other types follow as lists.

They count only where their version is ours, their checksum is right, and both `run.json` and the
history beside them are of their digest; else the rows are made of the history again. Partition,
key, verdicts and findings are not among them: a run may be moved, labelled or judged again.
"""

from __future__ import annotations

import functools
import itertools
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HistoryError
from results.lake.tables.schema import PARTITION, SCHEMA_VERSION, schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MADE", "MADE_VERSION", "Counted", "Made", "encoded", "gathered", "read_made"]

MADE: Final = "rows.arrow"
TABLES: Final = ("operations", "attempts", "faults", "events", "nodes")
MADE_VERSION: Final = 1
"""Rises with whatever makes other rows of the same history, as `SCHEMA_VERSION` does."""
RAW_BYTES_MAX: Final = 16 << 20
_HEADER: Final = struct.Struct("<8sIIIII64s")
_MAGIC: Final = b"HRNSROWS"
_TAIL_BYTES: Final = 4096
_NUMBERS: Final = 0  # columns of the batch
_CODES: Final = 1
_TEXTS: Final = 2
_SKIP: Final = len(_MAGIC) + 4  # behind the checksum, which is of all the rest


class Counted(msgspec.Struct, frozen=True):
    """What the row of `runs` says of the history."""

    length_ns: int
    lines: int
    ops: int
    ok: int
    fail: int
    info: int
    refused: int
    elections: int
    faults: int
    interrupted: bool


class _Layout(msgspec.Struct):
    counted: Counted
    rows: dict[str, int]  # of each table
    # A list of table and name of those that are not all null; `_plan` decodes each list once.
    columns: msgspec.Raw


class Made(msgspec.Struct, frozen=True):
    """The rows of one run as they lie in its folder, and how many bytes they are unpacked."""

    folder: Path
    packed: memoryview
    size_bytes: int


def encoded(
    tables: Mapping[str, pa.Table], counted: Counted, sealed: Path, digest: str
) -> bytes | None:
    """The rows of one run, whose history is sealed as `sealed`, as the content of the file.

    `None` for more than anybody would read at once.
    """
    import numpy as np
    import pyarrow as pa

    numbers: list[Any] = [np.zeros(0, np.int64)]
    codes: list[Any] = [np.zeros(0, np.int32)]
    texts: dict[str, int] = {}
    columns: list[tuple[str, str]] = []
    others: dict[str, pa.Array] = {}
    for table in TABLES:
        for field in _fields(table):
            column = tables[table][field.name].combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = (
                    pa.concat_arrays(column.chunks) if column.chunks else pa.nulls(0, field.type)
                )
            if column.null_count == len(column):
                continue
            columns.append((table, field.name))
            if pa.types.is_string(field.type):
                coded = column.dictionary_encode()
                known = [
                    texts.setdefault(text, len(texts)) for text in coded.dictionary.to_pylist()
                ]
                places = coded.indices.fill_null(len(known)).to_numpy()
                codes.append(np.array([*known, -1], np.int32)[places])
            elif pa.types.is_integer(field.type) and not column.null_count:
                numbers.append(column.to_numpy().astype(np.int64))
            else:
                others[f"{table}.{field.name}"] = _listed(column)
    layout = _Layout(
        counted,
        {table: tables[table].num_rows for table in TABLES},
        msgspec.Raw(msgspec.json.encode(columns)),
    )
    first = [
        _listed(pa.array(np.concatenate(numbers))),
        _listed(pa.array(np.concatenate(codes))),
        _listed(pa.array([*texts], pa.string())),
    ]
    batch = pa.RecordBatch.from_arrays(
        [*first, *others.values()], ["numbers", "codes", "texts", *others]
    )
    batch = batch.replace_schema_metadata({"layout": msgspec.json.encode(layout)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    raw = sink.getvalue()
    if len(raw) > RAW_BYTES_MAX:
        return None
    content = pa.Codec("zstd").compress(raw, asbytes=True)
    header = _HEADER.pack(
        _MAGIC, 0, MADE_VERSION, SCHEMA_VERSION, len(raw), _tail(sealed), digest.encode()
    )
    checked: bytes = header[_SKIP:] + content
    return _MAGIC + zlib.crc32(checked).to_bytes(4, "little") + checked


def read_made(folder: Path, digest: str) -> Made | None:
    """The rows of a run's folder; `None` where there are none that belong to this history."""
    try:
        content = (folder / MADE).read_bytes()
        if len(content) < _HEADER.size:
            return None
        magic, crc, made, version, size, tail, of = _HEADER.unpack_from(content)
        if (magic, made, version, of) != (_MAGIC, MADE_VERSION, SCHEMA_VERSION, digest.encode()):
            return None
        if size > RAW_BYTES_MAX or zlib.crc32(memoryview(content)[_SKIP:]) != crc:
            return None
        if _tail(folder / "history.parquet") != tail:
            return None
    except OSError:
        return None
    return Made(folder, memoryview(content)[_HEADER.size :], size)


def _unpacked(made: Sequence[Made]) -> list[tuple[_Layout, pa.RecordBatch]]:
    """Layout and batch of each, in their order."""
    import pyarrow as pa

    # Frames behind each other are unpacked at once: to begin costs nearly as much as to unpack.
    sizes = [each.size_bytes for each in made]
    raw = pa.Codec("zstd").decompress(b"".join(each.packed for each in made), sum(sizes))
    found = []
    for end, size in zip(itertools.accumulate(sizes), sizes, strict=True):
        with pa.ipc.open_stream(raw.slice(end - size, size)) as stream:
            batch = stream.read_next_batch()
        metadata = batch.schema.metadata or {}
        found.append((msgspec.json.decode(metadata[b"layout"], type=_Layout), batch))
    return found


def gathered(
    made: Sequence[Made],
) -> tuple[dict[str, tuple[Any, list[pa.Array]]], list[Counted]]:
    """Of each table: of which run every row is, and its columns behind the head.

    And what `runs` says of each run. Raises `HistoryError` where one of them is not as it was made.
    """
    import pyarrow as pa

    try:
        return _gathered(made)
    except MemoryError:  # of Arrow it is an `ArrowException` as well, and no fault of the rows
        raise
    except (
        *(OSError, ValueError, LookupError, StopIteration),
        *(pa.ArrowException, msgspec.MsgspecError),
    ) as error:
        raise HistoryError(
            f"{MADE} cannot be read, though its checksum is right: {error}"
        ) from error


def _gathered(
    made: Sequence[Made],
) -> tuple[dict[str, tuple[Any, list[pa.Array]]], list[Counted]]:
    import numpy as np
    import pyarrow as pa

    unpacked = _unpacked(made)
    rows = {table: [layout.rows[table] for layout, _ in unpacked] for table in TABLES}
    own_texts = [batch.column(_TEXTS).values for _, batch in unpacked]
    own_codes = [batch.column(_CODES).values.to_numpy() for _, batch in unpacked]
    n_texts, n_codes = ([len(each) for each in some] for some in (own_texts, own_codes))
    codes = np.concatenate(own_codes)
    if (codes >= np.repeat(n_texts, n_codes)).any():
        raise ValueError("a text that it does not have")
    bases = np.repeat(np.cumsum([0, *n_texts[:-1]], dtype=np.int32), n_codes)
    codes = np.where(codes < 0, np.int32(-1), codes + bases)
    places = _places()
    pieces: list[list[Any]] = [[None] * len(made) for _ in places]
    end = 0
    for number, (layout, batch) in enumerate(unpacked):
        columns = batch.columns
        numbers = columns[_NUMBERS].values.to_numpy()
        at, code_at = 0, end
        end += n_codes[number]
        for place, table, kept in _plan(bytes(layout.columns), (*batch.schema.names,)):
            n = layout.rows[table]
            if kept == _CODES:
                piece = codes[code_at : code_at + n]
                code_at += n
            elif kept == _NUMBERS:
                piece = numbers[at : at + n]
                at += n
            else:
                piece = columns[kept].values
                if len(piece) != n:
                    raise ValueError(f"{len(piece)} values in {n} rows of {table}")
            pieces[place][number] = piece
        if (at, code_at) != (len(numbers), end):
            raise ValueError("other rows than it says")
    texts = pa.concat_arrays(own_texts)
    return {
        table: (
            np.repeat(np.arange(len(made)), rows[table]),
            [
                _joined(pieces[places[table, field.name][0]], rows[table], field.type, texts)
                for field in _fields(table)
            ],
        )
        for table in TABLES
    }, [layout.counted for layout, _ in unpacked]


@functools.cache
def _places() -> dict[tuple[str, str], tuple[int, bool]]:
    """Which column of all tables this is, in their order, and whether it is text."""
    import pyarrow as pa

    fields = [(table, field) for table in TABLES for field in _fields(table)]
    return {
        (table, field.name): (place, pa.types.is_string(field.type))
        for place, (table, field) in enumerate(fields)
    }


@functools.lru_cache(maxsize=1_000)  # runs differ little in which columns they have
def _plan(columns: bytes, names: tuple[str, ...]) -> list[tuple[int, str, int]]:
    """Of each of a run's columns its place, its table, and which column of the batch has it."""
    places = _places()
    return [
        (place, table, _CODES if text else names.index(own) if own in names else _NUMBERS)
        for table, name in msgspec.json.decode(columns, type=list[tuple[str, str]])
        for (place, text), own in [(places[table, name], f"{table}.{name}")]
    ]


def _joined(pieces: list[Any], rows: list[int], kind: pa.DataType, texts: pa.Array) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if all(piece is None for piece in pieces):
        return pa.nulls(sum(rows), kind)
    if all(piece is None or isinstance(piece, np.ndarray) for piece in pieces):
        text = pa.types.is_string(kind)
        lacking = np.full(max(rows), -1, np.int32) if text else np.zeros(max(rows), np.int64)
        found = np.concatenate(
            [lacking[:n] if piece is None else piece for piece, n in zip(pieces, rows, strict=True)]
        )
        if text:
            return texts.take(pa.array(found, mask=found < 0))
        mask = np.repeat([piece is None for piece in pieces], rows)
        return pa.array(found, kind, mask=mask if mask.any() else None)
    return pa.concat_arrays(
        [
            pa.nulls(n, kind)
            if piece is None
            else pa.array(piece, kind)
            if isinstance(piece, np.ndarray)
            else piece
            for piece, n in zip(pieces, rows, strict=True)
        ]
    )


def _fields(table: str) -> list[pa.Field]:
    return [*schema(table)][len(PARTITION) + 1 :]


def _listed(column: pa.Array) -> pa.Array:
    """As the one row of a column of lists."""
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)


def _tail(sealed: Path) -> int:
    """A checksum of the end of a sealed file, where its footer tells whose history it is."""
    with sealed.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        return zlib.crc32(file.read(), size & 0xFFFFFFFF)
