"""Longest processing time first: units into bins of about equal cost.

Units are taken by descending cost, each to the bin that has least; the worst makespan of this is
4/3 of the best (Graham 1969), and with a few bins a core it is a few percent. Bins are numbered by
descending load, so that executors that start them in order start the longest first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import msgspec

from results.judging.work import AnyUnit

__all__ = ["BINS_A_CORE", "Bin", "pack"]

BINS_A_CORE: Final = 4


class Bin(msgspec.Struct, frozen=True):
    """The work of one task, costliest unit first."""

    units: tuple[AnyUnit, ...]

    @property
    def cost(self) -> int:
        """The sum of its units' costs."""
        return sum(unit.cost for unit in self.units)


def pack(units: Sequence[AnyUnit], bins_max: int) -> tuple[Bin, ...]:
    """At most `bins_max` bins, by descending cost; the same for the same units."""
    if bins_max < 1:
        raise ValueError(f"{bins_max} bins")
    ordered = sorted(units, key=lambda unit: (-unit.cost, unit.unit_id))
    # Units that cost nothing count, too: no bin stays empty.
    loads = [(0, 0, number) for number in range(min(bins_max, len(ordered)))]
    contents: list[list[AnyUnit]] = [[] for _ in loads]
    for unit in ordered:
        load, count, number = heapq.heappop(loads)
        contents[number].append(unit)
        heapq.heappush(loads, (load + unit.cost, count + 1, number))
    bins = [Bin(tuple(content)) for content in contents]
    return tuple(sorted(bins, key=lambda found: (-found.cost, found.units[0].unit_id)))
