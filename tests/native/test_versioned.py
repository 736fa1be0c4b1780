"""The versioned catalog steps natively as its model in Python does, which is the specification."""

import random
from typing import Any

import pytest

from checkers.linearizability import UNKNOWN, Operation, Result, check_operations
from checkers.linearizability.models.versioned import (
    VersionedCatalog,
    VersionedInput,
    VersionedOutput,
)
from checkers.linearizability.native import NativeProblem, is_native, native_status, problem_of
from checkers.linearizability.problem import ILLEGAL_STEP
from tests.checkers.random_histories import KINDS, catalog, simulate
from tests.native.test_equal import assert_equal

pytestmark = pytest.mark.skipif(not is_native(), reason=native_status())

NOTHING = VersionedOutput("ok", 0, 0, 0, ())
NAMES = ("b", "a", "é", "\U0001f600", "")


def problem(operations: list[Operation[Any, Any]], *, native: bool = True) -> NativeProblem:
    """Prepared by the core, whose own model steps it, or does not."""
    found = problem_of(VersionedCatalog(), operations)
    assert isinstance(found, NativeProblem)
    assert found.core.is_native_model is native
    return found


def one(input_: VersionedInput, output: Any) -> Operation[Any, Any]:
    return Operation(0, input_, 0, output, None if output is UNKNOWN else 1)


def any_operation(rng: random.Random) -> Operation[Any, Any]:
    """Whatever the types allow, sense or nonsense; numbers are few, so that they often agree."""
    request = rng.choice(
        ("create", "create", "alter", "alter", "drop", "ren", "ren", "get", "list")
    )
    small = [rng.randint(1, 3) for _ in range(4)]
    given = VersionedInput(request, rng.choice(NAMES), rng.choice(NAMES), small[0] % 2, small[1])
    if rng.random() < 0.2:
        return one(given, UNKNOWN)
    shown = [(rng.choice(NAMES), rng.randint(1, 3)) for _ in range(rng.randrange(3))]
    listing = tuple(sorted(shown) if rng.random() < 0.8 else shown)
    result = rng.choice(("ok", "ok", "ok", "ok", "ex", "nf"))
    return one(given, VersionedOutput(result, small[1], small[2], small[3] % 2, listing))


def test_every_step_is_that_of_the_model() -> None:
    model, legal, changed = VersionedCatalog(), 0, 0
    for seed in range(40):
        rng = random.Random(seed)
        operations = [any_operation(rng) for _ in range(60)]
        found = problem(operations)
        states = [found.stepper.initial]
        assert found.stepper.states[states[0]] == model.init()
        for state in states:  # it grows
            before = found.stepper.states[state]
            for number, operation in enumerate(operations):
                expected, after = model.step(before, operation.input, operation.output)
                stepped = found.stepper.step(state, number)
                assert (stepped != ILLEGAL_STEP) == expected
                if expected:
                    assert found.stepper.states[stepped] == after
                    assert (stepped == state) == (after == before)
                    legal, changed = legal + 1, changed + (stepped != state)
                    if stepped not in states and len(states) < 60:
                        states.append(stepped)
    assert min(legal, changed) > 1_000


@pytest.mark.parametrize("lost", [0.0, 0.25])
@pytest.mark.parametrize("name", ["catalog", "catalog, ids given twice"])
def test_searches_are_equal(name: str, lost: float) -> None:
    for seed in range(60):
        rng = random.Random(f"{name} {lost} {seed}")
        lies = rng.randrange(3)
        operations = simulate(
            KINDS[name], rng, clients=4, total=14, lost=lost, lies=lies, lies_from=0.0
        )
        problem(operations)
        assert_equal(KINDS[name], operations)


def test_more_names_than_a_word_has_bits() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        operations = simulate(catalog(90), rng, clients=6, total=120, lost=0.05, lies=seed % 2)
        problem(operations)
        assert_equal(catalog(90), operations)


def test_a_state_that_is_none_is_refused() -> None:
    found = problem([one(VersionedInput("drop", "t", "", 0, 0), UNKNOWN)])
    with pytest.raises(IndexError, match="no state 1"):
        found.core.step(1, 0)


class MoreInput(VersionedInput):
    """Not quite the model's own."""


class MoreOutput(VersionedOutput):
    """Neither."""


@pytest.mark.parametrize(
    "strange",
    [
        one(VersionedInput("create", "t", "", True, 1), NOTHING),
        one(VersionedInput("create", "t", "", 0, 2**62), NOTHING),
        one(VersionedInput("create", "t", "", 0, 1.0), NOTHING),  # type: ignore[arg-type]
        one(VersionedInput("truncate", "t", "", 0, 1), UNKNOWN),
        one(VersionedInput("create", "\ud800", "", 0, 1), NOTHING),
        one(MoreInput("create", "t", "", 0, 1), NOTHING),
        one(VersionedInput("create", "t", "", 0, 1), NOTHING._replace(result="done")),
        one(VersionedInput("create", "t", "", 0, 1), MoreOutput(*NOTHING)),
        one(VersionedInput("list", "", "", 0, 0), NOTHING._replace(listing=(("t", 1, 1),))),
        one(VersionedInput("list", "", "", 0, 0), NOTHING._replace(listing=(["t", 1],))),
    ],
)
def test_what_is_not_exactly_its_own_is_left_to_the_model(strange: Operation[Any, Any]) -> None:
    problem([strange], native=False)


class Forgetful(VersionedCatalog):
    """A model of somebody else's."""

    def step(self, state: Any, input_: Any, output: Any, /) -> tuple[bool, Any]:
        """Nothing is legal."""
        del input_, output
        return False, state


def test_only_the_catalog_itself_is_stepped_natively() -> None:
    operations = [one(VersionedInput("create", "t", "", 0, 1), NOTHING._replace(ident=1))]
    assert check_operations(VersionedCatalog(), operations).result is Result.OK
    assert check_operations(Forgetful(), operations).result is Result.ILLEGAL
