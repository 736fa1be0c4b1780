"""The search for cycles, compared with an enumeration of all simple cycles of the graph."""

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkers.elle import Transaction, check_list_append, check_rw_register
from checkers.elle import check as check_module
from checkers.elle.infer.columns import Columns, columns_of
from checkers.elle.kinds import Budget, Cycle, Kind, TimedOut
from checkers.elle.models import EXISTENCE_MODELS
from checkers.elle.search import graph as graph_module
from checkers.elle.search.graph import PROCESS, REALTIME, RW, RWP, WR, WRP, WW, GraphBuilder
from checkers.elle.search.search import _ORDER, _REFUTED_BY, _SNAPSHOTS, Search
from harness.ops import OpType, Verdict
from tests.elle.histories import precedence
from tests.elle.stores import run
from tests.tiers import examples

NODES = 6
Edge = tuple[int, int, int]

spans = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), min_size=NODES, max_size=NODES)
data = st.lists(
    st.tuples(
        st.integers(0, NODES - 1),
        st.integers(0, NODES - 1),
        st.sampled_from([WW, WR, RW, RW, WRP, RWP]),
    ),
    max_size=12,
)
process = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=3)


def columns_for(times: list[tuple[int, int]]) -> Columns:
    txns = [
        Transaction([], call, call + length, OpType.OK, number)
        for number, (call, length) in enumerate(times)
    ]
    return columns_of(txns, writes_are="append")


def simple_cycles(edges: set[Edge]) -> Iterator[list[Edge]]:
    """Return every simple cycle as its edges, starting at its smallest node."""

    def extend(path: list[Edge]) -> Iterator[list[Edge]]:
        first, last = path[0][0], path[-1][1]
        if first == last:
            yield path
            return
        visited = {edge[0] for edge in path} | {last}
        for edge in edges:
            if (
                edge[0] == last
                and (edge[1] == first or edge[1] not in visited)
                and edge[1] >= first
            ):
                yield from extend([*path, edge])

    for edge in edges:
        if edge[1] >= edge[0]:
            yield from extend([edge])


def is_of(kind: Kind, relations: list[int]) -> bool:
    """Whether a cycle with these relations has this kind, by definition."""
    predicates = kind.first == RWP
    anti = [relation == RW or (predicates and relation == RWP) for relation in relations]
    count = anti.count(True)
    suffix = kind.suffix
    others = [relation for relation, is_anti in zip(relations, anti, strict=True) if not is_anti]
    allowed = {WW} if kind.first in (WW, suffix) else {WW, WR, WRP}
    if not set(others) <= allowed | ({suffix} if suffix else set()):
        return False
    if predicates and RWP not in relations:
        return False
    if suffix and suffix not in relations:
        return False
    if kind.rw == 0:
        return count == 0 and (allowed == {WW} or bool({WR, WRP} & set(relations)))
    if kind.rw == 1:
        return count == 1
    together = any(a and b for a, b in zip(anti, anti[-1:] + anti, strict=False))
    return count >= 2 and not (kind.apart and together)


def shortest(kind: Kind, cycles: list[list[Edge]]) -> int:
    """Return the length of the shortest cycle of this kind; 0 if there is none."""
    sizes = [len(cycle) for cycle in cycles if is_of(kind, [relation for _, _, relation in cycle])]
    return min(sizes, default=0)


def budget() -> Budget:
    return Budget(10**7, lambda: False)


@settings(deadline=None, max_examples=examples(300))
# two real-time steps share intermediate nodes: only a search over simple paths finds this cycle
@example(
    times=[(0, 0), (0, 1), (0, 1), (1, 0), (2, 0), (2, 0)],
    drawn=[(1, 0, WW), (3, 0, RW), (4, 1, RW), (5, 3, WW)],
    sessions=[],
    gates=True,
    realtime=True,
)
@given(spans, data, process, st.booleans(), st.booleans())
def test_the_shortest_cycle_of_each_kind_is_found(times, drawn, sessions, gates, realtime):
    columns = columns_for(times)
    order = precedence(columns)
    edges = {(a, b, r) for a, b, r in drawn if a != b}
    edges |= {(a, b, PROCESS) for a, b in sessions if (a, b) in order}
    builder = GraphBuilder(columns)
    for relation in (WW, WR, RW, WRP, RWP, PROCESS):
        pairs = np.array([(a, b) for a, b, r in sorted(edges) if r == relation], np.int32)
        builder.add(*pairs.reshape(-1, 2).T, relation)
    if realtime:
        timed = order if gates else _reduction(order)
        edges |= {(a, b, REALTIME) for a, b in timed}
    with patch.object(graph_module, "REDUCED_EDGES_MAX", -1 if gates else 32):
        components = list(builder.build(realtime=realtime).components())
    for component in components:
        txns = set(component.txns.tolist())
        inner = {(a, b, r) for a, b, r in edges if a in txns and b in txns}
        cycles = list(simple_cycles(inner))
        search = Search(component, (WW, WR, WRP, RW, RWP))
        for name in _ORDER:
            found = search.find(name, budget())
            expected = shortest(Kind.named(name), cycles)
            assert expected == (0 if found is None else len(found.txns)), name
            if found is not None:
                _is_real(found, component.txns, inner)
                assert is_of(Kind.named(name), list(found.relations))


def _reduction(order: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {
        (a, b)
        for a, b in order
        if not any((a, c) in order and (c, b) in order for c in range(NODES))
    }


def _is_real(cycle: Cycle, txns: np.ndarray, edges: set[Edge]) -> None:
    nodes = [int(txns[node]) for node in cycle.txns]
    assert len(set(nodes)) == len(nodes)
    for i, relation in enumerate(cycle.relations):
        assert (nodes[i], nodes[(i + 1) % len(nodes)], relation) in edges


@settings(deadline=None, max_examples=examples(200))
@given(spans, data, st.booleans())
def test_models_are_refuted_exactly_by_cycles_in_their_subgraphs(times, drawn, gates):
    columns = columns_for(times)
    edges = {(a, b, r) for a, b, r in drawn if a != b}
    builder = GraphBuilder(columns)
    for relation in (WW, WR, RW, WRP, RWP):
        pairs = np.array([(a, b) for a, b, r in sorted(edges) if r == relation], np.int32)
        builder.add(*pairs.reshape(-1, 2).T, relation)
    edges |= {(a, b, REALTIME) for a, b in precedence(columns)}
    with patch.object(graph_module, "REDUCED_EDGES_MAX", -1 if gates else 32):
        components = list(builder.build(realtime=True).components())
    for component in components:
        txns = set(component.txns.tolist())
        search = Search(component, (WW, WR, WRP, RW, RWP))
        inner = {(a, b, r) for a, b, r in edges if a in txns and b in txns}
        for model in EXISTENCE_MODELS:
            allowed, _ = _REFUTED_BY[model]
            step = {(a, b) for a, b, r in inner if r & allowed}
            if model in _SNAPSHOTS:
                free = {(a, b) for a, b, r in inner if r & allowed and r not in (RW, RWP)}
                jump = {(a, b) for a, b, r in inner if r in (RW, RWP)}
                step = free | {(a, d) for a, b in free for c, d in jump if b == c}
            assert _cyclic(step) == bool(search._members(model)), model


def _cyclic(step: set[tuple[int, int]]) -> bool:
    reach = set(step)
    while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
        reach |= more
    return any(a == b for a, b in reach)


def test_a_budget_ends():
    part = Budget(10, lambda: False)
    part.spend(10)
    with pytest.raises(TimedOut):
        part.spend(1)
    late = Budget(10**6, lambda: True)
    with pytest.raises(TimedOut):
        late.spend(1)


def test_a_part_of_a_budget_leaves_the_rest():
    whole = Budget(100, lambda: False)
    with whole.part(30) as part:
        part.spend(20)
    assert whole.steps == 80
    with pytest.raises(TimedOut), whole.part(30) as part:
        part.spend(31)
    assert whole.steps == 50


def test_many_components_are_counted_up_to_a_limit(monkeypatch):
    history = run("snapshot-isolation", 1, transactions=300, keys="abcdefgh")
    all_counted = check_list_append(history, consistency_models=("serializable",))
    monkeypatch.setattr(check_module, "COMPONENTS_COUNTED_MAX", 1)
    few = check_list_append(history, consistency_models=("serializable",))

    assert all_counted.counts["G2-item"] > few.counts["G2-item"] >= 1
    assert (all_counted.verdict, all_counted.not_) == (few.verdict, few.not_)


def test_a_component_too_large_to_search_still_refutes(monkeypatch):
    monkeypatch.setattr(check_module, "MEMBERS_SEARCHED_MAX", 1)
    history = run("snapshot-isolation", 2)
    result = check_list_append(history, consistency_models=("serializable",))

    assert result.verdict is Verdict.INVALID
    assert {"PL-2.99-cycle-exists", "cycle-search-timeout"} == set(result.anomalies)
    assert result.not_ == ("repeatable-read",)
    # cycles that are impossible under the model are not searched for
    kept = check_list_append(history, consistency_models=("snapshot-isolation",))
    assert kept.verdict is Verdict.VALID


def test_time_that_is_up_makes_no_verdict_valid():
    history = run("read-committed", 2)
    result = check_list_append(history, time_limit_s=0.0)

    assert result.verdict is Verdict.INVALID
    assert "cycle-search-timeout" in result.anomalies


def test_upstream_relates_less_and_is_followed(monkeypatch):
    """After u, reads of x show r, u, q, and then r again; upstream does not order u before r."""
    history = [
        Transaction([(f, "x", value) for f, value in mops], 2 * i, 2 * i + 1, process=i)
        for i, mops in enumerate(([("w", 1)], [("w", 2)], [("r", 2), ("w", 3)], [("r", 1)]))
    ]
    models = ("serializable",)
    followed = check_rw_register(history, consistency_models=models, linearizable_keys=True)
    assert "G1c" in followed.anomalies
    assert followed.not_ == ("read-committed",)
    monkeypatch.setattr("checkers.elle.search.walk.WALK_STEPS_MAX", 0)
    finer = check_rw_register(history, consistency_models=models, linearizable_keys=True)
    assert finer.not_ == ("read-uncommitted",)
