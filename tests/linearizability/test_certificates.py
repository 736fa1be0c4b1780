"""Every verdict has a valid certificate, and every operation of a core is necessary."""

import random
from dataclasses import replace
from typing import Any

import pytest

from checkers.catalog.linearizable import CatalogLinearizable
from checkers.linearizability import (
    UNKNOWN,
    Certificate,
    CertificateError,
    CheckOutcome,
    Limits,
    Operation,
    Result,
    certify,
    check_operations,
    core,
    proof,
)
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.models.register import Cas, Read, Register, Write
from checkers.linearizability.verify import verify_core
from checkers.registers.linearizable import RegisterLinearizable
from harness.errors import InternalError
from harness.ops import OpType, Verdict
from tests.checkers.catalog.test_linearizable import small_history
from tests.linearizability.test_engine import random_register
from tests.support.histories import Writer

Ops = list[Operation[Any, Any]]


def proven(model: Any, operations: Ops) -> Certificate:
    found = certify(model, operations, check_operations(model, operations))
    assert found is not None
    return found


def test_thousands_of_verdicts_are_proven_and_cores_are_minimal():
    invalid = 0
    for seed in range(500):
        operations = [replace(o, id=n) for n, o in enumerate(random_register(seed))]
        found = proven(Register(0), operations)
        if found.verdict is Result.OK:
            known = [o.id for o in operations if not o.is_unknown]
            assert set(known) <= set(found.orders[0])
            assert sorted((*found.orders[0], *found.never)) == list(range(len(operations)))
            continue
        invalid += 1
        assert found.minimal, seed
        for dropped in found.core:
            rest = [number for number in found.core if number != dropped]
            if rest:
                with pytest.raises(CertificateError, match="has a legal order"):
                    verify_core(Register(0), operations, rest, steps_max=10_000)
    assert 150 < invalid < 350


def stale_read_after(count: int, seed: int = 0) -> Ops:
    """Build `count` operations of four clients, of which the tenth from the end is a stale read."""
    rng = random.Random(seed)
    operations: Ops = []
    value = 0
    for n in range(count):
        if n == count - 10:
            operations.append(Operation(0, Read(), 10 * n, value - 3, 10 * n + 5, n))
        elif rng.random() < 0.5:
            value += 1
            operations.append(Operation(n % 4, Write(value), 10 * n, None, 10 * n + 5, n))
        else:
            operations.append(Operation(n % 4, Read(), 10 * n, value, 10 * n + 5, n))
    return operations


@pytest.mark.parametrize("count", [50, 1_000])
def test_the_core_of_a_long_history_is_small_enough_to_read(count):
    found = proven(Register(0), stale_read_after(count))
    assert found.verdict is Result.ILLEGAL
    assert found.minimal
    assert len(found.core) <= 3
    assert count - 10 in found.core


def test_a_core_says_which_partition_it_is_in():
    operations: Ops = [
        Operation(0, KeyValueInput("put", "x", "a"), 0, None, 1, 0),
        Operation(0, KeyValueInput("put", "y", "b"), 2, None, 3, 1),
        Operation(0, KeyValueInput("get", "y"), 4, "", 5, 2),
    ]
    found = proven(KeyValue(), operations)
    assert (found.core, found.part) == ((1, 2), "partition 1")
    assert proven(KeyValue(partitioned=False), operations).part == "the whole history"


def test_operations_without_ids_are_certified_by_position():
    operations: Ops = [Operation(0, Write(1), 0, None, 1), Operation(0, Read(), 2, 1, 3)]
    assert proven(Register(0), operations).orders == ((0, 1),)
    operations[1] = replace(operations[1], output=2)
    assert proven(Register(0), operations).core == (1,)


def test_an_undecided_outcome_has_no_certificate_and_an_unexplained_one_is_refused():
    operations: Ops = [Operation(0, Read(), 0, 1, 1)]
    assert certify(Register(0), operations, CheckOutcome(result=Result.UNKNOWN, reason="")) is None
    bare = check_operations(Register(0), operations, explained=False)
    with pytest.raises(ValueError, match="explained=True"):
        certify(Register(0), operations, bare)


# --- an outcome whose certificate fails is a crash --------------------------------------------


def test_a_false_outcome_does_not_get_a_certificate():
    good: Ops = [Operation(0, Write(1), 0, None, 1, 0), Operation(0, Read(), 2, 1, 3, 1)]
    bad = [good[0], replace(good[1], output=0)]
    valid = check_operations(Register(0), good)
    invalid = check_operations(Register(0), bad)
    with pytest.raises(CertificateError):
        certify(Register(0), bad, valid)
    with pytest.raises(CertificateError):
        certify(Register(0), good, invalid)
    with pytest.raises(CertificateError, match="there is no order"):
        certify(Register(0), good, replace(valid, witness=None))
    assert invalid.failure is not None
    for change in ({"core": (0,)}, {"core": ()}, {"core": (0, 9)}, {"projection": "name 'x'"}):
        failure = replace(invalid.failure, **change)
        with pytest.raises(CertificateError):
            certify(Register(0), bad, replace(invalid, failure=failure))
    assert issubclass(CertificateError, InternalError)


def test_a_search_that_lies_crashes_the_checker(monkeypatch):
    h = Writer()
    h.ok(0, "write", {"value": 1})
    h.ok(0, "read", {}, {"value": 0})
    lie = CheckOutcome(result=Result.OK, reason="", witness=((0, 2),))
    monkeypatch.setattr("checkers.registers.linearizable.check_operations", lambda *_, **__: lie)
    with pytest.raises(InternalError, match="operation 2 is not legal"):
        RegisterLinearizable().check(h.history, None, time_limit_s=300)


# --- cores too large to enumerate -------------------------------------------------------------


def test_another_search_confirms_large_histories_and_the_certificate_says_so(monkeypatch):
    monkeypatch.setattr(proof, "VERIFIER_STEPS_MAX", 1)
    found = proven(Register(0), stale_read_after(50))
    assert found.confirmed_by == (
        "the depth-first search, since the core is too large to enumerate"
    )
    monkeypatch.setattr(proof, "VERIFIER_CORE_MAX", 0)
    assert proven(Register(0), stale_read_after(50)).confirmed_by == found.confirmed_by


def test_a_core_that_another_search_refutes_is_a_crash(monkeypatch):
    monkeypatch.setattr(proof, "VERIFIER_CORE_MAX", 0)
    operations = stale_read_after(50)
    outcome = check_operations(Register(0), operations)
    assert outcome.failure is not None
    failure = replace(outcome.failure, core=outcome.failure.core[1:])
    with pytest.raises(CertificateError, match="has a legal order, says the depth-first search"):
        certify(Register(0), operations, replace(outcome, failure=failure))


def test_the_whole_history_is_confirmed_where_the_core_is_too_much(monkeypatch):
    def confirm(part: Any, core: Any, limits: Limits, steps: int, end_s: float) -> str:
        return really(part, core, limits, steps, end_s) if len(core) > 10 else ""

    really = proof._confirm
    monkeypatch.setattr(proof, "VERIFIER_CORE_MAX", 0)
    monkeypatch.setattr(proof, "_confirm", confirm)
    operations = stale_read_after(50)
    found = proven(Register(0), operations)
    assert found.core == tuple(o.id for o in operations)
    assert not found.minimal
    assert found.confirmed_by.startswith("the depth-first search")


def test_an_unconfirmed_verdict_is_unknown(monkeypatch):
    monkeypatch.setattr(proof, "VERIFIER_CORE_MAX", 0)
    monkeypatch.setattr(proof, "_confirm", lambda *_: "")
    h = Writer()
    h.ok(0, "write", {"value": 1})
    h.ok(0, "read", {}, {"value": 0})
    result = RegisterLinearizable().check(h.history, None, time_limit_s=300)
    assert result.verdict is Verdict.UNKNOWN
    assert "no independent method could confirm" in result.reason


def test_slow_confirmations_are_abandoned(monkeypatch):
    monkeypatch.setattr(proof, "VERIFIER_CORE_MAX", 0)
    monkeypatch.setattr(proof, "CONFIRM_S_MAX", 0.0)
    assert proven(Register(0), stale_read_after(50)).confirmed_by == ""


def test_a_core_not_proven_minimal_says_so():
    operations = stale_read_after(60)
    outcome = check_operations(Register(0), operations, limits=Limits(shrink_steps=300))
    found = certify(Register(0), operations, outcome)
    assert found is not None
    assert not found.minimal
    assert found.to_json()["minimal"] is False


def test_a_trial_that_is_not_decided_does_not_make_a_core_minimal(monkeypatch):
    operations = stale_read_after(30)
    everything = {o.id for o in operations}
    assert core.find_core(Register(0), operations, everything, 20, Limits()).minimal
    monkeypatch.setattr(core, "LEAN_STEPS", 0)
    monkeypatch.setattr(core, "STEPS_PER_TRIAL", 1)
    found = core.find_core(Register(0), operations, everything, 20, Limits())
    assert not found.minimal
    assert set(found.operations) == everything


# --- certificates in results ------------------------------------------------------------------


def test_results_carry_the_order():
    h = Writer()
    h.ok(0, "write", {"value": 1})
    h.lost(1, "write", {"value": 5})
    h.ok(0, "read", {}, {"value": 1})
    result = RegisterLinearizable().check(h.history, None, time_limit_s=300)
    assert result.details["proof"] == {
        "orders": [[0, 4]],
        "never": [2],
        "confirmed_by": "the verifier, by replay",
    }


def test_results_carry_the_core():
    h = Writer()
    h.ok(0, "write", {"value": 1})
    h.ok(0, "cas", {"old": 1, "new": 2})
    h.call(1, "read")
    h.ret(1, OpType.OK, {"value": 1})
    result = RegisterLinearizable().check(h.history, None, time_limit_s=300)
    assert result.verdict is Verdict.INVALID
    assert result.details["proof"] == {
        "core": [2, 4],
        "minimal": True,
        "part": "the whole history",
        "confirmed_by": "the verifier, by enumeration",
    }
    assert len(result.explanation) <= 12


def test_a_long_order_is_left_out_of_the_result_and_says_so(monkeypatch):
    monkeypatch.setattr(proof, "SHOWN_MAX", 1)
    operations: Ops = [Operation(0, Write(1), 0, None, 1), Operation(0, Write(1), 2, None, 3)]
    shown = proven(Register(0), operations).to_json()
    assert shown["orders_left_out"] == "2 ids are more than 1"


def test_every_catalog_verdict_carries_a_proof():
    invalid = 0
    for seed in range(200):
        result = CatalogLinearizable().check(small_history(seed), None, time_limit_s=300)
        proof = result.details["proof"]
        assert proof["confirmed_by"].startswith("the verifier")
        if result.verdict is Verdict.INVALID:
            invalid += 1
            assert proof["minimal"]
            assert 1 <= len(proof["core"]) <= 8
            assert len(result.explanation) <= 13
    assert 60 < invalid < 140


def test_an_optional_compare_and_set_follows_its_answer():
    operations: Ops = [Operation(0, Cas(1, 4), 0, False, 1, 0), Operation(1, Read(), 2, 4, 3, 1)]
    assert proven(Register(0), operations).core == (1,)
    operations[0] = replace(operations[0], input=Cas(0, 4), output=UNKNOWN, return_time=None)
    assert proven(Register(0), operations).verdict is Result.OK
