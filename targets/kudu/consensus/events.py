"""Events that go into the Raft core, and effects that come out of it.

Inputs are events; outputs are effects, which the shell must carry out **in order**. `SaveMeta` and
`InstallSnapshot` are barriers: nothing after them in the list, and no later event, may be handled
before they are durable. `AppendLog` is no barrier: the event `Synced` reports its durability, and
the core itself holds back all effects that depend on it.

A token (`reply`, `token`) is an opaque handle of the shell, which the core returns unchanged.
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
    """A voter answered, or did not (`response` None)."""

    election_id: int
    peer_uuid: str
    response: RequestConsensusVoteResponse | None


class UpdateRequested(Event, frozen=True):
    """A leader's heartbeat or entries."""

    request: UpdateConsensusRequest
    reply: Any


class UpdateAnswered(Event, frozen=True):
    """A follower answered `SendUpdate` number `request_id`, or did not (`response` None)."""

    peer_uuid: str
    request_id: int
    response: UpdateConsensusResponse | None


class LeaderContact(Event, frozen=True):
    """A sign of life from a leader without other content (a chunk of a snapshot)."""

    caller_uuid: str
    caller_term: int


class SnapshotReceived(Event, frozen=True):
    """A whole snapshot arrived and its checksum is right."""

    caller_uuid: str
    caller_term: int
    last_included: OpId
    config: RaftConfig
    digest: bytes
    data: bytes
    reply: Any


class SnapshotProgress(Event, frozen=True):
    """A peer answered one part of `SendSnapshot` number `request_id`: it is alive."""

    peer_uuid: str
    request_id: int


class SnapshotSent(Event, frozen=True):
    """`SendSnapshot` number `request_id` ended; `response` None means that it failed.

    `last_included` identifies the snapshot.
    """

    peer_uuid: str
    request_id: int
    last_included: OpId
    response: InstallSnapshotResponse | None


class CopyStarted(Event, frozen=True):
    """`SendStartCopy` number `request_id` ended: `error` says why there is no replica."""

    peer_uuid: str
    request_id: int
    error: ConsensusError | None


class Propose(Event, frozen=True):
    """Append an entry if this replica leads. Configurations have an event of their own."""

    kind: EntryKind
    payload: bytes
    token: Any


class ChangeConfig(Event, frozen=True):
    """Change the configuration, if this replica leads and the change is allowed now.

    With `cas_opid_index` the change applies only if the committed configuration has that index.
    """

    changes: tuple[PeerChange, ...]
    cas_opid_index: int | None
    token: Any


class ForceConfig(Event, frozen=True):
    """Remove all members but these, by an administrator's order and without a vote."""

    members: tuple[str, ...]
    token: Any


class ReadRequested(Event, frozen=True):
    """Confirm leadership and find the read index (Raft dissertation, 6.4)."""

    token: Any


class Synced(Event, frozen=True):
    """Everything up to `AppendLog` number `sequence` is durable."""

    sequence: int


class Compact(Event, frozen=True):
    """A durable snapshot covers the log up to `index`: drop that part of the log."""

    index: int


class StepDown(Event, frozen=True):
    """Give up leadership, or transfer it to `new_leader_uuid` or, without one, to any voter."""

    mode: StepDownMode = StepDownMode.ABRUPT
    new_leader_uuid: str | None = None


class RunElection(Event, frozen=True):
    """Run for leader now, without a pre-election and in spite of a live leader."""


# --- effects ---------------------------------------------------------------------------------


class SaveMeta(Effect, frozen=True):
    """Make term, vote and committed configuration durable. A barrier."""

    term: int
    voted_for: str | None
    committed_config: RaftConfig


class AppendLog(Effect, frozen=True):
    """Write entries to the log; an index at or below the last one replaces the tail from there.

    `preceding` is the entry before the first one. From it a recovery learns whether the entries
    continue the snapshot on disk.
    """

    sequence: int
    preceding: OpId
    entries: tuple[Entry, ...]


class InstallSnapshot(Effect, frozen=True):
    """Replace the state machine. A barrier.

    `keep_log` is False if the log on disk does not continue the snapshot and must be removed.
    """

    last_included: OpId
    config: RaftConfig
    digest: bytes
    data: bytes
    keep_log: bool


class SendVote(Effect, frozen=True):
    """Ask a peer for its vote; the answer comes back as `VoteAnswered`."""

    peer_uuid: str
    address: str
    election_id: int
    request: RequestConsensusVoteRequest


class SendUpdate(Effect, frozen=True):
    """Send an update to a peer; the answer comes back as `UpdateAnswered`."""

    peer_uuid: str
    address: str
    request_id: int
    request: UpdateConsensusRequest


class SendSnapshot(Effect, frozen=True):
    """Send the latest snapshot to a peer; the end comes back as `SnapshotSent`."""

    peer_uuid: str
    address: str
    request_id: int
    term: int


class SendStartCopy(Effect, frozen=True):
    """Ask a peer's server to create an empty replica.

    The replica starts from `config`, the committed configuration. The outcome comes back as
    `CopyStarted`.
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
    """Answer the call behind `reply`."""

    reply: Any
    response: RequestConsensusVoteResponse | UpdateConsensusResponse | InstallSnapshotResponse


class Committed(Effect, frozen=True):
    """Entries up to `index` are committed: apply them."""

    index: int


class ProposalAccepted(Effect, frozen=True):
    """Report that the entry is in the leader's log under `opid`."""

    token: Any
    opid: OpId


class ConfigForced(Effect, frozen=True):
    """Report that a configuration was forced upon this replica, as the entry `opid`.

    Entries that only the removed members have are lost. The configuration takes effect once it is
    durable.
    """

    token: Any
    opid: OpId
    config: RaftConfig


class ProposalRejected(Effect, frozen=True):
    """Report that nothing was appended."""

    token: Any
    reason: str
    code: ConsensusErrorCode = ConsensusErrorCode.NOT_THE_LEADER


class ReadReady(Effect, frozen=True):
    """Report that leadership was confirmed after the request; read once `index` is applied."""

    token: Any
    index: int


class ReadRejected(Effect, frozen=True):
    """Report that this replica does not lead, or lost leadership before it could confirm it."""

    token: Any


class ResetElectionTimer(Effect, frozen=True):
    """Restart the timer with a whole election timeout."""


class StateChanged(Effect, frozen=True):
    """Report a change of role, term, leader or committed configuration."""


class HealthChanged(Effect, frozen=True):
    """Report that the leader's assessment of a peer's health has changed."""
