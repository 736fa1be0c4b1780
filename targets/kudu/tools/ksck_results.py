"""The results of a cluster check, in the shape of Kudu's `KsckResultsPB` (`tools/tool.proto`).

The fields are the keys of the JSON report, in the report's order. Results are plain data:
`ksck_judge.py` derives them from the servers' answers, and `ksck_text.py` prints them.
"""

from __future__ import annotations

import enum

import msgspec


class ServerHealth(enum.StrEnum):
    """The health of a server, judged by its answer."""

    HEALTHY = "HEALTHY"
    UNAVAILABLE = "UNAVAILABLE"
    WRONG_SERVER_UUID = "WRONG_SERVER_UUID"


class Health(enum.StrEnum):
    """The health of a tablet. A table has the health of its worst tablet.

    Values are in the order of Kudu's `KsckCheckResult`, the healthiest first.
    """

    HEALTHY = "HEALTHY"
    RECOVERING = "RECOVERING"
    UNDER_REPLICATED = "UNDER_REPLICATED"
    CONSENSUS_MISMATCH = "CONSENSUS_MISMATCH"
    UNAVAILABLE = "UNAVAILABLE"


class ConfigType(enum.StrEnum):
    """The source of a configuration: a master's records, or a replica."""

    MASTER = "MASTER"
    COMMITTED = "COMMITTED"
    PENDING = "PENDING"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all parts of the results."""


class ConsensusState(_Part, frozen=True):
    """A Raft group according to one of its members or to the master. Uuids are sorted."""

    type: ConfigType
    term: int | None = None
    opid_index: int | None = None
    leader_uuid: str | None = None
    voter_uuids: tuple[str, ...] = ()
    non_voter_uuids: tuple[str, ...] = ()

    def agrees_with(self, other: ConsensusState) -> bool:
        """Whether both states have the same leader, voters and non-voters.

        Two replicas must also have the same term and type. A master's record has no pending
        configuration, and its term may lag.
        """
        if ConfigType.MASTER not in (self.type, other.type) and (
            (self.type, self.term) != (other.type, other.term)
        ):
            return False
        mine = (self.leader_uuid, self.voter_uuids, self.non_voter_uuids)
        return mine == (other.leader_uuid, other.voter_uuids, other.non_voter_uuids)


class ServerSummary(_Part, frozen=True):
    """A master or a tablet server; `status` says why it is unhealthy."""

    uuid: str
    address: str
    health: ServerHealth
    status: str = "OK"
    version: str | None = None
    location: str | None = None


class MasterConsensusState(_Part, frozen=True):
    """The masters' group according to one master."""

    uuid: str
    consensus_state: ConsensusState


class ReplicaSummary(_Part, frozen=True):
    """A replica that the master knows; `state` is `None` if its server failed or lacks it."""

    ts_uuid: str
    ts_address: str | None = None
    ts_healthy: bool = False
    is_leader: bool = False
    is_voter: bool = False
    state: str | None = None
    data_state: str | None = None
    consensus_state: ConsensusState | None = None

    @property
    def is_running(self) -> bool:
        return self.ts_healthy and self.state == "RUNNING"


class TabletSummary(_Part, frozen=True):
    """A tablet; `status` explains `health` in words."""

    id: str
    table_id: str
    table_name: str
    health: Health
    status: str
    master_cstate: ConsensusState
    replica_infos: tuple[ReplicaSummary, ...]


class TableSummary(_Part, frozen=True):
    """A table, with the number of tablets in each state of health."""

    id: str
    name: str
    health: Health
    replication_factor: int
    total_tablets: int
    healthy_tablets: int
    recovering_tablets: int
    underreplicated_tablets: int
    unavailable_tablets: int
    consensus_mismatch_tablets: int


class ReplicaChecksum(_Part, frozen=True):
    """The checksum of one replica's rows; if it is missing, `status` says why."""

    ts_uuid: str
    ts_address: str
    status: str = "OK"
    checksum: str | None = None


class TabletChecksum(_Part, frozen=True):
    """The checksums of a tablet's replicas."""

    tablet_id: str
    mismatch: bool
    replica_checksums: tuple[ReplicaChecksum, ...]


class ChecksumResults(_Part, frozen=True):
    """The checksums of each table's tablets, by table name."""

    snapshot_timestamp: int | None = None
    tables: dict[str, tuple[TabletChecksum, ...]] = {}


class VersionSummary(_Part, frozen=True):
    """A version, and the servers that run it."""

    version: str
    servers: tuple[str, ...]


class CountSummary(_Part, frozen=True):
    """The number of checked objects, by kind."""

    masters: int = 0
    tservers: int = 0
    tables: int = 0
    tablets: int = 0
    replicas: int = 0


class KsckResults(_Part, frozen=True):
    """All results of a check. Only `errors` make the check fail; `warnings` do not."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    master_summaries: tuple[ServerSummary, ...] = ()
    tserver_summaries: tuple[ServerSummary, ...] = ()
    master_uuids: tuple[str, ...] = ()
    master_consensus_conflict: bool = False
    master_consensus_states: tuple[MasterConsensusState, ...] = ()
    tablet_summaries: tuple[TabletSummary, ...] = ()
    table_summaries: tuple[TableSummary, ...] = ()
    checksum_results: ChecksumResults | None = None
    version_summaries: tuple[VersionSummary, ...] = ()
    count_summaries: tuple[CountSummary, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors
