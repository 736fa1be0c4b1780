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
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from results.lake.schema import PARTITION, SCHEMA_VERSION, schema

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
    columns: list[tuple[str, str]]  # table and name of those that are not all null


class Made(msgspec.Struct, frozen=True):
    """The rows of one run as they were read."""

    layout: _Layout
    batch: Any  # a pyarrow.RecordBatch
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
    layout = _Layout(counted, {table: tables[table].num_rows for table in TABLES}, columns)
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
    import pyarrow as pa

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
        raw = pa.Codec("zstd").decompress(memoryview(content)[_HEADER.size :], size)
        with pa.ipc.open_stream(raw) as stream:
            batch = stream.read_next_batch()
        layout = msgspec.json.decode(batch.schema.metadata[b"layout"], type=_Layout)
    except (OSError, ValueError, KeyError, pa.ArrowException, msgspec.MsgspecError):
        return None
    return Made(layout, batch, size)


def gathered(made: Sequence[Made]) -> dict[str, tuple[Any, list[pa.Array]]]:
    """Of each table: of which run every row is, and its columns behind the head."""
    import numpy as np
    import pyarrow as pa

    rows = {table: [each.layout.rows[table] for each in made] for table in TABLES}
    pieces: dict[tuple[str, str], list[Any]] = {
        (table, field.name): [None] * len(made) for table in TABLES for field in _fields(table)
    }
    textual = _text_columns()
    texts, base = [], 0
    for number, each in enumerate(made):
        columns = each.batch.columns
        numbers, codes = (columns[place].flatten().to_numpy() for place in (0, 1))
        texts.append(columns[2].flatten())
        codes = np.where(codes < 0, -1, codes + base)
        base += len(texts[-1])
        others = dict(zip(each.batch.schema.names[3:], columns[3:], strict=True))
        at = code_at = 0
        for table, name in each.layout.columns:
            n = each.layout.rows[table]
            if (table, name) in textual:
                piece = codes[code_at : code_at + n]
                code_at += n
            elif (other := others.get(f"{table}.{name}")) is not None:
                piece = other.flatten()
            else:
                piece = numbers[at : at + n]
                at += n
            pieces[table, name][number] = piece
    dictionary = pa.concat_arrays(texts)
    return {
        table: (
            np.repeat(np.arange(len(made)), rows[table]),
            [
                _joined(pieces[table, field.name], rows[table], field.type, dictionary)
                for field in _fields(table)
            ],
        )
        for table in TABLES
    }


def _joined(pieces: list[Any], rows: list[int], kind: pa.DataType, texts: pa.Array) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if all(piece is None for piece in pieces):
        return pa.nulls(sum(rows), kind)
    if pa.types.is_string(kind):
        codes = np.concatenate(
            [
                np.full(n, -1, np.int32) if piece is None else piece
                for piece, n in zip(pieces, rows, strict=True)
            ]
        )
        return texts.take(pa.array(codes, mask=codes < 0))
    if all(piece is None or isinstance(piece, np.ndarray) for piece in pieces):
        found = [
            np.zeros(n, np.int64) if piece is None else piece
            for piece, n in zip(pieces, rows, strict=True)
        ]
        lacking = np.repeat([piece is None for piece in pieces], rows)
        return pa.array(np.concatenate(found), mask=lacking if lacking.any() else None).cast(kind)
    return pa.concat_arrays(
        [
            pa.nulls(n, kind)
            if piece is None
            else pa.array(piece).cast(kind)
            if isinstance(piece, np.ndarray)
            else piece
            for piece, n in zip(pieces, rows, strict=True)
        ]
    )


def _fields(table: str) -> list[pa.Field]:
    return [*schema(table)][len(PARTITION) + 1 :]


@functools.cache
def _text_columns() -> frozenset[tuple[str, str]]:
    import pyarrow as pa

    return frozenset(
        (table, field.name)
        for table in TABLES
        for field in _fields(table)
        if pa.types.is_string(field.type)
    )


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
