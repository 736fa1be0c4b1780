"""Shortens cycles by real time, and finds cycles of two transactions without a search.

Within a component, real time is stored as a chain of edges. A cycle along this chain may visit
hundreds of transactions where a single real-time step would be enough. If a component is too large
for searches, one pass over its edges still finds pairs of transactions that contradict each other.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Final

import numpy as np

from checkers.elle.infer.columns import IntArray
from checkers.elle.kinds import Cycle, Walk, cycle_of
from checkers.elle.search.graph import REALTIME, RW, RWP, WR, WRP, WW, Component

STEPS_MAX: Final = 4096
"""The maximum number of consecutive steps to shorten at once. The work is quadratic in this number.
"""

_ANTI: Final = RW | RWP


def shortened(cycle: Cycle, start: IntArray, end: IntArray) -> Cycle:
    """Return a cycle of the same kind, made as short as possible by shortcuts through real time.

    `start` and `end` are the runs (see `columns`) in which the cycle's transactions start and end,
    in the order of the cycle. All anti-dependencies are kept. In a cycle without any, one data
    dependency is kept, because it decides the kind of the cycle.
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
    """Return the shortest path from the first to the last of `places`, as (place, relation).

    Places are positions in a cycle. A step goes to the next place, or by real time to a later one.
    """
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
    """Return one cycle of two transactions for each kind of such a cycle that occurs.

    One step is a data dependency. The other is a data dependency or real time. `start` and `end`
    are the runs of the component's transactions.
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
    # Each pair of relations, one per direction, can make a kind of cycle that no other pair makes.
    for there, here in combinations_with_replacement(np.unique(relation).tolist(), 2):
        if Cycle((0, 1), (there, here)).name in cycles:
            continue
        edges = np.flatnonzero(relation == there)
        hits = edges[np.isin(back[edges], forth[relation == here])]
        if len(hits):
            take(int(source[hits[0]]), int(target[hits[0]]), there, here)
    return list(cycles.values())
