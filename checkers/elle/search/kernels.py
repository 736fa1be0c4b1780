"""The inner loops for slices, longest paths and strongly connected components, on plain arrays.

No function depends on transactions, so a native version may replace each function separately.

**Components without walking the graph.** Almost every edge of a dependency graph points forward in
time. So each node gets a level: at first the run in which it was invoked. `settle` then raises
nodes above their predecessors until no level changes. If every edge leads to a higher level, there
is no cycle. An edge that does not lead to a higher level *falls*. Every cycle needs a falling edge,
so it lies within the intervals of levels that falling edges span. Tarjan's algorithm runs only on
these intervals.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

LEVELS_PER_RUN: Final = 1 << 20
"""The number of levels per run, which leaves room for dependencies within a run."""

_ROUNDS_MAX: Final = 4096
_WORK_FACTOR: Final = 24
_CHUNK: Final = 1 << 22

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def expand(start: LongArray, length: npt.NDArray[np.integer]) -> LongArray:
    """Return the indices in slices with the given starts and lengths, one slice after another."""
    total = int(length.sum(dtype=np.int64))
    if not total:
        return np.zeros(0, np.int64)
    first = np.cumsum(length, dtype=np.int64) - length
    return np.repeat(start - first, length) + np.arange(total, dtype=np.int64)


def slices_equal(pool: IntArray, left: LongArray, right: LongArray, length: IntArray) -> BoolArray:
    """Return for each row whether pool[left:left+length] equals pool[right:right+length]."""
    equal = np.ones(len(left), np.bool_)
    open_rows = np.flatnonzero((left != right) & (length > 0))
    sizes = np.cumsum(length[open_rows], dtype=np.int64)
    done = 0
    while done < len(open_rows):
        taken = sizes[done - 1] if done else 0
        upto = max(done + 1, int(np.searchsorted(sizes, taken + _CHUNK, side="right")))
        rows = open_rows[done:upto]
        size = length[rows]
        differ = pool[expand(left[rows], size)] != pool[expand(right[rows], size)]
        first = np.cumsum(size, dtype=np.int64) - size
        equal[rows] = ~np.logical_or.reduceat(differ, first)
        done = upto
    return equal


def settle(level: LongArray, ceiling: LongArray, source: IntArray, target: IntArray) -> LongArray:
    """Raise each node's `level` (in place) above its predecessors; return the edges that fall.

    An edge falls if its target is not above its source. No node is raised above its `ceiling`. The
    number of rounds is limited, since a graph with cycles never settles.
    """
    falling = np.flatnonzero(level[source] >= level[target])
    order: LongArray | None = None
    first = np.zeros(0, np.int64)
    work = _WORK_FACTOR * len(source) + 1000
    # A graph without cycles settles within as many rounds as it has nodes.
    for rounds in range(min(_ROUNDS_MAX, len(level))):
        if not len(falling) or work < 0:
            break
        heads = target[falling]
        wanted = np.minimum(level[source[falling]] + 1, ceiling[heads])
        before = level[heads]
        np.maximum.at(level, heads, wanted)
        moved = np.unique(heads[level[heads] > before])
        if not len(moved):
            break
        if rounds < 3 and len(moved) * 64 > len(source):
            falling = np.flatnonzero(level[source] >= level[target])
            work -= len(source)
            continue
        if order is None:
            order = np.argsort(source, kind="stable")
            first = np.searchsorted(source[order], np.arange(len(level) + 1))
        out = order[expand(first[moved], first[moved + 1] - first[moved])]
        work -= len(out)
        falling = out[level[source[out]] >= level[target[out]]]
    return np.flatnonzero(level[source] >= level[target])


def clusters(level: LongArray, low: LongArray, high: LongArray) -> LongArray:
    """Return for each node the number of the interval that contains its level, or -1.

    The intervals are [low[i], high[i]], merged if they overlap.
    """
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    opens = np.ones(len(low), np.bool_)
    opens[1:] = low[1:] > reach[:-1]
    starts = low[opens]
    ends = reach[np.append(np.flatnonzero(opens)[1:] - 1, len(low) - 1)]
    at = np.searchsorted(starts, level, side="right") - 1
    inside = (at >= 0) & (level <= ends[np.maximum(at, 0)])
    return np.where(inside, at, -1)


def stretches(
    level: LongArray, ceiling: LongArray, source: IntArray, target: IntArray
) -> tuple[LongArray, LongArray]:
    """Raise `level` with `settle`, and return nodes and edges that include all cycles."""
    falling = settle(level, ceiling, source, target)
    if not len(falling):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    stretch = clusters(level, level[target[falling]], level[source[falling]])
    edges = np.flatnonzero((stretch[source] >= 0) & (stretch[source] == stretch[target]))
    return np.flatnonzero(stretch >= 0), edges


def alike(label: npt.NDArray[np.integer]) -> list[LongArray]:
    """Return for each distinct label the positions of the label, ascending."""
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1)


def strong_components(count: int, source: IntArray, target: IntArray) -> IntArray:
    """Number the strongly connected components of `count` nodes; return each node's component.

    This is Tarjan's algorithm without recursion. For an edge between two components,
    label[source] > label[target].
    """
    order = np.argsort(source, kind="stable")
    heads: list[int] = target[order].tolist()
    first: list[int] = np.searchsorted(source[order], np.arange(count + 1)).tolist()
    unseen = -1
    number = [unseen] * count
    low = [0] * count
    label = [unseen] * count
    at = first[:count]
    stack: list[int] = []
    clock = labels = 0
    for root in range(count):
        if number[root] != unseen:
            continue
        path = [root]
        number[root] = low[root] = clock
        clock += 1
        stack.append(root)
        while path:
            node = path[-1]
            edge = at[node]
            if edge < first[node + 1]:
                at[node] = edge + 1
                head = heads[edge]
                if number[head] == unseen:
                    number[head] = low[head] = clock
                    clock += 1
                    stack.append(head)
                    path.append(head)
                elif label[head] == unseen and number[head] < low[node]:
                    low[node] = number[head]
                continue
            path.pop()
            if path and low[node] < low[path[-1]]:
                low[path[-1]] = low[node]
            if low[node] == number[node]:
                while True:
                    member = stack.pop()
                    label[member] = labels
                    if member == node:
                        break
                labels += 1
    return np.array(label, np.int32)


def cyclic_components(level: LongArray, source: LongArray, target: LongArray) -> list[LongArray]:
    """Return the strongly connected components with several nodes, sorted by their smallest node.

    `level` is a guess at an order of the nodes. The fewer edges contradict it, the faster the
    function is.
    """
    apart = source != target
    source, target = source[apart], target[apart]
    ceiling = np.full(len(level), np.iinfo(np.int64).max)
    level = level * LEVELS_PER_RUN
    heads, tails = source.astype(np.int32), target.astype(np.int32)
    nodes, edges = stretches(level, ceiling, heads, tails)
    if not len(nodes):
        return []
    place = np.zeros(len(level), np.int32)
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    label = strong_components(len(nodes), place[source[edges]], place[target[edges]])
    return sorted(
        (np.sort(nodes[group]) for group in alike(label) if len(group) > 1),
        key=lambda group: int(group[0]),
    )
