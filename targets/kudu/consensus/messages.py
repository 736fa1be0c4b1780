"""Messages of `ConsensusService`, after Kudu's `consensus/consensus.proto`.

Every request names the server it is meant for (`dest_uuid`) and the Raft group (`tablet_id`), so
that one dispatcher per server serves all groups and a node that came back under another identity
refuses calls meant for its predecessor. `InstallSnapshot` is ours: Kudu copies whole tablets
instead, which its system tablet cannot do (KUDU-2748). `StartTabletCopy` only makes the empty
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
    """Opens a leader's term; its commit makes everything before it committed (Raft 5.4.2)."""
    WRITE = 1
    """A payload for the state machine."""
    CONFIG = 2
    """A msgpack `RaftConfig`, active as soon as it is in the log."""


class Entry(Message, frozen=True):
    """A log entry. `(term, index)` names it for ever (the log matching property)."""

    term: int
    index: int
    kind: EntryKind
    payload: bytes


class OpId(Message, frozen=True):
    """The name of a log entry; `OpId(0, 0)` is the empty log."""

    term: int
    index: int


class ConsensusErrorCode(enum.IntEnum):
    """`ConsensusErrorPB.Code` and, from 20 on under numbers of ours, what a consensus call uses of
    `TabletServerErrorPB.Code` and of the status codes below it.
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
    """The committed configuration is not the one the caller decided on."""
    INVALID_CONFIG = 24
    """No configuration can be changed like that, now or later (Kudu: InvalidArgument)."""
    ILLEGAL_STATE = 25
    """Not now: another change is pending, or nothing of the leader's term has committed yet."""
    ABORTED = 26
    """The change was appended, then leadership or the time ran out: it may still commit."""
    TABLET_FAILED = 27
    """The replica is here but cannot run; it has to be replaced."""
    ALREADY_INPROGRESS = 28
    """The tablet is being created, copied or deleted on that server."""


class ConsensusError(Message, frozen=True):
    """The reason why a consensus call was refused."""

    code: ConsensusErrorCode
    message: str


class RequestConsensusVoteResponse(Message, frozen=True):
    """A granted vote of a real election is durable before this leaves."""

    responder_uuid: str
    responder_term: int = 0
    vote_granted: bool = False
    error: ConsensusError | None = None


class RequestConsensusVoteRequest(ConsensusCall[RequestConsensusVoteResponse], frozen=True):
    """`is_pre_election` asks without touching the voter's state; `ignore_live_leader` is for
    elections an operator or a leader that hands over asked for.
    """

    candidate_uuid: str
    candidate_term: int
    last_logged: OpId
    is_pre_election: bool = False
    ignore_live_leader: bool = False


class UpdateConsensusResponse(Message, frozen=True):
    """`last_received_current_leader` is the last entry that is known to equal the caller's and is
    durable here; `last_received` is the end of the log, from any leader.
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
    """`next_offset` is where the receiver wants the next chunk; `installed` ends the transfer."""

    responder_uuid: str
    responder_term: int = 0
    next_offset: int = 0
    installed: bool = False
    error: ConsensusError | None = None


class InstallSnapshotRequest(ConsensusCall[InstallSnapshotResponse], frozen=True):
    """One chunk of a snapshot, in order; `crc` is of the whole and is checked when complete."""

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
    """The replica's view; `role` is its own. The active configuration is the pending one
    where there is one. `peer_health` (by uuid) comes from a leader, itself included.
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
    """Ask a replica how it sees its group; needs no leadership."""


class OpIdType(enum.StrEnum):
    """The end of a log that is asked for."""

    RECEIVED = "RECEIVED_OPID"
    COMMITTED = "COMMITTED_OPID"


class GetLastOpIdResponse(Message, frozen=True):
    """The answer; `OpId(0, 0)` of an empty log."""

    opid: OpId = OpId(0, 0)
    error: ConsensusError | None = None


class GetLastOpIdRequest(ConsensusCall[GetLastOpIdResponse], frozen=True):
    """Ask a replica how far its log goes; needs no leadership."""

    opid_type: OpIdType = OpIdType.RECEIVED


class ReadIndexResponse(Message, frozen=True):
    """Everything acknowledged before the request arrived is at or before `index`: a majority has
    confirmed the leader since (dissertation 6.4). Ours; Kudu has no such reads (KUDU-500).
    """

    term: int = 0
    index: int = 0
    error: ConsensusError | None = None


class ReadIndexRequest(ConsensusCall[ReadIndexResponse], frozen=True):
    """A follower asks the leader how far it must have applied to show all acknowledged writes."""


class StepDownMode(enum.StrEnum):
    """The way in which a leader gives up its role."""

    ABRUPT = "ABRUPT"
    """At once; the replica whose timer runs out first is next."""
    GRACEFUL = "GRACEFUL"
    """It refuses writes until a successor has its whole log, and asks that one to run; if none
    takes over within an election timeout it goes on."""


class LeaderStepDownResponse(Message, frozen=True):
    """Without an error the role is given up (ABRUPT), or being handed over (GRACEFUL)."""

    error: ConsensusError | None = None


class LeaderStepDownRequest(ConsensusCall[LeaderStepDownResponse], frozen=True):
    """Ask a leader to give up its role. `new_leader_uuid` is for GRACEFUL, and must vote; without
    it the first voter that is caught up succeeds.
    """

    mode: StepDownMode = StepDownMode.ABRUPT
    new_leader_uuid: str | None = None


class RunLeaderElectionResponse(Message, frozen=True):
    """The answer: the election was started, not won."""

    error: ConsensusError | None = None


class RunLeaderElectionRequest(ConsensusCall[RunLeaderElectionResponse], frozen=True):
    """Ask a replica to run for leader now, without a pre-election and in spite of a live leader."""


class ChangeType(enum.StrEnum):
    """`ChangeConfigType`."""

    ADD_PEER = "ADD_PEER"
    REMOVE_PEER = "REMOVE_PEER"
    MODIFY_PEER = "MODIFY_PEER"


class PeerChange(Message, frozen=True):
    """One change of one member. ADD_PEER needs all of `peer`, REMOVE_PEER its uuid; MODIFY_PEER
    sets member type, `promote` and `replace` as in `peer`, and the address unless it is "".
    """

    type: ChangeType
    peer: PeerConfig


class ChangeConfigResponse(Message, frozen=True):
    """Sent when the change has committed: `config` is what it made. After ABORTED, or no answer,
    it may have happened or may happen yet.
    """

    config: RaftConfig | None = None
    error: ConsensusError | None = None


class ChangeConfigRequest(ConsensusCall[ChangeConfigResponse], frozen=True):
    """Change a group's configuration; sent to its leader. With `cas_config_opid_index` only if the
    committed configuration has that index.
    """

    change: PeerChange
    cas_config_opid_index: int | None = None


class BulkChangeConfigRequest(ConsensusCall[ChangeConfigResponse], frozen=True):
    """A ChangeConfig with several changes in one step; at most one of them may concern a vote."""

    changes: tuple[PeerChange, ...]
    cas_config_opid_index: int | None = None


class UnsafeChangeConfigResponse(Message, frozen=True):
    """Without an error the new configuration is durable there; it commits with a leader."""

    error: ConsensusError | None = None


class UnsafeChangeConfigRequest(ConsensusCall[UnsafeChangeConfigResponse], frozen=True):
    """Have a replica go on with these members alone, itself among them: all others are given up,
    with all that they alone have. For a group that has lost its majority for good.
    """

    member_uuids: tuple[str, ...]


class StartTabletCopyResponse(Message, frozen=True):
    """Without an error there is a replica now, for the caller to fill."""

    error: ConsensusError | None = None


class StartTabletCopyRequest(ConsensusCall[StartTabletCopyResponse], frozen=True):
    """A leader asks a member's server, which has no such tablet, for an empty replica.

    `superblock` is the owner's own description of the tablet (`Replica(copy_source=...)`). `config`
    is the committed one, which the new replica starts from: with the group's first configuration
    it might take itself for a voter, and if that had one member, for the leader. It is refused
    where a tombstone has logged something of a term after `caller_term`.
    """

    caller_uuid: str
    caller_term: int
    config: RaftConfig
    superblock: bytes
