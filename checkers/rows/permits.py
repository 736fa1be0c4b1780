"""What the profile of a run permits of rows (`harness.permits`).

* `stale-read`: a leader without a lease, deposed and not yet aware of it, answers from the past. So
  a look (a latest read or scan of a leader) in some term need not have seen what was acknowledged,
  or seen, in a *later* term by another node. All else stays: writes are linearizable, and what one
  node showed in its term it may not take back. Asked row by row, exactly, of rows that no strict
  order explains.
* `lost-after-power-cut`: what was acknowledged before a power cut may be gone after it. In real
  time a row may fall back, at any time after a cut, to what it was before, but loses nothing that
  was asked for after the cut; and a write that was under way may act once more, since that it was
  carried out is lost with it (`relaxed`). Whoever does not look for orders takes a contradiction
  between operations of before and after a cut for nobody's fault, the writes of what was seen
  counted; one that stands on either side is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from checkers.linearizability import UNKNOWN, Operation
from checkers.linearizability.partial import (
    Fact,
    PartialOutcome,
    find_relaxed_order,
)
from checkers.rows.model import RowInput, Rows
from checkers.rows.orders import RowOperation
from checkers.verdict.findings import Findings
from checkers.verdict.invariants import KEY, invariant_of
from checkers.verdict.search import Relaxed
from harness.errors import counted
from harness.ops import CheckResult, History, Pair
from harness.permits import LOST_AFTER_POWER_CUT, STALE_READ, permits_of
from harness.timeline import power_cuts


def relaxed(
    operations: Sequence[RowOperation],
    facts: Mapping[int, Fact],
    cuts: Sequence[int],
    *,
    stale: bool,
    end_s: float,
    again: Collection[int] = (),
) -> Relaxed:
    """The operations on one row, which no strict order explains, in the order of their calls.

    `facts` are by id. Where `stale`, looks may miss later terms; at each of the `cuts`, or later,
    the row may fall back to what it was before. Writes with ids in `again` were under way at a cut.
    """
    found = PartialOutcome(None, exhausted=True, steps=0)
    if stale:
        found = _ordered(operations, facts, end_s=end_s)
        if found.order is not None:
            stales = _stale_looks(operations, found.order)
            return Relaxed({STALE_READ: max(1, len(stales))}, True, tuple(stales))
    if not cuts:
        return Relaxed(None, found.exhausted)
    facts = facts if stale else {}
    before = _ordered(_until(operations, cuts[0]), facts, end_s=end_s)
    if before.order is None and before.exhausted:
        return Relaxed(None, exhausted=True)
    place = operations[0].input.place
    backs: list[RowOperation] = [
        Operation(-1, RowInput(place), cut, UNKNOWN, None, -1 - cut) for cut in cuts
    ]
    sent = [
        replace(operation, output=UNKNOWN, return_time=None)
        for operation in operations
        if operation.id in again and operation.input.steps
    ]
    every = sorted([*operations, *sent, *backs], key=lambda operation: operation.call)
    found = _ordered(every, facts, end_s=end_s)
    if found.order is None:
        return Relaxed(None, found.exhausted)
    stales = _stale_looks(every, found.order) if stale else []
    counts = {LOST_AFTER_POWER_CUT: max(1, len(found.back))}
    if stales:
        counts[STALE_READ] = len(stales)
    return Relaxed(counts, True, tuple(stales))


def _until(operations: Sequence[RowOperation], cut: int) -> list[RowOperation]:
    """What was asked for before a cut; what was not answered by then may have come to anything."""
    found = []
    for operation in operations:
        if operation.call > cut:
            continue
        if operation.return_time is None or operation.return_time < cut:
            found.append(operation)
        elif operation.input.steps:
            found.append(replace(operation, output=UNKNOWN, return_time=None))
    return found


def _ordered(
    operations: Sequence[RowOperation], facts: Mapping[int, Fact], *, end_s: float
) -> PartialOutcome:
    """An order in which looks with facts may miss later terms, and cuts (ids below 0) fall back."""
    hints = {at: (0, o.metadata) for at, o in enumerate(operations) if isinstance(o.metadata, int)}
    every = {o.id: facts.get(o.id, Fact(None, None)) for o in operations if o.id >= 0}
    return find_relaxed_order(
        Rows(), operations, every, lambda look: not look.input.steps, hints=hints, end_s=end_s
    )


def _stale_looks(operations: Sequence[RowOperation], order: Sequence[int]) -> list[int]:
    """The ids of looks that an order puts before what had returned when they were called."""
    least_return = float("inf")
    found = []
    for at in reversed(order):
        operation = operations[at]
        if operation.id >= 0 and not operation.input.steps and least_return < operation.call:
            found.append(operation.id)
        if operation.return_time is not None:
            least_return = min(least_return, operation.return_time)
    return sorted(found)


class PowerCuts:
    """The power cuts of a history whose profile lets them take something back."""

    def __init__(self, history: History) -> None:
        self._pairs = {pair.invoke.index: pair for pair in history.pairs}
        self.permits = permits_of(history)
        self.at: list[int] = []
        if LOST_AFTER_POWER_CUT in self.permits:
            self.at = [cut.index for cut in power_cuts(history)]

    def explain(self, operations: Iterable[int]) -> bool:
        """Whether a power cut came after the first of these was asked for, and before the last
        answer: an answer may still come in when the power of whoever gave it is off.
        """
        pairs = [self._pairs[index] for index in operations if index in self._pairs]
        ends = [pair.completion.index for pair in pairs if pair.completion is not None]
        first = min((pair.invoke.index for pair in pairs), default=0)
        return bool(ends) and len(pairs) > 1 and any(first < at < max(ends) for at in self.at)

    def during(self, pair: Pair) -> bool:
        """Whether a power cut came while an operation was under way."""
        done = pair.completion
        return done is not None and any(pair.invoke.index < at < done.index for at in self.at)


class RowFindings(Findings):
    """Findings of which a power cut may explain some."""

    def __init__(self, checker: str, history: History) -> None:
        super().__init__(checker, permits_of(history))
        self.cuts = PowerCuts(history)

    def violate(
        self, rule: str, sentence: str, *operations: int, permit: str | None = None
    ) -> None:
        """Add a violation, unless a power cut explains it."""
        if self.cuts.explain(operations):
            self.take_back(*operations)
        else:
            super().violate(rule, sentence, *operations, permit=permit)

    def take_back(self, *operations: int) -> None:
        """Count something that a power cut explains."""
        self.permit(LOST_AFTER_POWER_CUT, *operations)

    def conclude(self) -> CheckResult:
        """The result; `unknown` if nothing was looked at."""
        total = self.looked.total()
        if not total and not self.permitted:
            self.gap("there was nothing to judge", rule="nothing-observed")
        rules = counted(len(self.looked), "rule")
        details = {KEY: {invariant_of("rows").name: total}}
        return self.result(f"{counted(total, 'check')} of {rules} hold", details)
