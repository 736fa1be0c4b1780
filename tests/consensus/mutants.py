"""Cores that are broken on purpose: each one forgets a rule of Raft that a test must miss."""

from __future__ import annotations

from typing import Any

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.messages import Entry, OpId
from targets.kudu.consensus.quorum_util import ConfigHistory, voters_of
from targets.kudu.consensus.raft_core import RaftCore


class _Mutant(RaftCore):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.break_parts()

    def break_parts(self) -> None:
        raise NotImplementedError


class CommitsOldTerms(_Mutant):
    """Counts replicas of entries of older terms (Raft, figure 8)."""

    def break_parts(self) -> None:
        self._leader._may_commit = lambda index: True


class VotesBlindly(RaftCore):
    """Votes without looking at the candidate's log."""

    def _log_is_current(self, last_logged: OpId) -> bool:
        return True


class AcksBeforeSync(_Mutant):
    """Counts entries as durable when they were only written."""

    def break_parts(self) -> None:
        append = self._state.append

        def hasty(entries: tuple[Entry, ...]) -> None:
            append(entries)
            self.log.durable_index = self.log.last_index

        self._state.append = hasty


class SkipsLogMatching(_Mutant):
    """Takes entries whose predecessor it holds in another term."""

    def break_parts(self) -> None:
        self._follower._matches = lambda preceding: preceding.index <= self.log.last_index


class CommitsBeyondMatch(RaftCore):
    """A follower that commits up to the leader's index, matched or not (KUDU-639)."""

    def _on_update_requested(self, event: ev.UpdateRequested) -> None:
        super()._on_update_requested(event)
        request = event.request
        if request.caller_term == self.term:
            self._state.commit_to(min(request.committed_index, self.log.last_index))


class ReadsUnconfirmed(_Mutant):
    """A leader that answers reads from its own state (NO-LEASE)."""

    def break_parts(self) -> None:
        leader = self._leader

        def unconfirmed() -> None:
            while leader._reads:
                read = leader._reads.popleft()
                self._state.effects.append(ev.ReadReady(read.token, read.index))

        leader._resolve_reads = unconfirmed


class ForgetsVote(_Mutant):
    """Grants a vote it does not remember having given."""

    def break_parts(self) -> None:
        state, save = self._state, self._state.save_meta

        def forgetful() -> None:
            save()
            state.voted_for = None if state.voted_for != self.uuid else state.voted_for

        state.save_meta = forgetful


class ForgetsGivenUpLog(_Mutant):
    """A tombstone, or what is filled in its place, that votes as if its log had never been."""

    def break_parts(self) -> None:
        self._last_logged = OpId(0, 0)


class KeepsAbortedConfig(_Mutant):
    """Does not bring the old configuration back when a pending one is truncated (KUDU-1338)."""

    def break_parts(self) -> None:
        truncate_from = self.log.truncate_from

        def forgetful(index: int) -> None:
            items = list(self.configs._items)
            truncate_from(index)
            self.configs._items = items

        self.log.truncate_from = forgetful


class ChangesBeforeItsTerm(_Mutant):
    """Changes the configuration before an entry of its own term has committed (KUDU-872)."""

    def break_parts(self) -> None:
        leader = self._leader
        leader._unfit_to_change = lambda: "pending" if leader._configs.pending else None


class ChangesWhilePending(_Mutant):
    """Changes the configuration while another change is pending."""

    def break_parts(self) -> None:
        leader = self._leader
        leader._unfit_to_change = lambda: (  # type: ignore[method-assign]
            None if leader.committed_in_term else "too early"
        )


class _CountsAll(ConfigHistory):
    __slots__ = ()

    def _note_ends(self) -> None:
        super()._note_ends()
        self.voters = tuple(peer.uuid for peer in self.active.peers)
        self.majority = len(self.voters) // 2 + 1


class _CountsCommitted(ConfigHistory):
    __slots__ = ()

    def _note_ends(self) -> None:
        super()._note_ends()
        self.majority = len(voters_of(self.committed)) // 2 + 1


class CountsNonVoters(_Mutant):
    """Takes every member for a voter."""

    def break_parts(self) -> None:
        self.configs.__class__ = _CountsAll
        self.configs._note_ends()


class CountsOldMajority(_Mutant):
    """Takes the majority of the committed configuration for that of the active one."""

    def break_parts(self) -> None:
        self.configs.__class__ = _CountsCommitted
        self.configs._note_ends()


MUTANTS = [
    CommitsOldTerms,
    VotesBlindly,
    AcksBeforeSync,
    SkipsLogMatching,
    CommitsBeyondMatch,
    ReadsUnconfirmed,
    ForgetsVote,
    ForgetsGivenUpLog,
    KeepsAbortedConfig,
    ChangesBeforeItsTerm,
    ChangesWhilePending,
    CountsNonVoters,
    CountsOldMajority,
]
