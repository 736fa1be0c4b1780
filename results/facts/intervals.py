"""Half-open intervals `[start, end)` in ns, and outages.

**Outages.** Mutations and reads are treated separately. An operation is *answered* if it ended with
`ok`, or if the target itself refused it ("the table exists"). In a gap between two answers, an
operation is *in progress* from its invocation to its completion. Two stretches of time with
operations in progress are joined if at most `BRIDGE_NS` separates them, because a client pauses
after a failed operation. A joined stretch of at least `OUTAGE_NS_MIN` is an outage: clients tried
all this time, and got no answer. An outage ends in one of three ways: `answered`, `idle` (no client
tried any longer), or `end` (the run ended).

A slow operation that succeeds still causes an outage if no other operation is answered in the
meantime.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BRIDGE_NS: Final = 1_000_000_000
OUTAGE_NS_MIN: Final = 500_000_000

Interval = tuple[int, int]


class Outage(NamedTuple):
    """An interval without an answer, in which `tried` operations of one kind were in progress."""

    start: int
    end: int
    tried: int
    ended: str  # "answered", "idle" or "end"


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals into disjoint, sorted, non-empty intervals that cover the same time."""
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
    """Return for how long two lists of disjoint, sorted intervals overlap."""
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
    """Return the outages of one kind of operation, as the module's docstring defines them.

    The arrays have the start and end of each operation, and whether the operation was answered. An
    operation that never completed ends at `end_ns`, the end of the run.
    """
    order = np.argsort(start, kind="stable")
    start, end, answered = start[order], end[order], answered[order]
    answers = np.sort(end[answered])  # equal times do no harm: they only make an empty gap
    begins = np.concatenate([np.zeros(1, np.int64), answers])
    cuts = np.concatenate([answers, [end_ns]])
    outages: list[Outage] = []
    held = np.zeros(0, np.int64)  # operations that began earlier, and may still be in progress
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
    """Yield the outages in one gap, from an answer to the next answer or to the end of the run."""
    if not len(start):
        return
    start, end = np.maximum(start, begin), np.minimum(end, cut)
    reach = np.maximum.accumulate(end)
    breaks = np.flatnonzero(start[1:] - reach[:-1] > BRIDGE_NS) + 1
    for first, beyond in itertools.pairwise([0, *breaks.tolist(), len(start)]):
        since, until = int(start[first]), int(reach[beyond - 1])
        if until - since >= OUTAGE_NS_MIN:
            how = "idle" if until < cut else "answered" if answered else "end"
            yield Outage(since, until, beyond - first, how)
