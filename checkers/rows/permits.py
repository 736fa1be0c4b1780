"""What the profile of a run permits of rows (`harness.permits`).

* `stale-read`: a leader without a lease, deposed and not yet aware of it, answers from the past. So
  a look (a latest read or scan of a leader) in some term need not have seen what was acknowledged,
  or seen, in a *later* term by another node. All else stays: writes are linearizable, and what one
  node showed in its term it may not take back. Asked row by row, exactly, of rows that no strict
  order explains.
* `lost-after-power-cut`: what was acknowledged before a power cut may be gone after it. A
  contradiction between operations of before and after one is then nobody's fault; one that stands
  on either side is.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from checkers.linearizability.models.rows import Rows
from checkers.linearizability.partial import PartialOutcome, find_partial_order
from checkers.rows.orders import RowOperation
from harness.ops import NEMESIS, History
from harness.permits import LOST_AFTER_POWER_CUT, permits_of
from harness.timeline import POWER_CUT, faults_of

__all__ = ["Fact", "PowerCuts", "stale_looks", "without_lease"]


class Fact(NamedTuple):
    """Who answered, and in which term of the tablet's leaders."""

    term: int | None
    node: str | None


_STRICT = Fact(None, None)


def without_lease(
    operations: Sequence[RowOperation], facts: Mapping[int, Fact], *, end_s: float
) -> PartialOutcome:
    """An order of the operations on one row in which looks may miss later terms.

    Operations are in the order of their calls; `facts` are by id.
    """
    known = [at for at, o in enumerate(operations) if o.return_time is not None]
    known.sort(key=lambda at: operations[at].return_time or 0)
    returns = [operations[at].return_time or 0.0 for at in known]
    prefixes = [0]
    for at in known:
        prefixes.append(prefixes[-1] | 1 << at)
    classes: dict[Fact, int] = {}
    before = []
    for at, operation in enumerate(operations):
        fact = facts[operation.id]
        if operation.input.steps or fact.term is None:
            fact = _STRICT
        classes[fact] = classes.get(fact, 0) | 1 << at
        mask = prefixes[bisect.bisect_left(returns, operation.call)]
        if fact is not _STRICT:
            mask &= ~_later(operations, facts, fact)
        before.append(mask)
    hints = {at: o.metadata for at, o in enumerate(operations) if isinstance(o.metadata, int)}
    return find_partial_order(
        Rows(), operations, before, list(classes.values()), hints=hints, end_s=end_s
    )


def _later(operations: Sequence[RowOperation], facts: Mapping[int, Fact], fact: Fact) -> int:
    """Those that a look need not have seen: of later terms, by others."""
    mask = 0
    assert fact.term is not None, "asked for looks with terms only"
    for at, operation in enumerate(operations):
        other = facts[operation.id]
        if other.term is not None and other.term > fact.term and other.node != fact.node:
            mask |= 1 << at
    return mask


def stale_looks(operations: Sequence[RowOperation], order: Sequence[int]) -> list[int]:
    """The ids of looks that an order puts before what had returned when they were called."""
    least_return = float("inf")
    found = []
    for at in reversed(order):
        operation = operations[at]
        if not operation.input.steps and least_return < operation.call:
            found.append(operation.id)
        if operation.return_time is not None:
            least_return = min(least_return, operation.return_time)
    return sorted(found)


class PowerCuts:
    """The power cuts of a history whose profile lets them take something back."""

    def __init__(self, history: History) -> None:
        self._pairs = {pair.invoke.index: pair for pair in history.pairs}
        self.permits = permits_of(history)
        self._at: list[int] = []
        if LOST_AFTER_POWER_CUT in self.permits:
            faults = faults_of(history.of_process(NEMESIS), most=None)
            self._at = sorted(
                fault.begin.index for fault in faults if fault.kind == POWER_CUT and fault.targets
            )

    def explain(self, operations: Iterable[int]) -> bool:
        """Whether a power cut came between the first answer and the last of these operations."""
        ends = []
        for index in operations:
            pair = self._pairs.get(index)
            if pair is not None and pair.completion is not None:
                ends.append(pair.completion.index)
        return bool(ends) and any(min(ends) < at < max(ends) for at in self._at)
