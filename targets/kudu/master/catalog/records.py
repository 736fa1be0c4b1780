"""The records of the system tablet: tables, tablets and stored answers, and batches of records.

States and their codes are Kudu's (`master/master.proto`: SysTablesEntryPB, SysTabletsEntryPB).
Records are immutable: a change creates a new record. One operation is one `Batch` (the fix of
KUDU-495). The batch contains the answer to the request, so that a resent request gets the first
answer (Kudu stores no answers: KUDU-1537).

Rows of deleted tables and tablets are kept for a long time, so that masters recognise a late report
about a replica of such a tablet. `buried` removes most fields of these rows. In the end, the leader
removes the rows (`CleanupBatch`).
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from targets.kudu.messages import Partition, PartitionSchema, RaftConfig, Schema

SYSTEM_TABLET_ID: Final = "0" * 32


class TableState(enum.IntEnum):
    """The states of a table. UNKNOWN is never stored, and PREPARING is unused."""

    UNKNOWN = 0
    PREPARING = 1
    RUNNING = 2
    ALTERING = 3
    REMOVED = 4


class TabletState(enum.IntEnum):
    """The states of a tablet; REPLACED and DELETED are final."""

    PREPARING = 0
    CREATING = 1
    RUNNING = 2
    REPLACED = 3
    DELETED = 4
    UNKNOWN = 999


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """The base of stored records: an immutable msgpack array."""


class ConsensusState(_Record, frozen=True):
    """A tablet's Raft group as last reported: its committed configuration, term and leader."""

    term: int
    leader_uuid: str | None
    config: RaftConfig


class TableRecord(_Record, frozen=True):
    """A table's row.

    While the table is ALTERING, readers see `applied_schema`, whose version is `applied_version`.
    """

    id: str
    name: str
    version: int
    schema: Schema
    partition_schema: PartitionSchema
    next_column_id: int
    num_replicas: int
    state: TableState
    applied_schema: Schema | None = None
    applied_version: int = 0
    state_msg: str = ""
    create_ns: int = 0  # this and the next two are times on the leader's wall clock
    alter_ns: int = 0
    delete_ns: int = 0
    owner: str = ""
    comment: str = ""

    @property
    def is_live(self) -> bool:
        return self.state is not TableState.REMOVED

    @property
    def is_running(self) -> bool:
        """Whether the table serves requests: it is RUNNING or ALTERING."""
        state = self.state
        return state is TableState.RUNNING or state is TableState.ALTERING

    @property
    def shown_schema(self) -> Schema:
        """The schema that readers see: the newest one or, during alters, the one before them."""
        return self.schema if self.applied_schema is None else self.applied_schema

    @property
    def shown_version(self) -> int:
        return self.version if self.applied_schema is None else self.applied_version

    def buried(self, delete_ns: int, reason: str) -> TableRecord:
        """Return this table in state REMOVED, without its columns."""
        return msgspec.structs.replace(
            self,
            state=TableState.REMOVED,
            state_msg=reason,
            delete_ns=delete_ns,
            schema=Schema(()),
            applied_schema=None,
            applied_version=self.version,
        )


class Origin(_Record, frozen=True):
    """The table name and schema with which every replica of a tablet is created.

    The tablet's log has all later changes. If each CreateTablet call used the table's current
    schema instead, replicas could begin with different schemas.
    """

    table_name: str
    schema: Schema
    schema_version: int


class TabletRecord(_Record, frozen=True):
    """A tablet's row. `consensus` and `origin` are `None` before placement and after deletion.

    `created_ns` is the wall-clock time at which the tablet became CREATING. The time is stored, so
    that a failover does not restart the creation timeout (bug BG-CLOCK-RESET).
    """

    id: str
    table_id: str
    partition: Partition
    state: TabletState
    consensus: ConsensusState | None = None
    origin: Origin | None = None
    created_ns: int = 0
    deleted_ns: int = 0
    state_msg: str = ""

    @property
    def is_live(self) -> bool:
        state = self.state
        return state is not TabletState.REPLACED and state is not TabletState.DELETED

    def buried(self, state: TabletState, deleted_ns: int, reason: str) -> TabletRecord:
        """Return this tablet in `state` (DELETED or REPLACED), without its replicas."""
        assert state in {TabletState.REPLACED, TabletState.DELETED}
        return msgspec.structs.replace(
            self,
            state=state,
            consensus=None,
            origin=None,
            deleted_ns=deleted_ns,
            state_msg=reason,
        )


class TServerRecord(_Record, frozen=True):
    """A tablet server's row. It says whether an operator has put the server in maintenance."""

    uuid: str
    in_maintenance: bool
    changed_ns: int  # the wall-clock time at which `in_maintenance` changed


class Reply(_Record, frozen=True):
    """The stored answer to one DDL request. A resent request gets this answer and changes nothing.

    `index` and `term` identify the log entry that contains the answer. They are set when the entry
    is applied.
    """

    client_id: str
    seq_no: int
    nonce: str
    table_id: str
    schema_version: int
    index: int = -1
    term: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.client_id, self.seq_no


decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode


class Batch(_Record, frozen=True):
    """One write to the system tablet: complete records, which atomically replace older ones.

    `leader_term` is the term of the catalog on which the batch was planned. If the log entry has
    another term, the batch is void: it was planned on the catalog of an earlier leadership (bug
    RELOAD-NO-LOCK).
    """

    leader_term: int
    timestamp_ns: int
    tables: tuple[TableRecord, ...] = ()
    tablets: tuple[TabletRecord, ...] = ()
    reply: Reply | None = None
    cluster_id: str | None = None
    tservers: tuple[TServerRecord, ...] = ()


class HmsBatch(Batch, frozen=True):
    """A batch that applies or skips an event of the Hive metastore's notification log.

    `hms_event` is the id of the last such event. The encoding of other batches lacks this field.
    """

    hms_event: int = 0


class Forgotten(_Record, frozen=True):
    """The ids of dead tables and tablets whose rows are removed."""

    tables: tuple[str, ...] = ()
    tablets: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tables or self.tablets)


class CleanupBatch(HmsBatch, frozen=True):
    """A batch that only removes rows. Its encoding is recognized by its number of fields."""

    forgotten: Forgotten = Forgotten()
