"""Direct methods decide histories without a search, and agree with an oracle."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import (
    CertificateError,
    CheckOutcome,
    Limits,
    Model,
    Operation,
    Result,
    certify,
    check_operations,
)
from checkers.linearizability.direct import Decision
from checkers.linearizability.explain import explain_decision
from checkers.linearizability.models import register
from checkers.linearizability.models.keyvalue import KeyValue
from checkers.linearizability.models.queues import Dequeue, Enqueue, Queue, UnorderedQueue
from checkers.linearizability.models.register import Cas, Read, Register, Write
from checkers.linearizability.models.sets import Add, ReadAll, Remove, Set
from checkers.linearizability.verify import verify_core
from checkers.registers.linearizable import RegisterLinearizable
from harness.ops import Verdict
from harness.store.folder import load_run
from tests.linearizability.direct_histories import STYLES, Ops, compared, history

CONFORMANCE = Path(
    os.environ.get("HARNESS_CONFORMANCE")
    or Path(__file__).resolve().parents[2].parent / "shared" / "conformance"
)
DECIDED_MIN = {"register": 0.9, "map": 0.9, "set": 0.5, "queue": 0.9, "bag": 0.9}
"""The share of histories that a direct method must decide; a search decides the others."""


@pytest.mark.parametrize("name", DECIDED_MIN)
def test_a_direct_method_agrees_with_brute_force_and_is_proven(name):
    tally = Counter[tuple[bool, bool | None]]()
    for seed in range(3_000):
        found = compared(STYLES[name].model(), history(name, random.Random(seed)))
        assert not found.wrong, f"seed {seed}: {found.wrong}"
        tally[found.legal, found.decided] += 1
    total = sum(tally.values())
    decided = {verdict: tally[verdict, verdict] for verdict in (False, True)}
    assert sum(decided.values()) >= DECIDED_MIN[name] * total
    assert decided[False] > total / 20


def numbered(*operations: tuple[Any, float, Any, float | None]) -> Ops:
    return [
        Operation(0, given, call, output, end, number)
        for number, (given, call, output, end) in enumerate(operations)
    ]


def writes_and_reads(total: int, *, stale: bool) -> Ops:
    """Build operations of two writers of unique values, and of a reader.

    If `stale`, one read returns a value that is 50 writes old.
    """
    operations: Ops = []
    for n in range(total // 2):
        operations.append(Operation(n % 2, Write(n), 10 * n, None, 10 * n + 14))
        seen = n - 50 if stale and n == total // 2 - 9 else n
        operations.append(Operation(2, Read(), 10 * n + 6, seen, 10 * n + 9))
    return operations


def test_a_stale_read_among_many_is_found_with_a_small_core():
    operations = writes_and_reads(20_000, stale=True)
    outcome = check_operations(Register(None), operations)
    proof = certify(Register(None), operations, outcome)
    assert proof is not None
    assert outcome.result is Result.ILLEGAL
    assert len(proof.core) <= 4
    assert proof.minimal
    assert proof.confirmed_by


def test_a_read_of_a_late_or_missing_write_refutes_alone():
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


RUNS = sorted((CONFORMANCE / "runs").glob("etcd-ser-*")) if CONFORMANCE.is_dir() else []


@pytest.mark.skipif(not RUNS, reason=f"no runs at {CONFORMANCE}; set HARNESS_CONFORMANCE")
def test_stale_runs_on_which_a_search_gave_up_are_invalid():
    for folder in RUNS:
        run = load_run(folder)
        result = RegisterLinearizable().check(run.history, run.case, time_limit_s=60)
        assert result.verdict is Verdict.INVALID, folder.name
        proof = result.details["proof"]
        assert len(proof["core"]) <= 4
        assert proof["minimal"]
        assert proof["confirmed_by"]


def test_a_set_with_removals_still_refuses_unknown_elements():
    operations = numbered(
        (Add(1), 0, None, 1), (Remove(1), 2, None, 3), (ReadAll(), 4, frozenset((1, 2)), 5)
    )
    outcome = check_operations(Set(), operations)
    assert outcome.result is Result.ILLEGAL
    assert outcome.failure is not None
    assert outcome.failure.core == (2,)
    assert outcome.failure.elements == (2,)


@pytest.mark.slow
def test_twenty_thousand_additions_are_one_look():
    adds = [(Add(n), 2 * n, None, 2 * n + 5) for n in range(20_000)]
    for lost in (frozenset[int](), frozenset((777,))):
        shown = frozenset(range(20_000)) - lost
        operations = numbered(*adds, (ReadAll(), 50_000, shown, 50_001))
        outcome = check_operations(Set(), operations)
        proof = certify(Set(), operations, outcome)
        assert proof is not None
        assert proof.confirmed_by
        assert outcome.steps == 0
        assert proof.core == ((777, 20_000) if lost else ())


@pytest.mark.parametrize("model", [Queue(), UnorderedQueue().to_model()])
def test_lost_dequeues_take_only_missing_elements(model):
    puts = [(Enqueue(n), 2 * n, None, 2 * n + 1) for n in range(12)]
    lost = [(Dequeue(), 30 + n, None, None) for n in range(11)]
    empty = (Dequeue(), 90, None, 91)
    taken = (Dequeue(), 95, 11, 96)
    for rest, expected in (
        ([empty], Result.ILLEGAL),  # twelve elements, eleven dequeues
        ([(Dequeue(), 80, 0, 81), empty], Result.OK),
        ([empty, taken], Result.ILLEGAL),  # the element was in the container all the time
        ([(Dequeue(), 80, 11, 81), empty], Result.OK),
    ):
        operations = numbered(*puts, *lost, *rest)
        outcome = check_operations(model, operations, timeout_s=20)
        assert outcome.result is expected
        proof = certify(model, operations, outcome)
        assert proof is not None
        assert proof.confirmed_by


@pytest.mark.parametrize(("call", "is_legal"), [(9, True), (10, False)])
def test_a_lost_dequeue_takes_only_what_left_after_its_call(call, is_legal):
    operations = numbered(
        (Enqueue(0), 0, None, 1),
        (Enqueue(1), 2, None, 3),
        (Dequeue(), 4, 1, 9),
        (Dequeue(), call, None, None),
    )
    decision = Queue().decide(operations)
    assert decision is not None
    assert (decision.order is not None) == is_legal


def test_times_that_cannot_be_are_refused_before_any_method():
    for call, end in ((5, 4), (float("nan"), 4), (5, float("nan"))):
        with pytest.raises(ValueError, match="time"):
            check_operations(Queue(), [Operation(0, Enqueue(1), call, None, end)])


def test_a_method_that_contradicts_the_operations_is_no_verdict():
    class Wrong(Queue):
        def decide(self, operations: Sequence[Operation[Any, Any]], /) -> Decision:
            ids = tuple(o.id for o in operations)
            legal = operations[-1].output != 1
            return Decision(method="a guess", order=None if legal else ids, core=ids)

    for output in (0, 1):
        operations = numbered(
            (Enqueue(0), 0, None, 1), (Enqueue(1), 2, None, 3), (Dequeue(), 4, output, 5)
        )
        outcome = check_operations(Wrong(), operations)
        with pytest.raises(CertificateError):
            certify(Wrong(), operations, outcome)


def refuted(model: Model[Any, Any, Any], operations: Ops, core: list[int]) -> bool:
    try:
        return verify_core(model, operations, core, steps_max=1_000_000)
    except CertificateError:
        return False


class PlainRegister(Register):
    def blurred(self, core: Any, others: Sequence[Operation[Any, Any]], /) -> Any:
        return others


class PlainMap(KeyValue):
    def blurred(self, core: Any, others: Sequence[Operation[Any, Any]], /) -> Any:
        return others


@pytest.mark.parametrize("origins_max", [64, 1])
def test_states_equal_to_the_core_make_no_difference(origins_max, monkeypatch):
    monkeypatch.setattr(register, "ORIGINS_MAX", origins_max)
    kinds = {"register": (Register(0), PlainRegister(0)), "map": (KeyValue(), PlainMap())}
    tally = Counter[tuple[bool, bool]]()
    for seed in range(1_200):
        rng = random.Random(seed)
        name = rng.choice(sorted(kinds))
        operations = history(name, rng)
        known = [o.id for o in operations if not o.is_unknown]
        if not known:
            continue
        core = sorted(rng.sample(known, rng.randint(1, min(3, len(known)))))
        blurred, plain = (refuted(model, operations, core) for model in kinds[name])
        tally[blurred, plain] += 1
    assert tally[True, False] == 0
    assert tally[True, True] > 100
    if origins_max > 1:
        assert tally[False, True] == 0


@pytest.mark.parametrize("distance", [1, 2, 15, 16, 17, 18, 100])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_chain_of_compare_and_sets_is_proven_however_long(distance, is_lost):
    chain: Ops = [
        Operation(0, Cas(n, n + 1), 10 * n, True, None if is_lost and n % 7 == 3 else 10 * n + 5, n)
        for n in range(120)
    ]
    chain.append(Operation(1, Read(), 1_990, 120, 1_991, 500))
    chain.append(Operation(1, Read(), 2_000, 120 - distance, 2_001, 501))
    decision = Register(0).decide(chain)
    assert decision is not None
    assert decision.order is None
    failure = explain_decision(Register(0), chain, decision, Limits())
    outcome = CheckOutcome(result=Result.ILLEGAL, reason="", failure=failure)
    proof = certify(Register(0), chain, outcome)
    assert proof is not None
    assert proof.confirmed_by
    assert len(proof.core) == 2 or distance > 15
