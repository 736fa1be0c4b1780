"""The records of the system tablet: tables and tablets, kept answers, and the batch of a write.

States and their codes are Kudu's (`master/master.proto`: SysTablesEntryPB, SysTabletsEntryPB).
Every record is immutable; a change makes a new one. One logical operation is one `Batch` (the fix
of KUDU-495), and the answer to its request travels inside it, so that a resent request gets the
first answer (Kudu has no such thing: KUDU-1537).

Rows of deleted tables and tablets are kept for ever, as in Kudu, so that a late replica is known
to be dead; `buried` keeps them small.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from targets.kudu.messages import Partition, PartitionSchema, RaftConfig, Schema

SYSTEM_TABLET_ID: Final = "0" * 32


class TableState(enum.IntEnum):
    """The life of a table. PREPARING never leaves memory; UNKNOWN is never stored."""

    UNKNOWN = 0
    PREPARING = 1
    RUNNING = 2
    ALTERING = 3
    REMOVED = 4


class TabletState(enum.IntEnum):
    """The life of a tablet; REPLACED and DELETED are terminal."""

    PREPARING = 0
    CREATING = 1
    RUNNING = 2
    REPLACED = 3
    DELETED = 4
    UNKNOWN = 999


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """The base of stored records: an immutable msgpack array."""


class ConsensusState(_Record, frozen=True):
    """The known state of a tablet's Raft group: its committed configuration, term and leader."""

    term: int
    leader_uuid: str | None
    config: RaftConfig


class TableRecord(_Record, frozen=True):
    """A table. While ALTERING, `applied_schema` of `applied_version` is what readers are shown."""

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
    create_ns: int = 0  # wall clocks of the leaders that did it
    alter_ns: int = 0
    delete_ns: int = 0
    owner: str = ""
    comment: str = ""

    @property
    def is_live(self) -> bool:
        return self.state is not TableState.REMOVED

    @property
    def is_running(self) -> bool:
        """Whether it serves: RUNNING or ALTERING."""
        state = self.state
        return state is TableState.RUNNING or state is TableState.ALTERING

    @property
    def shown_schema(self) -> Schema:
        """The fully applied schema."""
        return self.schema if self.applied_schema is None else self.applied_schema

    @property
    def shown_version(self) -> int:
        return self.version if self.applied_schema is None else self.applied_version

    def buried(self, delete_ns: int, reason: str) -> TableRecord:
        """This table, REMOVED and stripped to what its id is still needed for."""
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
    """The start of every replica of a tablet, at any time of its creation: the log does the rest.
    Were it taken from the table at the time of each call, replicas could start differently.
    """

    table_name: str
    schema: Schema
    schema_version: int


class TabletRecord(_Record, frozen=True):
    """A tablet. `consensus` and `origin` are `None` before placement and after its end.
    `created_ns` is the wall clock at which it became CREATING: stored, so that a failover does not
    restart the creation timeout (BG-CLOCK-RESET of the bug catalogue).
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
        """This tablet, DELETED or REPLACED and stripped to what its id is still needed for."""
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
    """Decisions about a tablet server; its own doings are not stored."""

    uuid: str
    in_maintenance: bool
    changed_ns: int  # the wall clock of the leader that did it


class Reply(_Record, frozen=True):
    """The answer to one DDL request, kept so that resending the request changes nothing.

    `index` and `term` are of the operation that carried it; they are filled in when it is
    applied and mean nothing before.
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
        """The name of the request."""
        return self.client_id, self.seq_no


_replies: Final = msgspec.msgpack.Decoder(Reply)


def decode_reply(raw: msgspec.Raw) -> Reply:
    """A reply as it is kept."""
    return _replies.decode(raw)


class Batch(_Record, frozen=True):
    """One write to the system tablet: whole records, put atomically.

    `leader_term` is the term of the catalog it was planned on. A batch that lands in another term
    is void: operations never commit on state that was loaded for another leadership
    (RELOAD-NO-LOCK of the bug catalogue).
    """

    leader_term: int
    timestamp_ns: int
    tables: tuple[TableRecord, ...] = ()
    tablets: tuple[TabletRecord, ...] = ()
    reply: Reply | None = None
    cluster_id: str | None = None
    tservers: tuple[TServerRecord, ...] = ()


class HmsBatch(Batch, frozen=True):
    """A write that carries out an event of the metastore's log, or passes some over: the id of the
    last event is stored in the batch of the change itself. Other batches keep their bytes.
    """

    hms_event: int = 0
