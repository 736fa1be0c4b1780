"""The system tablet: the rows that all masters replicate, as a deterministic state machine.

Kudu keeps rows of (entry type, entry id, metadata) in one Raft tablet, `sys.catalog`
(`master/sys_catalog.h`). `SystemTablet` has the same rows, in one map per entry type. A batch
contains the leader's wall clock, because a node that applies the batch must not read its own clock.

The newest `replies_max` answers are kept for resent requests. If an answer were dropped too early,
an operation could run twice. The limit is a number and not an age, because an age would depend on
clocks, which may be skewed. The number of dropped answers is part of the state and of every dump.

`observer` is called with every batch, in the same step that changes the rows. It publishes the
batch to the maps of leaders and followers, so that reads see all applied batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from targets.kudu.master.catalog.batches import decode_batch
from targets.kudu.master.catalog.records import (
    Batch,
    CleanupBatch,
    Forgotten,
    HmsBatch,
    TableRecord,
    TabletRecord,
    TabletState,
    TServerRecord,
    decode_reply,
)

REPLIES_MAX: Final = 4096
HMS_EVENTS_MAX: Final = 4096
_encoder: Final = msgspec.msgpack.Encoder()


class Applied(msgspec.Struct, frozen=True):
    """The result of applying a batch.

    `void` is true if the batch was planned in another term and therefore changed nothing.
    """

    index: int
    void: bool


class ForgottenCounts(msgspec.Struct, frozen=True, array_like=True):
    """The numbers of tables and tablets that were ever removed, and of their replicas and alters.

    `altered` adds up, for each removed tablet, the schema version of its table.
    """

    tables: int = 0
    tablets: int = 0
    replicas: int = 0
    altered: int = 0


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    last_index: int
    cluster_id: str | None
    replies_forgotten: int
    tables: tuple[TableRecord, ...]
    tablets: tuple[TabletRecord, ...]
    replies: tuple[msgspec.Raw, ...]  # oldest first
    running_since: tuple[tuple[str, int], ...] = ()
    tservers: tuple[TServerRecord, ...] = ()


class _HmsSnapshot(_Snapshot, frozen=True, array_like=True):
    hms_event: int = 0
    hms_events: tuple[tuple[int, int], ...] = ()


class _CleanedSnapshot(_HmsSnapshot, frozen=True, array_like=True):
    forgotten: ForgottenCounts = ForgottenCounts()


_snapshots: Final = msgspec.msgpack.Decoder(_CleanedSnapshot)


class SystemTablet:
    """The rows of the system tablet on one master; the `StateMachine` of its Raft replica."""

    def __init__(self, *, replies_max: int = REPLIES_MAX) -> None:
        self._replies_max = replies_max
        self.last_index = 0  # index of the last batch that changed rows
        self.cluster_id: str | None = None
        self.tables: dict[str, TableRecord] = {}
        self.tablets: dict[str, TabletRecord] = {}
        self.tservers: dict[str, TServerRecord] = {}
        self.replies: dict[tuple[str, int], msgspec.Raw] = {}  # oldest first
        self.replies_forgotten = 0
        self.running_since: dict[str, int] = {}
        """Tablet id -> index of the operation that made the tablet RUNNING.

        A checker uses these indexes in a dump to find IsCreateTableDone answers that came too
        early.
        """
        self.hms_event = 0
        """The id of the last event of the Hive metastore's log that was applied or skipped."""
        self.hms_events: list[tuple[int, int]] = []
        """Pairs (metastore event id, index of the operation that stored the id), oldest first."""
        self.forgotten = ForgottenCounts()
        self.observer: Callable[[Batch, int, int], None] | None = None
        """A function that is called with (batch, index, term) when a batch changes rows."""
        self.on_restore: Callable[[], None] | None = None
        """A function that is called after a snapshot has replaced all rows."""

    def apply(self, index: int, term: int, payload: bytes) -> Applied:
        batch = decode_batch(payload)
        if batch.leader_term != term:
            return Applied(index, void=True)
        for table in batch.tables:
            self.tables[table.id] = table
        for tablet in batch.tablets:
            self.tablets[tablet.id] = tablet
            if tablet.state is TabletState.RUNNING:
                self.running_since.setdefault(tablet.id, index)
        for server in batch.tservers:
            self.tservers[server.uuid] = server
        if batch.cluster_id is not None and self.cluster_id is None:
            self.cluster_id = batch.cluster_id
        if batch.reply is not None:
            reply = msgspec.structs.replace(batch.reply, index=index, term=term)
            self.replies[reply.key] = msgspec.Raw(_encoder.encode(reply))
            while len(self.replies) > self._replies_max:
                del self.replies[next(iter(self.replies))]
                self.replies_forgotten += 1
        if isinstance(batch, CleanupBatch):
            self._forget(batch.forgotten)
        elif isinstance(batch, HmsBatch):
            self.hms_event = batch.hms_event
            self.hms_events.append((batch.hms_event, index))
            del self.hms_events[:-HMS_EVENTS_MAX]
        self.last_index = index
        if self.observer is not None:
            self.observer(batch, index, term)
        return Applied(index, void=False)

    def _forget(self, rows: Forgotten) -> None:
        count = self.forgotten
        replicas = altered = 0
        for tablet_id in rows.tablets:
            table = self.tables[self.tablets.pop(tablet_id).table_id]
            replicas, altered = replicas + table.num_replicas, altered + table.version
            self.running_since.pop(tablet_id, None)
        for table_id in rows.tables:
            del self.tables[table_id]
        self.forgotten = ForgottenCounts(
            count.tables + len(rows.tables),
            count.tablets + len(rows.tablets),
            count.replicas + replicas,
            count.altered + altered,
        )

    def snapshot(self) -> bytes:
        image = _Snapshot(
            self.last_index,
            self.cluster_id,
            self.replies_forgotten,
            tuple(record for _, record in sorted(self.tables.items())),
            tuple(record for _, record in sorted(self.tablets.items())),
            tuple(self.replies.values()),
            tuple(sorted(self.running_since.items())),
            tuple(record for _, record in sorted(self.tservers.items())),
        )
        if self.hms_events or self.forgotten != ForgottenCounts():
            image = _HmsSnapshot(
                **msgspec.structs.asdict(image),
                hms_event=self.hms_event,
                hms_events=tuple(self.hms_events),
            )
        if self.forgotten != ForgottenCounts():
            image = _CleanedSnapshot(**msgspec.structs.asdict(image), forgotten=self.forgotten)
        return _encoder.encode(image)

    async def restore(self, data: bytes, index: int) -> None:
        # an older snapshot may lack fields, which then get their defaults
        stored = _snapshots.decode(data)
        assert stored.last_index <= index, (
            f"a snapshot at index {index} holds the later operation {stored.last_index}"
        )
        self.last_index = stored.last_index
        self.cluster_id = stored.cluster_id
        self.replies_forgotten = stored.replies_forgotten
        self.tables = {record.id: record for record in stored.tables}
        self.tablets = {record.id: record for record in stored.tablets}
        self.replies = {decode_reply(raw).key: raw.copy() for raw in stored.replies}
        self.running_since = dict(stored.running_since)
        self.tservers = {record.uuid: record for record in stored.tservers}
        self.hms_event, self.hms_events = stored.hms_event, list(stored.hms_events)
        self.forgotten = stored.forgotten
        if self.on_restore is not None:
            self.on_restore()
