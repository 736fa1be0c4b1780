"""Half-open intervals `[start, end)` of ns, and outages.

**Unavailability.** Operations come in two kinds, mutations and reads. An operation is *answered* if
it ended with `ok`, or with `fail` and an answer of the target itself ("the table exists": the
target served, and refused). The moments of answered completions cut the run's time into gaps.
In each gap, an operation of the kind is *under way* from its invocation to its completion (or the
end of the run). Stretches with an operation under way are joined if at most `BRIDGE_NS` lie between
them, since a client that fails at once waits for its next turn. A joined stretch of at least
`OUTAGE_NS_MIN` is an outage: a maximal time in which clients tried but nothing was answered. It
ends `answered`, or `idle` when no client tried any longer, or with the `end` of the run.

A slow operation that succeeds is no failure, yet causes an outage if nothing else is answered in
the meantime, as its caller saw it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

BRIDGE_NS: Final = 1_000_000_000
OUTAGE_NS_MIN: Final = 500_000_000

Interval = tuple[int, int]


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


def outages_of(start: Ints, end: Ints, answered: Flags, end_ns: int) -> list[Outage]:
    """The outages of one kind (see the module): the operations of which began and ended when, and
    whether with an answer; what never ended did at `end_ns`, the end of the run.
    """
    order = np.argsort(start, kind="stable")
    start, end, answered = start[order], end[order], answered[order]
    answers = np.sort(end[answered])  # an answer at the same moment cuts off a gap of no length
    begins = np.concatenate([np.zeros(1, np.int64), answers])
    cuts = np.concatenate([answers, [end_ns]])
    outages: list[Outage] = []
    held = np.zeros(0, np.int64)  # operations that began before, and may still be under way
    position = 0
    for gap in np.flatnonzero(cuts - begins >= OUTAGE_NS_MIN).tolist():
        begin, cut = int(begins[gap]), int(cuts[gap])
        first, last = (int(np.searchsorted(start, moment)) for moment in (begin, cut))
        older = np.concatenate([held, np.arange(position, max(position, first))])
        older = older[end[older] > begin]
        inside = np.concatenate([older, np.arange(max(position, first), last)])
        outages += _of_gap(start[inside], end[inside], begin, cut, answered=gap < len(answers))
        held, position = inside, max(position, last)
    return outages


def _of_gap(start: Ints, end: Ints, begin: int, cut: int, *, answered: bool) -> Iterator[Outage]:
    """The outages between two answers, or between the last and the end of the run."""
    if not len(start):
        return
    start, end = np.maximum(start, begin), np.minimum(end, cut)  # still sorted by start
    reach = np.maximum.accumulate(end)
    breaks = np.flatnonzero(start[1:] - reach[:-1] > BRIDGE_NS) + 1
    for first, beyond in itertools.pairwise([0, *breaks.tolist(), len(start)]):
        since, until = int(start[first]), int(reach[beyond - 1])
        if until - since >= OUTAGE_NS_MIN:
            how = "idle" if until < cut else "answered" if answered else "end"
            yield Outage(since, until, beyond - first, how)
