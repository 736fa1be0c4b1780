"""The decision of a planner: records to put in one batch, and calls to tablet servers after it.

Planners are pure: a catalog and a request in, a `Plan` out, or a `RefusedError`. The shell takes
the locks, replicates the batch, and only when it is committed makes the calls (the strict-ordering
contract at the top of Kudu's `master/catalog_manager.cc`).
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
    """Create the replica of a CREATING tablet on one tablet server."""

    tablet_id: str
    ts_uuid: str

    @property
    def key(self) -> tuple[str, ...]:
        """The identity under which it is pending once at most (KUDU-2992)."""
        return ("create", self.tablet_id, self.ts_uuid)


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """Delete or tombstone one replica. With `cas_config_opid_index` the tablet server refuses when
    the replica has a newer configuration (KUDU-1129).
    """

    tablet_id: str
    table_id: str
    ts_uuid: str
    delete_type: str
    reason: str
    cas_config_opid_index: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The identity under which it is pending once at most (KUDU-2992)."""
        cas = "" if self.cas_config_opid_index is None else str(self.cas_config_opid_index)
        return ("delete", self.tablet_id, self.ts_uuid, self.delete_type, cas)


@dataclass(frozen=True, slots=True)
class AlterTablet:
    """Bring a tablet to its table's newest schema, through its leader."""

    tablet_id: str

    @property
    def key(self) -> tuple[str, ...]:
        """The identity under which it is pending once at most (KUDU-2992)."""
        return ("alter", self.tablet_id)


def config_key(tablet_id: str, opid_index: int) -> tuple[str, ...]:
    """The key of a change of the configuration of that index."""
    return ("config", tablet_id, str(opid_index))


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """Bring a tablet one step closer to its number of good replicas, through its leader.

    An addition names the chosen server. The step applies only to the configuration it was decided
    on: the tablet's leader compares `cas_config_opid_index` as well.
    """

    tablet_id: str
    decision: Decision
    server: tuple[str, str] | None  # uuid and address, of an addition
    cas_config_opid_index: int

    @property
    def key(self) -> tuple[str, ...]:
        """One change of one configuration is pending at most."""
        return config_key(self.tablet_id, self.cas_config_opid_index)

    @property
    def description(self) -> dict[str, str]:
        """The change and its peer, for events."""
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
    """One logical operation. No records means that there is nothing to write."""

    table_id: str
    schema_version: int
    tables: tuple[TableRecord, ...] = ()
    tablets: tuple[TabletRecord, ...] = ()
    reserve: str | None = None  # a name to keep while the batch is under way
    calls: tuple[Call, ...] = ()
