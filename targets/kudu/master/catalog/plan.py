"""Plans of operations: records for one batch, and the calls to tablet servers that follow.

Planners are pure: they take a catalog and a request, and return a `Plan` or raise `RefusedError`.
The shell takes the locks, replicates the batch, and makes the calls only when the batch is
committed. This is the strict-ordering contract at the top of Kudu's `master/catalog_manager.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from targets.kudu.master.catalog.records import TableRecord, TabletRecord
from targets.kudu.master.tablets.replacement import AddPeer, Decision, EvictPeer, StepDownLeader

COPYING: Final = "COPYING"
DELETED: Final = "DELETED"
TOMBSTONED: Final = "TOMBSTONED"


@dataclass(frozen=True, slots=True)
class CreateReplica:
    """A call to a tablet server to create a replica of a CREATING tablet."""

    tablet_id: str
    ts_uuid: str

    @property
    def key(self) -> tuple[str, ...]:
        """The call's identity. At most one call with this identity may be pending (KUDU-2992)."""
        return ("create", self.tablet_id, self.ts_uuid)


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """A call that deletes or tombstones one replica.

    The tablet server refuses the call if the replica's configuration is newer than
    `cas_config_opid_index` (KUDU-1129).
    """

    tablet_id: str
    table_id: str
    ts_uuid: str
    delete_type: str
    reason: str
    cas_config_opid_index: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        cas = "" if self.cas_config_opid_index is None else str(self.cas_config_opid_index)
        return ("delete", self.tablet_id, self.ts_uuid, self.delete_type, cas)


@dataclass(frozen=True, slots=True)
class AlterTablet:
    """A call to a tablet's leader that brings the tablet to its table's newest schema."""

    tablet_id: str

    @property
    def key(self) -> tuple[str, ...]:
        return ("alter", self.tablet_id)


def config_key(tablet_id: str, opid_index: int) -> tuple[str, ...]:
    """Return the identity of a call that changes the configuration with log index `opid_index`."""
    return ("config", tablet_id, str(opid_index))


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """A call to a tablet's leader that carries out one decision of re-replication.

    `server` is the server chosen for an addition. `cas_config_opid_index` is the index of the
    configuration on which the decision is based. If the configuration has changed since, the leader
    refuses the call.
    """

    tablet_id: str
    decision: Decision
    server: tuple[str, str] | None  # uuid and address, for an addition
    cas_config_opid_index: int

    @property
    def key(self) -> tuple[str, ...]:
        """The call's identity. At most one change per configuration may be pending."""
        return config_key(self.tablet_id, self.cas_config_opid_index)

    @property
    def description(self) -> dict[str, str]:
        match self.decision:
            case AddPeer(member_type):
                assert self.server is not None, "an addition names its server"
                return {"change": "add", "peer": self.server[0], "member_type": member_type}
            case EvictPeer(uuid):
                return {"change": "evict", "peer": uuid}
            case StepDownLeader():
                return {"change": "step-down"}


Call = CreateReplica | DeleteReplica | AlterTablet | ChangeConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one operation: records for one batch, then calls to tablet servers."""

    table_id: str
    schema_version: int
    tables: tuple[TableRecord, ...] = ()
    tablets: tuple[TabletRecord, ...] = ()
    reserve: str | None = None  # a name to reserve while the batch is being written
    calls: tuple[Call, ...] = ()
