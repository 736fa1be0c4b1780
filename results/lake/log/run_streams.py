"""Reads the rows of many runs, run by run, in a single pass over the files that hold them.

Rows of a file are in the order of their runs, and no run spans two files of a table. So each file
is read as a stream, a few thousand rows at a time. The streams of a table are merged by run, and
all tables advance together. So memory holds only some rows of each file and the rows of one run,
however many runs there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results.lake.log.files import KEY, KEY_RANGE
from results.lake.log.location import Place
from results.lake.log.storage_errors import troubles

ROWS_AT_ONCE: Final = 8_192

Part = tuple[str, "pa.Table"]


def runs_in(
    place: Place,
    schemas: Mapping[str, pa.Schema],
    files: Mapping[str, Sequence[str]],
    runs: Sequence[str],
    *,
    key_range: int | None = None,
) -> Iterator[tuple[str, dict[str, pa.Table]]]:
    """Yield each of `runs` (sorted, distinct) with its rows of every table in `files`.

    `files` maps tables to names of files whose rows are all visible. A run may have no rows in a
    table. With a `key_range`, only rows of this range are read from tables that are cut into ranges
    of keys. Raises the errors of the store.
    """

    def runs_of(table: str, name: str) -> Iterator[Part]:
        schema, first, last = schemas[table], runs[0], runs[-1]
        number = key_range if KEY_RANGE in schema.names else None
        return _runs_of(
            batches_of(place, table, name, schema, first, last, key_range=number), first, last
        )

    tables = {
        table: _Cursor(
            heapq.merge(*(runs_of(table, name) for name in names), key=itemgetter(0)),
            schemas[table],
        )
        for table, names in files.items()
    }
    for run in runs:
        yield run, {table: cursor.take(run) for table, cursor in tables.items()}


class _Cursor:
    def __init__(self, parts: Iterator[Part], schema: pa.Schema) -> None:
        self._parts = parts
        self._next = next(parts, None)
        self._schema = schema

    def take(self, run: str) -> pa.Table:
        while self._next is not None and self._next[0] < run:
            self._next = next(self._parts, None)
        if self._next is None or self._next[0] != run:
            return self._schema.empty_table()
        _, rows = self._next
        self._next = next(self._parts, None)
        return rows


def _runs_of(parts: Iterator[pa.Table], first: str, last: str) -> Iterator[Part]:
    waiting: list[pa.Table] = []
    current: str | None = None
    for rows in parts:
        for run, begin, end in spans_of(rows[KEY]):
            if run != current:
                if waiting and current is not None:
                    yield current, pa.concat_tables(waiting)
                waiting, current = [], run
                if run > last:
                    return
            if run >= first:
                waiting.append(rows.slice(begin, end - begin))
    if waiting and current is not None:
        yield current, pa.concat_tables(waiting)


def batches_of(
    place: Place,
    table: str,
    name: str,
    schema: pa.Schema,
    first: str,
    last: str,
    *,
    key_range: int | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a file in order, in non-empty parts.

    All row groups that may have runs from `first` to `last` are read, so parts may include other
    runs. With a `key_range`, parts have only rows of this range. From an object store, whole row
    groups are read at once, because one request per column takes ten times as long.
    """
    path = f"{table}/{name}"
    with troubles(place.uri_of(path)), place.files.open_input_file(path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=not place.local)
        groups = _groups(parquet, KEY, first, last)
        if key_range is not None:
            groups = sorted({*groups} & {*_groups(parquet, KEY_RANGE, key_range, key_range)})
        for group in groups:  # one group at a time, as the reader keeps requested groups in memory
            for batch in parquet.iter_batches(ROWS_AT_ONCE, row_groups=[group]):
                rows = pa.Table.from_batches([conforming(batch, schema)])
                if key_range is not None:
                    rows = rows.filter(pc.equal(rows[KEY_RANGE], key_range))
                if len(rows):
                    yield rows


def _groups(parquet: Any, name: str, first: Any, last: Any) -> list[int]:
    metadata = parquet.metadata
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    column = paths.index(name)
    groups = []
    for group in range(metadata.num_row_groups):
        bounds = metadata.row_group(group).column(column).statistics
        if bounds is None or not bounds.has_min_max or (bounds.max >= first and bounds.min <= last):
            groups.append(group)
    return groups


def spans_of(column: pa.ChunkedArray) -> Iterator[tuple[str, int, int]]:
    """Yield each run in a column of runs, with the start and (exclusive) end of its rows."""
    begin = 0
    for chunk in column.chunks:
        coded = pc.run_end_encode(chunk)
        offset = begin
        for run, end in zip(coded.values.to_pylist(), coded.run_ends.to_pylist(), strict=True):
            yield run, begin, offset + end
            begin = offset + end


def conforming(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a file's rows to the columns of their table. A column that the file lacks is null.

    Files of Delta's own writers lack the partition columns.
    """
    if rows.schema.equals(schema):
        return rows
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
