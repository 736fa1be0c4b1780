"""Events that go into the Raft core, and effects that come out of it.

The shell must carry out effects **in order**. `SaveMeta` and `InstallSnapshot` are barriers: until
their data are durable, the shell carries out no later effect and handles no later event.
`AppendLog` is not a barrier. The event `Synced` reports that its entries are durable, and until
then the core holds back all effects that depend on these entries.

`reply` and `token` identify a call or a task of the shell. The core does not look into them, and
puts them unchanged into the effects that answer the event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from targets.kudu.consensus.messages import (
    ConsensusError,
    ConsensusErrorCode,
    Entry,
    EntryKind,
    InstallSnapshotResponse,
    OpId,
    PeerChange,
    RequestConsensusVoteRequest,
    RequestConsensusVoteResponse,
    StepDownMode,
    UpdateConsensusRequest,
    UpdateConsensusResponse,
)
from targets.kudu.messages import RaftConfig


class Event(msgspec.Struct, frozen=True):
    """An input of the core."""


class Effect(msgspec.Struct, frozen=True):
    """An output of the core."""


# --- events ----------------------------------------------------------------------------------


class ElectionTimeout(Event, frozen=True):
    """The election timer ran out (leaders ignore it)."""


class HeartbeatDue(Event, frozen=True):
    """A leader's heartbeat interval has passed (other roles ignore it)."""


class VoteRequested(Event, frozen=True):
    """A candidate asks for this replica's vote."""

    request: RequestConsensusVoteRequest
    reply: Any


class VoteAnswered(Event, frozen=True):
    """A voter answered a vote request; `response` is None if the call failed."""

    election_id: int
    peer_uuid: str
    response: RequestConsensusVoteResponse | None


class UpdateRequested(Event, frozen=True):
    """A leader has sent a heartbeat or entries to this replica."""

    request: UpdateConsensusRequest
    reply: Any


class UpdateAnswered(Event, frozen=True):
    """A follower answered `SendUpdate` number `request_id`; `response` is None on failure."""

    peer_uuid: str
    request_id: int
    response: UpdateConsensusResponse | None


class LeaderContact(Event, frozen=True):
    """A chunk of a snapshot arrived, which shows that the leader `caller_uuid` is alive."""

    caller_uuid: str
    caller_term: int


class SnapshotReceived(Event, frozen=True):
    """A leader's whole snapshot has arrived, and its checksum is right."""

    caller_uuid: str
    caller_term: int
    last_included: OpId
    config: RaftConfig
    digest: bytes
    data: bytes
    reply: Any


class SnapshotProgress(Event, frozen=True):
    """A peer answered one chunk of `SendSnapshot` number `request_id`, so the peer is alive."""

    peer_uuid: str
    request_id: int


class SnapshotSent(Event, frozen=True):
    """`SendSnapshot` number `request_id` ended; `response` is None if the transfer failed.

    `last_included` is the last entry that the snapshot covers.
    """

    peer_uuid: str
    request_id: int
    last_included: OpId
    response: InstallSnapshotResponse | None


class CopyStarted(Event, frozen=True):
    """`SendStartCopy` number `request_id` ended; `error` is None if the peer has a replica now."""

    peer_uuid: str
    request_id: int
    error: ConsensusError | None


class Propose(Event, frozen=True):
    """Append an entry if this replica leads. `ChangeConfig` is used for configurations."""

    kind: EntryKind
    payload: bytes
    token: Any


class ChangeConfig(Event, frozen=True):
    """Change the configuration, if this replica leads and the change is allowed now.

    With `cas_opid_index`, the change applies only if the committed configuration has that index.
    """

    changes: tuple[PeerChange, ...]
    cas_opid_index: int | None
    token: Any


class ForceConfig(Event, frozen=True):
    """Remove all members except `members`, by an administrator's order and without a majority."""

    members: tuple[str, ...]
    token: Any


class ReadRequested(Event, frozen=True):
    """Confirm leadership for a read, and find the index that it waits for (dissertation, 6.4)."""

    token: Any


class Synced(Event, frozen=True):
    """The entries of all `AppendLog` effects up to number `sequence` are durable."""

    sequence: int


class Compact(Event, frozen=True):
    """Drop the log up to `index` from memory, because a durable snapshot covers that part."""

    index: int


class StepDown(Event, frozen=True):
    """Give up leadership, or transfer leadership to a successor, as `mode` says.

    The successor is `new_leader_uuid` or, if that is None, any voter.
    """

    mode: StepDownMode = StepDownMode.ABRUPT
    new_leader_uuid: str | None = None


class RunElection(Event, frozen=True):
    """Run for leader now, without a pre-election and even if a leader is alive."""


# --- effects ---------------------------------------------------------------------------------


class SaveMeta(Effect, frozen=True):
    """Make term, vote and committed configuration durable. This effect is a barrier."""

    term: int
    voted_for: str | None
    committed_config: RaftConfig


class AppendLog(Effect, frozen=True):
    """Write entries to the log on disk; they replace the log's tail if their indexes overlap it.

    `preceding` is the entry before the first of `entries`. Recovery uses it to decide whether the
    entries continue the snapshot on disk.
    """

    sequence: int
    preceding: OpId
    entries: tuple[Entry, ...]


class InstallSnapshot(Effect, frozen=True):
    """Replace the state machine with a leader's snapshot. This effect is a barrier.

    `keep_log` is False if the log on disk does not continue the snapshot and must be removed.
    """

    last_included: OpId
    config: RaftConfig
    digest: bytes
    data: bytes
    keep_log: bool


class SendVote(Effect, frozen=True):
    """Ask a peer for its vote. The answer arrives as the event `VoteAnswered`."""

    peer_uuid: str
    address: str
    election_id: int
    request: RequestConsensusVoteRequest


class SendUpdate(Effect, frozen=True):
    """Send an update to a peer. The answer arrives as the event `UpdateAnswered`."""

    peer_uuid: str
    address: str
    request_id: int
    request: UpdateConsensusRequest


class SendSnapshot(Effect, frozen=True):
    """Send the latest snapshot to a peer. The outcome arrives as the event `SnapshotSent`."""

    peer_uuid: str
    address: str
    request_id: int
    term: int


class SendStartCopy(Effect, frozen=True):
    """Ask a peer's server to create an empty replica.

    The replica starts from `config`, the committed configuration. The outcome arrives as the
    event `CopyStarted`.
    """

    peer_uuid: str
    address: str
    request_id: int
    term: int
    config: RaftConfig


class SendRunElection(Effect, frozen=True):
    """Ask a peer to run for leader."""

    peer_uuid: str
    address: str


class Reply(Effect, frozen=True):
    """Answer the call whose event had the token `reply`."""

    reply: Any
    response: RequestConsensusVoteResponse | UpdateConsensusResponse | InstallSnapshotResponse


class Committed(Effect, frozen=True):
    """Apply the entries up to `index` to the state machine: they are committed."""

    index: int


class ProposalAccepted(Effect, frozen=True):
    """Report that this leader has appended the proposed entry to its log, as `opid`."""

    token: Any
    opid: OpId


class ConfigForced(Effect, frozen=True):
    """Report that an administrator's `ForceConfig` was appended to this log, as the entry `opid`.

    Entries that only the removed members have are lost. The shell answers the administrator once
    the entry `opid` is durable.
    """

    token: Any
    opid: OpId
    config: RaftConfig


class ProposalRejected(Effect, frozen=True):
    """Report that this replica rejected a proposal and appended nothing."""

    token: Any
    reason: str
    code: ConsensusErrorCode = ConsensusErrorCode.NOT_THE_LEADER


class ReadReady(Effect, frozen=True):
    """Report that the read may proceed: leadership is confirmed, and `index` is applied.

    The shell has applied `index`, because the effect `Committed` precedes this effect.
    """

    token: Any
    index: int


class ReadRejected(Effect, frozen=True):
    """Report that this replica does not lead, so it cannot confirm leadership for a read."""

    token: Any


class ResetElectionTimer(Effect, frozen=True):
    """Restart the election timer with a complete election timeout."""


class StateChanged(Effect, frozen=True):
    """Report a change of role, term, leader or committed configuration."""


class HealthChanged(Effect, frozen=True):
    """Report that the leader's assessment of a peer's health has changed."""
