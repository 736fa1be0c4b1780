"""Cores that are broken on purpose: each one forgets a rule of Raft that a test must miss."""

from targets.kudu.raft import events as ev
from targets.kudu.raft.core import RaftCore
from targets.kudu.raft.messages import Entry, OpId


class CommitsOldTerms(RaftCore):
    """Counts replicas of entries of older terms (Raft, figure 8)."""

    def _may_commit(self, index: int) -> bool:
        return True


class VotesBlindly(RaftCore):
    """Votes without looking at the candidate's log."""

    def _log_is_current(self, last_logged: OpId) -> bool:
        return True


class AcksBeforeSync(RaftCore):
    """Counts entries as durable when they were only written."""

    def _append(self, entries: tuple[Entry, ...]) -> None:
        super()._append(entries)
        self.durable_index = self.log.last_index


class SkipsLogMatching(RaftCore):
    """Takes entries whose predecessor it holds in another term."""

    def _matches(self, preceding: OpId) -> bool:
        return preceding.index <= self.log.last_index


class CommitsBeyondMatch(RaftCore):
    """A follower that commits up to the leader's index, matched or not (KUDU-639)."""

    def _on_update_requested(self, event: ev.UpdateRequested) -> None:
        super()._on_update_requested(event)
        request = event.request
        if request.caller_term == self.term:
            self._commit_to(min(request.committed_index, self.log.last_index))


class ReadsUnconfirmed(RaftCore):
    """A leader that answers reads from its own state (NO-LEASE)."""

    def _resolve_reads(self) -> None:
        while self._reads:
            read = self._reads.popleft()
            self._effects.append(ev.ReadReady(read.token, read.index))


class ForgetsVote(RaftCore):
    """Grants a vote it does not remember having given."""

    def _save_meta(self) -> None:
        super()._save_meta()
        self.voted_for = None if self.voted_for != self.uuid else self.voted_for


class KeepsAbortedConfig(RaftCore):
    """Does not bring the old configuration back when a pending one is truncated (KUDU-1338)."""

    def _truncate_from(self, index: int) -> None:
        items = list(self.configs._items)
        super()._truncate_from(index)
        self.configs._items = items


MUTANTS = [
    CommitsOldTerms,
    VotesBlindly,
    AcksBeforeSync,
    SkipsLogMatching,
    CommitsBeyondMatch,
    ReadsUnconfirmed,
    ForgetsVote,
]
