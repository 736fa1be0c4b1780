"""Raft without input or output: `step(event, now_ns) -> effects`.

After Ongaro's dissertation and Kudu's `consensus/raft_consensus.cc`, whose deviations are kept:
pre-elections, votes withheld while a leader is alive, one outstanding request per peer. The core
reads no clock, draws no randomness and does no IO: time comes with each event, election timeouts
are events, and effects are carried out by a shell (`replica.py`; in tests, by a model of a disk
that forgets). It is deterministic, so a schedule of events replays exactly.

What it guarantees, and where:

* **Votes are remembered.** `SaveMeta` is a barrier before every answer that depends on it.
* **An acknowledged entry is durable.** A follower's answer waits for `Synced`; the leader counts
  itself only up to its own durable index.
* **Only entries of the own term are counted** towards commit (Raft 5.4.2); a leader opens its term
  with a NO_OP so that there is one.
* **A follower commits only what it has matched** with this leader (KUDU-639).
* **Reads**: a leader answers after a majority has answered a request that left after the read
  arrived, and after an entry of its own term has committed (dissertation 6.4).
* **A leader without a majority steps down** after one longest election timeout (profile `strict`;
  Kudu's stays leader for ever).

The index arithmetic is asserted throughout; a failed assertion is a bug, or a node that lost what
it promised to keep.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from targets.kudu.messages import PeerConfig, RaftConfig
from targets.kudu.raft import events as ev
from targets.kudu.raft.log import ConfigHistory, MemoryLog, decode_config
from targets.kudu.raft.messages import (
    ConsensusError,
    ConsensusErrorCode,
    Entry,
    EntryKind,
    InstallSnapshotResponse,
    OpId,
    RequestConsensusVoteRequest,
    RequestConsensusVoteResponse,
    UpdateConsensusRequest,
    UpdateConsensusResponse,
)

__all__ = ["CoreOptions", "RaftCore", "Role"]


class Role(enum.StrEnum):
    """`RaftPeerPB.Role`, and CANDIDATE for the time of an election."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEARNER = "LEARNER"
    NON_PARTICIPANT = "NON_PARTICIPANT"


class CoreOptions:
    """The limits the core works by. `leader_alive_ns` is the shortest election timeout."""

    __slots__ = ("batch_bytes_max", "leader_alive_ns", "pre_election", "step_down_ns")

    def __init__(
        self,
        *,
        leader_alive_ns: int = 1_500_000_000,
        step_down_ns: int = 2_250_000_000,
        batch_bytes_max: int = 1024 * 1024,
        pre_election: bool = True,
    ) -> None:
        self.leader_alive_ns = leader_alive_ns
        self.step_down_ns = step_down_ns
        self.batch_bytes_max = batch_bytes_max
        self.pre_election = pre_election


class _Peer:
    """What a leader knows of a peer."""

    __slots__ = (
        "address",
        "contact_ns",
        "in_flight",
        "match_index",
        "next_index",
        "read_acked",
        "read_sent",
        "uuid",
    )

    def __init__(self, config: PeerConfig, next_index: int, now_ns: int) -> None:
        self.uuid = config.uuid
        self.address = config.address
        self.next_index = next_index
        self.match_index = 0
        self.in_flight: int | None = None  # the id of the one outstanding request
        self.contact_ns = now_ns
        self.read_sent = 0  # reads that had arrived when the outstanding request left
        self.read_acked = 0


class _Election:
    """An election or pre-election this replica runs in."""

    __slots__ = ("answers", "election_id", "ignore_live_leader", "is_pre", "term")

    def __init__(self, election_id: int, term: int, is_pre: bool, ignore_live: bool) -> None:
        self.election_id = election_id
        self.term = term
        self.is_pre = is_pre
        self.ignore_live_leader = ignore_live
        self.answers: dict[str, bool] = {}


class _Ack:
    """An answer to a leader that waits until `matched` is durable."""

    __slots__ = ("matched", "reply")

    def __init__(self, matched: int, reply: Any) -> None:
        self.matched = matched
        self.reply = reply


class _Read:
    """A read that waits for its round."""

    __slots__ = ("index", "number", "token")

    def __init__(self, number: int, index: int, token: Any) -> None:
        self.number = number
        self.index = index
        self.token = token


class RaftCore:
    """One member of one group. All state is public to read; only `step` changes it."""

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
    ) -> None:
        """A replica as recovered from disk: everything given is durable, `base` is committed."""
        self.uuid = uuid
        self.group_id = group_id
        self.options = options or CoreOptions()
        self.term = term
        self.voted_for = voted_for
        self.log = MemoryLog(base)
        self.configs = ConfigHistory(config)
        for entry in entries:
            self.log.append(entry)
            if entry.kind is EntryKind.CONFIG:
                self.configs.append(entry)
        assert self.log.last.term <= term, f"log of term {self.log.last.term}, vote state {term}"
        self.commit_index = base.index
        self.durable_index = self.log.last_index
        self.role = Role.FOLLOWER
        self.leader_uuid: str | None = None
        self.failed_elections = 0
        self.term_start_index = 0  # of the NO_OP that opened the own term
        self.heard_leader_ns: int | None = None

        self._now_ns = 0
        self._effects: list[ev.Effect] = []
        self._append_sequence = 0
        self._unsynced: deque[tuple[int, int]] = deque()  # (append sequence, last index)
        self._acks: deque[_Ack] = deque()
        self._election: _Election | None = None
        self._election_count = 0
        self._request_count = 0
        self._peers: dict[str, _Peer] = {}
        self._reads: deque[_Read] = deque()
        self._read_count = 0
        self._voters: tuple[str, ...] = ()
        self._majority = 0
        self._refresh_config()

    # --- reading ----------------------------------------------------------------------------

    @property
    def config(self) -> RaftConfig:
        """The active configuration."""
        return self.configs.active

    @property
    def committed_in_term(self) -> bool:
        """Whether this is a leader that has committed an entry of its own term."""
        return self.role is Role.LEADER and self.commit_index >= self.term_start_index

    # --- stepping ---------------------------------------------------------------------------

    def step(self, event: ev.Event, now_ns: int) -> list[ev.Effect]:
        """Handle one event; the effects are to be carried out in order."""
        assert not self._effects, "effects of the last step were not taken"
        self._now_ns = now_ns
        before = (self.role, self.term, self.leader_uuid, self.configs.committed)
        commit_before = self.commit_index
        self._HANDLERS[type(event)](self, event)
        effects, self._effects = self._effects, []
        assert self.commit_index >= commit_before, "the commit index fell"
        assert self.commit_index <= self.log.last_index, "committed more than the log holds"
        if (self.role, self.term, self.leader_uuid, self.configs.committed) != before:
            effects.append(ev.StateChanged())
        return effects

    def _save_meta(self) -> None:
        meta = ev.SaveMeta(self.term, self.voted_for, self.configs.committed)
        if self._effects and type(self._effects[-1]) is ev.SaveMeta:
            self._effects[-1] = meta
        else:
            self._effects.append(meta)

    def _refresh_config(self) -> None:
        """Take over the active configuration."""
        peers = self.configs.active.peers
        self._voters = tuple(peer.uuid for peer in peers if peer.member_type == "VOTER")
        self._majority = len(self._voters) // 2 + 1
        if self.role is Role.LEADER:
            self._refresh_peers()
        else:
            self.role = self._passive_role()

    def _refresh_peers(self) -> None:
        known, self._peers = self._peers, {}
        for config in self.configs.active.peers:
            if config.uuid == self.uuid:
                continue
            peer = known.get(config.uuid)
            if peer is None or peer.address != config.address:
                peer = _Peer(config, self.log.last_index + 1, self._now_ns)
            self._peers[config.uuid] = peer

    def _passive_role(self) -> Role:
        """What this replica is when it neither leads nor runs."""
        if self.uuid in self._voters:
            return Role.FOLLOWER
        if any(peer.uuid == self.uuid for peer in self.configs.active.peers):
            return Role.LEARNER
        return Role.NON_PARTICIPANT

    def _become_follower(self, term: int, leader_uuid: str | None) -> None:
        """Adopt `term` if it is newer, and stop leading or running."""
        assert term >= self.term, f"term {term} after {self.term}"
        if term > self.term:
            self.term = term
            self.voted_for = None
            self._save_meta()
            self._fail_acks("the term is over")
        if self.role is Role.LEADER:
            self._peers.clear()
            for read in self._reads:
                self._effects.append(ev.ReadRejected(read.token))
            self._reads.clear()
            self._effects.append(ev.ResetElectionTimer())
        self._election = None
        self.role = self._passive_role()
        self.leader_uuid = leader_uuid

    # --- the log ----------------------------------------------------------------------------

    def _append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries, in memory now, on disk by `AppendLog`."""
        config_changed = False
        preceding = self.log.last
        for entry in entries:
            self.log.append(entry)
            if entry.kind is EntryKind.CONFIG:
                self.configs.append(entry)
                config_changed = True
        self._append_sequence += 1
        self._unsynced.append((self._append_sequence, self.log.last_index))
        self._effects.append(ev.AppendLog(self._append_sequence, preceding, entries))
        if config_changed:
            self._refresh_config()

    def _truncate_from(self, index: int) -> None:
        """Drop a conflicting tail; what replaces it on disk is the next append."""
        assert index > self.commit_index, f"truncation from {index}, committed {self.commit_index}"
        self.log.truncate_from(index)
        self.durable_index = min(self.durable_index, index - 1)
        # Appends under way still end, but what they made durable counts only below the cut.
        self._unsynced = deque((seq, min(last, index - 1)) for seq, last in self._unsynced)
        if self.configs.truncate_from(index):
            self._refresh_config()

    def _on_synced(self, event: ev.Synced) -> None:
        durable_before = self.durable_index
        while self._unsynced and self._unsynced[0][0] <= event.sequence:
            _, last_index = self._unsynced.popleft()
            self.durable_index = max(self.durable_index, last_index)
        assert self.durable_index <= self.log.last_index, "durable beyond the log"
        if self.durable_index == durable_before:
            return
        while self._acks and self._acks[0].matched <= self.durable_index:
            ack = self._acks.popleft()
            self._reply_update(ack.reply, ack.matched)
        if self.role is Role.LEADER:
            self._advance_commit()

    def _on_compact(self, event: ev.Compact) -> None:
        assert event.index <= self.commit_index, "only committed entries may go"
        if event.index > self.log.base.index:
            self.log.compact(event.index)

    def _commit_to(self, index: int) -> None:
        if index <= self.commit_index:
            return
        assert index <= self.log.last_index, "committed more than the log holds"
        self.commit_index = index
        if self.configs.commit(index):
            self._save_meta()
        self._effects.append(ev.Committed(index))
        if self.role is Role.LEADER and not self._may_run():
            self._become_follower(self.term, None)  # the change that demoted it has committed

    # --- elections: the candidate's side ----------------------------------------------------

    def _on_election_timeout(self, event: ev.ElectionTimeout) -> None:
        del event
        if self.role is Role.LEADER:
            return
        if self._acks:
            # The leader is fine: it is our own disk that is slow (KUDU-2947).
            self._effects.append(ev.ResetElectionTimer())
            return
        if self._election is not None:
            self.failed_elections += 1
        self._run(is_pre=self.options.pre_election, ignore_live_leader=False)

    def _on_run_election(self, event: ev.RunElection) -> None:
        del event
        if self.role is not Role.LEADER:
            self._run(is_pre=False, ignore_live_leader=True)

    def _run(self, *, is_pre: bool, ignore_live_leader: bool) -> None:
        """Start an election. A pre-election touches no state (dissertation 9.6)."""
        self._effects.append(ev.ResetElectionTimer())
        if not self._may_run():
            return
        self._election_count += 1
        term = self.term + 1
        if not is_pre:
            self.term = term
            self.voted_for = self.uuid
            self.role = Role.CANDIDATE
            self.leader_uuid = None
            self._fail_acks("this replica runs for leader")
            self._save_meta()
        self._election = _Election(self._election_count, term, is_pre, ignore_live_leader)
        self._election.answers[self.uuid] = True
        for peer in self.configs.active.peers:
            if peer.uuid == self.uuid or peer.member_type != "VOTER":
                continue
            request = RequestConsensusVoteRequest(
                dest_uuid=peer.uuid,
                tablet_id=self.group_id,
                candidate_uuid=self.uuid,
                candidate_term=term,
                last_logged=self.log.last,
                is_pre_election=is_pre,
                ignore_live_leader=ignore_live_leader,
            )
            vote = ev.SendVote(peer.uuid, peer.address, self._election_count, request)
            self._effects.append(vote)
        self._count_votes()

    def _may_run(self) -> bool:
        """Whether this replica votes in its active or in its committed configuration.

        One that a pending change demotes may hold the only copy of that change: until it commits,
        nobody else might be able to win (dissertation 4.2.2).
        """
        committed = self.configs.committed.peers
        return self.uuid in self._voters or any(
            peer.uuid == self.uuid and peer.member_type == "VOTER" for peer in committed
        )

    def _on_vote_answered(self, event: ev.VoteAnswered) -> None:
        response = event.response
        if response is None:
            return
        if response.responder_term > self.term:
            # Also after a lost pre-election: two replicas that each miss the other's term would
            # block one another for ever.
            lost = self._election is not None
            self._become_follower(response.responder_term, None)
            self.failed_elections += lost
            return
        election = self._election
        if election is None or election.election_id != event.election_id:
            return
        election.answers[event.peer_uuid] = response.vote_granted
        self._count_votes()

    def _count_votes(self) -> None:
        election = self._election
        assert election is not None, "votes without an election"
        answers = [election.answers[uuid] for uuid in self._voters if uuid in election.answers]
        granted = sum(answers)
        denied = len(answers) - granted
        if granted >= self._majority:
            self._election = None
            if election.is_pre:
                self._run(is_pre=False, ignore_live_leader=election.ignore_live_leader)
            else:
                self._become_leader(election.term)
        elif denied > len(self._voters) - self._majority:
            self._election = None
            self.failed_elections += 1
            self.role = self._passive_role()
            self._effects.append(ev.ResetElectionTimer())

    def _become_leader(self, term: int) -> None:
        assert self.role is Role.CANDIDATE, self.role
        assert self.term == term, f"won the election of {term} in {self.term}"
        assert not self._reads, "reads of an earlier leadership"
        self.role = Role.LEADER
        self.leader_uuid = self.uuid
        self.failed_elections = 0
        self._peers.clear()
        self._refresh_peers()
        self.term_start_index = self.log.last_index + 1
        self._append_own(EntryKind.NO_OP, b"")

    # --- elections: the voter's side --------------------------------------------------------

    def _on_vote_requested(self, event: ev.VoteRequested) -> None:
        request = event.request
        if not request.ignore_live_leader and self._leader_is_alive():
            self._reply_vote(event.reply, ConsensusErrorCode.LEADER_IS_ALIVE, "a leader is alive")
            return
        term = request.candidate_term
        if term < self.term:
            self._reply_vote(event.reply, ConsensusErrorCode.INVALID_TERM, f"{term} is over")
            return
        if term == self.term and self.voted_for is not None:
            if self.voted_for == request.candidate_uuid:
                self._reply_vote(event.reply)
            else:
                message = f"voted for {self.voted_for} in {term}"
                self._reply_vote(event.reply, ConsensusErrorCode.ALREADY_VOTED, message)
            return
        if term > self.term and not request.is_pre_election:
            self._become_follower(term, None)
        if not self._log_is_current(request.last_logged):
            message = f"last logged {request.last_logged}, here {self.log.last}"
            self._reply_vote(event.reply, ConsensusErrorCode.LAST_OPID_TOO_OLD, message)
            return
        if not request.is_pre_election:
            if self.role is Role.CANDIDATE:
                self._become_follower(term, None)
            self.voted_for = request.candidate_uuid
            self._save_meta()
            self._effects.append(ev.ResetElectionTimer())
        self._reply_vote(event.reply)

    def _leader_is_alive(self) -> bool:
        """A leader withholds its vote for ever, the others for the shortest election timeout; one
        that waits for its own slow disk still counts its leader as alive (KUDU-2947).
        """
        if self.role is Role.LEADER or self._acks:
            return True
        heard_ns = self.heard_leader_ns
        return heard_ns is not None and self._now_ns - heard_ns < self.options.leader_alive_ns

    def _log_is_current(self, last_logged: OpId) -> bool:
        """The election restriction (Raft 5.4.1)."""
        last = self.log.last
        return (last_logged.term, last_logged.index) >= (last.term, last.index)

    def _reply_vote(
        self, reply: Any, code: ConsensusErrorCode | None = None, message: str = ""
    ) -> None:
        error = None if code is None else ConsensusError(code, message)
        response = RequestConsensusVoteResponse(self.uuid, self.term, code is None, error)
        self._effects.append(ev.Reply(reply, response))

    # --- the follower -----------------------------------------------------------------------

    def _follow(self, caller_term: int, caller_uuid: str) -> bool:
        """Accept a leader; false when its term is over."""
        if caller_term < self.term:
            return False
        assert caller_term > self.term or self.role is not Role.LEADER, (
            f"{self.uuid} and {caller_uuid} both lead term {caller_term}"
        )
        assert caller_term > self.term or self.leader_uuid in {None, caller_uuid}, (
            f"{self.leader_uuid} and {caller_uuid} both lead term {caller_term}"
        )
        if caller_term > self.term or self.role is Role.CANDIDATE or self._election is not None:
            self._become_follower(caller_term, caller_uuid)
        self.leader_uuid = caller_uuid
        self.heard_leader_ns = self._now_ns
        self.failed_elections = 0
        self._effects.append(ev.ResetElectionTimer())
        return True

    def _on_leader_contact(self, event: ev.LeaderContact) -> None:
        self._follow(event.caller_term, event.caller_uuid)

    def _on_update_requested(self, event: ev.UpdateRequested) -> None:
        request = event.request
        if not self._follow(request.caller_term, request.caller_uuid):
            self._refuse_update(event.reply, ConsensusErrorCode.INVALID_TERM, "the term is over")
            return
        preceding, entries = self._above_base(request)
        if not self._matches(preceding):
            message = f"preceding {preceding}, here {self.log!r}"
            code = ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH
            self._refuse_update(event.reply, code, message)
            return
        self._append_missing(entries)
        matched = preceding.index + len(entries)
        self._commit_to(min(request.committed_index, matched))
        if matched <= self.durable_index:
            self._reply_update(event.reply, matched)
        elif request.entries:
            self._acks.append(_Ack(matched, event.reply))
        else:
            # A heartbeat is answered at once, so that a slow disk does not look like a dead node.
            self._reply_update(event.reply, self.durable_index)

    def _above_base(self, request: UpdateConsensusRequest) -> tuple[OpId, tuple[Entry, ...]]:
        """The request without what the snapshot covers, which is committed and thus equal."""
        preceding, entries = request.preceding, request.entries
        for position, entry in enumerate(entries, start=1):
            assert entry.index == preceding.index + position, "a gap in a request"
        covered = self.log.base.index - preceding.index
        if covered <= 0:
            return preceding, entries
        return self.log.base, entries[covered:]

    def _matches(self, preceding: OpId) -> bool:
        """The log matching check (Raft 5.3)."""
        if self.log.holds(preceding):
            return True
        assert preceding.index > self.commit_index, (
            f"committed up to {self.commit_index}, but the leader of {self.term} has {preceding}"
        )
        return False

    def _append_missing(self, entries: tuple[Entry, ...]) -> None:
        for position, entry in enumerate(entries):
            if entry.index <= self.log.last_index:
                if self.log.term_at(entry.index) == entry.term:
                    continue
                self._truncate_from(entry.index)
            self._append(entries[position:])
            return

    def _reply_update(self, reply: Any, matched: int) -> None:
        response = UpdateConsensusResponse(
            responder_uuid=self.uuid,
            responder_term=self.term,
            last_received=self.log.last,
            last_received_current_leader=OpId(self._term_or_zero(matched), matched),
            last_committed_index=self.commit_index,
        )
        self._effects.append(ev.Reply(reply, response))

    def _term_or_zero(self, index: int) -> int:
        """The term at `index`; 0 where a snapshot has taken the entry since."""
        return self.log.term_at(index) if index >= self.log.base.index else 0

    def _refuse_update(self, reply: Any, code: ConsensusErrorCode, message: str) -> None:
        response = UpdateConsensusResponse(
            responder_uuid=self.uuid,
            responder_term=self.term,
            last_received=self.log.last,
            last_committed_index=self.commit_index,
            error=ConsensusError(code, message),
        )
        self._effects.append(ev.Reply(reply, response))

    def _fail_acks(self, message: str) -> None:
        """Answer requests of a term that is over; their caller does not lead any more."""
        acks, self._acks = self._acks, deque()
        for ack in acks:
            self._refuse_update(ack.reply, ConsensusErrorCode.INVALID_TERM, message)

    def _on_snapshot_received(self, event: ev.SnapshotReceived) -> None:
        if not self._follow(event.caller_term, event.caller_uuid):
            error = ConsensusError(ConsensusErrorCode.INVALID_TERM, "the term is over")
            response = InstallSnapshotResponse(self.uuid, self.term, error=error)
            self._effects.append(ev.Reply(event.reply, response))
            return
        last = event.last_included
        if last.index > self.commit_index:
            self._fail_acks("a snapshot took the log's place")
            keep_log = self.log.holds(last)
            if keep_log:
                self.log.compact(last.index)
            else:
                self.log.reset(last)
                self._unsynced.clear()
                self.durable_index = last.index
            self.durable_index = max(self.durable_index, last.index)
            self.commit_index = last.index
            self._take_snapshot_config(event.config)
            self._effects.append(
                ev.InstallSnapshot(last, event.config, event.digest, event.data, keep_log)
            )
        response = InstallSnapshotResponse(self.uuid, self.term, installed=True)
        self._effects.append(ev.Reply(event.reply, response))

    def _take_snapshot_config(self, config: RaftConfig) -> None:
        self.configs.reset(config)
        for entry in self.log.between(self.log.base.index + 1, self.log.last_index):
            if entry.kind is EntryKind.CONFIG:
                self.configs.append(entry)
        self._refresh_config()
        self._save_meta()

    # --- the leader -------------------------------------------------------------------------

    def _on_propose(self, event: ev.Propose) -> None:
        reason = self._refusal(event)
        if reason is not None:
            self._effects.append(ev.ProposalRejected(event.token, reason))
            return
        opid = OpId(self.term, self.log.last_index + 1)
        self._effects.append(ev.ProposalAccepted(event.token, opid))
        self._append_own(event.kind, event.payload)

    def _refusal(self, event: ev.Propose) -> str | None:
        """Why a proposal cannot be appended."""
        if self.role is not Role.LEADER:
            return f"not the leader; that is {self.leader_uuid or 'unknown'}"
        if event.kind is not EntryKind.CONFIG:
            return None
        if not self.committed_in_term:
            return "no operation of this term has committed yet (KUDU-872)"
        if self.configs.pending:
            return "another configuration change is pending"
        entry = Entry(self.term, self.log.last_index + 1, event.kind, event.payload)
        changed = _voters_changed(self.config, decode_config(entry))
        if len(changed) > 1 or self.uuid in changed:
            return f"one other voter at a time, not {changed}"
        return None

    def _append_own(self, kind: EntryKind, payload: bytes) -> None:
        """Append an entry as leader and send it to every peer that is free."""
        self._append((Entry(self.term, self.log.last_index + 1, kind, payload),))
        self._send_updates()

    def _on_heartbeat_due(self, event: ev.HeartbeatDue) -> None:
        del event
        if self.role is not Role.LEADER:
            return
        if not self._majority_in_contact():
            self._become_follower(self.term, None)
            return
        self._send_updates()

    def _majority_in_contact(self) -> bool:
        oldest_ns = self._now_ns - self.options.step_down_ns
        count = 0
        for uuid in self._voters:
            count += uuid == self.uuid or self._peers[uuid].contact_ns >= oldest_ns
        return count >= self._majority

    def _send_updates(self) -> None:
        for peer in self._peers.values():
            if peer.in_flight is None:
                self._send_update(peer)

    def _send_update(self, peer: _Peer) -> None:
        """Send what the peer needs next: entries, a bare heartbeat, or a snapshot."""
        assert peer.in_flight is None, "one outstanding request per peer"
        self._request_count += 1
        peer.in_flight = self._request_count
        peer.read_sent = self._read_count
        if peer.next_index <= self.log.base.index:
            self._effects.append(
                ev.SendSnapshot(peer.uuid, peer.address, self._request_count, self.term)
            )
            return
        preceding_index = peer.next_index - 1
        request = UpdateConsensusRequest(
            dest_uuid=peer.uuid,
            tablet_id=self.group_id,
            caller_uuid=self.uuid,
            caller_term=self.term,
            preceding=OpId(self.log.term_at(preceding_index), preceding_index),
            committed_index=self.commit_index,
            entries=self.log.batch(peer.next_index, self.options.batch_bytes_max),
        )
        self._effects.append(ev.SendUpdate(peer.uuid, peer.address, self._request_count, request))

    def _answering_peer(self, peer_uuid: str, request_id: int) -> _Peer | None:
        """The peer whose outstanding request this is; None for late or foreign answers."""
        if self.role is not Role.LEADER:
            return None
        peer = self._peers.get(peer_uuid)
        if peer is None or peer.in_flight != request_id:
            return None
        peer.in_flight = None
        return peer

    def _on_update_answered(self, event: ev.UpdateAnswered) -> None:
        response = event.response
        if response is not None and response.responder_term > self.term:
            self._become_follower(response.responder_term, None)
            return
        peer = self._answering_peer(event.peer_uuid, event.request_id)
        if peer is None or response is None or response.responder_term != self.term:
            return
        error = response.error
        mismatch = ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH
        if error is not None and error.code is not mismatch:
            return  # refused for a reason that time may mend; the next heartbeat tries again
        peer.contact_ns = self._now_ns
        peer.read_acked = max(peer.read_acked, peer.read_sent)
        if error is None:
            matched = response.last_received_current_leader.index
            assert matched <= self.log.last_index, "a follower matched more than the leader has"
            peer.match_index = max(peer.match_index, matched)
            peer.next_index = matched + 1
            self._advance_commit()
        else:
            self._back_off(peer, response)
        self._resolve_reads()
        if self._wants_more(peer) or error is not None:
            self._send_update(peer)

    def _wants_more(self, peer: _Peer) -> bool:
        """Whether to send again at once instead of with the next heartbeat."""
        if peer.in_flight is not None or self.role is not Role.LEADER:
            return False
        if peer.next_index <= self.log.last_index:
            return True
        return bool(self._reads) and self._reads[-1].number > peer.read_acked

    def _back_off(self, peer: _Peer, response: UpdateConsensusResponse) -> None:
        """Choose where to try next, after a peer's log did not match (Kudu `consensus_queue.cc`).

        Its committed prefix always matches, so this ends; what it committed before our base needs
        a snapshot.
        """
        # A peer that came back with less than it once acknowledged no longer counts for that.
        peer.match_index = min(peer.match_index, response.last_received.index)
        if self.log.holds(response.last_received):
            following = response.last_received.index + 1
        else:
            following = response.last_committed_index + 1
        peer.next_index = max(1, min(following, self.log.last_index + 1))

    def _on_snapshot_progress(self, event: ev.SnapshotProgress) -> None:
        peer = self._peers.get(event.peer_uuid)
        if peer is not None and peer.in_flight == event.request_id:
            peer.contact_ns = self._now_ns

    def _on_snapshot_sent(self, event: ev.SnapshotSent) -> None:
        response = event.response
        if response is not None and response.responder_term > self.term:
            self._become_follower(response.responder_term, None)
            return
        peer = self._answering_peer(event.peer_uuid, event.request_id)
        if peer is None or response is None or response.responder_term != self.term:
            return
        peer.contact_ns = self._now_ns
        peer.read_acked = max(peer.read_acked, peer.read_sent)
        if response.installed:
            peer.match_index = max(peer.match_index, event.last_included.index)
            peer.next_index = event.last_included.index + 1
            self._advance_commit()
        self._resolve_reads()
        if self._wants_more(peer) and response.installed:
            self._send_update(peer)

    def _advance_commit(self) -> None:
        """Commit what a majority of voters has durably, if it is of this term."""
        matches = sorted(
            self.durable_index if uuid == self.uuid else self._peers[uuid].match_index
            for uuid in self._voters
        )
        index = matches[len(matches) - self._majority]
        if index > self.commit_index and self._may_commit(index):
            self._commit_to(index)
            self._resolve_reads()

    def _may_commit(self, index: int) -> bool:
        """Only entries of the own term commit by counting (Raft 5.4.2, figure 8)."""
        return self.log.term_at(index) == self.term

    def _on_step_down(self, event: ev.StepDown) -> None:
        if self.role is not Role.LEADER:
            return
        successor = self._successor(event.new_leader_uuid)
        self._become_follower(self.term, None)
        if successor is not None:
            self._effects.append(ev.SendRunElection(successor.uuid, successor.address))

    def _successor(self, uuid: str | None) -> _Peer | None:
        """The peer to hand over to, if one was named and it votes."""
        if uuid is None or uuid == self.uuid or uuid not in self._voters:
            return None
        return self._peers[uuid]

    # --- reads ------------------------------------------------------------------------------

    def _on_read_requested(self, event: ev.ReadRequested) -> None:
        if self.role is not Role.LEADER:
            self._effects.append(ev.ReadRejected(event.token))
            return
        self._read_count += 1
        index = max(self.commit_index, self.term_start_index)
        self._reads.append(_Read(self._read_count, index, event.token))
        self._send_updates()
        self._resolve_reads()

    def _resolve_reads(self) -> None:
        """Release the reads that a majority has confirmed, oldest first."""
        if not self._reads or self.role is not Role.LEADER:
            return
        acked = sorted(
            self._read_count if uuid == self.uuid else self._peers[uuid].read_acked
            for uuid in self._voters
        )
        confirmed = acked[len(acked) - self._majority]
        while self._reads:
            read = self._reads[0]
            if read.number > confirmed or read.index > self.commit_index:
                return
            self._reads.popleft()
            self._effects.append(ev.ReadReady(read.token, read.index))

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ev.ElectionTimeout: _on_election_timeout,
        ev.HeartbeatDue: _on_heartbeat_due,
        ev.VoteRequested: _on_vote_requested,
        ev.VoteAnswered: _on_vote_answered,
        ev.UpdateRequested: _on_update_requested,
        ev.UpdateAnswered: _on_update_answered,
        ev.LeaderContact: _on_leader_contact,
        ev.SnapshotReceived: _on_snapshot_received,
        ev.SnapshotProgress: _on_snapshot_progress,
        ev.SnapshotSent: _on_snapshot_sent,
        ev.Propose: _on_propose,
        ev.ReadRequested: _on_read_requested,
        ev.Synced: _on_synced,
        ev.Compact: _on_compact,
        ev.StepDown: _on_step_down,
        ev.RunElection: _on_run_election,
    }


def _voters_changed(old: RaftConfig, new: RaftConfig) -> list[str]:
    """The voters that one of two configurations has and the other has not, sorted."""
    before = {peer.uuid for peer in old.peers if peer.member_type == "VOTER"}
    after = {peer.uuid for peer in new.peers if peer.member_type == "VOTER"}
    return sorted(before ^ after)
