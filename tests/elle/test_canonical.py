"""The report does not depend on the names of keys, on values, or on the order of lines."""

import random
from dataclasses import replace
from typing import Any

import pytest

from checkers.elle import ElleResult, Transaction, check_list_append, check_rw_register
from checkers.elle.search import graph as graph_module
from tests.elle.stores import LEVELS, as_registers, run


def few_of(count: int) -> list[Any]:
    """Return `count` seeds, half of which run only nightly."""
    return [
        pytest.param(seed, marks=[pytest.mark.nightly] * (seed >= count // 2))
        for seed in range(count)
    ]


def told(result: ElleResult, places: list[int]) -> Any:
    """Return the report without names; `places` gives each operation its original number."""
    return (
        result.verdict,
        result.not_,
        result.also_not,
        dict(result.counts),
        {
            name: [
                (
                    [places[op] for op in case.operations],
                    [(places[s.source], places[s.target], s.reason.relation) for s in case.steps],
                )
                for case in cases
            ]
            for name, cases in result.anomalies.items()
        },
    )


def renamed(history: list[Transaction], rng: random.Random) -> list[Transaction]:
    keys: dict[Any, Any] = {}
    values: dict[Any, Any] = {}
    fresh = iter(rng.sample(range(10**6), 10**4))

    def name(table: dict[Any, Any], item: Any) -> Any:
        return table.setdefault(item, f"n{next(fresh)}")

    def value(item: Any) -> Any:
        if isinstance(item, list):
            return [value(element) for element in item]
        return None if item is None else name(values, item)

    return [
        replace(txn, value=[(f, name(keys, key), value(item)) for f, key, item in txn.value])
        for txn in history
    ]


def shuffled(history: list[Transaction], rng: random.Random) -> tuple[list[Transaction], list[int]]:
    """Reorder lines without changing real time; also return where each line came from."""
    order = list(range(len(history)))
    rng.shuffle(order)
    return [history[place] for place in order], order


def respaced(history: list[Transaction], rng: random.Random) -> list[Transaction]:
    """Change the times of calls and ends, but not the real-time order."""
    events = sorted(
        [(txn.call, 0, i) for i, txn in enumerate(history)]
        + [(txn.end or 0, 1, i) for i, txn in enumerate(history)]
    )
    times: dict[tuple[int, int], int] = {}
    clock, group, kind = 0, [], 0
    for _, is_end, i in [*events, (0, 2, -1)]:
        if is_end != kind:
            rng.shuffle(group)
            for member in group:
                clock += rng.randint(1, 9)
                times[member, kind] = clock
            group, kind = [], is_end
        group.append(i)
    return [replace(txn, call=times[i, 0], end=times[i, 1]) for i, txn in enumerate(history)]


CHECKS = {
    "lists": check_list_append,
    "sessions": lambda history: check_list_append(
        history, consistency_models=("strong-session-serializable",)
    ),
    "registers": lambda history: check_rw_register(as_registers(history), linearizable_keys=True),
    "wfr": lambda history: check_rw_register(
        as_registers(history), wfr_keys=True, sequential_keys=True
    ),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", few_of(4))
def test_names_and_lines_do_not_matter(level, seed, check):
    rng = random.Random(seed)
    history = run(level, seed, transactions=40, lost_answers=0.1)
    judge = CHECKS[check]
    expected = told(judge(history), list(range(len(history))))

    assert expected == told(judge(renamed(history, rng)), list(range(len(history))))
    other, order = shuffled(history, rng)
    assert expected == told(judge(other), order)
    assert expected == told(judge(respaced(history, rng)), list(range(len(history))))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", few_of(6))
def test_joints_and_gates_change_no_boundary(level, seed, monkeypatch):
    history = run(level, seed, transactions=40, lost_answers=0.1)
    plain = check_list_append(history)
    monkeypatch.setattr(graph_module, "PRODUCT_EDGES_MAX", 0)
    joined = check_list_append(history)
    monkeypatch.setattr(graph_module, "REDUCED_EDGES_MAX", -1)
    gated = check_list_append(history)

    assert (plain.verdict, plain.not_) == (joined.verdict, joined.not_)
    assert (plain.verdict, plain.not_) == (gated.verdict, gated.not_)
