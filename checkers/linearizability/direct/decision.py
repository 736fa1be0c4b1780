"""The answer of a direct method."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Decision", "Window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict on one part of a history: a legal `order`, or a `core` that contradicts itself.

    Both hold operation ids. `elements`, if any, are those that `Model.restricted` is to keep: the
    core contradicts itself in that smaller problem already.
    """

    method: str
    order: tuple[int, ...] | None = None
    core: tuple[int, ...] = ()
    elements: tuple[Hashable, ...] = ()


class Window:
    """Where an operation may be inserted into an order that respects real time."""

    def __init__(self, calls: Sequence[float], ends: Sequence[float]) -> None:
        """`calls` and `ends` of the operations, by their position in the order."""
        by_end = sorted(range(len(ends)), key=ends.__getitem__)
        self._ends = [ends[at] for at in by_end]
        self._last: list[int] = []  # the last position among those that returned first
        last = -1
        for at in by_end:
            last = max(last, at)
            self._last.append(last)
        by_call = sorted(range(len(calls)), key=calls.__getitem__)
        self._calls = [calls[at] for at in by_call]
        self._first = [0] * len(calls)  # the first position among those called last
        first = len(calls)
        for number in range(len(calls) - 1, -1, -1):
            first = min(first, by_call[number])
            self._first[number] = first

    def gaps(self, call: float, end: float) -> tuple[int, int]:
        """The first and the last gap (after so many operations) for an interval."""
        before = bisect.bisect_left(self._ends, call)
        after = bisect.bisect_right(self._calls, end)
        low = self._last[before - 1] + 1 if before else 0
        return low, self._first[after] if after < len(self._first) else len(self._first)
