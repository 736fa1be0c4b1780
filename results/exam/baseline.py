"""Compares an exam with an earlier exam: did a detection rate change by more than chance explains?

Each row that both exams tried gets a two-sided test (`results.statistics.exact.disagreement`).
Holm's procedure corrects for the number of rows: if no rate has changed, at most 5 % of exams raise
any alarm. A violation in a clean profile (a profile without bugs) is always an alarm.
"""

from __future__ import annotations

import msgspec

from results.exam.rows import CLEAN
from results.exam.scores import Score, Scoreboard
from results.statistics.estimates import ALPHA, holm
from results.statistics.exact import disagreement


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose rate differs significantly from the baseline. `p` is corrected for all rows."""

    before: Score
    after: Score
    p: float

    @property
    def is_worse(self) -> bool:
        """Whether the defect is found less often than before."""
        return self.after.hits * self.before.seeds < self.before.hits * self.after.seeds


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a comparison: the changed rows, and the rows that only one exam tried."""

    compared: int
    changes: tuple[Change, ...]
    gone: tuple[str, ...]  # keys of the rows that only the baseline tried
    new: tuple[str, ...]


def compare(board: Scoreboard, before: Scoreboard) -> Comparison:
    """Compare all rows except clean profiles."""
    now = {score.key: score for score in board.scores if score.seeds and score.kind != CLEAN}
    old = {score.key: score for score in before.scores if score.seeds and score.kind != CLEAN}
    pairs = [(old[key], now[key]) for key in now if key in old]
    adjusted = holm([disagreement(first.outcome, last.outcome) for first, last in pairs])
    return Comparison(
        compared=len(pairs),
        changes=tuple(
            Change(before=first, after=last, p=p)
            for (first, last), p in zip(pairs, adjusted, strict=True)
            if p < ALPHA
        ),
        gone=tuple(key for key in old if key not in now),
        new=tuple(key for key in now if key not in old),
    )
