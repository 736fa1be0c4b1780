"""Mutants of the Raft core, each of which ignores one rule of Raft."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.messages import Entry, OpId
from targets.kudu.consensus.quorum_util import ConfigHistory, voters_of
from targets.kudu.consensus.raft_core import RaftCore


class _Mutant(RaftCore, ABC):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.break_parts()

    @abstractmethod
    def break_parts(self) -> None:
        """Replace parts of the core."""


class CommitsOldTerms(_Mutant):
    """A core that counts replicas of entries of older terms (Raft, figure 8)."""

    def break_parts(self) -> None:
        self._leader._may_commit = lambda index: True


class VotesBlindly(RaftCore):
    """A core that votes without looking at the candidate's log."""

    def _log_is_current(self, last_logged: OpId) -> bool:
        return True


class AcksBeforeSync(_Mutant):
    """A core that counts entries as durable once they are written, before the sync."""

    def break_parts(self) -> None:
        append = self._state.append

        def hasty(entries: tuple[Entry, ...]) -> None:
            append(entries)
            self.log.durable_index = self.log.last_index

        self._state.append = hasty


class SkipsLogMatching(_Mutant):
    """A core that accepts entries even if its own preceding entry has another term."""

    def break_parts(self) -> None:
        self._follower._matches = lambda preceding: preceding.index <= self.log.last_index


class CommitsBeyondMatch(RaftCore):
    """A core that also commits entries that do not match the leader's log (KUDU-639)."""

    def _on_update_requested(self, event: ev.UpdateRequested) -> None:
        super()._on_update_requested(event)
        request = event.request
        if request.caller_term == self.term:
            self._state.commit_to(min(request.committed_index, self.log.last_index))


class ReadsUnconfirmed(_Mutant):
    """A core that answers reads from its own state as leader (NO-LEASE)."""

    def break_parts(self) -> None:
        leader = self._leader

        def unconfirmed() -> None:
            while leader._reads:
                read = leader._reads.popleft()
                self._state.effects.append(ev.ReadReady(read.token, read.index))

        leader._resolve_reads = unconfirmed


class ForgetsVote(_Mutant):
    """A core that forgets its vote and votes again in the same term."""

    def break_parts(self) -> None:
        state, save = self._state, self._state.save_meta

        def forgetful() -> None:
            save()
            state.voted_for = None if state.voted_for != self.uuid else state.voted_for

        state.save_meta = forgetful


class ForgetsGivenUpLog(_Mutant):
    """A core that votes as if the lost log of a tombstone had never existed."""

    def break_parts(self) -> None:
        self._last_logged = OpId(0, 0)


class KeepsAbortedConfig(_Mutant):
    """A core that keeps a pending configuration that was truncated from the log (KUDU-1338)."""

    def break_parts(self) -> None:
        truncate_from = self.log.truncate_from

        def forgetful(index: int) -> None:
            items = list(self.configs._items)
            truncate_from(index)
            self.configs._items = items

        self.log.truncate_from = forgetful


class ChangesBeforeItsTerm(_Mutant):
    """A core that changes the configuration before its own term has an entry (KUDU-872)."""

    def break_parts(self) -> None:
        leader = self._leader
        leader._unfit_to_change = lambda: "pending" if leader._configs.pending else None


class ChangesWhilePending(_Mutant):
    """A core that changes the configuration while another change is pending."""

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
    """A core that counts every member as a voter."""

    def break_parts(self) -> None:
        self.configs.__class__ = _CountsAll
        self.configs._note_ends()


class CountsOldMajority(_Mutant):
    """A core that uses the majority of the committed configuration instead of the active one."""

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
