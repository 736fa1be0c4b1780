"""The type of a direct method's verdict, and the insertion of operations into a legal order."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict on one part of a history, with either a legal `order` or a contradictory `core`.

    Both have operation ids. If `elements` is not empty, the core is already contradictory in the
    smaller problem that `Model.restricted` makes from these elements.
    """

    method: str
    order: tuple[int, ...] | None = None
    core: tuple[int, ...] = ()
    elements: tuple[Hashable, ...] = ()


class Insertion:
    """Inserts further operations into an order that respects real time.

    A gap is a position between two operations. Operations must be inserted in the order of their
    calls, each into the first possible gap.
    """

    def __init__(self, ids: Sequence[int], calls: Sequence[float], ends: Sequence[float]) -> None:
        """Start with the order `ids`; `calls` and `ends` have times at the same positions."""
        self._ids = ids
        by_end = sorted(range(len(ends)), key=ends.__getitem__)
        self._ends = [ends[at] for at in by_end]
        # for each return in `_ends`, the last position of an operation that had returned by then
        self._lasts = list(itertools.accumulate(by_end, max))
        by_call = sorted(range(len(calls)), key=calls.__getitem__)
        self._calls = [calls[at] for at in by_call]
        # for each call in `_calls`, the first position of the operations called at or after it
        self._firsts = list(itertools.accumulate(reversed(by_call), min))[::-1]
        self._inserted: dict[int, list[int]] = {}
        # for each inserted operation: (its end, the last gap of insertions that had ended by then)
        self._returned: list[tuple[float, int]] = []

    def low(self, call: float) -> int:
        """Return the first possible gap for an operation that was called at `call`.

        Gap n is the position after the first n operations of the order.
        """
        before = bisect.bisect_left(self._ends, call)
        inserted = bisect.bisect_left(self._returned, (call, -1))
        return max(
            self._lasts[before - 1] + 1 if before else 0,
            self._returned[inserted - 1][1] if inserted else 0,
        )

    def put(self, ident: int, end: float, gap: int) -> bool:
        """Insert operation `ident` into `gap`, which must be `low(call)` or a later gap.

        Returns `False` if the operation must come before this gap because of its `end`.
        """
        after = bisect.bisect_right(self._calls, end)
        if after < len(self._firsts) and gap > self._firsts[after]:
            return False
        if gap > len(self._ids):
            return False
        self._inserted.setdefault(gap, []).append(ident)
        at = bisect.bisect_left(self._returned, (end, -1))
        latest = max(gap, self._returned[at - 1][1] if at else 0)
        self._returned.insert(at, (end, latest))
        for later in range(at + 1, len(self._returned)):
            if self._returned[later][1] >= latest:
                break
            self._returned[later] = (self._returned[later][0], latest)
        return True

    def order(self) -> tuple[int, ...]:
        order: list[int] = []
        for gap in range(len(self._ids) + 1):
            order += self._inserted.get(gap, ())
            order += self._ids[gap : gap + 1]
        return tuple(order)
