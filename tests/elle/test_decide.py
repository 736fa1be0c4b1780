"""The verdict `valid` requires a proof that the model holds."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from checkers.elle import (
    ElleResult,
    Transaction,
    decide,
    decide_closed_predicate,
    decide_list_append,
    decide_rw_register,
)
from checkers.elle.models import MODELS, NEVER_FOUND, boundary, canonical
from checkers.elle.rules import MEANS, PROVEN_BY, RULES
from checkers.foreign.transactions import RwRegister
from harness.errors import UsageError
from harness.ops import History, ModelSettings, Op, OpType, Verdict
from tests.elle import brute
from tests.elle.histories import concurrent, placed, sequence

EVERYTHING_WRONG = sequence(
    "a x 1", "r x []", "fail:a x 2", "r x [1 2 2 99]", "r x [2 1]", processes="00111"
)
WRONG_REGISTER = sequence(
    "w x 1", "r x nil", "fail:w x 2", "r x 2", "r x 98", "r x 99", processes="001111"
)


def lists(history: list[Transaction], *models: str, **options: Any) -> ElleResult:
    return decide_list_append(history, consistency_models=models, **options)


def registers(history: list[Transaction], *models: str, **options: Any) -> ElleResult:
    return decide_rw_register(history, consistency_models=models, **options)


def test_every_model_has_a_rule_or_is_proven_by_one_that_has():
    settled = {*RULES, *MEANS, *PROVEN_BY}
    assert {canonical(model) for model in MODELS} == settled & {canonical(m) for m in MODELS}
    assert {stronger for every in PROVEN_BY.values() for stronger in every} <= set(RULES)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_no_model_is_valid_of_a_history_with_everything_wrong(model):
    assert lists(EVERYTHING_WRONG, model).verdict is not Verdict.VALID
    weakest = canonical(model) in ("PL-1", "strong-session-PL-1", "strong-PL-1")
    found = registers(WRONG_REGISTER, model)
    assert (found.verdict is Verdict.INVALID) >= (not weakest and canonical(model) in RULES)
    assert found.verdict is not Verdict.VALID


@pytest.mark.parametrize("model", ["read-your-writes", "monotonic-reads", "PRAM", "linearizable"])
def test_a_model_that_nothing_refutes_is_valid_where_a_stronger_one_holds(model):
    stale = sequence("a x 1", "r x []", processes="00")
    fresh = sequence("a x 1", "r x [1]", processes="00")

    assert lists(stale, model).verdict is Verdict.UNKNOWN
    assert lists(stale, model).not_
    assert lists(fresh, model).verdict is Verdict.VALID
    assert any(model in note for note in lists(fresh, model).notes)


SKEW = concurrent("r x [], a y 1", "r y [], a x 1", "r x [1], r y [1]")
FRACTURED = concurrent("a x 1, a y 1", "r x [1], r y []")
SESSION = sequence("w x 1", "w x 2", "r x 1", processes="000")
OVERWRITTEN = concurrent("w y 1, w y 2, r y 1", "r y nil")
TWO_READS = concurrent("w x 1", "w x 2", "r x 1, r x 2")


@pytest.mark.parametrize(
    ("history", "verdicts"),
    [
        # other names of serializability
        (SKEW, {"1SR": "invalid", "view-serializable": "invalid", "snapshot-isolation": "valid",
                "session-serializable": "invalid"}),
        (sequence("a x 1", "r x [1]"),
         dict.fromkeys(("1SR", "view-serializable", "session-serializable"), "valid")),
        # Under snapshot isolation, two appends conflict even if no read shows them.
        (concurrent("r y [], a z 1, a x 1", "r z [], a y 1, a x 2", "r y [1], r z [1]"),
         {"snapshot-isolation": "invalid"}),
        (concurrent("r y [], a z 1, a x 1", "r z [], a y 1, a w 2", "r y [1], r z [1]"),
         {"snapshot-isolation": "valid"}),
        # a search finds fractured reads, which refute `read-atomic` but not the weaker models
        (FRACTURED, {"read-atomic": "invalid", "monotonic-atomic-view": "unknown",
                     "read-committed": "valid"}),
        # A cycle through a later read of a key also refutes the model.
        *((history, dict.fromkeys(("read-committed", "strong-read-committed"), verdict))
          for history, verdict in (
              (concurrent("r y [], a z 1, r y [2]", "a y 2, r z [1]"), "invalid"),
              (concurrent("r y nil, w z 1, r y 2", "w y 2, r z 1"), "invalid"),
              (concurrent("r y nil, w z 1, r y 2", "w y 2, r z nil"), "valid"))),
        # a version that its own transaction later overwrites is not a committed version
        (concurrent("a y 1, a y 2, r y [1]", "a y 3"), {"read-committed": "valid"}),  # as in Elle
        (OVERWRITTEN, {"read-committed": "unknown", "read-atomic": "invalid"}),
        # sessions put the versions of each key in order
        (SESSION, {"strong-session-snapshot-isolation": "invalid", "snapshot-isolation": "valid"}),
        # Weak models judge each version separately.
        (TWO_READS, {"read-committed": "valid", "read-uncommitted": "valid",
                     "serializable": "invalid"}),
    ],
)  # fmt: skip
def test_verdicts_by_model(history, verdicts):
    judge = lists if any(mop[0] == "append" for txn in history for mop in txn.value) else registers
    for model, verdict in verdicts.items():
        found = judge(history, model)
        assert found.verdict.value == verdict, model
        assert (verdict == "invalid") <= bool(found.not_)


# --- rules that the checker once lacked for registers -------------------------------------------


def test_a_future_read_is_found_in_registers_as_in_lists():
    for found in (
        lists(sequence("r x [1], a x 1", "r x [1]"), "read-committed"),
        registers(sequence("r x 1, w x 1", "r x 1"), "read-committed"),
    ):
        assert {"future-read"} <= set(found.anomalies)
        assert found.not_ == ("read-committed",)


@pytest.mark.parametrize(
    ("history", "garbage"),
    [
        (sequence("r x 8", "r x 9", "w x 1"), True),
        (sequence("r x nil", "w x 1", "r x 9"), True),
        (sequence("r x 9", "w x 1", "r x 1"), False),
    ],
)
def test_a_key_has_one_initial_value(history, garbage):
    found = registers(history, "read-committed")
    assert (found.verdict is Verdict.INVALID, "garbage-read" in found.anomalies) == (garbage,) * 2
    assert garbage or "9 from key x, which no transaction wrote" in found.notes[0]


def test_a_value_that_was_never_written_comes_first():
    found = registers(sequence("w x 1", "r x 9"), "strict-serializable")
    assert found.not_ == ("strong-snapshot-isolation",)


def test_a_read_of_the_own_write_loses_no_update():
    built = concurrent("w x 1, r x 1, w x 2", "r x 1, w x 3")  # reads an intermediate value
    assert "lost-update" not in registers(built, "strict-serializable").anomalies
    lost = concurrent("w x 1", "r x 1, w x 2", "r x 1, w x 3")
    assert registers(lost, "cursor-stability").not_ == boundary(["lost-update"]).not_


# --- what models imply, and what only a search can show ------------------------------------------


def test_strict_serializability_implies_linearizable_keys_and_falls_alone():
    stale = placed(("r x nil, w x 1", 0, 2), ("w x 2", 1, 3), ("r x 1", 4, 5))
    found = registers(stale, "strict-serializable")

    assert found.verdict is Verdict.INVALID
    assert found.not_ == ("strong-serializable",)
    assert "linearizable_keys" in found.promised
    assert registers(stale, "serializable").verdict is Verdict.VALID


def test_a_lost_answer_that_was_read_takes_part_and_verifies():
    mops = (
        [["w", "x", 1], ["w", "y", 1]], [["r", "x", 1]], [["w", "x", 2]], [["r", "y", None]]
    )  # fmt: skip
    ops = []
    for process, value in enumerate(mops):
        for kind in (OpType.INVOKE, OpType.OK if process else OpType.INFO):
            ops.append(Op(len(ops), len(ops), process, kind, "txn", value))
    prepared = RwRegister().prepare(History(ops), ModelSettings())
    result, _ = prepared.check(time_limit_s=60, draw=False)

    assert result.verdict is Verdict.INVALID
    assert result.details["proof"]["verified"] == ["G-single-item-realtime"]


def test_an_order_that_no_promise_gives_is_searched_for():
    # Each order of the versions of x contradicts the reads of y and z.
    core = ("w x 1, w y 1", "w x 2, w z 1", "r x 1, r z 1", "r x 2, r y 1")
    history = concurrent(*core, "r x 2", "w y 2", "r z nil")
    found = registers(history, "serializable")

    assert set(found.anomalies) == {"PL-3-cycle-exists"}
    assert found.not_ == ("serializable",)
    assert set(found.anomalies["PL-3-cycle-exists"][0].operations) == {0, 1, 2, 3}
    assert registers(history, "read-committed").verdict is Verdict.VALID


@pytest.mark.parametrize("bound", ["TRANSACTIONS_MAX", "PAIRS_MAX", "STEPS_MAX"])
def test_a_search_that_is_too_large_is_noted(bound, monkeypatch):
    monkeypatch.setattr(f"checkers.elle.infer.orders.{bound}", 0)
    history = concurrent("w x 1, w y 1", "w x 2, w z 1", "r x 1, r z 1", "r x 2, r y 1")

    found = registers(history, "serializable")
    assert found.verdict is Verdict.VALID
    assert found.notes[0].startswith("Not proven")
    atomic = registers(history, "read-atomic")
    assert atomic.verdict is Verdict.VALID
    assert any("implies read-atomic" in note for note in atomic.notes)


def test_predicates_are_decided_by_their_graph():
    history = sequence("w x 1", "r x 1")
    for model, verdict in (("serializable", "valid"), ("linearizable", "valid")):
        found = decide_closed_predicate(history, universe={"x": 0}, consistency_models=(model,))
        assert found.verdict.value == verdict
    stale = sequence("w x 1", "r x 0")
    found = decide_closed_predicate(stale, universe={"x": 0}, consistency_models=("linearizable",))
    assert found.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("anomaly", sorted(NEVER_FOUND))
def test_an_anomaly_that_is_never_looked_for_is_refused(anomaly):
    with pytest.raises(UsageError, match="is not looked for"):
        lists(EVERYTHING_WRONG, "serializable", anomalies=(anomaly,))


def test_anomalies_are_forbidden_beside_models():
    found = lists(SKEW, "snapshot-isolation", anomalies=("G2-item",))
    assert set(found.anomalies) == {"G2-item"}


# --- brute force ---------------------------------------------------------------------------------


def wrong(
    kind: str, seeds: range, models: Sequence[str] = brute.MODELS
) -> list[tuple[int, str, str]]:
    """Return the verdicts that brute force contradicts."""
    found = []
    for seed in seeds:
        history = brute.random_history(random.Random(f"test/{kind}/{seed}"), lists=kind == "lists")
        oracle = brute.Oracle(history, lists=kind == "lists")
        for model in models:
            verdict = (lists if kind == "lists" else registers)(history, model).verdict
            sure = verdict is not Verdict.UNKNOWN
            if sure and oracle.holds(model) != (verdict is Verdict.VALID):
                found.append((seed, model, verdict.value))
    return found


def test_the_oracle_knows_every_model():
    named = {canonical(model) for model in MODELS}
    # Different names of one model count once.
    assert named - {canonical(model) for model in brute.MODELS} == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lists", "registers"])
@pytest.mark.parametrize(
    "seeds",
    [
        *(range(first, first + 15) for first in range(0, 60, 15)),
        pytest.param(range(60, 500), marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_no_verdict_is_wrong(kind, seeds):
    assert wrong(kind, seeds) == []


def test_brute_force_notices_a_broken_search(monkeypatch):
    monkeypatch.setattr(decide, "allowed", lambda *_: True)
    monkeypatch.setattr(decide, "promises_of", lambda _: ())
    models = ("strict-serializable", "strong-snapshot-isolation")
    assert {verdict for _, _, verdict in wrong("registers", range(60), models)} == {"valid"}
