"""A buffer of whole runs that wait for the next append, encoded as Parquet files.

Rows in memory are ten to thirty times as large as in a file. So runs are encoded as they arrive,
one row group at a time. No run spans two row groups, unless the runs of one call have more rows
than a group.

The files contain the batch id of the append. If another writer appended some of the runs first, the
append restarts under a new id, and the remaining runs are encoded again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import InternalError
from results.lake.log.files import BATCH, KEY, Partition, batch_name, coded_schema
from results.lake.log.parquet_encoder import GROUP_ROWS, Encoded, Encoder
from results.lake.log.row_files import accept, new_id, stored, stored_schema

GROUP_BYTES: Final = 32 << 20
"""Memory size of waiting rows at which the buffer encodes them, even if there are few rows."""
SMALLER: Final = 16
"""Estimated ratio of the size of rows in memory to their size in a file."""


class _File:
    """The growing file of one table. It collects rows until they fill a row group."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sink = pa.BufferOutputStream()
        self._encoder: Encoder | None = None
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if self._waiting and self._rows + rows.num_rows > GROUP_ROWS:
            self._encode()
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._encode()

    def _encode(self) -> None:
        if self._encoder is None:
            self._encoder = Encoder(self._sink, self._schema, coded=True)
        self._encoder.write(pa.concat_tables(self._waiting).unify_dictionaries())
        self._waiting, self._rows, self._bytes = [], 0, 0

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell()) + self._bytes // SMALLER

    @property
    def held_bytes(self) -> int:
        return int(self._sink.tell()) + self._bytes

    def close(self) -> Encoded | None:
        if self._waiting:
            self._encode()
        if self._encoder is None:
            return None
        with self._encoder as encoder:
            pass
        rows, stats = encoder.written()
        return Encoded(self._sink.getvalue(), rows, stats)


class AppendBuffer:
    """A buffer of runs of one partition, for one append."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Create an empty buffer. `schemas` has the schema of each table of the lake."""
        self._schemas = schemas
        self._coded = {name: coded_schema(schema) for name, schema in schemas.items()}
        self.batch = new_id()
        self._number = 0
        self.partitions: dict[str, Partition] = {}
        self.last: str | None = None
        self._files = {name: _File(stored_schema(schema)) for name, schema in schemas.items()}
        self._closed: dict[str, Encoded] | None = None

    def add(self, rows: Mapping[str, pa.Table]) -> None:
        """Add whole runs; raise `UsageError` or `InternalError` for runs that no lake accepts."""
        tables, partitions = accept(rows, self._coded)
        if self._closed is not None or not self.partitions.keys().isdisjoint(partitions):
            raise InternalError("an append buffer got a run twice, or a run after its append")
        if len({*self.partitions.values(), *partitions.values()}) > 1:
            raise InternalError("an append buffer got runs of several partitions")
        if self.last is not None and partitions and min(partitions) < self.last:
            raise InternalError("an append buffer got runs out of order; readers would miss some")
        self.partitions |= partitions
        self.last = max(partitions, default=self.last)
        for name, table in tables.items():
            self._files[name].add(stored(table, self.batch))

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def size_bytes(self) -> int:
        """Estimated size of the buffer's largest file."""
        return max(file.size_bytes for file in self._files.values())

    @property
    def held_bytes(self) -> int:
        return sum(file.held_bytes for file in self._files.values())

    def files(self) -> Mapping[str, Encoded]:
        """Complete and return the file of each table that has rows. A later `add` is an error."""
        if self._closed is None:
            files = {name: file.close() for name, file in self._files.items()}
            self._closed = {name: file for name, file in files.items() if file is not None}
        return self._closed

    def new_name(self) -> str:
        self._number += 1
        return batch_name(self.batch, self._number)

    def without(self, runs: Collection[str]) -> AppendBuffer:
        """Return a new buffer, under a new batch id, with all runs except `runs`."""
        again = AppendBuffer(self._schemas)
        left = [run for run in self.partitions if run not in runs]
        if left:
            rows = {name: file.table().drop_columns([BATCH]) for name, file in self.files().items()}
            again.add(_of_runs(rows, left))
        return again


def buffers_of(
    rows: Mapping[str, pa.Table], schemas: Mapping[str, pa.Schema]
) -> Iterator[AppendBuffer]:
    """Split rows of whole runs into buffers for appends, one buffer per partition."""
    tables, partitions = accept(rows, schemas)
    for partition in sorted({*partitions.values()}, key=repr):
        buffer = AppendBuffer(schemas)
        buffer.add(_of_runs(tables, [run for run, at in partitions.items() if at == partition]))
        yield buffer


def _of_runs(tables: Mapping[str, pa.Table], runs: Sequence[str]) -> dict[str, pa.Table]:
    wanted = pa.array(runs, pa.string())
    return {name: table.filter(pc.is_in(table[KEY], wanted)) for name, table in tables.items()}
