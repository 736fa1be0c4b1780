"""Finds out whether a component has cycles, and then the shortest cycle of each kind.

**Existence.** For each model, there is a subgraph that must have no cycle. Tarjan's algorithm
decides this in linear time. For snapshot isolation, a cycle may not have two anti-dependencies in a
row. Such a cycle is a plain cycle in the graph of (node, whether the last step was an
anti-dependency).

**Search.** A kind of cycle is skipped if it could only refute models that the first step did not
refute. Otherwise, a breadth-first search finds the shortest cycle (see `kinds`). If the search runs
out of steps, the refuted models are still right, since the existence of cycles is already known.

The kinds, their order and their names follow jepsen-io/elle (`txn.clj` at ccdee6f).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from checkers.elle.infer.columns import IntArray
from checkers.elle.kinds import Adjacency, Budget, Cycle, Kind, TimedOut, Walker, cycle_of
from checkers.elle.models import (
    EXISTENCE_MODELS,
    SUFFIXES,
    forbidden_by,
    impossible_models,
    with_implied,
)
from checkers.elle.search.graph import (
    JOINT,
    PROCESS,
    REALTIME,
    RW,
    RWP,
    WR,
    WRP,
    WW,
    Component,
)
from checkers.elle.search.kernels import strong_components

_ORDER: Final = (
    "G-single-item",
    "G0",
    "G-nonadjacent-item",
    "G-single-item-process",
    "G1c",
    "G-nonadjacent-item-process",
    "G-single",
    "G-single-item-realtime",
    "G2-item",
    "G-nonadjacent",
    "G-nonadjacent-item-realtime",
    "G2",
    "G0-process",
    "G1c-process",
    "G2-item-process",
    "G-single-process",
    "G-nonadjacent-process",
    "G2-process",
    "G0-realtime",
    "G1c-realtime",
    "G2-item-realtime",
    "G-single-realtime",
    "G-nonadjacent-realtime",
    "G2-realtime",
)

_SNAPSHOTS: Final = ("PL-SI", "strong-session-snapshot-isolation", "strong-snapshot-isolation")
_SEEN: Final = WW | WR | WRP
_ALL: Final = _SEEN | RW | RWP
_REFUTED_BY: Final = {
    model: (relations | order, tuple(f"{kind}{suffix}" for kind in kinds))
    for relations, kinds, models in (
        (WW, ("G0",), ("PL-1", "strong-session-PL-1", "strong-PL-1")),
        (_SEEN, ("G1c",), ("PL-2", "strong-session-PL-2", "strong-PL-2")),
        (_ALL, ("G-single-item", "G-nonadjacent-item", "G-single", "G-nonadjacent"), _SNAPSHOTS),
        (_SEEN | RW, ("G2-item",), ("PL-2.99",)),
        (_ALL, ("G2-item", "G2"), ("PL-3", "strong-session-serializable", "PL-SS")),
    )
    for model, suffix, order in zip(models, SUFFIXES, (0, PROCESS, REALTIME), strict=False)
}
"""For each model, the relations in cycles that refute it, and the kinds of these cycles."""


def kinds_left(refuted: Iterable[str], *, predicates: bool) -> list[str]:
    """Return the kinds of cycles that can exist if cycles refute no models except `refuted`.

    Without `predicates`, kinds of cycles that need an anti-dependency over a predicate are left
    out.
    """
    possible = set(EXISTENCE_MODELS) - impossible_models((), refuted)
    impossible = forbidden_by(possible)
    return [
        name
        for name in _ORDER
        if name not in impossible and (predicates or Kind.named(name).first != RWP)
    ]


class Search:
    """The search for the cycles of one component.

    If several relations connect two transactions, the first of them in `preference` names the step.
    """

    def __init__(self, component: Component, preference: tuple[int, ...]) -> None:
        self._component = component
        self._labels: dict[tuple[int, bool], IntArray] = {}
        self._preference = preference

    def kinds_left(self, refuted: Iterable[str]) -> list[str]:
        predicates = bool((self._component.relation == RWP).any())
        return kinds_left(refuted, predicates=predicates)

    @cached_property
    def _raw(self) -> Adjacency:
        whole = self._component
        return _adjacency(whole.count, whole.source, whole.target, whole.relation)

    @cached_property
    def _named(self) -> Adjacency:
        return _adjacency(self._component.count, *_named(self._component, self._preference))

    # --- existence ---------------------------------------------------------------------------

    def _label(self, relations: int, *, extended: bool) -> IntArray:
        """Return the component label of each node in the subgraph of `relations`.

        With `extended`, the subgraph has each node twice (see the comment below).
        """
        labels = self._labels.get((relations, extended))
        if labels is None:
            # A cycle may use any relation between two transactions, not only the one that names the
            # step.
            whole = self._component
            count = whole.count
            keep = (whole.relation & (relations | JOINT)) != 0
            source, target = whole.source[keep], whole.target[keep]
            if extended:
                rw = (whole.relation[keep] & (RW | RWP)) != 0
                joint = whole.relation[keep] == JOINT
                free = ~rw & ~joint
                # node i: after a free step; node i + count: node i after an anti-dependency
                source, target = (
                    np.concatenate(
                        [source[free], source[free] + count, source[rw], source[joint] + count]
                    ),
                    np.concatenate(
                        [target[free], target[free], target[rw] + count, target[joint] + count]
                    ),
                )
                count *= 2
            labels = strong_components(count, source, target)
            self._labels[relations, extended] = labels
        return labels

    def _members(self, model: str) -> int:
        relations, _ = _REFUTED_BY[model]
        label = self._label(relations, extended=model in _SNAPSHOTS)
        size = np.bincount(label)
        if relations & WR and self._component.loops:
            return 1
        if size.max() == 1:
            return 0
        nodes = np.arange(len(label)) % self._component.count
        real = nodes < self._component.members
        inside = real & (size[label] > 1)
        pairs = np.unique(np.stack([label[inside], nodes[inside]]), axis=1)
        return int(np.unique(pairs[0], return_counts=True)[1].min())

    def refuted(self) -> dict[str, int]:
        """Return the weakest models that the existence of a cycle refutes.

        Each model is mapped to the number of transactions in the smallest component with such a
        cycle.
        """
        refuted: dict[str, int] = {}
        refuted_before: frozenset[str] = frozenset()
        for model in EXISTENCE_MODELS:
            if model not in refuted_before and (members := self._members(model)):
                refuted[model] = members
                refuted_before |= impossible_models((), [model])
        return refuted

    # --- search ------------------------------------------------------------------------------

    def find_all(
        self, refuted: Iterable[str], budget: Budget, skipped: frozenset[str] = frozenset()
    ) -> tuple[list[Cycle], list[str]]:
        """Find the shortest cycle of each kind, and name the kinds whose search did not finish.

        The kinds in `skipped`, and kinds implied by a cycle that was already found, are left out.
        """
        redundant = set(skipped)
        cycles: list[Cycle] = []
        unfinished: list[str] = []

        for name in self.kinds_left(refuted):
            if name in redundant:
                continue
            # Without anti-dependencies, the kind of a cycle does not depend on its steps' names.
            raw = not Kind.named(name).rw
            try:
                with budget.part(budget.steps // 4 + 1) as part:
                    cycle = self.find(name, part, raw=raw)
            except TimedOut:
                unfinished.append(name)
                continue
            if cycle is not None:
                cycles.append(self._retold(cycle))
                redundant |= with_implied([name])
        return list({cycle.name: cycle for cycle in reversed(cycles)}.values())[::-1], unfinished

    def show(self, model: str, budget: Budget) -> Cycle | None:
        """Find a cycle that refutes `model`; `None` if the budget is too small for the search."""
        for name in _REFUTED_BY[model][1]:
            try:
                with budget.part(budget.steps // 2 + 1) as part:
                    cycle = self.find(name, part)
            except TimedOut:
                continue
            if cycle is not None:
                return cycle
        return None

    def _retold(self, cycle: Cycle) -> Cycle:
        size = len(cycle.txns)
        steps = []
        for i, relation in enumerate(cycle.relations):
            names = dict(self._named[cycle.txns[i]])
            steps.append(names.get(cycle.txns[(i + 1) % size], relation))
        return Cycle(cycle.txns, tuple(steps))

    def find(self, name: str, budget: Budget, *, raw: bool = True) -> Cycle | None:
        """Return the shortest cycle of the kind `name`, if any; may raise `TimedOut`.

        With `raw`, a step may use any relation between two transactions; without `raw`, only the
        relation that names the step.
        """
        kind = Kind.named(name)
        walker = Walker(
            self._component, self._raw if raw else self._named, kind, *self._scope(kind), budget
        )
        return walker.shortest()

    def _scope(self, kind: Kind) -> tuple[IntArray, bool]:
        if kind.rw == 2:
            return self._label(kind.free | kind.anti, extended=kind.apart), kind.apart
        return self._label(kind.free, extended=False), False

    def any_cycle(self) -> Cycle:
        """Return any cycle of the component, for callers whose search ran out of time."""
        place: dict[int, int] = {}
        walk: list[tuple[int, int]] = []
        node = 0
        while node not in place:
            place[node] = len(walk)
            following, relation = self._raw[node][0]
            walk.append((node, relation))
            node = following
        return cycle_of(walk[place[node] :], self._component.members)


def _adjacency(count: int, source: IntArray, target: IntArray, relation: IntArray) -> Adjacency:
    order = np.lexsort((relation, target, source))
    first = np.searchsorted(source[order], np.arange(count + 1)).tolist()
    edges = list(zip(target[order].tolist(), relation[order].tolist(), strict=True))
    return [list(dict.fromkeys(edges[low:high])) for low, high in pairwise(first)]


def _named(
    component: Component, preference: tuple[int, ...]
) -> tuple[IntArray, IntArray, IntArray]:
    """Return one edge per connected pair of nodes: the edge whose relation names the step.

    Process order or real time names a step only if there is no data dependency.
    """
    rank = np.full(RWP + 1, len(preference), np.int32)
    for position, relation in enumerate(preference):
        rank[relation] = position
    source, target = component.source, component.target
    order = np.lexsort((component.relation, rank[component.relation], target, source))
    source, target = source[order], target[order]
    first = np.append(True, (source[1:] != source[:-1]) | (target[1:] != target[:-1]))
    first = first[: len(source)]
    return source[first], target[first], component.relation[order][first]
