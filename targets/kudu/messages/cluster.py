"""`MasterService`: masters, heartbeats, tablet reports and dumps."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from targets.kudu.messages.base import MasterCall, MasterResponse, Message, TabletServerCall
from targets.kudu.messages.schema import PeerHealth, RaftConfig


class ConnectToMasterResponse(MasterResponse, frozen=True):
    """A master's role, which is LEADER only if its catalog is loaded and ready in this term."""

    role: str = "FOLLOWER"
    master_addresses: tuple[str, ...] = ()
    cluster_id: str = ""


class ConnectToMasterRequest(MasterCall[ConnectToMasterResponse], frozen=True):
    """Ask a master for its role in the catalog manager, which may differ from its Raft role."""


class GetMasterRegistrationResponse(MasterResponse, frozen=True):
    """A master's registration, with its Raft role and the wall-clock time of its start.

    From `committed_config`, a master that starts on an empty disk learns that a cluster exists.
    """

    address: str = ""
    role: str = "FOLLOWER"
    member_type: str = "VOTER"
    start_ns: int = 0
    committed_config: RaftConfig | None = None
    active_index: int = -1  # index of the active configuration, committed or not
    software_version: str = ""
    told_masters: tuple[str, ...] = ()  # the masters in the answering master's settings


class GetMasterRegistrationRequest(MasterCall[GetMasterRegistrationResponse], frozen=True):
    """Ask a master for its registration."""


class TabletServerEntry(Message, frozen=True):
    """A tablet server as one master knows it."""

    uuid: str
    address: str
    millis_since_heartbeat: int
    num_live_tablets: int
    in_maintenance: bool = False


class ListTabletServersResponse(MasterResponse, frozen=True):
    """The tablet servers that have registered with this master since it started."""

    servers: tuple[TabletServerEntry, ...] = ()


class ListTabletServersRequest(MasterCall[ListTabletServersResponse], frozen=True):
    """Ask for this master's view of the tablet servers; any master answers."""


class TServerStateChange(enum.StrEnum):
    """Start or end of a tablet server's maintenance (Kudu's `TServerStateChangePB.StateChange`)."""

    ENTER_MAINTENANCE_MODE = "ENTER_MAINTENANCE_MODE"
    EXIT_MAINTENANCE_MODE = "EXIT_MAINTENANCE_MODE"


class ChangeTServerStateResponse(MasterResponse, frozen=True):
    """The answer, sent once the change is committed; setting the current state again succeeds."""


class ChangeTServerStateRequest(MasterCall[ChangeTServerStateResponse], frozen=True):
    """Start or end the maintenance of a tablet server.

    In maintenance, the server gets no new replicas, and its silence is no reason to create replicas
    elsewhere.
    """

    ts_uuid: str
    change: TServerStateChange


class TSRegistration(Message, frozen=True):
    """The address of a tablet server."""

    address: str


class ReportedTablet(Message, frozen=True):
    """A replica in a tablet report, with `leader_uuid` and `term` according to this replica.

    Only a leader sends `peer_health`, which covers every member, itself included. Masters do not
    store it.
    """

    tablet_id: str
    state: str  # NOT_INITIALIZED, BOOTSTRAPPING, RUNNING, FAILED, STOPPED
    data_state: str  # COPYING, READY, DELETED, TOMBSTONED
    term: int
    leader_uuid: str | None
    committed_config: RaftConfig | None
    schema_version: int
    error: str | None = None
    has_pending_config: bool = False
    peer_health: dict[str, PeerHealth] = msgspec.field(default_factory=dict)


class TabletReport(Message, frozen=True):
    """A full or an incremental tablet report.

    A tablet server reports a changed tablet until a master acknowledges a report whose
    `sequence_number` is at least the number of the change.
    """

    is_incremental: bool
    sequence_number: int
    updated_tablets: tuple[ReportedTablet, ...] = ()
    removed_tablet_ids: tuple[str, ...] = ()


class TSHeartbeatResponse(MasterResponse, frozen=True):
    """A master's answer to a heartbeat. `leader_master` says whether this master leads.

    `processed_sequence` acknowledges the report; it is -1 if the report was not handled.
    `master_addresses` are the masters of the newest configuration known to this master (not in
    Kudu; flag `heartbeat_names_masters`).
    """

    leader_master: bool = False
    needs_reregister: bool = False
    needs_full_tablet_report: bool = False
    processed_sequence: int = -1
    cluster_id: str = ""
    master_addresses: tuple[str, ...] = ()


class TSHeartbeatRequest(MasterCall[TSHeartbeatResponse], frozen=True):
    """A tablet server's heartbeat.

    `ts_seqno` is the start time of the tablet server in ns, by which masters notice restarts.
    `cluster_id` is empty until the tablet server has joined a cluster.
    """

    ts_uuid: str
    ts_seqno: int
    registration: TSRegistration | None = None
    report: TabletReport | None = None
    num_live_tablets: int = 0
    cluster_id: str = ""


class DumpResponse(Message, frozen=True):
    """A node's whole state as plain JSON data, for checkers and for people."""

    data: dict[str, Any]


class DumpEntitiesRequest(MasterCall[DumpResponse], frozen=True):
    """Ask a master for its whole state; any master answers."""


class DumpTabletsRequest(TabletServerCall[DumpResponse], frozen=True):
    """Ask a tablet server for its whole state."""
