"""Half-open intervals `[start, end)` of ns, and what is unavailable when.

**Unavailability.** Operations come in two kinds, mutations and reads. An operation is *answered* if
it ended with `ok`, or with `fail` and an answer of the target itself ("the table exists": the
target served, it just said no). The moments of answered completions cut the run's time into gaps.
In each gap, an operation of the kind is *under way* from its invocation to its completion (or the
end of the run). Stretches in which any is under way are joined where at most `BRIDGE_NS` lie
between them, since a client that fails at once waits for its next turn. What is then at least
`OUTAGE_NS_MIN` long is an outage: a maximal time in which nothing was answered although it was
tried. It ends `answered`, or `idle` when nobody tried on, or with the `end` of the run.

An operation that takes long but succeeds is no failure, yet leaves an outage if nothing else is
answered meanwhile: that is what its caller saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["BRIDGE_NS", "OUTAGE_NS_MIN", "Outage", "Try", "outages", "overlap_ns", "union"]

BRIDGE_NS: Final = 1_000_000_000
OUTAGE_NS_MIN: Final = 500_000_000

Interval = tuple[int, int]


class Try(NamedTuple):
    """One operation: from invocation to completion, or to the end of the run."""

    start: int
    end: int
    completed: bool
    answered: bool


class Outage(NamedTuple):
    """Nothing of a kind was answered in `[start, end)`, though `tried` were under way."""

    start: int
    end: int
    tried: int
    ended: str  # "answered", "idle" or "end"


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint, sorted intervals that cover the same time; empty ones are dropped."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def overlap_ns(first: Sequence[Interval], second: Sequence[Interval]) -> int:
    """Time common to two lists of disjoint, sorted intervals."""
    total = left = right = 0
    while left < len(first) and right < len(second):
        start = max(first[left][0], second[right][0])
        end = min(first[left][1], second[right][1])
        total += max(0, end - start)
        if first[left][1] <= second[right][1]:
            left += 1
        else:
            right += 1
    return total


def outages(tries: Sequence[Try], end_ns: int) -> list[Outage]:
    """The outages of one kind (see the module); `end_ns` is the end of the run."""
    answers = sorted({item.end for item in tries if item.completed and item.answered})
    cuts = [*answers, end_ns]
    waiting = sorted(tries)
    found: list[Outage] = []
    open_tries: list[Try] = []
    position = 0
    begin = 0
    for number, cut in enumerate(cuts):
        while position < len(waiting) and waiting[position].start < cut:
            open_tries.append(waiting[position])
            position += 1
        answered = number < len(answers)
        found += _of_gap(open_tries, begin, cut, answered=answered)
        open_tries = [item for item in open_tries if item.end > cut]
        begin = cut
    return found


def _of_gap(tries: list[Try], begin: int, cut: int, *, answered: bool) -> list[Outage]:
    """The outages between two answers, or between the last and the end of the run."""
    if cut - begin < OUTAGE_NS_MIN:
        return []
    parts: list[list[int]] = []  # start, end, tries
    for item in tries:  # sorted by start, since they were opened in that order
        start, end = max(item.start, begin), min(item.end, cut)
        if parts and start - parts[-1][1] <= BRIDGE_NS:
            parts[-1][1] = max(parts[-1][1], end)
            parts[-1][2] += 1
        else:
            parts.append([start, end, 1])
    found = []
    for start, end, tried in parts:
        if end - start < OUTAGE_NS_MIN:
            continue
        how = "idle" if end < cut else "answered" if answered else "end"
        found.append(Outage(start, end, tried, how))
    return found
