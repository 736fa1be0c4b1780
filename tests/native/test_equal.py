"""The native core gives exactly the results of the Python searches, which are its oracle.

The tests compare everything observable, not only verdicts: the preparation, the state of each
search after each slice of its budget, witnesses and explanations. `HARNESS_NATIVE_HISTORIES` sets
the number of random histories per model.
"""

import itertools
import os
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from checkers.linearizability import UNKNOWN, Limits, Operation, Result, check_operations
from checkers.linearizability.frontier import Frontier
from checkers.linearizability.native import (
    NativeProblem,
    breadth_first,
    depth_first,
    is_native,
    native_status,
    problem_of,
)
from checkers.linearizability.problem import Problem
from checkers.linearizability.search import DepthFirst, Status
from tests.native.generate import KINDS, Kind, Name, Ops, history

HISTORIES = int(os.environ.get("HARNESS_NATIVE_HISTORIES", "400"))
FAST = Limits(shrink_steps=2_000, rounds=(200, 2_000, 20_000))
STEPS_MAX = 3_000
SLICES = (1, 2, 3, 50, 400)

pytestmark = pytest.mark.skipif(not is_native(), reason=native_status())


def native(kind: Kind, operations: Ops) -> NativeProblem:
    problem = problem_of(kind.model_for(operations), operations)
    assert isinstance(problem, NativeProblem)
    return problem


def assert_same_preparation(one: Problem, other: NativeProblem) -> None:
    core = other.core
    assert one.returns == other.returns
    assert one.unknown == other.unknown
    assert one.return_bits == [1 << slot for slot in core.return_slots]
    assert one.unknown_called == core.unknown_called
    assert one.unknown_twin == core.unknown_twin
    assert one.stepper.read_only == core.read_only
    for position in range(len(one.returns)):
        assert one.open_writes[position] == other.open_writes[position]
        assert one.open_reads[position] == other.open_reads[position]


def assert_same_search(
    one: DepthFirst | Frontier, other: DepthFirst | Frontier, problems: tuple[Problem, Problem]
) -> None:
    for budget in itertools.cycle(SLICES):
        assert one.status is other.status
        assert (one.steps, one.best) == (other.steps, other.best)
        assert one.configurations == other.configurations
        if isinstance(one, DepthFirst):
            assert isinstance(other, DepthFirst)
            assert one.choices() == other.choices()
        if one.status is not Status.RUNNING or one.steps > STEPS_MAX:
            break
        one.run(budget)
        other.run(budget)
    if isinstance(one, Frontier):
        assert isinstance(other, Frontier)
        assert_same_survivors(one, other, problems)
    elif one.status is Status.FOUND:
        order = problems[0].replay(one.choices())
        assert order == problems[1].replay(other.choices())


def assert_same_survivors(
    one: Frontier, other: Frontier, problems: tuple[Problem, Problem]
) -> None:
    def shown(search: Frontier, problem: Problem) -> list[Any]:
        states = problem.stepper.states
        return [(c.mask, c.used, states[c.state], c.choices()) for c in search.remaining()]

    if one.status is Status.FOUND:
        assert one.winner is not None
        assert other.winner is not None
        assert one.winner.choices() == other.winner.choices()
    else:
        assert shown(one, problems[0]) == shown(other, problems[1])


def assert_equal(kind: Kind, operations: Ops) -> Status:
    """Assert that both cores agree in everything; return the result of the breadth-first search."""
    problems = (Problem(kind.model_for(operations), operations), native(kind, operations))
    assert_same_preparation(*problems)
    for lean in (True, False):
        for most in (10**6, 20):
            assert_same_search(
                DepthFirst(problems[0], lean=lean, configurations_max=most),
                depth_first(problems[1], lean=lean, configurations_max=most),
                problems,
            )
    breadth = Frontier(problems[0], configurations_max=10**6)
    assert_same_search(breadth, breadth_first(problems[1], configurations_max=10**6), problems)
    assert_same_search(
        Frontier(problems[0], configurations_max=20),
        breadth_first(problems[1], configurations_max=20),
        problems,
    )
    return breadth.status


def assert_witness(kind: Kind, operations: Ops, witness: tuple[tuple[int, ...], ...]) -> None:
    """Assert that a witness is legal, respects real time, and has all completed operations."""
    (order,) = witness or ((),)
    state = kind.model.init()
    latest_call = float("-inf")
    for number in order:
        operation = operations[number]
        output = UNKNOWN if operation.is_unknown else operation.output
        legal, state = kind.model.step(state, operation.input, output)
        assert legal
        assert operation.return_time is None or operation.return_time >= latest_call
        latest_call = max(latest_call, operation.call)
    assert len(set(order)) == len(order)
    assert all(n in set(order) for n, o in enumerate(operations) if not o.is_unknown)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_searches_are_equal_move_for_move(name):
    kind = KINDS[name]
    verdicts = [assert_equal(kind, history(kind, seed)) for seed in range(HISTORIES)]
    assert min(verdicts.count(Status.FOUND), verdicts.count(Status.EXHAUSTED)) >= HISTORIES // 10


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_outcomes_are_equal_with_witness_and_explanation(name, monkeypatch):
    kind = KINDS[name]
    for seed in range(HISTORIES // 4):
        operations = history(kind, 10**6 + seed)
        ours = check_operations(kind.model_for(operations), operations, limits=FAST)
        with monkeypatch.context() as patch:
            patch.setenv("HARNESS_NATIVE", "0")
            assert check_operations(kind.model_for(operations), operations, limits=FAST) == ours
        if ours.result is Result.OK:
            assert ours.witness is not None
            assert_witness(kind, operations, ours.witness)


@pytest.mark.parametrize(
    ("clients", "unknown"),
    [
        (3, 70),
        (3, 250),
        (3, 300),
        (70, 2),
        (100, 250),
        (100, 300),
        (100, 1000),
        (130, 3),
        (5, 1025),
    ],
)
def test_wide_masks_are_equal_too(clients, unknown):
    kind = KINDS["directory"]
    operations = wide(clients, unknown)
    one = (Problem(kind.model_for(operations), operations), native(kind, operations))
    assert (len(one[1].unknown), max(one[1].core.return_slots)) == (unknown, clients - 1)
    assert_same_preparation(*one)
    for lean in (True, False):
        assert_same_search(
            DepthFirst(one[0], lean=lean, configurations_max=10**4),
            depth_first(one[1], lean=lean, configurations_max=10**4),
            one,
        )
    assert_same_search(
        Frontier(one[0], configurations_max=10**4),
        breadth_first(one[1], configurations_max=10**4),
        one,
    )


def wide(clients: int, unknown: int) -> Ops:
    """Build many concurrent operations on few names, preceded by mutations of unknown outcome."""
    kind = KINDS["directory"]
    made: Ops = []
    seed = 0
    while len(made) < unknown:
        seed += 1
        (first, *_) = history(kind, seed)
        if first.input.f not in {"look", "all"}:
            made.append(replace(first, call=seed, output=UNKNOWN, return_time=None))
    start = 10 * seed
    for number in range(clients):
        (first, *_) = history(kind, 5000 + number)
        made.append(replace(first, call=start, return_time=start + 1000 + number))
        if first.is_unknown:
            made[-1] = replace(made[-1], output="ok")
    return made


ALL = Name("all")
PUT = Name("put", "a", value=1)


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ([Operation(0, ALL, 0, (), 2**70)], "a time beyond 64 bits"),
        ([Operation(0, ALL, 2**60, (), 2**60 + 1000.0)], "whole numbers that reals cannot hold"),
        ([Operation(0, ALL, 0, (), Fraction(1, 2))], "a time of another kind"),
        ([Operation(n, ALL, 0, (), 10 + n) for n in range(1025)], "1025 open at once"),
        ([Operation(n, PUT, 0, None, None) for n in range(4097)], "4097 of unknown outcome"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_beyond_the_core_are_searched_in_python(operations, why):
    assert why
    problem = problem_of(KINDS["directory"].model, operations)
    assert not isinstance(problem, NativeProblem)
    assert type(depth_first(problem, lean=False, configurations_max=9)) is DepthFirst
    assert type(breadth_first(problem, configurations_max=9)) is Frontier
