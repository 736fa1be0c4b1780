"""The replicated state of one tablet: a deterministic state machine over the tablet's log.

Each log entry's payload is one operation, identified by a tag (Kudu: `ALTER_SCHEMA` and `WRITE_OP`
in `consensus/consensus.proto`). All decisions are made when an operation is *applied*, so that
every replica makes the same decisions:

* **Schema changes** (`tablet/ops/alter_schema_op.cc`). An older version is refused. The current
  version is accepted if the schema is the same. A newer version replaces the schema.
* **The timestamp of a write.** The leader proposes a timestamp from its clock. The write gets the
  larger of the proposed timestamp and the last timestamp plus one. Timestamps therefore rise along
  the log, under any leader and any clock settings.
* **Errors of single rows.** If a row has an error, the other rows of the write are still written.
* **Resends.** A write that was applied before gets its first result. If that result was removed,
  the write is stale (`result_tracker.py`).

A snapshot has a head, and either all row versions or only those since the last snapshot. It has all
versions if the row files on disk would otherwise exceed twice the live bytes (`rowset.py` stores
the files).
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from targets.kudu.flags import Flags
from targets.kudu.hybrid_clock import from_micros
from targets.kudu.messages import (
    Column,
    RowError,
    RowErrorCode,
    RowKind,
    RowOperation,
    Schema,
)
from targets.kudu.partitions import encode_key, key_columns
from targets.kudu.tserver.mvcc import RowStore, decode_row, encode_row
from targets.kudu.tserver.result_tracker import Results, StoredClient, WriteResult
from targets.kudu.tserver.rowset import StoredRows, pack_blocks, read_blocks

_US_PER_S: Final = 1_000_000
_REWRITE_SLACK_BYTES: Final = 256 * 1024


class AlterOutcome(enum.Enum):
    """The outcome of a schema change on one replica."""

    APPLIED = "applied"
    SAME = "same"  # the replica already has this version with this schema
    OLDER = "older"  # the replica has a newer version
    MISMATCHED = "mismatched"  # the replica has this version with another schema


class AlterSchemaOp(msgspec.Struct, frozen=True, array_like=True, tag="ALTER_SCHEMA"):
    """A log operation that changes the tablet's schema to `schema`, of version `schema_version`."""

    schema: Schema
    schema_version: int
    new_table_name: str | None = None


class WriteOp(msgspec.Struct, frozen=True, array_like=True, tag="WRITE"):
    """A log operation that writes rows, at `timestamp` or later.

    `foreign` has the positions of the rows whose keys belong to another tablet. Only the leader
    checks this, because other replicas may not know the partition.
    """

    timestamp: int
    client_id: str
    seq_no: int
    first_incomplete: int
    operations: tuple[RowOperation, ...]
    foreign: tuple[int, ...] = ()


class AdvanceOp(msgspec.Struct, frozen=True, array_like=True, tag="ADVANCE"):
    """A log operation that writes no row. Later operations have timestamps above `timestamp`."""

    timestamp: int


class WriteOutcome(msgspec.Struct, frozen=True):
    """The outcome of applying a write. `result` is `None` if the write is stale.

    `again` is true if the replica has applied an earlier copy of the write.
    """

    result: WriteResult | None
    again: bool = False


TabletOp = AlterSchemaOp | WriteOp | AdvanceOp
_operations = msgspec.msgpack.Decoder(TabletOp)
_encoder = msgspec.msgpack.Encoder()


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """A tablet's snapshot without its rows."""

    table_name: str
    schema: Schema
    schema_version: int
    last_timestamp: int
    history_start: int
    clients: tuple[StoredClient, ...]


_heads = msgspec.msgpack.Decoder(_Head)
_stored = msgspec.msgpack.Decoder(StoredRows)


def judge_alter(operation: AlterSchemaOp, *, schema: Schema, schema_version: int) -> AlterOutcome:
    """Return the outcome of `operation` on a replica with this schema and version."""
    if operation.schema_version < schema_version:
        return AlterOutcome.OLDER
    if operation.schema_version > schema_version:
        return AlterOutcome.APPLIED
    return AlterOutcome.SAME if operation.schema == schema else AlterOutcome.MISMATCHED


class TabletMachine:
    """The applied state of a tablet on one replica; the `StateMachine` of a Raft replica."""

    def __init__(
        self,
        *,
        table_name: str,
        schema: Schema,
        schema_version: int,
        flags: Flags,
        on_change: Callable[[], None],
        on_timestamp: Callable[[int], None],
    ) -> None:
        """Begin with the parameters with which the tablet was created.

        `on_change` is called after a change of the schema. `on_timestamp` is called with the new
        `last_timestamp` when it rises.
        """
        self._flags = flags
        self._on_change = on_change
        self._on_timestamp = on_timestamp
        self.history_age = from_micros(flags.tablet_history_max_age_sec * _US_PER_S)
        self.table_name = table_name
        self.applied_index = 0
        self.last_timestamp = 1  # lower than the timestamp of any write
        self._disk_bytes = 0  # size of the row files that the next snapshot adds to
        self._set_schema(schema, schema_version)
        self.rows = self._no_rows()
        self.results = Results(
            results_ttl_ms=flags.remember_responses_ttl_ms,
            clients_ttl_ms=flags.remember_clients_ttl_ms,
        )

    def _no_rows(self) -> RowStore:
        return RowStore(
            history_bytes_max=self._flags.tablet_history_max_kb * 1024,
            loaded_at_once=self._flags.rows_loaded_at_once,
        )

    def _set_schema(self, schema: Schema, schema_version: int) -> None:
        self.schema = schema
        self.schema_version = schema_version
        self.key: tuple[Column, ...] = key_columns(schema)
        values = [column for column in schema.columns if not column.is_key]
        self.values = {column.id: column for column in values}
        self._required = [column.id for column in values if not column.is_nullable]

    def judge(self, operation: AlterSchemaOp) -> AlterOutcome:
        return judge_alter(operation, schema=self.schema, schema_version=self.schema_version)

    @staticmethod
    def encode(operation: TabletOp) -> bytes:
        return _encoder.encode(operation)

    # --- applying ---------------------------------------------------------------------------

    def apply(self, index: int, term: int, payload: bytes) -> AlterOutcome | WriteOutcome | None:
        """Apply one committed operation and return its outcome, which is equal on all replicas.

        An `AdvanceOp` has no outcome (`None`).
        """
        self.applied_index = index
        operation = _operations.decode(payload)
        if isinstance(operation, WriteOp):
            return self._write(operation, index, term)
        if isinstance(operation, AdvanceOp):
            self._advance(operation.timestamp)
            return None
        outcome = self.judge(operation)
        if outcome is AlterOutcome.APPLIED:
            self.table_name = operation.new_table_name or self.table_name
            self._set_schema(operation.schema, operation.schema_version)
            self._on_change()
        return outcome

    def _advance(self, timestamp: int) -> None:
        if timestamp <= self.last_timestamp:
            return
        self.last_timestamp = timestamp
        self.results.expire(timestamp)
        self.rows.collect(timestamp - self.history_age)
        self._on_timestamp(timestamp)

    def _write(self, operation: WriteOp, index: int, term: int) -> WriteOutcome:
        earlier = self.results.find(operation.client_id, operation.seq_no)
        if earlier is not None:
            return WriteOutcome(earlier, again=True)
        if self.results.is_stale(operation.client_id, operation.seq_no):
            return WriteOutcome(None)
        timestamp = max(operation.timestamp, self.last_timestamp + 1)
        foreign = frozenset(operation.foreign)
        errors = []
        for position, row in enumerate(operation.operations):
            code = (
                RowErrorCode.OUT_OF_RANGE
                if position in foreign
                else self._write_row(row, timestamp)
            )
            if code is not None:
                errors.append(RowError(position, code))
        result = WriteResult(timestamp, index, term, tuple(errors))
        self.results.add(operation.client_id, operation.seq_no, operation.first_incomplete, result)
        self._advance(timestamp)
        return WriteOutcome(result)

    def _write_row(self, row: RowOperation, timestamp: int) -> RowErrorCode | None:
        key = encode_key(self.key, row.key)
        before = self.rows.newest(key)
        kind = row.kind
        if kind is RowKind.UPDATE and not row.values:
            return RowErrorCode.INVALID_ARGUMENT  # Kudu: "No fields updated"
        if before is None and kind in {RowKind.UPDATE, RowKind.DELETE}:
            return RowErrorCode.NOT_FOUND
        if before is not None and kind is RowKind.INSERT:
            return RowErrorCode.ALREADY_PRESENT
        if kind is RowKind.DELETE:
            self.rows.put(key, timestamp, None)
            return None
        if any(column_id not in self.values for column_id in row.values):
            return RowErrorCode.INVALID_ARGUMENT  # a column was dropped after the leader's check
        after = row.values if before is None else {**decode_row(before), **row.values}
        if any(row.values.get(column_id, 0) is None for column_id in self._required):
            return RowErrorCode.INVALID_ARGUMENT
        if before is None and any(column_id not in after for column_id in self._required):
            return RowErrorCode.INVALID_ARGUMENT
        stored = {column_id: value for column_id, value in after.items() if value is not None}
        self.rows.put(key, timestamp, encode_row(stored))
        return None

    # --- snapshots --------------------------------------------------------------------------

    def _head(self, *, history_start: int) -> bytes:
        return _encoder.encode(
            _Head(
                self.table_name,
                self.schema,
                self.schema_version,
                self.last_timestamp,
                history_start,
                self.results.store(),
            )
        )

    def digest(self) -> bytes:
        """Return a digest of the state without history: histories may differ between replicas."""
        return hashlib.blake2b(self._head(history_start=0) + self.rows.digest).digest()

    def snapshot(self) -> bytes:
        rows = self.rows
        head = self._head(history_start=rows.history_start)
        changes = rows.take_changes()
        change_bytes = sum(len(key) + len(version) for key, version in changes)
        limit = 2 * rows.version_bytes + _REWRITE_SLACK_BYTES
        is_whole = not self._disk_bytes or self._disk_bytes + change_bytes > limit
        blocks = pack_blocks(rows.records() if is_whole else changes)
        written = sum(map(len, blocks))
        self._disk_bytes = written if is_whole else self._disk_bytes + written
        return _encoder.encode(StoredRows(head, is_whole, blocks))

    async def restore(self, data: bytes, index: int) -> None:
        """Replace the state with `data`, a snapshot of the whole state at `index`.

        Until this method returns, readers see the old state.
        """
        stored = _stored.decode(data)
        assert stored.is_whole, "the snapshot has only changes"
        head = _heads.decode(stored.head)
        rows = self._no_rows()
        for _ in rows.load(read_blocks(stored.blocks), head.history_start):
            # Let other tasks run: the heartbeats of tablets that this server leads must not be
            # late.
            await asyncio.sleep(0)
        self.rows = rows
        self.table_name = head.table_name
        self.applied_index = index
        self.last_timestamp = head.last_timestamp
        self.results.load(head.clients)
        self._disk_bytes = sum(map(len, stored.blocks))
        self._set_schema(head.schema, head.schema_version)
        self._on_timestamp(head.last_timestamp)
        self._on_change()
