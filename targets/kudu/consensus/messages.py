"""Messages of `ConsensusService`, after Kudu's `consensus/consensus.proto`.

Every request names its destination server (`dest_uuid`) and the Raft group (`tablet_id`). So one
dispatcher per server serves all groups, and a node that returns under another identity refuses
calls for its predecessor. `InstallSnapshot` does not exist in Kudu, which copies whole tablets
instead; its system tablet cannot be copied (KUDU-2748). `StartTabletCopy` only creates the empty
replica that a snapshot or the log then fills.
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
    """The contents of a log entry."""

    NO_OP = 0
    """Opens a leader's term; its commit commits everything before it (Raft 5.4.2)."""
    WRITE = 1
    """A payload for the state machine."""
    CONFIG = 2
    """A msgpack `RaftConfig`, active once it is in the log."""


class Entry(Message, frozen=True):
    """A log entry, which `(term, index)` identifies for ever (the log matching property)."""

    term: int
    index: int
    kind: EntryKind
    payload: bytes


class OpId(Message, frozen=True):
    """The identity of a log entry; `OpId(0, 0)` stands for the empty log."""

    term: int
    index: int


class ConsensusErrorCode(enum.IntEnum):
    """Error codes of consensus calls.

    The codes below 20 are `ConsensusErrorPB.Code`. The codes from 20 on are the renumbered
    `TabletServerErrorPB.Code` and status codes that consensus calls use.
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
    """The committed configuration is not the one on which the caller's decision was based."""
    INVALID_CONFIG = 24
    """No configuration can ever be changed in this way (Kudu: InvalidArgument)."""
    ILLEGAL_STATE = 25
    """Refused for now: another change is pending, or none of the leader's term has committed."""
    ABORTED = 26
    """The change was appended, then leadership or the time was lost: it may still commit."""
    TABLET_FAILED = 27
    """The replica exists but cannot run; it must be replaced."""
    ALREADY_INPROGRESS = 28
    """The tablet is being created, copied or deleted on that server."""


class ConsensusError(Message, frozen=True):
    """The reason why a consensus call was refused."""

    code: ConsensusErrorCode
    message: str


class RequestConsensusVoteResponse(Message, frozen=True):
    """A voter's answer; a granted vote of a real election is durable before the answer is sent."""

    responder_uuid: str
    responder_term: int = 0
    vote_granted: bool = False
    error: ConsensusError | None = None


class RequestConsensusVoteRequest(ConsensusCall[RequestConsensusVoteResponse], frozen=True):
    """A candidate's request for a vote.

    `is_pre_election` asks without changing the voter's state. `ignore_live_leader` marks elections
    that an operator, or a leader that hands over, asked for.
    """

    candidate_uuid: str
    candidate_term: int
    last_logged: OpId
    is_pre_election: bool = False
    ignore_live_leader: bool = False


class UpdateConsensusResponse(Message, frozen=True):
    """A follower's log positions.

    `last_received_current_leader` is the last entry that is known to equal the caller's and is
    durable here; `last_received` is the end of the log, whichever leader sent it.
    """

    responder_uuid: str
    responder_term: int = 0
    last_received: OpId = OpId(0, 0)
    last_received_current_leader: OpId = OpId(0, 0)
    last_committed_index: int = 0
    error: ConsensusError | None = None


class UpdateConsensusRequest(ConsensusCall[UpdateConsensusResponse], frozen=True):
    """Heartbeat and replication in one; `entries` follow `preceding` without a gap."""

    caller_uuid: str
    caller_term: int
    preceding: OpId
    committed_index: int
    entries: tuple[Entry, ...] = ()


class InstallSnapshotResponse(Message, frozen=True):
    """`next_offset` is that of the next chunk to send; `installed` ends the transfer."""

    responder_uuid: str
    responder_term: int = 0
    next_offset: int = 0
    installed: bool = False
    error: ConsensusError | None = None


class InstallSnapshotRequest(ConsensusCall[InstallSnapshotResponse], frozen=True):
    """One chunk of a snapshot, in order; `crc` covers the whole and is checked at the end."""

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
    """A replica's view of its group; `role` is the replica's own.

    The active configuration is the pending one if there is one. Only a leader sends `peer_health`
    (by uuid), which includes the leader itself.
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
    """Ask a replica for its view of its group; any replica answers."""


class OpIdType(enum.StrEnum):
    """Whether a request asks for the last received or the last committed entry."""

    RECEIVED = "RECEIVED_OPID"
    COMMITTED = "COMMITTED_OPID"


class GetLastOpIdResponse(Message, frozen=True):
    """The requested entry; `OpId(0, 0)` for an empty log."""

    opid: OpId = OpId(0, 0)
    error: ConsensusError | None = None


class GetLastOpIdRequest(ConsensusCall[GetLastOpIdResponse], frozen=True):
    """Ask a replica for the end of its log; any replica answers."""

    opid_type: OpIdType = OpIdType.RECEIVED


class ReadIndexResponse(Message, frozen=True):
    """Everything acknowledged before the request arrived is at or before `index`.

    A majority has confirmed the leader since (dissertation 6.4). Kudu has no such reads (KUDU-500).
    """

    term: int = 0
    index: int = 0
    error: ConsensusError | None = None


class ReadIndexRequest(ConsensusCall[ReadIndexResponse], frozen=True):
    """Ask the leader for the index that a follower must apply to see all acknowledged writes."""


class StepDownMode(enum.StrEnum):
    """The ways in which a leader gives up its role."""

    ABRUPT = "ABRUPT"
    """The leader steps down at once; the replica whose timer expires first runs next."""
    GRACEFUL = "GRACEFUL"
    """The leader refuses writes until a successor has its whole log, and asks that one to run.

    If no successor takes over within an election timeout, the leader continues.
    """


class LeaderStepDownResponse(Message, frozen=True):
    """Without an error the leader has stepped down (ABRUPT) or begun to hand over (GRACEFUL)."""

    error: ConsensusError | None = None


class LeaderStepDownRequest(ConsensusCall[LeaderStepDownResponse], frozen=True):
    """Ask a leader to give up its role.

    `new_leader_uuid` applies to GRACEFUL and must name a voter; without it the first voter that has
    caught up becomes the successor.
    """

    mode: StepDownMode = StepDownMode.ABRUPT
    new_leader_uuid: str | None = None


class RunLeaderElectionResponse(Message, frozen=True):
    """Without an error the election was started, not won."""

    error: ConsensusError | None = None


class RunLeaderElectionRequest(ConsensusCall[RunLeaderElectionResponse], frozen=True):
    """Ask a replica to run for leader now, without a pre-election and in spite of a live leader."""


class ChangeType(enum.StrEnum):
    """`ChangeConfigType`."""

    ADD_PEER = "ADD_PEER"
    REMOVE_PEER = "REMOVE_PEER"
    MODIFY_PEER = "MODIFY_PEER"


class PeerChange(Message, frozen=True):
    """One change of one member. ADD_PEER needs all fields of `peer`, REMOVE_PEER only its uuid.
    MODIFY_PEER copies member type, `promote` and `replace` from `peer`, and the address unless it
    is "".
    """

    type: ChangeType
    peer: PeerConfig


class ChangeConfigResponse(Message, frozen=True):
    """Sent when the change has committed; `config` is the new configuration.

    After ABORTED, or without an answer, the change may have happened or may still happen.
    """

    config: RaftConfig | None = None
    error: ConsensusError | None = None


class ChangeConfigRequest(ConsensusCall[ChangeConfigResponse], frozen=True):
    """Ask a group's leader to change the configuration.

    With `cas_config_opid_index` the change applies only if the committed configuration has that
    index.
    """

    change: PeerChange
    cas_config_opid_index: int | None = None


class BulkChangeConfigRequest(ConsensusCall[ChangeConfigResponse], frozen=True):
    """A ChangeConfig with several changes in one step; at most one of them may affect a voter."""

    changes: tuple[PeerChange, ...]
    cas_config_opid_index: int | None = None


class UnsafeChangeConfigResponse(Message, frozen=True):
    """Without an error the configuration is durable there; it commits under the next leader."""

    error: ConsensusError | None = None


class UnsafeChangeConfigRequest(ConsensusCall[UnsafeChangeConfigResponse], frozen=True):
    """Force a replica to continue with these members alone, itself among them.

    All other members are given up, along with any data that only they have. For a group that has
    lost its majority for good.
    """

    member_uuids: tuple[str, ...]


class StartTabletCopyResponse(Message, frozen=True):
    """Without an error there is a replica now, which the caller must fill."""

    error: ConsensusError | None = None


class StartTabletCopyRequest(ConsensusCall[StartTabletCopyResponse], frozen=True):
    """Ask the server of a member that lacks the tablet to create an empty replica.

    `superblock` is the owner's own description of the tablet (`Replica(copy_source=...)`). `config`
    is the committed configuration, from which the new replica starts. With the group's first
    configuration the replica might consider itself a voter and, if that configuration had one
    member, the leader. The call is refused if a tombstone has logged an entry of a term after
    `caller_term`.
    """

    caller_uuid: str
    caller_term: int
    config: RaftConfig
    superblock: bytes
