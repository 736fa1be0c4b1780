"""The dependency graph of transactions, and its strongly connected components.

An edge says that its source must come before its target in any serial order. Each edge has a
relation, which is stored as a bit:

| relation | why the source comes first                                            |
|----------|-----------------------------------------------------------------------|
| ww       | the target's write follows the source's in the version order          |
| wr       | the target read what the source wrote                                 |
| rw       | the source read a version that the target's write replaced            |
| wrp      | the target's predicate read selected what the source wrote            |
| rwp      | the target's write changes what the source's predicate read shows     |
| process  | one process did both, in this order                                   |
| realtime | the source's completion came before the target's invocation           |

Real time is not stored, since it follows from the runs of the transactions (`columns`). Within a
component, it becomes a chain of *gates*: nodes that mean "everything so far has completed". If many
transactions read a version that many others replaced, an edge for each pair would take too much
memory. Instead, two chains of auxiliary nodes, called *joints*, connect each reader with every
writer except itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.elle.infer.columns import NEVER, Columns, IntArray, LongArray
from checkers.elle.search.kernels import LEVELS_PER_RUN, alike, expand, stretches, strong_components

WW: Final = 1
WR: Final = 2
RW: Final = 4
PROCESS: Final = 8
REALTIME: Final = 16
JOINT: Final = 32
"""The relation of edges out of joints. The edge into the joint has the step's actual relation."""
WRP: Final = 64
RWP: Final = 128

REDUCED_EDGES_MAX: Final = 32
"""The maximum number of real-time edges per transaction.

A component that would need more edges gets gates instead.
"""

PRODUCT_EDGES_MAX: Final = 64
"""The maximum number of edges per transaction between groups of readers and writers.

Groups that would need more edges are connected by joints.
"""


@dataclass(frozen=True, slots=True)
class Component:
    """One strongly connected component, with its nodes renumbered.

    The first `members` nodes are the transactions `txns`, ascending. Joints and gates follow.
    `loops` is set if some transaction depends on itself.
    """

    txns: IntArray
    count: int
    source: IntArray
    target: IntArray
    relation: IntArray
    loops: bool = False

    @property
    def members(self) -> int:
        return len(self.txns)


@dataclass(frozen=True, slots=True)
class Graph:
    """A dependency graph. Its `count` nodes are the transactions of `columns`, then the joints.

    `loops` are the transactions that read a value before they wrote it themselves. As in the
    original Elle, such a loop alone is not a component, but within a component it is a cycle.
    """

    columns: Columns
    count: int
    source: IntArray
    target: IntArray
    relation: IntArray
    loops: IntArray
    realtime: bool

    @property
    def members(self) -> int:
        return len(self.columns)

    @property
    def nbytes(self) -> int:
        return self.source.nbytes + self.target.nbytes + self.relation.nbytes

    def components(self) -> Iterator[Component]:
        """Yield the components that may contain cycles, sorted by their smallest transaction."""
        level = np.zeros(self.count, np.int64)
        level[: self.members] = self.columns.start.astype(np.int64) * LEVELS_PER_RUN + 1
        ceiling = np.full(self.count, np.iinfo(np.int64).max)
        if self.realtime:
            ok = self.columns.end != NEVER
            ceiling[: self.members][ok] = (
                self.columns.end[ok].astype(np.int64) + 1
            ) * LEVELS_PER_RUN - 1
        nodes, edges = stretches(level, ceiling, self.source, self.target)
        if not len(nodes):
            return
        whole = self._local(nodes, edges)
        label = strong_components(whole.count, whole.source, whole.target)
        yield from self._split(nodes, edges, label[: len(nodes)])

    def _split(self, nodes: LongArray, edges: LongArray, label: IntArray) -> Iterator[Component]:
        groups = [group for group in alike(label) if len(group) > 1]
        place = np.full(self.count, -1, np.int64)
        place[nodes] = label
        within = edges[place[self.source[edges]] == place[self.target[edges]]]
        owner = place[self.source[within]]
        by_owner = np.argsort(owner, kind="stable")
        owner = owner[by_owner]
        for group in sorted(groups, key=lambda group: int(nodes[group].min())):
            mine = label[group[0]]
            low, high = np.searchsorted(owner, [mine, mine + 1])
            yield self._local(np.sort(nodes[group]), within[by_owner[low:high]], direct=True)

    def _local(self, nodes: LongArray, edges: LongArray, *, direct: bool = False) -> Component:
        """Return the subgraph of `nodes` and `edges`, with real time if `self.realtime` is set."""
        place = np.zeros(self.count, np.int32)
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        txns = nodes[nodes < self.members].astype(np.int32)
        source = [place[self.source[edges]]]
        target = [place[self.target[edges]]]
        relation = [self.relation[edges]]
        count = len(nodes)
        loops = np.flatnonzero(np.isin(txns, self.loops)).astype(np.int32)
        source.append(loops)
        target.append(loops)
        relation.append(np.full(len(loops), WR, np.int32))
        if self.realtime:
            start, end = self.columns.start[txns], self.columns.end[txns]
            gates = (_reduced(start, end) if direct else None) or _gates(start, end, count)
            count += gates[0]
            source.append(gates[1])
            target.append(gates[2])
            relation.append(np.full(len(gates[1]), REALTIME, np.int32))
        return Component(
            txns,
            count,
            np.concatenate(source),
            np.concatenate(target),
            np.concatenate(relation),
            bool(len(loops)),
        )


def _reduced(start: IntArray, end: IntArray) -> tuple[int, IntArray, IntArray] | None:
    """Return the transitive reduction of real time as edges; `None` if it has too many edges."""
    order = np.argsort(start, kind="stable")
    begins = start[order]
    hide = np.append(np.minimum.accumulate(end[order][::-1])[::-1], NEVER)
    low = np.searchsorted(begins, end, side="right")
    size = np.maximum(np.searchsorted(begins, hide[low], side="right") - low, 0)
    if int(size.sum()) > REDUCED_EDGES_MAX * len(start):
        return None
    source = np.repeat(np.arange(len(start), dtype=np.int32), size)
    return 0, source, order[expand(low, size)].astype(np.int32)


def _gates(start: IntArray, end: IntArray, count: int) -> tuple[int, IntArray, IntArray]:
    """Make one gate per distinct start; return the number of gates and the edges of real time.

    Gates are numbered from `count` on, after the transactions.
    """
    begins, entered = np.unique(start, return_inverse=True)
    everyone = np.arange(len(start))
    gate = np.searchsorted(begins, end, side="right")
    leaving = (end != NEVER) & (gate < len(begins))
    chain = np.arange(max(len(begins) - 1, 0))
    source = np.concatenate([everyone[leaving], count + chain, count + entered])
    target = np.concatenate([count + gate[leaving], count + chain + 1, everyone])
    return len(begins), source.astype(np.int32), target.astype(np.int32)


class GraphBuilder:
    """Collects the edges of a dependency graph, and drops edges from a transaction to itself."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._count = len(columns)
        self._source: list[IntArray] = []
        self._target: list[IntArray] = []
        self._relation: list[IntArray] = []
        self._loops = np.zeros(0, np.int32)
        self.touched = False

    def add_loops(self, txns: IntArray) -> None:
        """Set the transactions that read a value before they wrote it themselves."""
        self.touched |= bool(len(txns))
        self._loops = np.unique(txns).astype(np.int32)

    def add(self, source: IntArray, target: IntArray, relation: int) -> None:
        keep = source != target
        if not keep.all():
            source, target = source[keep], target[keep]
        if len(source):
            self.touched = True
            self._source.append(source.astype(np.int32, copy=False))
            self._target.append(target.astype(np.int32, copy=False))
            self._relation.append(np.full(len(source), relation, np.int32))

    def add_products(
        self,
        sources: tuple[LongArray, IntArray],
        targets: tuple[LongArray, IntArray],
        relation: int,
    ) -> None:
        """Add edges from every source to every target of the same group.

        `sources` and `targets` are each a pair (groups, transactions), sorted by group.
        """
        group, txn = sources
        other, followers = targets
        low = np.searchsorted(other, group, side="left")
        size = np.searchsorted(other, group, side="right") - low
        heavy = self._heavy(group, size)
        light = ~heavy
        self.add(
            np.repeat(txn[light], size[light]),
            followers[expand(low[light], size[light])],
            relation,
        )
        for number in np.unique(group[heavy]).tolist():
            self._join(
                np.unique(txn[group == number]), np.unique(followers[other == number]), relation
            )

    @staticmethod
    def _heavy(group: LongArray, size: LongArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if not len(group):
            return np.zeros(0, np.bool_)
        first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        sources = np.diff(np.append(first, len(group)))
        product = sources * size[first]
        heavy = product > PRODUCT_EDGES_MAX * (sources + size[first])
        return np.repeat(heavy, sources)

    def _join(self, sources: IntArray, targets: IntArray, relation: int) -> None:
        """Connect every source with every target except itself by two chains of joints.

        One chain leads to all smaller targets, and the other to all greater targets.
        """
        n = len(targets)
        down = self._count + np.arange(n, dtype=np.int32)
        up = down + np.int32(n)
        self._count += 2 * n
        below = np.searchsorted(targets, sources, side="left") - 1
        above = np.searchsorted(targets, sources, side="right")
        has_below, has_above = below >= 0, above < n
        self.add(sources[has_below], down[below[has_below]], relation)
        self.add(sources[has_above], up[above[has_above]], relation)
        self.add(down, targets, JOINT)
        self.add(up, targets, JOINT)
        self.add(down[1:], down[:-1], JOINT)
        self.add(up[:-1], up[1:], JOINT)

    def build(self, *, realtime: bool) -> Graph:
        empty = np.zeros(0, np.int32)
        return Graph(
            self._columns,
            self._count,
            np.concatenate(self._source) if self._source else empty,
            np.concatenate(self._target) if self._target else empty,
            np.concatenate(self._relation) if self._relation else empty,
            self._loops,
            realtime,
        )


def process_edges(columns: Columns) -> tuple[IntArray, IntArray]:
    """Return the edges between consecutive ok transactions of each process."""
    ok = np.flatnonzero(columns.end != NEVER).astype(np.int32)
    order = ok[np.argsort(columns.process[ok], kind="stable")]
    same = columns.process[order[1:]] == columns.process[order[:-1]]
    return order[:-1][same], order[1:][same]
