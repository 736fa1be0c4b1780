"""The catalog's model and checker, on hand-written histories and compared with an oracle."""

import random
from dataclasses import replace
from operator import methodcaller as do
from pathlib import Path

import msgspec
import pytest

from checkers.catalog.history import catalog_history
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.models.catalog import Catalog
from checkers.linearizability import UNKNOWN, Limits, Result, check_operations
from checkers.registers.linearizable import RegisterLinearizable
from harness.errors import HistoryError
from harness.ops import CheckResult, History, Op, OpType, Verdict
from tests.checkers.catalog.catalogs import oracle, random_history, spoil
from tests.support.histories import Writer
from tests.support.programs import python

SMALL = Limits(shrink_steps=2_000)


def check(history: History) -> CheckResult:
    return CatalogLinearizable(limits=SMALL).check(history, None, time_limit_s=300)


def small_history(seed: int) -> History:
    rng = random.Random(seed)
    history = random_history(
        seed,
        count=rng.randint(4, 9),
        names=rng.choice([1, 1, 2, 2, 3]),
        processes=rng.randint(2, 4),
        lost=rng.choice([0, 0.2, 0.6]),
        rest=rng.choice([0.2, 1, 4]),
    )
    return spoil(history, rng) if rng.random() < 0.9 else history


@pytest.mark.slow
def test_thousands_of_small_histories_agree_with_the_oracle():
    invalid = refuted = 0
    total = 1_200
    for seed in range(total):
        history = small_history(seed)
        expected = oracle(history)
        result = check(history)
        assert result.verdict is (Verdict.VALID if expected else Verdict.INVALID), seed
        invalid += not expected
        converted = catalog_history(history)
        model = Catalog(converted.operations, converted.bindings)
        for part in model.projections(converted.operations):
            illegal = check_operations(part.model, part.operations).result is Result.ILLEGAL
            refuted += illegal
            assert not (illegal and expected), (seed, part.name)
    assert 0.3 < invalid / total < 0.7
    assert refuted > total / 10


def test_read_only_operations_change_no_reachable_state():
    for seed in range(150):
        history = small_history(seed)
        converted = catalog_history(history)
        if converted.conflicts:
            continue
        model = Catalog(converted.operations, converted.bindings)
        states = {model.init()}
        for _ in range(3):
            for operation in converted.operations:
                for state in sorted(states):
                    for output in (operation.output, UNKNOWN):
                        legal, after = model.step(state, operation.input, output)
                        if legal and model.read_only(operation.input, output):
                            assert after == state
                        if legal and len(states) < 60:
                            states.add(after)


def test_an_unknown_operation_can_do_what_a_known_one_did():
    for seed in range(200):
        converted = catalog_history(small_history(seed))
        lost = [replace(operation, return_time=None) for operation in converted.operations]
        model = Catalog(converted.operations, converted.bindings).for_operations(lost)
        state = model.init()
        for operation in sorted(converted.operations, key=lambda o: o.return_time or 0):
            if operation.is_unknown:
                continue
            legal, after = model.step(state, operation.input, operation.output)
            if not legal:
                continue
            if not model.read_only(operation.input, operation.output):
                _, alike = model.step(state, operation.input, UNKNOWN)
                for name in model.names:
                    there, here = model.table(after, name), model.table(alike, name)
                    assert (there is None) == (here is None)
                    if there is not None and here is not None:
                        assert (there.key, there.chain) == (here.key, here.chain)
                        assert here.late_id in {None, there.late_id}
            state = after


def stretched(history: History) -> History:
    """Swap each completion with the next line if that belongs to another process."""
    ops = list(history)
    for at in range(len(ops) - 1):
        here, following = ops[at], ops[at + 1]
        if here.type is not OpType.INVOKE and following.process != here.process:
            ops[at], ops[at + 1] = following, here
    return History(msgspec.structs.replace(op, index=n) for n, op in enumerate(ops))


def forgetful(history: History) -> History:
    """Drop the answer to the last mutation of some process that does nothing afterwards."""
    ops = list(history)
    last = {op.process: n for n, op in enumerate(ops)}
    for at in sorted(last.values(), reverse=True):
        op = ops[at]
        if op.type is not OpType.INVOKE and op.f in {"create", "alter", "rename", "delete"}:
            ops[at] = msgspec.structs.replace(op, type=OpType.INFO, value=None)
            break
    return History(ops)


def without_reads(history: History) -> History:
    kept = [op for op in history if op.f in {"create", "alter", "rename", "delete"}]
    return History(kept)


@pytest.mark.parametrize("change", [stretched, forgetful, without_reads])
def test_weaker_versions_of_valid_histories_are_valid(change):
    seen = 0
    for seed in range(300):
        history = small_history(seed)
        if check(history).verdict is Verdict.VALID:
            seen += 1
            assert check(change(history)).verdict is Verdict.VALID, seed
    assert seen > 80


@pytest.mark.parametrize("lost", [0.0, 0.05])
def test_long_histories_with_lost_answers_are_decided(lost):
    for seed in range(3):
        history = random_history(seed, count=800, names=5, processes=8, lost=lost)
        assert check(history).verdict is Verdict.VALID


# --- hand-written histories -------------------------------------------------------------------


def test_a_table_that_was_created_and_is_missing_is_explained():
    h = Writer()
    h.create(1, "b", "T1")
    h.create(2, "c", "T2")
    h.get(3, "b", None)
    result = check(h.history)
    assert result.verdict is Verdict.INVALID
    assert result.operations == (4, 0)
    assert result.reason == (
        "not linearizable: Process 3 read table 'b' (op 4, get, 0.004-0.005 s, answered by m1) "
        "and found it missing"
    )
    failing, then, core, rest = result.explanation
    assert failing == (
        "Process 3 read table 'b' (op 4, get, 0.004-0.005 s, answered by m1) and found it missing, "
        "but no order of the operations that respects real time allows it."
    )
    assert then == (
        "By then 'b' must have been table T1 at version 0: process 1 had created it "
        "(op 0, ok at 0.001 s) and nothing changed that in between."
    )
    assert core == (
        "Ops 0 and 4 contradict each other by themselves (a minimal set), "
        "with any outcome of the 0 other changes."
    )
    assert rest == "Process 1 created table 'b' (op 0, create, 0.000-0.001 s, answered by m1)."


def test_a_deleted_table_that_is_seen_again_is_explained():
    h = Writer()
    h.create(1, "b", "T1")
    h.delete(2, "b", "T1")
    h.get(3, "b", "T1")
    result = check(h.history)
    assert result.verdict is Verdict.INVALID
    assert result.operations == (4, 2)
    assert result.explanation[1:] == (
        "Process 2 deleted table 'b' (op 2, delete, 0.002-0.003 s, answered by m1).",
        (
            "But table 'b' (id T1) was deleted and cannot come back: no order of the operations "
            "that respects real time explains these 2 answers."
        ),
    )


def test_a_list_that_leaves_out_a_table_is_explained():
    h = Writer()
    h.create(1, "a", "T1")
    h.create(1, "b", "T2")
    h.ok(2, "list", {}, {"tables": [["a", "T1", 0]]})
    result = check(h.history)
    assert result.verdict is Verdict.INVALID
    assert result.explanation[0].startswith("Process 2 listed the tables (op 4, list,")
    assert "'b' must have been table T2" in result.explanation[1]


def torn_list() -> Writer:
    """Create `c` before deleting `b`, so one of them always exists; yet a list shows neither."""
    h = Writer()
    h.create(1, "b", "T2")
    h.call(2, "list", {})
    h.create(1, "c", "T3")
    h.delete(1, "b", "T2")
    h.ret(2, OpType.OK, {"result": "ok", "tables": []})
    return h


def test_a_list_that_is_no_moment_of_the_whole_catalog_is_found():
    result = check(torn_list().history)
    assert result.verdict is Verdict.INVALID
    assert result.details["failure"]["projection"] == ""
    assert result.operations[0] == 2


def test_one_nonce_that_made_two_tables_is_a_conflict():
    h = Writer()
    h.create(1, "b", "T1")
    h.get(2, "b", "T9", comment="n-T1")
    result = check(h.history)
    assert result.verdict is Verdict.INVALID
    assert result.operations == (0, 2)
    assert "the create with nonce n-T1 made two tables, T1 and T9" in result.explanation[2]


def test_one_id_of_two_creates_is_a_conflict():
    h = Writer()
    h.create(1, "b", "T1")
    h.get(2, "b", "T1", comment="n-other")
    result = check(h.history)
    assert result.verdict is Verdict.INVALID
    assert "table T1 was made by two creates" in result.reason


def test_a_lost_create_that_is_seen_took_effect_and_stays():
    h = Writer()
    lost = h.lost(1, "create", {"name": "b", "nonce": "n-T1", "columns": ["a"]})
    seen = h.get(2, "b", "T1")
    assert check(h.history).verdict is Verdict.VALID
    missed = h.get(3, "b", None)
    result = check(h.history)
    assert result.verdict is Verdict.INVALID
    assert result.operations == (missed, seen)
    assert any(f"(op {lost}, from 0.000 s, whose answer was lost)" in s for s in result.explanation)


def test_a_lost_create_is_seen_by_its_nonce_alone():
    for nonce, verdict in (("n2", Verdict.VALID), ("n3", Verdict.INVALID)):
        h = Writer()
        h.lost(1, "create", {"name": "b", "nonce": "n1", "columns": ["a"]})
        h.lost(2, "create", {"name": "b", "nonce": "n2", "columns": ["a"]})
        h.get(3, "b", "T1", table_id=None, comment=nonce)
        assert check(h.history).verdict is verdict
        h.delete(3, "b", "T1")
        h.get(3, "b", "T2", table_id=None, comment=nonce)
        assert check(h.history).verdict is Verdict.INVALID  # one create cannot make two tables


@pytest.mark.parametrize("nonces", [(7, 8), (7, "8"), (0, 1), ("", "8"), (None, 8)])
def test_nonces_may_be_numbers(nonces):
    h = Writer()
    h.create(1, "b", "T1")
    for number, nonce in enumerate(nonces):
        name, ident = f"c{number}", f"U{number}"
        call = {"name": name, "nonce": nonce, "columns": ["a"]}
        comment = "" if nonce is None else str(nonce)
        if number:
            h.lost(9, "create", call)
        else:
            h.ok(1, "create", call, {"table_id": ident, "schema_version": 0})
        h.get(2, name, ident, comment=comment)
        h.get(2, name, ident, comment=nonce)
        assert check(h.history).verdict is Verdict.VALID
    h.get(2, "c1", "U1", comment="n-T1")
    assert check(h.history).verdict is Verdict.INVALID


def test_ids_may_be_numbers():
    for tables, verdict in (([["b", 0, 0]], Verdict.VALID), ([["b", 1, 0]], Verdict.INVALID)):
        h = Writer()
        h.create(1, "b", "x", table_id=0)
        h.get(1, "b", "x", table_id="0")
        h.ok(2, "list", {}, {"tables": tables})
        h.get(1, "b", "x", table_id=0)
        assert check(h.history).verdict is verdict


def test_an_id_of_an_unseen_create_is_bound_once():
    h = Writer()
    h.lost(1, "create", {"name": "b", "nonce": "n1", "columns": ["a"]})
    h.lost(2, "create", {"name": "b", "nonce": "n2", "columns": ["a"]})
    h.ok(3, "locate", {"name": "b"}, {"table_id": "T7", "schema_version": 0, "tablets": []})
    h.delete(3, "b", "T7")
    assert check(h.history).verdict is Verdict.VALID
    h.ok(3, "locate", {"name": "b"}, {"table_id": "T8", "schema_version": 0, "tablets": []})
    assert check(h.history).verdict is Verdict.VALID
    h.delete(3, "b", "T8")
    h.lost(4, "create", {"name": "b", "nonce": "n3", "columns": ["a"]})
    h.ok(3, "locate", {"name": "b"}, {"table_id": "T7", "schema_version": 0, "tablets": []})
    assert check(h.history).verdict is Verdict.INVALID


def test_failures_without_a_result_and_invalid_steps_say_nothing():
    h = Writer()
    h.create(1, "a", "T1")
    h.fail(2, "delete", {"name": "a", "nonce": "d"}, None)
    h.fail(2, "alter", {"name": "a", "nonce": "x", "steps": [["drop", "zz"]]}, "invalid")
    h.fail(2, "get", {"name": "a"}, None)
    h.get(2, "a", "T1")
    assert check(h.history).verdict is Verdict.VALID


def test_a_list_with_a_name_twice_is_invalid():
    h = Writer()
    h.create(1, "a", "T1")
    h.ok(1, "list", {}, {"tables": [["a", "T1", 0], ["a", "T1", 0]]})
    assert check(h.history).verdict is Verdict.INVALID


def test_two_creates_with_one_nonce_are_refused():
    h = Writer()
    h.fail(1, "create", {"name": "a", "nonce": "x"}, "exists")
    h.fail(1, "create", {"name": "a", "nonce": "x"}, "exists")
    with pytest.raises(HistoryError, match="ops 0 and 2 are both creates with nonce 'x'"):
        check(h.history)


@pytest.mark.parametrize(
    ("f", "asked", "answered", "place"),
    [
        ("truncate", {"name": "a"}, {}, "op 0"),
        ("get", {"nam": "a"}, {}, "op 0"),
        ("get", {"name": 1}, {}, "$.name"),
        ("rename", {"name": "a", "new_name": None}, {}, "$.new_name"),
        ("create", {"name": "a", "columns": "ab"}, {}, "$.columns"),
        ("create", {"name": "a", "columns": [["b"]]}, {}, "$.columns[0]"),
        ("alter", {"name": "a", "steps": ["add"]}, {}, "$.steps[0]"),
        ("get", {"name": "a"}, {"schema_version": "0"}, "$.schema_version"),
        ("get", {"name": "a"}, {"schema_version": True}, "$.schema_version"),
        ("get", {"name": "a"}, {"table_id": ["T"]}, "$.table_id"),
        ("get", {"name": "a"}, {"columns": [1]}, "$.columns[0]"),
        ("list", {}, {"tables": None}, "$.tables"),
        ("list", {}, {"tables": [["a", "T"]]}, "$.tables[0]"),
        ("list", {}, {"tables": [["a", "T", "0"]]}, "$.tables[0][2]"),
        ("list", {}, {"tables": [[1, "T", 0]]}, "$.tables[0][0]"),
    ],
)
def test_values_outside_the_vocabulary_are_refused_with_the_op(f, asked, answered, place):
    h = Writer()
    h.ok(1, f, asked, answered)
    with pytest.raises(HistoryError) as refused:
        check(h.history)
    assert place in str(refused.value)


def test_an_answer_to_something_else_is_refused():
    ops = [
        Op(0, 0, 1, OpType.INVOKE, "get", {"name": "a"}),
        Op(1, 1, 1, OpType.OK, "list", {"tables": []}),
    ]
    with pytest.raises(HistoryError, match="op 1 completes 'list', but op 0"):
        check(History(ops))


def test_the_budget_of_steps_makes_it_unknown():
    history = random_history(1, count=60, names=2, processes=6, lost=0.2)
    result = CatalogLinearizable(limits=Limits(steps=5)).check(history, None, time_limit_s=300)
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "undecided")
    assert "limit of 5 steps" in result.reason


SCRIPT = """
import random
import re
from tests.checkers.catalog.catalogs import random_history, spoil
from checkers.catalog.linearizable import CatalogLinearizable
import msgspec
for seed in (1, 2, 5, 8):
    history = spoil(random_history(seed, count=60, names=3, processes=5), random.Random(seed))
    result = CatalogLinearizable().check(history, None, time_limit_s=60)
    print(msgspec.json.encode(result).decode())
"""


def test_reports_do_not_depend_on_the_hash_seed():
    root = Path(__file__).resolve().parents[3]
    outputs = {
        python(SCRIPT, cwd=root, PYTHONHASHSEED=seed, PYTHONPATH=str(root)) for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert '"invalid"' in next(iter(outputs))


# --- the checker of registers -----------------------------------------------------------------


def check_register(h: Writer) -> CheckResult:
    return RegisterLinearizable().check(h.history, None, time_limit_s=300)


def test_register_known_good():
    h = Writer()
    h.ok(1, "read", {}, {"value": None})
    h.ok(1, "write", {"value": 3})
    h.fail(2, "cas", {"old": 1, "new": 2}, "mismatch")
    h.fail(2, "cas", {"old": 3, "new": 9}, None)
    h.ok(2, "cas", {"old": 3, "new": 4})
    h.lost(3, "write", {"value": 5})
    h.ok(2, "read", {}, {"value": 4})
    h.ok(2, "read", {}, {"value": 5})
    assert check_register(h).verdict is Verdict.VALID


def test_register_stale_read_is_explained():
    h = Writer()
    h.ok(1, "write", {"value": 3})
    h.ok(1, "write", {"value": 4})
    h.ok(2, "read", {}, {"value": 3})
    result = check_register(h)
    assert (result.verdict, result.details["rule"]) == (Verdict.INVALID, "stale-read")
    assert result.operations[0] == 4
    assert set(result.operations) == {0, 2, 4}
    assert "process 2 did read 3 (op 4, read," in result.reason
    assert "by then the register holds 4." in result.explanation[0]


MISMATCH = do("fail", 2, "cas", {"old": 1, "new": 2}, "mismatch")


@pytest.mark.parametrize(
    ("observe", "verdict"),
    [
        (do("ok", 2, "read", {}, {"value": 1}), Verdict.VALID),
        (do("ok", 2, "read", {}, {"value": True}), Verdict.INVALID),
        (MISMATCH, Verdict.INVALID),
    ],
)
def test_register_after_a_write_of_one(observe, verdict):
    h = Writer()
    h.ok(1, "write", {"value": 1})
    observe(h)
    assert check_register(h).verdict is verdict


def test_register_refuses_other_vocabularies():
    h = Writer()
    h.ok(1, "append", {"value": 3})
    with pytest.raises(HistoryError, match="linearizable-register accepts read, write"):
        check_register(h)


CREATE_B, DELETE_A = {"name": "b", "nonce": "x", "columns": []}, {"name": "a", "nonce": "x"}


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ([do("get", 2, "a", None)], "missing"),
        ([do("delete", 2, "a", "A"), do("get", 2, "a", "A")], "stale-read"),
        ([do("fail", 2, "create", CREATE_B, "exists")], "wrong-exists"),
        ([do("fail", 2, "delete", DELETE_A, "not-found")], "wrong-not-found"),
        ([do("create", 2, "a", "B")], "wrong-ack"),
        ([do("get", 2, "a", "B", comment="n-A")], "created-twice"),
    ],
)
def test_an_invalid_result_names_its_rule(steps, rule):
    h = Writer()
    h.create(1, "a", "A")
    h.play(steps)
    result = check(h.history)
    assert (result.verdict, result.details["rule"]) == (Verdict.INVALID, rule)


def test_a_contradiction_knows_tables_by_their_names():
    ident = "0e7fb61158f96b3cc56922432f2d051f"
    h = Writer()
    h.create(1, "t3", ident)
    h.ok(2, "list", {}, {"tables": []})
    h.ok(3, "list", {}, {"tables": [["t3", ident, 0]]})
    last = check(h.history).explanation[-1]
    assert "'t3' (id 0e7fb6" in last
    assert ident not in last
