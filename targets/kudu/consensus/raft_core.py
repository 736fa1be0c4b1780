"""Raft without input or output: `step(event, now_ns) -> effects`.

The core follows Ongaro's dissertation and Kudu's `consensus/raft_consensus.cc`. Like Kudu, it has
pre-elections (dissertation 9.6), withholds votes while a leader is alive (KUDU-562), and has one
outstanding request per peer.

The core reads no clock, draws no random number and does no IO. Time comes with each event, election
timeouts are events, and a shell carries out the effects (`raft_consensus.py`). So the core is
deterministic, and a schedule of events replays exactly.

`RaftCore` decides on terms, votes and roles. `Follower` and `Leader` implement the roles within a
term. Both use a shared `RaftState`, but neither each other nor the core.

Guarantees, and their mechanisms:

* **A replica never forgets its vote.** `SaveMeta` is a barrier before every answer that depends on
  the saved vote.
* **An acknowledged entry is durable.** A follower's answer waits for `Synced`. The leader counts
  its own acknowledgement only up to its own durable index.
* **Only entries of the leader's own term are counted** towards commit (Raft 5.4.2). A leader
  appends a NO_OP first, so that its term has an entry.
* **A follower commits only entries that match the current leader's log** (KUDU-639).
* **Reads are linearizable.** A leader answers a read after a majority has answered a request sent
  after the read arrived, and after an entry of its own term has committed (dissertation 6.4).
* **An administrator may force a configuration** if a majority is lost for good (`ForceConfig`). The
  removed members may continue with a log of their own. The remaining members refuse messages that
  contradict their committed entries.
* **A leader without a majority steps down** after the longest election timeout (profile `strict`;
  in Kudu, the leader continues to lead forever).

A failed assertion means a bug, or a node that lost data which it had acknowledged as durable.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from typing import Any, Final

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.consensus_queue import Leader
from targets.kudu.consensus.follower import Follower
from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.messages import (
    ConsensusError,
    ConsensusErrorCode,
    Entry,
    EntryKind,
    InstallSnapshotResponse,
    OpId,
    RequestConsensusVoteRequest,
    RequestConsensusVoteResponse,
)
from targets.kudu.consensus.quorum_util import BadChangeError, encode_config, forced_config
from targets.kudu.consensus.state import CoreOptions, RaftState
from targets.kudu.messages import PeerHealth, RaftConfig

TWO_LEADERS: Final = "two lead term"
"""The start of the assertion message that reports two leaders in one term."""

_NOTHING: Final = OpId(0, 0)
_RESET: Final = ev.ResetElectionTimer()


class Role(enum.StrEnum):
    """The role of a replica: Kudu's `RaftPeerPB.Role`, plus CANDIDATE during an election."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEARNER = "LEARNER"
    NON_PARTICIPANT = "NON_PARTICIPANT"


# Every step reads these members, and reading attributes of an enum is slow in Python 3.11.
_LEADER: Final = Role.LEADER
_CANDIDATE: Final = Role.CANDIDATE


@dataclasses.dataclass(slots=True)
class _Election:
    number: int
    term: int
    is_pre: bool
    ignore_live_leader: bool
    answers: dict[str, bool]


class RaftCore:
    """The Raft state machine of one member of one group; only `step` changes its state."""

    def __init__(
        self,
        uuid: str,
        group_id: str,
        *,
        term: int,
        voted_for: str | None,
        config: RaftConfig,
        base: OpId,
        entries: Iterable[Entry] = (),
        options: CoreOptions | None = None,
        last_logged: OpId = _NOTHING,
    ) -> None:
        """Start from the state recovered from disk: `entries` are durable, and `base` is committed.

        `last_logged` is the end of the removed log, if this replica was a tombstone.
        """
        self.uuid = uuid
        self.options = options or CoreOptions()
        self.log = MemoryLog(base, config, entries)
        self.configs = self.log.configs
        self.leader_uuid: str | None = None
        self.failed_elections = 0
        self.heard_leader_ns: int | None = None
        self._last_logged = last_logged
        self._state = RaftState(
            uuid, group_id, term=term, voted_for=voted_for, log=self.log, options=self.options
        )
        self._follower = Follower(self._state)
        self._leader = Leader(self._state)
        self._election: _Election | None = None
        self._election_count = 0
        self._config = self.configs.active  # the active configuration after the last step
        self.role = self._passive_role()
        self._reported: tuple[object, ...] = (self.role, term, None, self.configs.committed)
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.ElectionTimeout: self._on_election_timeout,
            ev.HeartbeatDue: self._leader.heartbeat_due,
            ev.VoteRequested: self._on_vote_requested,
            ev.VoteAnswered: self._on_vote_answered,
            ev.UpdateRequested: self._on_update_requested,
            ev.UpdateAnswered: self._on_answered,
            ev.LeaderContact: self._on_leader_contact,
            ev.SnapshotReceived: self._on_snapshot_received,
            ev.SnapshotProgress: self._leader.snapshot_progress,
            ev.SnapshotSent: self._on_answered,
            ev.CopyStarted: self._leader.copy_started,
            ev.Propose: self._on_propose,
            ev.ChangeConfig: self._on_change_config,
            ev.ForceConfig: self._on_force_config,
            ev.ReadRequested: self._on_read_requested,
            ev.Synced: self._on_synced,
            ev.Compact: self._on_compact,
            ev.StepDown: self._leader.step_down,
            ev.RunElection: self._on_run_election,
        }

    # --- reading ----------------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def voted_for(self) -> str | None:
        """The candidate that this replica voted for in the current term, or `None`."""
        return self._state.voted_for

    @property
    def config(self) -> RaftConfig:
        return self.configs.active

    @property
    def commit_index(self) -> int:
        return self.log.commit_index

    @property
    def durable_index(self) -> int:
        return self.log.durable_index

    @property
    def is_new(self) -> bool:
        """Whether this replica has never known a leader: its term is 0 and its log is empty."""
        return self.term == 0 and self.log.last_index == 0

    @property
    def committed_in_term(self) -> bool:
        """Whether this replica leads and has committed an entry of its own term."""
        return self._leader.committed_in_term

    def peer_health(self) -> dict[str, PeerHealth]:
        """Map the uuid of each member, this leader included, to its health; `{}` on non-leaders."""
        if not self._leader.leads:
            return {}
        return {self.uuid: PeerHealth.HEALTHY, **self._leader.health()}

    @property
    def all_sent_ns(self) -> int:
        """The time, in ns, at which this replica, as leader, last sent updates to all peers."""
        return self._leader.all_sent_ns

    # --- stepping ---------------------------------------------------------------------------

    def step(self, event: ev.Event, now_ns: int) -> list[ev.Effect]:
        """Handle one event; return the effects, which the caller must carry out in order."""
        state, log, configs = self._state, self.log, self.configs
        assert not state.effects, "the state still has effects of the last step"
        state.now_ns = now_ns
        commit_before = log.commit_index
        self._handlers[type(event)](event)
        if self.role is _LEADER and not self._leader.leads:
            # `Leader` has already ended its leadership
            self._become_follower(state.term, None)
        if configs.active is not self._config:
            self._config = configs.active
            if self.role is not _LEADER:
                self.role = self._passive_role()
        effects, state.effects = state.effects, []
        assert commit_before <= log.commit_index <= log.last_index, "the commit index is wrong"
        reported = (self.role, state.term, self.leader_uuid, configs.committed)
        if reported != self._reported:
            self._reported = reported
            effects.append(ev.StateChanged())
        return effects

    # --- terms and roles --------------------------------------------------------------------

    def _passive_role(self) -> Role:
        if self.uuid in self.configs.voters:
            return Role.FOLLOWER
        if any(peer.uuid == self.uuid for peer in self.config.peers):
            return Role.LEARNER
        return Role.NON_PARTICIPANT

    def _become_follower(self, term: int, leader_uuid: str | None) -> None:
        state = self._state
        assert term >= state.term, f"term {term} after {state.term}"
        if term > state.term:
            state.term = term
            state.voted_for = None
            state.save_meta()
            self._follower.fail_acks("the term has ended")
        if self._leader.leads:
            self._leader.end()
        self._election = None
        self.role = self._passive_role()
        self.leader_uuid = leader_uuid

    def _follow(self, caller_term: int, caller_uuid: str) -> bool:
        """Follow leader `caller_uuid`; return False if its term is old or has another leader."""
        term = self._state.term
        if caller_term < term:
            return False
        leader_uuid = self.leader_uuid
        if caller_term == term and leader_uuid is not None and leader_uuid != caller_uuid:
            # Only a leader that was removed by force may lead a term that already has a leader.
            assert self._state.is_stranger(caller_uuid), (
                f"{TWO_LEADERS} {caller_term}: {leader_uuid} and {caller_uuid}"
            )
            return False
        if caller_term > term or self.role is _CANDIDATE or self._election is not None:
            self._become_follower(caller_term, caller_uuid)
        self.leader_uuid = caller_uuid
        self.heard_leader_ns = self._state.now_ns
        self.failed_elections = 0
        self._state.effects.append(_RESET)
        return True

    # --- elections: the candidate's side ----------------------------------------------------

    def _on_election_timeout(self, event: ev.ElectionTimeout) -> None:
        del event
        if self.role is Role.LEADER:
            return
        if self._follower.waits_for_disk:
            # The leader is alive: this replica's own disk is slow (KUDU-2947).
            self._state.effects.append(ev.ResetElectionTimer())
            return
        if self._election is not None:
            self.failed_elections += 1
        self._run(is_pre=self.options.pre_election, ignore_live_leader=False)

    def _on_run_election(self, event: ev.RunElection) -> None:
        del event
        if self.role is not Role.LEADER:
            self._run(is_pre=False, ignore_live_leader=True)

    def _run(self, *, is_pre: bool, ignore_live_leader: bool) -> None:
        """Start an election; a pre-election changes neither term nor vote (dissertation 9.6)."""
        state = self._state
        state.effects.append(ev.ResetElectionTimer())
        if not self.configs.may_run(self.uuid) or not self._log_is_current(self.log.last):
            return
        self._election_count += 1
        term = state.term + 1
        if not is_pre:
            state.term = term
            state.voted_for = self.uuid
            self.role = Role.CANDIDATE
            self.leader_uuid = None
            self._follower.fail_acks("this replica runs for leader")
            state.save_meta()
        self._election = _Election(
            self._election_count, term, is_pre, ignore_live_leader, {self.uuid: True}
        )
        for peer in self.config.peers:
            if peer.uuid == self.uuid or peer.member_type != "VOTER":
                continue
            request = RequestConsensusVoteRequest(
                dest_uuid=peer.uuid,
                tablet_id=state.group_id,
                candidate_uuid=self.uuid,
                candidate_term=term,
                last_logged=self.log.last,
                is_pre_election=is_pre,
                ignore_live_leader=ignore_live_leader,
            )
            vote = ev.SendVote(peer.uuid, peer.address, self._election_count, request)
            state.effects.append(vote)
        self._count_votes(self._election)

    def _on_vote_answered(self, event: ev.VoteAnswered) -> None:
        response = event.response
        if response is None:
            return
        if response.responder_term > self.term:
            # Adopt the newer term even in a pre-election. Otherwise two replicas could refuse each
            # other forever, one because of its old term and the other because of its old log.
            lost = self._election is not None
            self._become_follower(response.responder_term, None)
            self.failed_elections += lost
            return
        election = self._election
        if election is None or election.number != event.election_id:
            return
        if response.vote_granted and not election.is_pre and response.responder_term != self.term:
            # This answers an earlier election with the same number, from before a restart.
            return
        election.answers[event.peer_uuid] = response.vote_granted
        self._count_votes(election)

    def _count_votes(self, election: _Election) -> None:
        voters, majority = self.configs.voters, self.configs.majority
        answers = [election.answers[uuid] for uuid in voters if uuid in election.answers]
        granted = sum(answers)
        denied = len(answers) - granted
        if granted >= majority:
            self._election = None
            if election.is_pre:
                self._run(is_pre=False, ignore_live_leader=election.ignore_live_leader)
            else:
                self._become_leader(election.term)
        elif denied > len(voters) - majority:
            self._election = None
            self.failed_elections += 1
            self.role = self._passive_role()
            self._state.effects.append(ev.ResetElectionTimer())

    def _become_leader(self, term: int) -> None:
        assert self.role is Role.CANDIDATE, self.role
        assert self.term == term, f"won the election of {term} in {self.term}"
        self.role = Role.LEADER
        self.leader_uuid = self.uuid
        self.failed_elections = 0
        self._leader.begin()

    # --- elections: the voter's side --------------------------------------------------------

    def _on_vote_requested(self, event: ev.VoteRequested) -> None:
        request, state = event.request, self._state
        if not request.ignore_live_leader and self._leader_is_alive():
            self._reply_vote(event.reply, ConsensusErrorCode.LEADER_IS_ALIVE, "a leader is alive")
            return
        term = request.candidate_term
        if term < state.term:
            self._reply_vote(event.reply, ConsensusErrorCode.INVALID_TERM, f"{term} has ended")
            return
        if term == state.term and state.voted_for is not None:
            if state.voted_for == request.candidate_uuid:
                self._reply_vote(event.reply)
            else:
                message = f"voted for {state.voted_for} in {term}"
                self._reply_vote(event.reply, ConsensusErrorCode.ALREADY_VOTED, message)
            return
        if term > state.term and not request.is_pre_election:
            self._become_follower(term, None)
        if not self._log_is_current(request.last_logged):
            message = f"last logged {request.last_logged}, here {self.log.last}"
            self._reply_vote(event.reply, ConsensusErrorCode.LAST_OPID_TOO_OLD, message)
            return
        if not request.is_pre_election:
            if self.role is Role.CANDIDATE:
                self._become_follower(term, None)
            state.voted_for = request.candidate_uuid
            state.save_meta()
            state.effects.append(ev.ResetElectionTimer())
        self._reply_vote(event.reply)

    def _leader_is_alive(self) -> bool:
        """Whether this replica must withhold its vote because its leader is alive.

        A leader always withholds its vote. Another replica does so for the shortest election
        timeout after its leader's last message, and while it waits for its own slow disk
        (KUDU-2947).
        """
        if self.role is Role.LEADER or self._follower.waits_for_disk:
            return True
        heard_ns = self.heard_leader_ns
        return heard_ns is not None and self._state.now_ns - heard_ns < self.options.leader_alive_ns

    def _log_is_current(self, last_logged: OpId) -> bool:
        """Whether a candidate's log is at least as up to date as this replica's (Raft 5.4.1).

        If this replica was a tombstone, its log counts as ending no earlier than the removed log.
        """
        given_up, last = self._last_logged, self.log.last
        least = max((last.term, last.index), (given_up.term, given_up.index))
        return (last_logged.term, last_logged.index) >= least

    def _reply_vote(
        self, reply: Any, code: ConsensusErrorCode | None = None, message: str = ""
    ) -> None:
        error = None if code is None else ConsensusError(code, message)
        response = RequestConsensusVoteResponse(self.uuid, self.term, code is None, error)
        self._state.effects.append(ev.Reply(reply, response))

    # --- actions by role -------------------------------------------------------------------------

    def _on_leader_contact(self, event: ev.LeaderContact) -> None:
        self._follow(event.caller_term, event.caller_uuid)

    def _on_update_requested(self, event: ev.UpdateRequested) -> None:
        if self._follow(event.request.caller_term, event.request.caller_uuid):
            self._follower.update(event)
        else:
            code = ConsensusErrorCode.INVALID_TERM
            self._follower.refuse(event.reply, code, "the term has ended")

    def _on_snapshot_received(self, event: ev.SnapshotReceived) -> None:
        if self._follow(event.caller_term, event.caller_uuid):
            self._follower.install(event)
        else:
            error = ConsensusError(ConsensusErrorCode.INVALID_TERM, "the term has ended")
            response = InstallSnapshotResponse(self.uuid, self.term, error=error)
            self._state.effects.append(ev.Reply(event.reply, response))

    def _on_synced(self, event: ev.Synced) -> None:
        if self.log.synced(event.sequence):
            self._follower.send_durable_acks()
        if self._leader.leads:
            self._leader.advance_commit()

    def _on_compact(self, event: ev.Compact) -> None:
        self.log.compact(event.index)

    def _on_answered(self, event: ev.UpdateAnswered | ev.SnapshotSent) -> None:
        response = event.response
        if response is not None and response.responder_term > self._state.term:
            self._become_follower(response.responder_term, None)
        elif isinstance(event, ev.UpdateAnswered):
            self._leader.update_answered(event)
        else:
            self._leader.snapshot_sent(event)

    def _on_propose(self, event: ev.Propose) -> None:
        if self._leader.leads:
            self._leader.propose(event)
        else:
            self._refuse_proposal(event.token)

    def _on_change_config(self, event: ev.ChangeConfig) -> None:
        if self._leader.leads:
            self._leader.change_config(event)
        else:
            self._refuse_proposal(event.token)

    def _on_force_config(self, event: ev.ForceConfig) -> None:
        """Append the forced configuration in a new term, and run for leader under it.

        The configuration is active at once, so only the remaining members vote on it.
        """
        try:
            config = forced_config(self.configs.committed, event.members, local_uuid=self.uuid)
        except BadChangeError as error:
            code = ConsensusErrorCode.INVALID_CONFIG
            self._state.effects.append(ev.ProposalRejected(event.token, str(error), code))
            return
        self._become_follower(self.term + 1, None)
        opid = OpId(self.term, self.log.last_index + 1)
        self._state.effects.append(ev.ConfigForced(event.token, opid, config))
        self._state.append((Entry(opid.term, opid.index, EntryKind.CONFIG, encode_config(config)),))
        self._config = self.configs.active
        self._run(is_pre=False, ignore_live_leader=True)

    def _refuse_proposal(self, token: Any) -> None:
        reason = f"not the leader; that is {self.leader_uuid or 'unknown'}"
        self._state.effects.append(ev.ProposalRejected(token, reason))

    def _on_read_requested(self, event: ev.ReadRequested) -> None:
        if self._leader.leads:
            self._leader.read(event)
        else:
            self._state.effects.append(ev.ReadRejected(event.token))
