"""Random histories, checked by the native search, the Python search and brute force.

Histories are small and have many overlapping operations, lost answers and false answers; about half
are valid. The models are registers with compare-and-set, maps, transactions, a directory, catalogs,
and two non-deterministic models.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from checkers.linearizability import (
    CheckOutcome,
    Limits,
    Operation,
    Result,
    certify,
    check_operations,
)
from checkers.linearizability.native import SWITCH, is_native, native_status
from tests.linearizability.random_histories import KINDS, simulate
from tests.linearizability.test_engine import wing_and_gong

NAMES = tuple(KINDS)
LIMITS = Limits(shrink_steps=5_000)


def drawn(seed: int) -> tuple[str, list[Operation[Any, Any]]]:
    """Draw a kind and a history of 3 to 9 operations by 2 to 4 clients."""
    rng = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    return name, simulate(
        KINDS[name],
        rng,
        clients=rng.randint(2, 4),
        total=rng.randint(3, 9),
        lost=rng.choice((0.0, 0.0, 0.1, 0.25)),
        lies=rng.choice((0, 1, 2, 3)),
        lies_from=0.0,
    )


def in_python(model: Any, operations: list[Operation[Any, Any]]) -> CheckOutcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")
        return check_operations(model, operations, limits=LIMITS, explained=False)


def mismatch(name: str, operations: list[Operation[Any, Any]], expected: Result) -> str:
    model = KINDS[name].model_for(operations)
    outcome = check_operations(model, operations, limits=LIMITS)
    results = (outcome.result, in_python(model, operations).result)
    if results != (expected, expected):
        return f"{expected.value}, but found {', '.join(result.value for result in results)}"
    proof = certify(model, operations, outcome)
    return "" if proof is not None and proof.confirmed_by else "the certificate was not confirmed"


def mismatches(seeds: range, tally: Counter[tuple[str, Result]]) -> list[str]:
    lines = []
    for seed in seeds:
        name, operations = drawn(seed)
        legal = wing_and_gong(KINDS[name].model_for(operations), operations)
        expected = Result.OK if legal else Result.ILLEGAL
        tally[name, expected] += 1
        if text := mismatch(name, operations, expected):
            lines.append(f"seed {seed}, {name}: {text}")
    return lines


@pytest.mark.slow
@pytest.mark.skipif(not is_native(), reason=native_status())
@pytest.mark.parametrize(
    "seeds",
    [range(700), pytest.param(range(700, 20_700), marks=pytest.mark.nightly)],
    ids=["few", "many"],
)
def test_native_python_and_brute_force_agree_and_certificates_hold(seeds):
    tally: Counter[tuple[str, Result]] = Counter()
    assert mismatches(seeds, tally) == []
    for name in NAMES:
        invalid, valid = tally[name, Result.ILLEGAL], tally[name, Result.OK]
        assert 0.1 < invalid / (invalid + valid) < 0.9, name
    lost = sum(any(op.is_unknown for op in drawn(seed)[1]) for seed in seeds)
    assert lost > len(seeds) / 5


def test_a_search_that_lies_is_a_mismatch(monkeypatch):
    lie = CheckOutcome(result=Result.OK, reason="", witness=())
    monkeypatch.setitem(globals(), "check_operations", lambda *_, **__: lie)
    monkeypatch.setitem(globals(), "certify", lambda *_: None)
    lines = mismatches(range(40), Counter())
    assert len(lines) == 40
    assert any("but found Ok, Ok" in line for line in lines)
    assert any("not confirmed" in line for line in lines)
