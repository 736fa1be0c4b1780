"""Elections: the candidate's side and the voter's.

After Ongaro's dissertation, chapters 3 and 9.6 (pre-elections), and Kudu's `RequestVote`
(`consensus/raft_consensus.cc`): votes are withheld while a leader is alive (KUDU-562), also from
behind a slow disk (KUDU-2947).
"""

from __future__ import annotations

from typing import Any

from targets.kudu.raft import events as ev
from targets.kudu.raft.messages import (
    ConsensusError,
    ConsensusErrorCode,
    OpId,
    RequestConsensusVoteRequest,
    RequestConsensusVoteResponse,
)
from targets.kudu.raft.state import RaftState, Role, RunningElection

__all__ = ["Elections"]


class Elections(RaftState):
    """How a replica runs and votes."""

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
        self._election = RunningElection(self._election_count, term, is_pre, ignore_live_leader)
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
