"""Cycles that a real-time step shortens to few transactions, and cycles found without a search."""

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.judging.elle import planted
from checkers.elle import check as check_module
from checkers.elle import check_list_append
from checkers.elle.infer import shortcuts
from checkers.elle.infer.shortcuts import shortened
from checkers.elle.kinds import Cycle
from checkers.elle.search.graph import PROCESS, REALTIME, RW, RWP, WR, WW, Component
from harness.ops import Verdict
from tests.elle.histories import concurrent
from tests.elle.stores import LEVELS, as_registers, run
from tests.elle.test_every_anomaly import check
from tests.elle.test_verify import outcome


def runs(*spans: tuple[int, int]) -> tuple[Any, Any]:
    start, end = zip(*spans, strict=True)
    return np.array(start, np.int32), np.array(end, np.int32)


CHAIN = runs((0, 0), (1, 1), (2, 2), (3, 3), (4, 4))


@pytest.mark.parametrize(
    ("relations", "txns", "told"),
    [
        # one real-time step replaces the chain, and the anti-dependency remains
        ((WW, REALTIME, WW, WR, RW), (0, 4), (REALTIME, RW)),
        ((REALTIME, REALTIME, REALTIME, REALTIME, RWP), (0, 4), (REALTIME, RWP)),
        # the edge that decides the kind of the cycle remains: wr rather than ww
        ((REALTIME, WW, WW, REALTIME, WR), (0, 4), (REALTIME, WR)),
        ((REALTIME, WW, REALTIME, REALTIME, WW), (1, 2), (WW, REALTIME)),
        # A cycle without real time has another kind, and is not shortened.
        ((WW, WW, WW, WR, RW), (0, 1, 2, 3, 4), (WW, WW, WW, WR, RW)),
        ((WW, PROCESS, WW, WR, RW), (0, 1, 2, 3, 4), (WW, PROCESS, WW, WR, RW)),
        # Two anti-dependencies, adjacent or not, and both paths between them.
        ((REALTIME, REALTIME, REALTIME, RW, RW), (0, 3, 4), (REALTIME, RW, RW)),
        ((REALTIME, REALTIME, RW, WR, RW), (0, 2, 3, 4), (REALTIME, RW, WR, RW)),
    ],
)
def test_time_is_taken_at_once(relations, txns, told):
    cycle = Cycle((0, 1, 2, 3, 4), relations)
    start, end = CHAIN
    if told == (WW, REALTIME):  # real time closes the cycle
        start, end = runs((2, 2), (3, 9), (0, 0), (1, 1), (1, 1))
    found = shortened(cycle, start, end)

    assert (found.txns, found.relations) == (txns, told)
    assert found.name == cycle.name


def test_a_stretch_that_is_too_long_stays(monkeypatch):
    monkeypatch.setattr(shortcuts, "STEPS_MAX", 4)
    cycle = Cycle((0, 1, 2, 3, 4), (WW, REALTIME, WW, WR, RW))
    assert shortened(cycle, *CHAIN) == cycle


def test_no_way_is_shorter():
    rng = random.Random(4)
    fewer = 0
    for _ in range(400):
        size = rng.randint(2, 7)
        start, end = runs(*[(at := rng.randint(0, 6), at + rng.randint(0, 3)) for _ in range(size)])
        relations = tuple(rng.choice([WW, WR, REALTIME]) for _ in range(size))
        found = shortcuts._fewest(list(range(size)), relations, start, end)

        def way(places: tuple[int, ...], start: Any = start, end: Any = end) -> bool:
            return all(b == a + 1 or end[a] < start[b] for a, b in itertools.pairwise(places))

        best = min(
            len(inner) + 1
            for count in range(size - 1)
            for inner in itertools.combinations(range(1, size - 1), count)
            if way((0, *inner, size - 1))
        )
        assert len(found) == best
        places = [place for place, _ in found]
        for (here, relation), there in zip(found, [*places[1:], size - 1], strict=True):
            assert there == here + 1 or relation == REALTIME
            assert relation == relations[here] or end[here] < start[there]
        fewer += best < size - 1
    assert fewer > 100


def test_a_stale_read_is_explained_in_two_steps():
    result = check_list_append(planted(300, "stale", lists=True))
    (case,) = result.anomalies["G-single-item-realtime"]

    assert case.operations == (0, 302)
    assert [step.reason.relation for step in case.steps] == ["realtime", "rw"]


# --- without a search ------------------------------------------------------------------------

SKEW = concurrent("r x [], a y 1", "r y [], a x 1", "r x [1], r y [1]")


@pytest.mark.parametrize(
    ("history", "name"),
    [
        (list(planted(300, "stale", lists=True)), "G-single-item-realtime"),
        (SKEW, "G2-item"),
        (concurrent("a x 1, a y 2", "a x 2, a y 1", "r x [1 2], r y [1 2]"), "G0"),
        (concurrent("a x 1, r y [1]", "a y 1, r x [1]"), "G1c"),
        (concurrent("a x 1, a y 1", "r x [1], r y []"), "G-single-item"),
    ],
)
def test_two_that_contradict_each_other_are_seen_in_any_component(history, name, monkeypatch):
    monkeypatch.setattr(check_module, "MEMBERS_SEARCHED_MAX", 1)
    result = check_list_append(history)

    assert result.verdict is Verdict.INVALID
    assert name in result.anomalies
    for cases in result.anomalies.values():
        for case in cases:
            if case.steps:
                assert outcome(history, case, "list-append") == "verified"


def test_real_time_edges_close_no_pair_unless_requested(monkeypatch):
    late = [
        replace(txn, call=txn.call + 99, end=(txn.end or 0) + 99, process=txn.process + 9)
        for txn in planted(50, "stale", lists=True)
    ]
    history = [*SKEW, *late]
    monkeypatch.setattr(check_module, "MEMBERS_SEARCHED_MAX", 1)
    result = check_list_append(history, consistency_models=("serializable",))

    assert {name for name in result.anomalies if "-exists" not in name} <= {
        "G2-item",
        "cycle-search-timeout",
    }


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["list", "register"])
def test_nothing_is_refuted_that_a_search_does_not_refute(level, kind, monkeypatch):
    options = {"wfr_keys": True, "linearizable_keys": True} if kind == "register" else {}
    for seed in range(10):
        history = run(level, seed)
        history = as_registers(history) if kind == "register" else history
        searched = check(kind, history, **options)
        monkeypatch.setattr(check_module, "MEMBERS_SEARCHED_MAX", 1)
        result = check(kind, history, **options)
        monkeypatch.undo()

        assert (result.verdict, result.not_) == (searched.verdict, searched.not_), seed
        for cases in result.anomalies.values():
            for case in cases:
                if case.steps:
                    told = outcome(
                        history, case, {"list": "list-append"}.get(kind, "rw-register"), options
                    )
                    assert told == "verified", case.text


@pytest.mark.parametrize("first", [(WW, RW), (RW, WW)])
@pytest.mark.parametrize("second", [(WW, RW), (RW, WW)])
def test_of_several_relations_each_way_all_pairs_are_seen(first, second):
    component = Component(
        txns=np.arange(2, dtype=np.int32),
        count=2,
        source=np.array([0, 0, 1, 1], np.int32),
        target=np.array([1, 1, 0, 0], np.int32),
        relation=np.array([*first, *second], np.int32),
    )
    found = {cycle.name: cycle for cycle in shortcuts.pairs(component, *runs((0, 0), (0, 0)))}

    assert set(found) == {"G0", "G-single-item", "G2-item"}
    assert sorted(found["G-single-item"].relations) == [WW, RW]


def test_anomalies_of_pairs_are_not_reported_as_unknown(monkeypatch):
    history = concurrent("a x 1, a y 2", "a x 2, a y 1", "r x [1 2], r y [1 2]")
    monkeypatch.setattr(check_module, "MEMBERS_SEARCHED_MAX", 1)
    result = check_list_append(history, consistency_models=("read-uncommitted",))

    assert set(result.anomalies) == {"G0"}
