"""Cycles made short by real time, and cycles that need no search.

Within a component real time is a chain: only neighbours in time have an edge, or all edges go by
way of gates. A search along these finds a cycle of the right kind, but may lead through hundreds of
transactions where one step in time says the same. And where a component is too large for searches,
two transactions that contradict each other are still seen by looking at each edge once.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Final

import numpy as np

from checkers.elle.infer.columns import IntArray
from checkers.elle.kinds import Cycle, Walk, cycle_of
from checkers.elle.search.graph import REALTIME, RW, RWP, WR, WRP, WW, Component

STEPS_MAX: Final = 4096
"""Between two steps that must stay; the work is quadratic in them."""

_ANTI: Final = RW | RWP


def shortened(cycle: Cycle, start: IntArray, end: IntArray) -> Cycle:
    """The same kind of cycle through some of its transactions, the fewest that time allows.

    `start` and `end` are the runs of the cycle's transactions, in its order. Anti-dependencies stay
    as they are; of a cycle without any, one step of the data that gives it its name.
    """
    size = len(cycle.txns)
    if REALTIME not in cycle.relations or size < 3:
        return cycle
    stay = [i for i, relation in enumerate(cycle.relations) if relation & _ANTI]
    if not stay:
        seen = [i for i, relation in enumerate(cycle.relations) if relation & (WR | WRP)]
        stay = seen[:1] or [cycle.relations.index(WW)]
    walk: Walk = []
    for number, first in enumerate(stay):
        last = stay[(number + 1) % len(stay)]
        between = [(first + 1 + i) % size for i in range((last - first - 1) % size + 1)]
        walk.append((cycle.txns[first], cycle.relations[first]))
        if len(between) > STEPS_MAX:
            walk += [(cycle.txns[i], cycle.relations[i]) for i in between[:-1]]
            continue
        walk += [
            (cycle.txns[here], relation)
            for here, relation in _fewest(between, cycle.relations, start, end)
        ]
    shortest = cycle_of(walk, max(cycle.txns) + 1)
    assert shortest.name == cycle.name, f"{cycle.name} became {shortest.name}"
    return shortest


def _fewest(
    places: list[int], relations: tuple[int, ...], start: IntArray, end: IntArray
) -> list[tuple[int, int]]:
    """The fewest steps from the first of `places` to the last, forwards by time or one by one."""
    last = len(places) - 1
    begins = start[places]
    steps_left = np.zeros(last + 1, np.int64)
    following = np.arange(1, last + 2)
    relation = [relations[place] for place in places]
    for here in range(last - 1, -1, -1):
        steps_left[here] = steps_left[here + 1] + 1
        later = here + 1 + np.flatnonzero(begins[here + 1 :] > end[places[here]])
        if len(later):
            best = int(later[np.argmin(steps_left[later])])
            if steps_left[best] + 1 < steps_left[here]:
                steps_left[here] = steps_left[best] + 1
                following[here], relation[here] = best, REALTIME
    cycles = []
    here = 0
    while here < last:
        cycles.append((places[here], relation[here]))
        here = int(following[here])
    return cycles


def pairs(component: Component, start: IntArray, end: IntArray) -> list[Cycle]:
    """One cycle of two transactions of each kind that there is, of data, or of data and time.

    `start` and `end` are the runs of the component's transactions.
    """
    inner = np.maximum(component.source, component.target) < component.members
    inner &= (component.relation & (WW | WR | WRP | _ANTI)) != 0
    inner &= component.source != component.target
    source, target = component.source[inner], component.target[inner]
    relation = component.relation[inner]
    cycles: dict[str, Cycle] = {}

    def take(here: int, other: int, there: int, back: int) -> None:
        cycle = cycle_of([(here, there), (other, back)], component.members)
        cycles.setdefault(cycle.name, cycle)

    if bool((component.relation == REALTIME).any()):
        hits = np.flatnonzero(end[target] < start[source])
        for kind, first in zip(*np.unique(relation[hits], return_index=True), strict=True):
            edge = hits[first]
            take(int(source[edge]), int(target[edge]), int(kind), REALTIME)
    forth = source.astype(np.int64) * component.members + target
    back = target.astype(np.int64) * component.members + source
    # Two transactions may have several relations each way, and what one pair of them makes, none
    # of the others need make.
    for there, here in combinations_with_replacement(np.unique(relation).tolist(), 2):
        if Cycle((0, 1), (there, here)).name in cycles:
            continue
        edges = np.flatnonzero(relation == there)
        hits = edges[np.isin(back[edges], forth[relation == here])]
        if len(hits):
            take(int(source[hits[0]]), int(target[hits[0]]), there, here)
    return list(cycles.values())
