"""Messages of `ConsensusService`, after Kudu's `consensus/consensus.proto`.

Every request names its destination server (`dest_uuid`) and the Raft group (`tablet_id`), so one
dispatcher per server can serve all groups. A node that was wiped has a new uuid, and refuses calls
to its old uuid.

`InstallSnapshot` does not exist in Kudu, which copies whole tablets instead. Here,
`StartTabletCopy` only creates an empty replica, which a snapshot or the leader's log then fills.
"""

from __future__ import annotations

import enum

import msgspec

from targets.kudu.messages import Message, PeerConfig, PeerHealth, RaftConfig
from targets.kudu.rpc import Call, R_co


class ConsensusCall(Call[R_co], frozen=True):
    """A request to the server `dest_uuid`, for its replica of the group `tablet_id`."""

    service = "ConsensusService"
    dest_uuid: str
    tablet_id: str


class EntryKind(enum.IntEnum):
    """The kind of a log entry's content."""

    NO_OP = 0
    """The first entry of a leader's term; its commit commits all earlier entries (Raft 5.4.2)."""
    WRITE = 1
    """A payload for the state machine."""
    CONFIG = 2
    """A `RaftConfig` in msgpack, which is active once the entry is in the log."""


class Entry(Message, frozen=True):
    """A log entry; no other entry ever has the same term and index (log matching property)."""

    term: int
    index: int
    kind: EntryKind
    payload: bytes


class OpId(Message, frozen=True):
    """The identity of a log entry; `OpId(0, 0)` means the end of an empty log."""

    term: int
    index: int


class ConsensusErrorCode(enum.IntEnum):
    """Error codes of consensus calls.

    The codes below 20 are Kudu's `ConsensusErrorPB.Code`. From 20 on, the names come from Kudu's
    `TabletServerErrorPB` or from Kudu's status codes, but the numbers are not Kudu's.
    """

    UNKNOWN = 1
    INVALID_TERM = 2
    LAST_OPID_TOO_OLD = 3
    ALREADY_VOTED = 4
    NOT_IN_QUORUM = 5
    PRECEDING_ENTRY_DIDNT_MATCH = 6
    LEADER_IS_ALIVE = 7
    CONSENSUS_BUSY = 8
    CANNOT_PREPARE = 9
    TABLET_NOT_FOUND = 20
    WRONG_SERVER_UUID = 21
    NOT_THE_LEADER = 22
    CAS_FAILED = 23
    """The committed configuration is not the configuration that the caller expects."""
    INVALID_CONFIG = 24
    """The requested change of the configuration is never allowed (Kudu: InvalidArgument)."""
    ILLEGAL_STATE = 25
    """The change is refused for now.

    Another change is pending, the leader is handing over, or no entry of its term has committed.
    """
    ABORTED = 26
    """The leader appended the change and then lost its leadership; the change may still commit."""
    TABLET_FAILED = 27
    """The server has a replica that cannot run; the group must replace it."""
    ALREADY_INPROGRESS = 28
    """The tablet is being created, copied or deleted on the answering server."""


class ConsensusError(Message, frozen=True):
    """The reason why a consensus call was refused."""

    code: ConsensusErrorCode
    message: str


class RequestConsensusVoteResponse(Message, frozen=True):
    """A voter's answer to a candidate. A vote in a real election is durable before it is sent."""

    responder_uuid: str
    responder_term: int = 0
    vote_granted: bool = False
    error: ConsensusError | None = None


class RequestConsensusVoteRequest(ConsensusCall[RequestConsensusVoteResponse], frozen=True):
    """A candidate's request for a vote.

    A request with `is_pre_election` does not change the voter's state. `ignore_live_leader` is set
    if an operator requested the election, or a leader that hands over its role.
    """

    candidate_uuid: str
    candidate_term: int
    last_logged: OpId
    is_pre_election: bool = False
    ignore_live_leader: bool = False


class UpdateConsensusResponse(Message, frozen=True):
    """A follower's answer to an update, with the follower's positions in its own log.

    `last_received_current_leader` is the last entry that is durable on the follower and known to
    be in the caller's log. `last_received` is the last entry of the follower's log; an earlier
    leader may have sent it.
    """

    responder_uuid: str
    responder_term: int = 0
    last_received: OpId = OpId(0, 0)
    last_received_current_leader: OpId = OpId(0, 0)
    last_committed_index: int = 0
    error: ConsensusError | None = None


class UpdateConsensusRequest(ConsensusCall[UpdateConsensusResponse], frozen=True):
    """A leader's heartbeat to a follower; `entries`, if any, follow `preceding` without a gap."""

    caller_uuid: str
    caller_term: int
    preceding: OpId
    committed_index: int
    entries: tuple[Entry, ...] = ()


class InstallSnapshotResponse(Message, frozen=True):
    """A peer's answer to one chunk of a snapshot.

    `next_offset` is the offset of the next chunk to send; `installed` ends the transfer.
    """

    responder_uuid: str
    responder_term: int = 0
    next_offset: int = 0
    installed: bool = False
    error: ConsensusError | None = None


class InstallSnapshotRequest(ConsensusCall[InstallSnapshotResponse], frozen=True):
    """One chunk of a leader's snapshot, at `offset`; `crc` is the CRC-32 of the whole snapshot.

    `last_included`, `config` and `digest` are the fields of `consensus_meta.Snapshot`.
    """

    caller_uuid: str
    caller_term: int
    last_included: OpId
    config: RaftConfig
    digest: bytes
    total_size: int
    crc: int
    offset: int
    data: bytes


class GetConsensusStateResponse(Message, frozen=True):
    """A replica's view of its group; `role` is the role of this replica.

    The active configuration is the pending one if there is one, or else the committed one. Only a
    leader fills `peer_health`, which maps the uuid of each member, itself included, to its health.
    """

    responder_uuid: str
    current_term: int = 0
    role: str = "UNKNOWN_ROLE"
    leader_uuid: str | None = None
    committed_config: RaftConfig | None = None
    pending_config: RaftConfig | None = None
    last_logged: OpId = OpId(0, 0)
    committed_index: int = 0
    peer_health: dict[str, PeerHealth] = msgspec.field(default_factory=dict)
    error: ConsensusError | None = None

    @property
    def active_config(self) -> RaftConfig | None:
        return self.pending_config or self.committed_config


class GetConsensusStateRequest(ConsensusCall[GetConsensusStateResponse], frozen=True):
    """Ask a replica, which need not lead, for its view of its group."""


class OpIdType(enum.StrEnum):
    """Whether a request asks for the last received or the last committed entry."""

    RECEIVED = "RECEIVED_OPID"
    COMMITTED = "COMMITTED_OPID"


class GetLastOpIdResponse(Message, frozen=True):
    """The identity of the requested last entry; `OpId(0, 0)` if the log is empty."""

    opid: OpId = OpId(0, 0)
    error: ConsensusError | None = None


class GetLastOpIdRequest(ConsensusCall[GetLastOpIdResponse], frozen=True):
    """Ask any replica for the `OpId` of its last received or last committed entry."""

    opid_type: OpIdType = OpIdType.RECEIVED


class ReadIndexResponse(Message, frozen=True):
    """The leader's read index: all writes acknowledged before the request are at or below it.

    A majority confirmed the leadership after the request arrived (dissertation 6.4). Kudu has no
    linearizable follower reads (KUDU-500).
    """

    term: int = 0
    index: int = 0
    error: ConsensusError | None = None


class ReadIndexRequest(ConsensusCall[ReadIndexResponse], frozen=True):
    """Ask the leader for the index that a follower must apply to see all acknowledged writes."""


class StepDownMode(enum.StrEnum):
    """The ways in which a leader gives up its role."""

    ABRUPT = "ABRUPT"
    """The leader steps down at once; the next leader is elected after an election timeout."""
    GRACEFUL = "GRACEFUL"
    """The leader refuses writes, and asks a successor that has its whole log to run for leader.

    If no successor takes over within an election timeout, the leader continues to lead.
    """


class LeaderStepDownResponse(Message, frozen=True):
    """Without `error`, the leader has stepped down (ABRUPT) or begun to hand over (GRACEFUL)."""

    error: ConsensusError | None = None


class LeaderStepDownRequest(ConsensusCall[LeaderStepDownResponse], frozen=True):
    """Ask a leader to give up its role.

    `new_leader_uuid` must name a voter and is allowed only with GRACEFUL. If it is None, the first
    voter that has caught up becomes the successor.
    """

    mode: StepDownMode = StepDownMode.ABRUPT
    new_leader_uuid: str | None = None


class RunLeaderElectionResponse(Message, frozen=True):
    """Without `error`, the replica runs for leader, unless it leads or must not be a candidate."""

    error: ConsensusError | None = None


class RunLeaderElectionRequest(ConsensusCall[RunLeaderElectionResponse], frozen=True):
    """Ask a replica to run for leader now, without a pre-election and even if a leader is alive."""


class ChangeType(enum.StrEnum):
    """The kind of a membership change; Kudu's `ChangeConfigType`."""

    ADD_PEER = "ADD_PEER"
    REMOVE_PEER = "REMOVE_PEER"
    MODIFY_PEER = "MODIFY_PEER"


class PeerChange(Message, frozen=True):
    """One change of one member of a group.

    ADD_PEER uses all fields of `peer`; REMOVE_PEER uses only its uuid. MODIFY_PEER copies member
    type, `promote`, `replace` and, if not empty, the address from `peer`.
    """

    type: ChangeType
    peer: PeerConfig


class ChangeConfigResponse(Message, frozen=True):
    """The leader's answer once a change has committed; `config` is the new configuration.

    If the code is ABORTED, or if the call times out, the change may have committed or may still
    commit.
    """

    config: RaftConfig | None = None
    error: ConsensusError | None = None


class ChangeConfigRequest(ConsensusCall[ChangeConfigResponse], frozen=True):
    """Ask a group's leader to change the configuration.

    If `cas_config_opid_index` is set, the change is refused unless the committed configuration has
    that index.
    """

    change: PeerChange
    cas_config_opid_index: int | None = None


class BulkChangeConfigRequest(ConsensusCall[ChangeConfigResponse], frozen=True):
    """Ask a group's leader for several membership changes in one step.

    At most one of the changes may add, remove, promote or demote a voter.
    """

    changes: tuple[PeerChange, ...]
    cas_config_opid_index: int | None = None


class UnsafeChangeConfigResponse(Message, frozen=True):
    """Without `error`, the replica has the new configuration on disk.

    The configuration commits under the next leader.
    """

    error: ConsensusError | None = None


class UnsafeChangeConfigRequest(ConsensusCall[UnsafeChangeConfigResponse], frozen=True):
    """Force a replica to remove all members except `member_uuids` from its group.

    The replica itself must be in `member_uuids`. Data that only the removed members have are lost.
    Use this only for a group that has lost its majority for good.
    """

    member_uuids: tuple[str, ...]


class StartTabletCopyResponse(Message, frozen=True):
    """Without `error`, the server now has a replica, which the caller must fill."""

    error: ConsensusError | None = None


class StartTabletCopyRequest(ConsensusCall[StartTabletCopyResponse], frozen=True):
    """Ask a member's server, which has no replica of the tablet, to create an empty one.

    `superblock` is the tablet's description from `Replica(copy_source=...)`. The new replica starts
    from the committed configuration, `config`. With the group's first configuration, it might
    consider itself a voter, or the leader of a group of one. The server refuses if it has a
    tombstone whose log ended in a later term than `caller_term`.
    """

    caller_uuid: str
    caller_term: int
    config: RaftConfig
    superblock: bytes
