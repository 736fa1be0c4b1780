"""Messages of `ConsensusService`, after Kudu's `consensus/consensus.proto`.

Every request names the server it is meant for (`dest_uuid`) and the Raft group (`tablet_id`), so
that one dispatcher per server serves all groups and a node that came back under another identity
refuses what was meant for its predecessor. `InstallSnapshot` is ours: Kudu copies whole tablets
instead, which its system tablet cannot do (KUDU-2748).
"""

from __future__ import annotations

import enum

import msgspec

from targets.kudu.messages import RaftConfig

__all__ = [
    "ConsensusError",
    "ConsensusErrorCode",
    "Entry",
    "EntryKind",
    "GetConsensusStateRequest",
    "GetConsensusStateResponse",
    "InstallSnapshotRequest",
    "InstallSnapshotResponse",
    "LeaderStepDownRequest",
    "LeaderStepDownResponse",
    "OpId",
    "RequestConsensusVoteRequest",
    "RequestConsensusVoteResponse",
    "RunLeaderElectionRequest",
    "RunLeaderElectionResponse",
    "UpdateConsensusRequest",
    "UpdateConsensusResponse",
]


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """The base of all messages: an immutable msgpack array."""


class EntryKind(enum.IntEnum):
    """What a log entry holds."""

    NO_OP = 0
    """Opens a leader's term; its commit makes everything before it committed (Raft 5.4.2)."""
    WRITE = 1
    """A payload for the state machine."""
    CONFIG = 2
    """A msgpack `RaftConfig`, active as soon as it is in the log."""


class Entry(_Message, frozen=True):
    """A log entry. `(term, index)` names it for ever (the log matching property)."""

    term: int
    index: int
    kind: EntryKind
    payload: bytes


class OpId(_Message, frozen=True):
    """The name of a log entry; `OpId(0, 0)` is the empty log."""

    term: int
    index: int


class ConsensusErrorCode(enum.IntEnum):
    """`ConsensusErrorPB.Code` and the parts of `TabletServerErrorPB.Code` a consensus call uses."""

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


class ConsensusError(_Message, frozen=True):
    """Why a consensus call was refused."""

    code: ConsensusErrorCode
    message: str


class RequestConsensusVoteRequest(_Message, frozen=True):
    """`is_pre_election` asks without touching the voter's state; `ignore_live_leader` is for
    elections an operator or a leader that hands over asked for.
    """

    dest_uuid: str
    tablet_id: str
    candidate_uuid: str
    candidate_term: int
    last_logged: OpId
    is_pre_election: bool = False
    ignore_live_leader: bool = False


class RequestConsensusVoteResponse(_Message, frozen=True):
    """A granted vote of a real election is durable before this leaves."""

    responder_uuid: str
    responder_term: int
    vote_granted: bool
    error: ConsensusError | None = None


class UpdateConsensusRequest(_Message, frozen=True):
    """Heartbeat and replication in one; `entries` follow `preceding` without a gap."""

    dest_uuid: str
    tablet_id: str
    caller_uuid: str
    caller_term: int
    preceding: OpId
    committed_index: int
    entries: tuple[Entry, ...] = ()


class UpdateConsensusResponse(_Message, frozen=True):
    """`last_received_current_leader` is the last entry that is known to equal the caller's and is
    durable here; `last_received` is the end of the log, whoever wrote it.
    """

    responder_uuid: str
    responder_term: int
    last_received: OpId = OpId(0, 0)
    last_received_current_leader: OpId = OpId(0, 0)
    last_committed_index: int = 0
    error: ConsensusError | None = None


class InstallSnapshotRequest(_Message, frozen=True):
    """One chunk of a snapshot, in order; `crc` is of the whole and is checked when complete."""

    dest_uuid: str
    tablet_id: str
    caller_uuid: str
    caller_term: int
    last_included: OpId
    config: RaftConfig
    digest: bytes
    total_size: int
    crc: int
    offset: int
    data: bytes


class InstallSnapshotResponse(_Message, frozen=True):
    """`next_offset` is where the receiver wants the next chunk; `installed` ends the transfer."""

    responder_uuid: str
    responder_term: int
    next_offset: int = 0
    installed: bool = False
    error: ConsensusError | None = None


class GetConsensusStateRequest(_Message, frozen=True):
    """Ask a replica how it sees its group; needs no leadership."""

    dest_uuid: str
    tablet_id: str


class GetConsensusStateResponse(_Message, frozen=True):
    """What the replica believes; `role` is its own."""

    responder_uuid: str
    current_term: int = 0
    role: str = "UNKNOWN_ROLE"
    leader_uuid: str | None = None
    config: RaftConfig | None = None
    committed_config_index: int = -1
    last_logged: OpId = OpId(0, 0)
    committed_index: int = 0
    error: ConsensusError | None = None


class LeaderStepDownRequest(_Message, frozen=True):
    """Ask a leader to give up its role; `new_leader_uuid` is asked to run an election at once."""

    dest_uuid: str
    tablet_id: str
    new_leader_uuid: str | None = None


class LeaderStepDownResponse(_Message, frozen=True):
    """The answer; the role is already given up when it arrives without an error."""

    error: ConsensusError | None = None


class RunLeaderElectionRequest(_Message, frozen=True):
    """Ask a replica to run for leader now, without a pre-election and in spite of a live leader."""

    dest_uuid: str
    tablet_id: str


class RunLeaderElectionResponse(_Message, frozen=True):
    """The answer: the election was started, not won."""

    error: ConsensusError | None = None
