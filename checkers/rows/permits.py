"""Judges rows under the deviations that a run's profile permits (`harness.permits`).

A *look* is the answer of a read or scan.

* `stale-read`: a leader that was deposed may answer from the past until it learns this. So a look
  at a leader in some term may miss writes that another node acknowledged, or showed, in a *later*
  term. A node must not take back a write that it showed in its term. For each row that no strict
  order explains, a search decides whether this permit explains it.
* `lost-after-power-cut`: a write acknowledged before a power cut may be gone after the cut, but no
  write that was invoked after the cut is lost. A write that was under way at the cut may take
  effect a second time, since the node also loses its record of the write (see `relaxed`). A checker
  without a search permits a contradiction if its operations, and the writers of the values that
  they saw, are on both sides of a cut.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from checkers.linearizability import UNKNOWN, Operation
from checkers.linearizability.partial import Fact, PartialOutcome, find_relaxed_order
from checkers.rows.model import RowInput, Rows
from checkers.rows.orders import RowOperation
from checkers.verdict.findings import Findings
from checkers.verdict.invariants import KEY, invariant_of
from checkers.verdict.search import Relaxed
from harness.errors import counted
from harness.ops import CheckResult, History, Pair
from harness.permits import LOST_AFTER_POWER_CUT, STALE_READ, lossy_cuts, permits_of


def relaxed(
    operations: Sequence[RowOperation],
    facts: Mapping[int, Fact],
    cuts: Sequence[int],
    *,
    stale: bool,
    end_s: float,
    again: Collection[int] = (),
) -> Relaxed:
    """Search for an order of the operations on one row under the permits of the profile.

    `operations` are sorted by their calls and have no strict order. `facts` maps operation ids to
    the node and term of the answer. With `stale`, reads may miss writes of later terms. At or after
    each of the `cuts`, the row may fall back to an earlier state. Writes with ids in `again` were
    under way at a cut.
    """
    outcome = PartialOutcome(None, exhausted=True, steps=0)
    if stale:
        outcome = _ordered(operations, facts, end_s=end_s)
        if outcome.order is not None:
            stales = _stale_looks(operations, outcome.order)
            return Relaxed({STALE_READ: max(1, len(stales))}, True, tuple(stales))
    if not cuts:
        return Relaxed(None, outcome.exhausted)
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
    outcome = _ordered(every, facts, end_s=end_s)
    if outcome.order is None:
        return Relaxed(None, outcome.exhausted)
    stales = _stale_looks(every, outcome.order) if stale else []
    counts = {LOST_AFTER_POWER_CUT: max(1, len(outcome.back))}
    if stales:
        counts[STALE_READ] = len(stales)
    return Relaxed(counts, True, tuple(stales))


def _until(operations: Sequence[RowOperation], cut: int) -> list[RowOperation]:
    """Return the operations that were called before a cut.

    A write that had not returned at the cut gets an unknown outcome. A pending read is left out.
    """
    operations_before = []
    for operation in operations:
        if operation.call > cut:
            continue
        if operation.return_time is None or operation.return_time < cut:
            operations_before.append(operation)
        elif operation.input.steps:
            operations_before.append(replace(operation, output=UNKNOWN, return_time=None))
    return operations_before


def _ordered(
    operations: Sequence[RowOperation], facts: Mapping[int, Fact], *, end_s: float
) -> PartialOutcome:
    """Search for an order in which reads may miss writes of later terms; `facts` has the terms.

    An operation with an id below 0 is a power cut, at which the row may fall back.
    """
    hints = {at: (0, o.metadata) for at, o in enumerate(operations) if isinstance(o.metadata, int)}
    every = {o.id: facts.get(o.id, Fact(None, None)) for o in operations if o.id >= 0}
    return find_relaxed_order(
        Rows(), operations, every, lambda look: not look.input.steps, hints=hints, end_s=end_s
    )


def _stale_looks(operations: Sequence[RowOperation], order: Sequence[int]) -> list[int]:
    """Return the ids of the stale reads in `order`.

    A read is stale if it precedes an operation that returned before the read was called.
    """
    least_return = float("inf")
    stale = []
    for at in reversed(order):
        operation = operations[at]
        if operation.id >= 0 and not operation.input.steps and least_return < operation.call:
            stale.append(operation.id)
        if operation.return_time is not None:
            least_return = min(least_return, operation.return_time)
    return sorted(stale)


class PowerCuts:
    """The power cuts of a history that may undo writes; empty unless the profile permits this."""

    def __init__(self, history: History) -> None:
        self._pairs = {pair.invoke.index: pair for pair in history.pairs}
        self.permits = permits_of(history)
        self.at = [cut.index for cut in lossy_cuts(history, self.permits)]

    def explain(self, operations: Iterable[int]) -> bool:
        """Whether a power cut came between the first call and the last answer of `operations`.

        An answer may still arrive after its node lost power.
        """
        pairs = [self._pairs[index] for index in operations if index in self._pairs]
        ends = [pair.completion.index for pair in pairs if pair.completion is not None]
        first = min((pair.invoke.index for pair in pairs), default=0)
        return bool(ends) and len(pairs) > 1 and any(first < at < max(ends) for at in self.at)

    def during(self, pair: Pair) -> bool:
        """Whether a power cut came while the operation `pair` was under way."""
        end = math.inf if pair.completion is None else pair.completion.index
        return any(pair.invoke.index < at < end for at in self.at)


class RowFindings(Findings):
    """The findings of a checker of rows. A contradiction that a power cut explains is permitted."""

    def __init__(self, checker: str, history: History) -> None:
        super().__init__(checker, permits_of(history))
        self.cuts = PowerCuts(history)

    def violate(
        self, rule: str, sentence: str, *operations: int, permit: str | None = None
    ) -> None:
        """Add a violation of `rule`, unless a power cut between `operations` explains it."""
        if self.cuts.explain(operations):
            self.take_back(*operations)
        else:
            super().violate(rule, sentence, *operations, permit=permit)

    def take_back(self, *operations: int) -> None:
        """Count a contradiction between `operations` as permitted: a power cut explains it."""
        self.permit(LOST_AFTER_POWER_CUT, *operations)

    def conclude(self) -> CheckResult:
        total = self.looked.total()
        if not total and not self.permitted:
            self.gap("there was nothing to judge", rule="nothing-observed")
        rules = counted(len(self.looked), "rule")
        details = {KEY: {invariant_of("rows").name: total}}
        return self.result(f"{counted(total, 'check')} of {rules} hold", details)
