"""The array kernels, compared with plain loops."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.elle.infer.columns import NEVER, Columns, Transaction, columns_of, runs
from checkers.elle.search.graph import RW, WR, WW, GraphBuilder, _gates, _reduced
from checkers.elle.search.kernels import (
    cyclic_components,
    expand,
    settle,
    slices_equal,
    strong_components,
)
from harness.ops import OpType
from tests.elle.histories import precedence

NODES = 9
edges = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=25)


def reachable(count: int, pairs: list[tuple[int, int]]) -> np.ndarray:
    reach = np.zeros((count, count), bool)
    for source, target in pairs:
        reach[source, target] = True
    for middle in range(count):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


def groups_of(count: int, pairs: list[tuple[int, int]]) -> set[frozenset[int]]:
    """Return the strongly connected components with several nodes, by brute force."""
    reach = reachable(count, pairs)
    return {
        frozenset({a, *(b for b in range(count) if reach[a, b] and reach[b, a])})
        for a in range(count)
        if any(reach[a, b] and reach[b, a] for b in range(count) if a != b)
    }


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int32).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


@settings(deadline=None)
@given(edges)
def test_strong_components(pairs):
    label = strong_components(NODES, *arrays(pairs))
    found = {
        frozenset(np.flatnonzero(label == number).tolist())
        for number in np.unique(label)
        if (label == number).sum() > 1
    }

    assert groups_of(NODES, pairs) == found
    assert all(label[source] >= label[target] for source, target in pairs)


@settings(deadline=None)
@given(edges, st.lists(st.integers(0, 5), min_size=NODES, max_size=NODES))
def test_cyclic_components_whatever_the_guess(pairs, guess):
    source, target = arrays(pairs)
    found = cyclic_components(
        np.array(guess, np.int64), source.astype(np.int64), target.astype(np.int64)
    )

    assert groups_of(NODES, pairs) == {frozenset(group.tolist()) for group in found}


@settings(deadline=None)
@given(edges, st.lists(st.integers(0, 3), min_size=NODES, max_size=NODES))
def test_settle_proves_that_there_is_no_cycle(pairs, guess):
    pairs = [(source, target) for source, target in pairs if source != target]
    source, target = arrays(pairs)
    level = np.array(guess, np.int64)
    falling = settle(level, np.full(NODES, 10**9), source, target)

    assert (len(falling) == 0) == (not groups_of(NODES, pairs))


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=6))
def test_slices(lists):
    length = np.array([len(item) for item in lists], np.int32)
    start = np.cumsum(length, dtype=np.int64) - length
    pool = np.array(list(itertools.chain(*lists)), np.int32)

    assert list(itertools.chain(*lists)) == pool[expand(start, length)].tolist()
    for shift in range(len(lists)):
        other = np.roll(start, shift)
        size = np.minimum(length, np.roll(length, shift))
        expected = [lists[i][: size[i]] == lists[i - shift][: size[i]] for i in range(len(lists))]
        assert expected == slices_equal(pool, start, other, size).tolist()


intervals = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.booleans()), min_size=1, max_size=8
)


def placed(spans: list[tuple[int, int, bool]]) -> list[Transaction]:
    return [
        Transaction([], call, call + length, OpType.OK if ok else OpType.INFO, process)
        for process, (call, length, ok) in enumerate(spans)
    ]


def by_definition(history: list[Transaction]) -> set[tuple[int, int]]:
    """Return the pairs in real-time order, by definition."""
    return {
        (a, b)
        for a, first in enumerate(history)
        for b, second in enumerate(history)
        if first.type is OpType.OK and first.end is not None and first.end < second.call
    }


@settings(deadline=None)
@given(intervals)
def test_runs_are_real_time(spans):
    history = placed(spans)
    start, end = runs(
        np.array([txn.call for txn in history]),
        np.array([txn.end for txn in history]),
        np.array([txn.type is OpType.OK for txn in history]),
    )
    found = {
        (a, b)
        for a in range(len(history))
        for b in range(len(history))
        if end[a] != NEVER and end[a] < start[b]
    }

    assert by_definition(history) == found


@settings(deadline=None)
@given(intervals)
def test_gates_and_the_reduction_say_the_same_as_real_time(spans):
    columns = columns_of(placed(spans), writes_are="append")
    count = len(columns)
    expected = precedence(columns)
    reduced = _reduced(columns.start, columns.end)
    assert reduced is not None
    for added, source, target in (_gates(columns.start, columns.end, count), reduced):
        reach = reachable(count + added, list(zip(source.tolist(), target.tolist(), strict=True)))
        found = {(a, b) for a in range(count) for b in range(count) if reach[a, b]}
        assert expected == found


@settings(deadline=None)
@given(intervals, edges)
def test_components_take_real_time_into_account(spans, pairs):
    columns = columns_of(placed(spans), writes_are="append")
    count = len(columns)
    pairs = [(a, b) for a, b in pairs if a < count and b < count]
    builder = GraphBuilder(columns)
    builder.add(*arrays(pairs), WW)
    time = precedence(columns)
    for realtime in (False, True):
        graph = builder.build(realtime=realtime)
        expected = groups_of(count, [*pairs, *(time if realtime else [])])
        assert expected == {frozenset(part.txns.tolist()) for part in graph.components()}


sides = st.lists(st.tuples(st.integers(0, 2), st.integers(0, NODES - 1)), max_size=20)


def empty_columns() -> Columns:
    return columns_of(placed([(0, 1, True)] * NODES), writes_are="append")


@settings(deadline=None)
@given(sides, sides)
def test_joints_say_what_the_product_says(sources, targets):
    left, right = (
        (np.array([g for g, _ in side], np.int64), np.array([t for _, t in side], np.int32))
        for side in (sorted(sources), sorted(targets))
    )
    plain = GraphBuilder(empty_columns())
    plain.add_products(left, right, RW)
    joined = GraphBuilder(empty_columns())
    for number in set(left[0].tolist()):
        joined._join(
            np.unique(left[1][left[0] == number]), np.unique(right[1][right[0] == number]), RW
        )
    direct = {(a, b) for g, a in sources for h, b in targets if g == h and a != b}
    product = plain.build(realtime=False)

    pairs = zip(product.source.tolist(), product.target.tolist(), strict=True)
    assert direct == set(pairs)
    graph = joined.build(realtime=False)
    hops = set()
    for start in range(NODES):
        todo = [t for s, t in zip(graph.source, graph.target, strict=True) if s == start]
        seen = set()
        while todo:
            node = int(todo.pop())
            if node < NODES:
                hops.add((start, node))
            elif node not in seen:
                seen.add(node)
                todo += [t for s, t in zip(graph.source, graph.target, strict=True) if s == node]
    assert direct == hops


def test_many_readers_and_many_writers_take_few_edges():
    readers = [Transaction([("r", "x", [])], i, 10_000) for i in range(1000)]
    writers = [Transaction([("append", "x", i)], i, 10_000) for i in range(1000)]
    both = [Transaction([("r", "x", []), ("append", "x", 5000)], 0, 10_000)]
    columns = columns_of([*readers, *writers, *both], writes_are="append")
    from checkers.elle.infer.append import infer_append

    graph = infer_append(columns).builder.build(realtime=False)
    assert len(graph.source) < 20_000
    assert not list(graph.components())
    assert set(np.unique(graph.relation)) <= {RW, WR, WW, 32}
