"""Direct methods against a brute-force oracle, and what they decide that searches do not."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import Operation, Result, certify, check_operations
from checkers.linearizability.models.register import Cas, Read, Register, Write
from tests.checkers.direct_histories import STYLES, Ops, compared, history

CONFORMANCE = Path(
    os.environ.get("HARNESS_CONFORMANCE")
    or Path(__file__).resolve().parents[2].parent / "shared" / "conformance"
)
DECIDED_MIN = {"register": 0.9, "set": 0.5, "queue": 0.9, "bag": 0.9}
"""The share of histories that a direct method must settle; the others are a search's."""


@pytest.mark.parametrize("name", DECIDED_MIN)
def test_a_direct_method_agrees_with_brute_force_and_is_proven(name: str) -> None:
    tally = Counter[tuple[bool, bool | None]]()
    for seed in range(1_500):
        found = compared(STYLES[name].model(), history(name, random.Random(seed)))
        assert not found.wrong, f"seed {seed}: {found.wrong}"
        tally[found.legal, found.decided] += 1
    total = sum(tally.values())
    decided = {verdict: tally[verdict, verdict] for verdict in (False, True)}
    assert sum(decided.values()) >= DECIDED_MIN[name] * total
    assert decided[False] > total / 20


def writes_and_reads(total: int, *, stale: bool) -> Ops:
    """Two clients write unique values, a third reads; one read near the end is late by 50."""
    operations: Ops = []
    for n in range(total // 2):
        operations.append(Operation(n % 2, Write(n), 10 * n, None, 10 * n + 14))
        seen = n - 50 if stale and n == total // 2 - 9 else n
        operations.append(Operation(2, Read(), 10 * n + 6, seen, 10 * n + 9))
    return operations


def test_a_stale_read_among_many_is_found_with_a_small_core() -> None:
    operations = writes_and_reads(20_000, stale=True)
    outcome = check_operations(Register(None), operations)
    proof = certify(Register(None), operations, outcome)
    assert proof is not None
    assert outcome.result is Result.ILLEGAL
    assert len(proof.core) <= 4
    assert proof.minimal
    assert proof.confirmed_by


def test_what_was_written_too_late_or_never_refutes_alone() -> None:
    for value in (7, 8):
        operations = [
            Operation(0, Write(1), 0, None, 1),
            Operation(1, Read(), 2, value, 3),
            Operation(0, Write(7), 4, None, 5),
        ]
        decision = Register(None).decide(
            [
                Operation(o.client_id, o.input, o.call, o.output, o.return_time, n)
                for n, o in enumerate(operations)
            ]
        )
        assert decision is not None
        assert decision.core == (1,)


def test_a_long_chain_of_compare_and_sets_is_proven() -> None:
    """The core needs what leads from the one read to the other."""
    operations: list[Operation[Any, Any]] = [
        Operation(0, Cas(n, n + 1), 10 * n, True, 10 * n + 5, n) for n in range(120)
    ]
    operations.append(Operation(1, Read(), 2_000, 20, 2_001, 500))
    decision = Register(0).decide(operations)
    assert decision is not None
    assert decision.order is None
    outcome = check_operations(Register(0), operations)
    proof = certify(Register(0), operations, outcome)
    assert proof is not None
    assert proof.confirmed_by
