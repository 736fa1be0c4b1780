"""Sealed histories: one Parquet file per run, sorted by index and compressed with zstd.

| column     | type   | what                                                           |
|------------|--------|----------------------------------------------------------------|
| index      | int64  | position                                                       |
| time       | int64  | ns since the start of the run                                  |
| process    | int64  | client process; -1 is the nemesis, -2 the harness              |
| type       | string | invoke, ok, fail, info                                         |
| f          | string | the kind of operation                                          |
| value      | string | JSON                                                           |
| error      | string | null if the op has no error                                    |
| node       | string | the node that answered last                                    |
| attempts   | list   | structs of node, start, end (ns since start), outcome          |
| lat_bucket | int32  | `lat_bucket` of the latency; only in completions of clients    |

Version 1 had no `lat_bucket`; files of version 1 can still be read. The footer describes the file
(see `harness.store.footer`); its `harness.digest` is the digest of the history. Pages have
checksums, so that a reader of single columns, which cannot verify the digest, detects damaged data.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HistoryError, InfrastructureError
from harness.ops import ACTORS, Attempt, History, Op, OpType, Process
from harness.store.buckets import lat_bucket
from harness.store.footer import COLUMNS, Footer, cost_of, first_line, footer_of, open_sealed

if TYPE_CHECKING:
    import pyarrow as pa

_CODES: Final = {"int32": "i", "int64": "q"}
_TEXT_BYTES_MAX: Final = 2**31 - 1
ROWS_AT_ONCE: Final = 1 << 16
"""The number of rows that exist as Python objects at a time. Rows as Python objects take twenty
times as much memory as columns."""
_ATTEMPT: Final = ("node", "start", "end", "outcome")
_ACTORS: Final[dict[str, int]] = dict(zip(ACTORS, (-1, -2), strict=True))
_BAD_ROW: Final = (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError)
_NAMES: Final[dict[int, Process]] = {number: name for name, number in _ACTORS.items()}
_TYPES: Final = {kind.value: kind for kind in OpType}


def schema_of() -> pa.Schema:
    """Return the Arrow schema of a sealed history."""
    import pyarrow as pa

    attempt = pa.struct(
        [
            ("node", pa.string()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("outcome", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("index", pa.int64()),
            ("time", pa.int64()),
            ("process", pa.int64()),
            ("type", pa.string()),
            ("f", pa.string()),
            ("value", pa.string()),
            ("error", pa.string()),
            ("node", pa.string()),
            ("attempts", pa.list_(attempt)),
            ("lat_bucket", pa.int32()),
        ]
    )


def write_parquet(
    path: Path,
    history: History,
    *,
    run: str | None = None,
    seed: int | None = None,
    label: str | None = None,
) -> None:
    """Write `history` durably and atomically: `path` has the whole history or does not exist."""
    table, open_max = table_of(history)
    footer = Footer(
        run=run,
        seed=seed,
        label=label,
        digest=history.digest(),
        n_ops=len(history),
        cost=cost_of(len(history), open_max),
    )
    write_table(path, table, footer)


def write_table(path: Path, table: pa.Table, footer: Footer) -> None:
    """Write a table of `schema_of` durably and atomically, as one row group."""
    import pyarrow.parquet as pq

    temporary = path.with_name(path.name + ".part")
    schema = table.schema.with_metadata(footer.metadata())
    dictionaries = ["type", "f", "value", "error", "node"]
    try:
        with temporary.open("wb") as file:
            with pq.ParquetWriter(
                file,
                schema,
                compression="zstd",
                use_dictionary=dictionaries,
                write_page_checksum=True,
            ) as writer:
                writer.write_table(table, max(1, len(table)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise InfrastructureError(f"cannot seal {path}: {error.strerror or error}") from error


def table_of(history: History) -> tuple[pa.Table, int]:
    """Return the history as a table, and the maximum number of operations open at the same time.

    `schema_of` describes the table. Raises `HistoryError` for values that the columns cannot store.
    """
    import pyarrow as pa

    encoder = msgspec.json.Encoder(order="sorted")
    tables: list[pa.Table] = []
    rows: list[tuple[Any, ...]] = []
    attempts: list[Attempt] = []
    offsets = [0]
    # operations in progress; operations that ended as `info` are in `unknown`
    invoked: dict[Process, int] = {}
    open_max = unknown = 0
    try:
        for op in history:
            if len(rows) == ROWS_AT_ONCE:
                tables.append(_columns(rows, attempts, offsets))
                rows, attempts, offsets = [], [], [0]
            took: int | None = None
            if op.type is OpType.INVOKE:
                invoked[op.process] = op.time
                open_max = max(open_max, len(invoked) + unknown)
            elif op.is_client:
                took = lat_bucket(op.time - invoked.pop(op.process))
                unknown += op.type is OpType.INFO
            attempts.extend(op.attempts)
            offsets.append(len(attempts))
            value = encoder.encode(op.value).decode()
            rows.append(
                (
                    op.index,
                    op.time,
                    _number(op),
                    op.type.value,
                    op.f,
                    value,
                    op.error,
                    op.node,
                    took,
                )
            )
        tables.append(_columns(rows, attempts, offsets))
        return pa.concat_tables(tables), open_max
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise HistoryError(
            f"the history cannot be sealed: {error}; indices, times and processes must be integers "
            "of 64 bits, and values must be plain JSON"
        ) from error


def _columns(
    rows: Sequence[tuple[Any, ...]], attempts: Sequence[Attempt], offsets: Sequence[int]
) -> pa.Table:
    import pyarrow as pa

    schema = schema_of()
    *plain, took = zip(*rows, strict=True) if rows else ((),) * 9
    parts = schema.field("attempts").type.value_type
    tried = [[getattr(attempt, name) for attempt in attempts] for name in _ATTEMPT]
    columns = [column_of(column, field.type) for column, field in zip(tried, parts, strict=True)]
    structs = pa.StructArray.from_arrays(columns, fields=list(parts))
    arrays = [
        *(column_of(column, schema.field(n).type) for n, column in enumerate(plain)),
        pa.ListArray.from_arrays(column_of(offsets, pa.int32()), structs),
        column_of(took, pa.int32()),
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _number(op: Op) -> int:
    """Return the number of a process in the file; raises `HistoryError` if it has none."""
    if isinstance(op.process, str):
        if op.process not in _ACTORS:
            raise HistoryError(
                f"op {op.index}: the process {op.process!r} is unknown; "
                f"a process is a number or one of {', '.join(_ACTORS)}"
            )
        return _ACTORS[op.process]
    if op.process < 0:
        raise HistoryError(f"op {op.index}: the process {op.process} is below 0; renumber it")
    return op.process


def read_parquet(path: Path) -> History:
    """Read a sealed history; raises `HistoryError` for a foreign, damaged or altered file."""
    table, footer = read_sealed(path)
    try:
        history = History(ops_of_table(path, table))
    except HistoryError as error:
        raise HistoryError(f"{str(path)!r}: {error}") from error
    if footer.digest and footer.digest != history.digest():
        raise HistoryError(
            f"{str(path)!r} was altered: the digest of its ops is {history.digest()}, but "
            f"it was sealed with the digest {footer.digest}"
        )
    return history


def read_sealed(path: Path) -> tuple[pa.Table, Footer]:
    """Return all rows and the footer of a sealed history.

    Raises `HistoryError` if the file is damaged or is not a sealed history.
    """
    import pyarrow as pa

    with open_sealed(path) as file:
        schema = file.schema_arrow
        footer = footer_of(path, schema, file.metadata.num_rows)
        there = frozenset(schema.names)
        columns = [name for name in COLUMNS if name in there]
        try:
            return file.read(columns, use_threads=False), footer
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(
                f"{str(path)!r} is damaged: {first_line(error)}; restore it from a copy"
            ) from error


def ops_of_table(path: Path, table: pa.Table) -> Iterator[Op]:
    """Yield the rows of a table as ops; raises `HistoryError` for a row that is not an op."""
    import pyarrow as pa

    decode = msgspec.json.Decoder().decode
    try:
        table = _typed(path, table)
        for part in table.to_batches(ROWS_AT_ONCE):
            rows = pa.Table.from_batches([part])
            plain = [rows.column(name).to_pylist() for name in COLUMNS[:-1]]
            for index, time, process, kind, f, value, error, node, attempts in zip(
                *plain, _attempts(rows), strict=True
            ):
                actor = _NAMES.get(process, process)
                content = decode(value)
                yield Op(index, time, actor, _TYPES[kind], f, content, error, node, attempts)
    except _BAD_ROW as error:
        raise HistoryError(f"{str(path)!r} holds a row that is not an op: {error!r}") from error
    except pa.ArrowException as error:
        raise HistoryError(f"{str(path)!r} holds a column of a wrong type: {error}") from error


def _typed(path: Path, table: pa.Table) -> pa.Table:
    """Return the table with the column types of `schema_of`.

    Raises `HistoryError` for nulls in required columns.
    """
    import pyarrow as pa

    for name in ("index", "time", "process", "type", "f", "value"):
        if table.column(name).null_count:
            raise HistoryError(f"{str(path)!r} holds a row that is not an op: its {name} is null")
    schema = schema_of()
    return table.cast(pa.schema([schema.field(name) for name in table.column_names]))


def _attempts(table: pa.Table) -> Iterator[tuple[Attempt, ...]]:
    for chunk in table.column("attempts").chunks:
        offsets, structs = chunk.offsets.to_pylist(), chunk.values
        if any(structs.field(name).null_count for name in _ATTEMPT):
            raise ValueError("an attempt lacks one of its fields")
        made = [
            Attempt(*fields)
            for fields in zip(*(structs.field(name).to_pylist() for name in _ATTEMPT), strict=True)
        ]
        for start, end in itertools.pairwise(offsets):
            yield tuple(made[start:end])


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return `values` as an array of int32, int64 or string, with nulls for `None`.

    `pyarrow.array` does the same, but first imports pandas, if installed, which takes half of the
    time of a short run. Raises `TypeError` for values of another kind, `OverflowError` for numbers
    that are too large and `ValueError` for text that is not Unicode.
    """
    import numpy as np
    import pyarrow as pa

    absent = [value is None for value in values]
    valid = None
    if any(absent):
        valid = pa.py_buffer(np.packbits(~np.array(absent), bitorder="little"))
    if code := _CODES.get(str(kind)):
        numbers = array.array(code, (0 if value is None else value for value in values))
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(numbers)])
    encoded = [b"" if value is None else str.encode(value) for value in values]
    ends = list(itertools.accumulate(map(len, encoded), initial=0))
    if ends[-1] > _TEXT_BYTES_MAX:
        return pa.array(values, kind)  # the text is too long for one chunk
    text = [pa.py_buffer(array.array("i", ends)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(values), [valid, *text])
