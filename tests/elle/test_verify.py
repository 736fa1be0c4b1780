"""The verifier of Elle's cases confirms true cases and rejects all others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkers.elle import Case, Reason, Step, Transaction, check_list_append
from checkers.elle.infer.columns import NEVER, runs
from checkers.elle.models import CYCLE_TYPES, UNKNOWN_TYPES
from checkers.elle.recorded import CaseError, NotVerified, Txn, fits, transactions
from checkers.elle.verdict import certified
from checkers.elle.verify.verify import OF_DATA, Verifier
from checkers.foreign.transactions import ElleListAppend, ElleRwRegister, ListAppend
from harness.ops import History, ModelSettings, Op, OpType, Verdict
from tests.elle.histories import concurrent, placed, sequence
from tests.elle.stores import LEVELS, as_registers, run
from tests.elle.test_every_anomaly import CASES, check

KINDS = {"list": "list-append", "register": "rw-register"}
OPTIONS = ("linearizable_keys", "sequential_keys", "wfr_keys", "transaction_order")


def raw(history: list[Transaction]) -> Iterator[Txn]:
    for number, txn in enumerate(history):
        end = float("inf") if txn.end is None or txn.type is not OpType.OK else txn.end
        yield Txn(number, txn.process, txn.call, end, txn.type.value, txn.value)


def outcome(
    history: list[Transaction], case: Case, kind: str, options: dict[str, Any] | None = None
) -> str:
    """Verify a case; return "verified", "beyond" (the verifier cannot decide it) or "refused"."""
    promised = [name.replace("_", "-") for name in OPTIONS if (options or {}).get(name)]
    try:
        Verifier(raw(history), [case], kind, promised).verify(case)
    except NotVerified:
        return "beyond"
    except CaseError:
        return "refused"
    return "verified"


def cases_of(name: str) -> Iterator[Case]:
    kind, options, history = CASES[name]
    for type_, cases in check(kind, history, **options).anomalies.items():
        if type_ not in UNKNOWN_TYPES:
            yield from cases


# --- true cases ------------------------------------------------------------------------------

BEYOND = {"register/garbage-read", "register/G-single-item, by commit order"}


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_case_of_a_minimal_history_verifies(name):
    kind, options, history = CASES[name]
    found = {outcome(history, case, KINDS[kind], options) for case in cases_of(name)}

    if name != "list/empty-transaction-graph":
        assert found == {"beyond" if name in BEYOND else "verified"}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_found_in_random_histories_is_refused(level, kind):
    options: dict[str, Any] = {}
    if kind == "register":
        options = {"wfr_keys": True, "linearizable_keys": True, "sequential_keys": True}
    for seed in range(12):
        history = run(level, seed)
        history = as_registers(history) if kind == "register" else history
        for type_, cases in check(kind, history, **options).anomalies.items():
            if type_ not in UNKNOWN_TYPES and not type_.endswith("-cycle-exists"):
                for case in cases:
                    assert outcome(history, case, KINDS[kind], options) == "verified", case.text


def test_a_version_order_that_only_a_contradicting_read_shows_is_left_open():
    history = concurrent(
        "a x 1, a y 2", "a x 2, a y 1", "a x 3", "r x [1 3]", "r x [2]", "r y [1 2]", "a x 4"
    )
    found = [(c.type, outcome(history, c, "list-append")) for c in _all(history)]
    told = dict(found)

    assert told.pop("incompatible-order") == "verified"
    assert "refused" not in told.values()
    steps = (
        Step(2, 1, Reason("ww", "", "x", "3", "2")),
        Step(1, 0, Reason("ww", "", "y", "1", "2")),
        Step(0, 2, Reason("ww", "", "x", "1", "3")),
    )
    open_ = Case("G0", (), (2, 1, 0), {}, steps)
    assert outcome(history, open_, "list-append") == "beyond"
    last = replace(steps[0], target=6, reason=replace(steps[0].reason, next_value="4"))
    unseen = Case("G0", (), (2, 6, 0), {}, (last, replace(steps[1], source=6), steps[2]))
    assert outcome(history, unseen, "list-append") == "refused"  # op 6 did not touch y


def _all(history: list[Transaction]) -> list[Case]:
    return [case for cases in check_list_append(history).anomalies.values() for case in cases]


def test_two_longest_reads_that_differ_do_not_prove_one_cycle_together():
    history = concurrent("a x 1", "a x 2", "r x [1 2]", "r x [2 1]")
    steps = (
        Step(0, 1, Reason("ww", "", "x", "1", "2")),
        Step(1, 0, Reason("ww", "", "x", "2", "1")),
    )

    assert outcome(history, Case("G0", (), (0, 1), {}, steps), "list-append") == "refused"


# --- cases about operations or values that are not in the history --------------------------------


def _altered_cycles(case: Case, ops: range) -> Iterator[tuple[str, Case]]:
    steps = case.steps
    for i, step in enumerate(steps):
        fewer = (*steps[:i], *steps[i + 1 :])
        yield "step dropped", replace(case, steps=fewer)
        yield (
            "step and op dropped",
            replace(case, steps=fewer, operations=tuple(s.source for s in fewer)),
        )
        for kind in {"ww", "wr", "rw", "process", "realtime"} - {step.reason.relation}:
            reason = replace(step.reason, relation=kind)
            changed = (*steps[:i], replace(step, reason=reason), *steps[i + 1 :])
            yield f"{step.reason.relation} now {kind}", replace(case, steps=changed)
        for name in ("key", "value", "next_value"):
            told = getattr(step.reason, name)
            if told is not None:
                # a missing value and a nil value mean the same
                for thing in {"x", "y", "1", "2", "9", None if told != "nil" else "9"} - {told}:
                    reason = replace(step.reason, **{name: thing})
                    changed = (*steps[:i], replace(step, reason=reason), *steps[i + 1 :])
                    yield f"{name} now {thing}", replace(case, steps=changed)
        for op in set(ops) - {step.source}:
            moved = {step.source: op}
            renamed = tuple(
                replace(
                    s, source=moved.get(s.source, s.source), target=moved.get(s.target, s.target)
                )
                for s in steps
            )
            there = tuple(s.source for s in renamed)
            yield f"op {step.source} now {op}", replace(case, steps=renamed, operations=there)
    for name in CYCLE_TYPES - {case.type}:
        yield f"now {name}", replace(case, type=name)
    if len(steps) > 2:
        yield "order of steps", replace(case, steps=steps[::-1])


def _altered_others(case: Case, ops: range) -> Iterator[tuple[str, Case]]:
    for i, old in enumerate(case.operations):
        fewer = (*case.operations[:i], *case.operations[i + 1 :])
        # the operations of `cyclic-versions` only illustrate the versions
        if case.type != "cyclic-versions":
            yield "op dropped", replace(case, operations=fewer)
            for op in set(ops) - {old}:
                there = (*case.operations[:i], op, *case.operations[i + 1 :])
                yield f"op {old} now {op}", replace(case, operations=there)
    for name in ("key", "value", "next_value"):
        if name in case.details:
            for thing in {"x", "y", "1", "2", "9", "[1]", None} - {case.details[name]}:
                yield f"{name} now {thing}", replace(case, details={**case.details, name: thing})
    if "values" in case.details:
        for values in (["1", "9"], ["1"], ["nil", "1"]):
            yield f"values {values}", replace(case, details={**case.details, "values": values})
        sources = {**case.details, "sources": ["initial-state"]}
        yield "fewer sources", replace(case, details=sources)
        unpromised = {**case.details, "sources": [*case.details["sources"], "wfr-keys"]}
        yield "unpromised sources", replace(case, details=unpromised)
    for name in ("G1a", "G1b", "internal", "lost-update", "dirty-update", "duplicate-elements"):
        if name != case.type:
            yield f"now {name}", replace(case, type=name)


@pytest.mark.parametrize("name", sorted(set(CASES) - BEYOND))
def test_altered_cases_are_refused(name):
    kind, options, history = CASES[name]
    for case in cases_of(name):
        alter = _altered_cycles if case.steps else _altered_others
        for what, altered in alter(case, range(len(history) + 1)):
            told = outcome(history, altered, KINDS[kind], options)
            assert told != "verified", (case.type, what)


@pytest.mark.parametrize("name", sorted(set(CASES) - BEYOND))
def test_without_the_promise_nothing_is_derived_from_it(name):
    kind, options, history = CASES[name]
    if kind == "register" and any(options.get(flag) for flag in OPTIONS):
        told = [outcome(history, case, "rw-register") for case in cases_of(name)]
        assert "refused" in told


def cycle(type_: str, text: str) -> Case:
    """Parse "0 ww 1 x 1 2, 1 realtime 0" into the case of a cycle; "-" means no value."""
    steps = []
    for source, kind, target, *told in (step.split() for step in text.split(", ")):
        data = [None if thing == "-" else thing for thing in told]
        steps.append(Step(int(source), int(target), Reason(kind, "", *data)))
    return Case(type_, (), tuple(step.source for step in steps), {}, tuple(steps))


LINEAR = {"linearizable_keys": True}
# name -> (history, kind, promises, type, steps, a history with one change that makes the case true)
NEARLY = {
    "failed writer": (
        *(concurrent("fail:a x 1, a y 2", "a x 2, a y 1", "r x [1 2]", "r y [1 2]"), "list", {}),
        *("G0", "0 ww 1 x 1 2, 1 ww 0 y 1 2"),
        concurrent("info:a x 1, a y 2", "a x 2, a y 1", "r x [1 2]", "r y [1 2]"),
    ),
    "other process": (
        *(sequence("a x 2", "a x 1", "r x [1 2]", processes="012"), "list", {}),
        *("G0-process", "0 process 1, 1 ww 0 x 1 2"),
        sequence("a x 2", "a x 1", "r x [1 2]", processes="002"),
    ),
    "overlapping": (
        *(placed(("a x 2", 0, 5), ("a x 1", 4, 9), ("r x [1 2]", 1, 9)), "list", {}),
        *("G0-realtime", "0 realtime 1, 1 ww 0 x 1 2"),
        placed(("a x 2", 0, 3), ("a x 1", 4, 9), ("r x [1 2]", 1, 9)),
    ),
    "the history does not say when it ended": (
        *(sequence("info:a x 2", "a x 1", "r x [1 2]"), "list", {}),
        *("G0-realtime", "0 realtime 1, 1 ww 0 x 1 2"),
        sequence("a x 2", "a x 1", "r x [1 2]"),
    ),
    "not the last element": (
        *(concurrent("a x 1, r y [1]", "a y 1, r x [1 2]", "a x 2"), "list", {}),
        *("G1c", "0 wr 1 x 1, 1 wr 0 y 1"),
        concurrent("a x 1, r y [1]", "a y 1, r x [1]", "a x 2"),
    ),
    "read by an unknown": (
        *(concurrent("a x 1, r y [1]", "info:a y 1, r x [1]"), "list", {}),
        *("G1c", "0 wr 1 x 1, 1 wr 0 y 1"),
        concurrent("a x 1, r y [1]", "a y 1, r x [1]"),
    ),
    "unseen, but not after the last": (
        *(concurrent("a x 1, r y [1]", "a y 1, a x 2", "r x [1 3]", "a x 3"), "list", {}),
        *("G1c", "0 ww 1 x 1 2, 1 wr 0 y 1"),
        concurrent("a x 1, r y [1]", "a y 1, a x 2", "r x [1]"),
    ),
    "not its successor": (
        *(concurrent("r x [1], a y 1", "r y [], a x 3", "a x 1", "a x 2", "r x [1 2 3]"), "list"),
        *({}, "G2-item", "0 rw 1 x 1 3, 1 rw 0 y - 1"),
        concurrent("r x [1], a y 1", "r y [], a x 3", "a x 1", "a x 2", "r x [1 3]"),
    ),
    "own append of a list": (
        *(concurrent("a x 1, r x [1]"), "list", {}, "G1c", "0 wr 0 x 1"),
        None,
    ),
    "write passed over": (
        *(concurrent("w x 1, w x 2, r y 1", "w y 1, r x 1"), "register", {}),
        *("G1c", "0 wr 1 x 1, 1 wr 0 y 1"),
        concurrent("w x 1, r y 1", "w y 1, r x 1"),
    ),
    "read after own write": (
        *(concurrent("w x 1, r y 1", "w y 1, w x 2, r x 1"), "register", {}),
        *("G1c", "0 wr 1 x 1, 1 wr 0 y 1"),
        concurrent("w x 1, r y 1", "w y 1, r x 1, w x 2"),
    ),
    "nil read after own write": (
        *(concurrent("w x 2, r x nil, w y 1", "r y nil, w x 1"), "register", {}),
        *("G2-item", "0 rw 1 x nil 1, 1 rw 0 y nil 1"),
        concurrent("r x nil, w x 2, w y 1", "r y nil, w x 1"),
    ),
    "overwritten before it was over": (
        *(concurrent("r x nil, w y 1", "r y nil, w x 1, w x 2"), "register", {}),
        *("G2-item", "0 rw 1 x nil 1, 1 rw 0 y nil 1"),
        concurrent("r x nil, w y 1", "r y nil, w x 1"),
    ),
    "versions that overlap": (
        *(placed(("w x 1, w y 2", 0, 9), ("w x 2, w y 1", 1, 9), ("r x 1", 2, 5), ("r x 2", 4, 8),
                 ("r y 1", 2, 3), ("r y 2", 4, 5)), "register", LINEAR),
        *("G0", "0 ww 1 x 1 2, 1 ww 0 y 1 2"),
        placed(("w x 1, w y 2", 0, 9), ("w x 2, w y 1", 1, 9), ("r x 1", 2, 3), ("r x 2", 4, 8),
               ("r y 1", 2, 3), ("r y 2", 4, 5)),
    ),
    "before itself": (
        *(placed(("w x 1", 0, 1), ("r x 1", 5, 6)), "register", LINEAR),
        *("G-single-item", "0 wr 1 x 1, 1 rw 0 x 1 1"),
        None,
    ),
    "unknown writer of a register": (
        *(sequence("info:w x 1, w y 2", "w x 2, w y 1", "r y 1", "r y 2"), "register"),
        *(LINEAR, "G0", "0 ww 1 x 1 2, 1 ww 0 y 1 2"),
        sequence("w x 1, w y 2", "w x 2, w y 1", "r y 1", "r y 2"),
    ),
    "writes that follow reads, unpromised": (
        *(concurrent("r y 1, w x 1, w y 2", "r x 1, w x 2, w y 1"), "register"),
        *({"linearizable_keys": True, "sequential_keys": True}, "G0"),
        *("0 ww 1 x 1 2, 1 ww 0 y 1 2", None),
    ),
    "real time, unpromised": (
        *(sequence("w x 1, w y 2", "r x 1", "w x 2, w y 1", "r y 1", "r y 2"), "register"),
        *({"wfr_keys": True, "sequential_keys": True}, "G0"),
        *("0 ww 2 x 1 2, 2 ww 0 y 1 2", None),
    ),
    "sessions, unpromised": (
        *(sequence("w x 1, w y 2", "r x 1", "w x 2, w y 1", "r y 1", "r y 2", processes="00000"),
          "register"),
        *({"wfr_keys": True}, "G0", "0 ww 2 x 1 2, 2 ww 0 y 1 2", None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEARLY)
def test_near_cycles_are_refused(name):
    history, kind, options, type_, text, holds = NEARLY[name]
    case = cycle(type_, text)

    assert outcome(history, case, KINDS[kind], options) == "refused"
    if holds is not None:
        assert outcome(holds, case, KINDS[kind], options) == "verified"


@pytest.mark.parametrize(
    ("name", "kinds", "holds"),
    [
        ("G0", "ww ww", True),
        ("G0", "ww wr", False),
        ("G1c", "ww wr", True),
        ("G1c", "ww ww", False),
        ("G1c", "wr rw", False),
        ("G-single-item", "rw", True),
        ("G-single-item", "rw wr ww", True),
        ("G-single-item", "rw wr rw ww", False),
        ("G-nonadjacent-item", "rw wr rw ww", True),
        ("G-nonadjacent-item", "rw wr ww rw", False),
        ("G2-item", "rw wr ww rw", True),
        ("G2-item", "rw wr rw ww", False),
        ("G2-item", "rw ww", False),
        ("G0-process", "ww process", True),
        ("G0-process", "ww ww", False),
        ("G0-process", "ww realtime", False),
        ("G0-realtime", "ww process realtime", True),
        ("G0", "ww realtime", False),
        ("G0", "ww so", False),
        ("G-single", "rw ww", False),
    ],
)
def test_meanings_of_cycle_names(name, kinds, holds):
    assert fits(name, kinds.split(), OF_DATA) is holds


# name -> (history, case with its operations, values); each case is nearly a true one
SINGLE = {
    "committed": ("a x 1|r x [1]", "G1a 1 0", "x 1"),
    "unseen": ("fail:a x 1|r x [2]|a x 2", "G1a 1 0", "x 1"),
    "unknown": ("info:a x 1|r x [1]", "G1a 1 0", "x 1"),
    "last": ("a x 1, a x 2|r x [1 2]", "G1b 1 0", "x 2"),
    "passed": ("a x 1, a x 2|r x [1 2]", "G1b 1 0", "x 1"),
    "other key": ("a x 1, a y 2|r x [1]", "G1b 1 0", "x 1"),
    "written": ("fail:a x 1|r x [1]", "garbage-read 1", "x 1"),
    "once": ("a x 1|r x [1]", "duplicate-elements 1", "x 1"),
    "prefix": ("r x [1]|r x [1 2]", "incompatible-order 0 1", "x"),
    "nothing": ("r x []|r x [1 2]", "incompatible-order 0 1", "x"),
    "between": ("fail:a x 1|a x 2|a x 3|r x [1 2 3]", "dirty-update 0 2", "x 1 3"),
    "before": ("fail:a x 1|a x 2|r x [2 1]", "dirty-update 0 1", "x 1 2"),
    "not failed": ("info:a x 1|a x 2|r x [1 2]", "dirty-update 0 1", "x 1 2"),
    "not committed": ("fail:a x 1|info:a x 2|r x [1 2]", "dirty-update 0 1", "x 1 2"),
    "own": ("r x [1], a x 2, r x [1 2]|a x 1", "internal 0", "x"),
    "own alone": ("a x 2, r x [1 2]|a x 1", "internal 0", "x"),
    "same nil": ("r x nil, r x nil", "internal 0", "x"),
    "read after": ("a x 1, r x [1]", "future-read 0", "x 1"),
    "no write": ("r x [0], a x 1|r x [0]|a x 0", "lost-update 0 1", "x [0]"),
    "others": ("r x [0], a x 1|r x [0 1], a x 2|a x 0", "lost-update 0 1", "x [0]"),
    "write first": ("a x 1, r x [1]|a x 2, r x [1]", "lost-update 0 1", "x [1]"),
    "twice": ("fail:a x 1|a x 1|r x [1]", "G1a 2 0", "x 1"),
}


@pytest.mark.parametrize("name", SINGLE)
def test_near_misses_of_anomalies_are_refused(name):
    text, about, values = SINGLE[name]
    type_, *ops = about.split()
    details = dict(zip(("key", "value", "next_value"), values.split(), strict=False))
    case = Case(type_, (), tuple(map(int, ops)), details)

    assert outcome(concurrent(*text.split("|")), case, "list-append") == "refused"


def test_versions_in_one_order_are_not_cyclic():
    details = {"key": "x", "values": ["1", "2"], "sources": ["initial-state", "sequential-keys"]}
    for values in (["1", "2"], ["2", "1"]):
        case = Case("cyclic-versions", (), (0, 1), {**details, "values": values})
        history = sequence("w x 1", "w x 2", processes="00")
        assert outcome(history, case, "rw-register", {"sequential_keys": True}) == "refused"


def test_a_path_into_cyclic_versions_is_not_cyclic_itself():
    history = sequence("w x 9", "w x 1", "w x 2", "r x 1", "w x 8", processes="00000")
    told = {}
    for other in ("2", "8", "9"):
        details = {"key": "x", "values": ["1", other], "sources": ["sequential-keys"]}
        case = Case("cyclic-versions", (), (0,), details)
        told[other] = outcome(history, case, "rw-register", {"sequential_keys": True})
    assert told == {"2": "verified", "8": "refused", "9": "refused"}


def test_things_that_print_alike_are_not_the_same():
    read = Transaction([["r", "x", ["1"]]], 0, 10)
    wrote = Transaction([["append", "x", 1]], 1, 11, OpType.FAIL, 1)
    case = Case("G1a", (), (0, 1), {"key": "x", "value": "1"})

    assert outcome([read, wrote], case, "list-append") == "refused"
    alike = replace(wrote, value=[["append", "x", "1"]])
    assert outcome([read, alike], case, "list-append") == "verified"


# --- the verifier within a check -------------------------------------------------------------


def recorded(history: list[Transaction]) -> History:
    events = [(txn.call, 0, n) for n, txn in enumerate(history)]
    events += [(txn.end, 1, n) for n, txn in enumerate(history) if txn.end is not None]
    ops = []
    for index, (_, done, number) in enumerate(sorted(events)):
        txn = history[number]
        kind = txn.type if done else OpType.INVOKE
        ops.append(Op(index, index, txn.process, kind, "txn", [list(mop) for mop in txn.value]))
    return History(ops)


# B reads while A is still running; C completes before B begins.
SOUND = placed(("a x 1", 0, 9), ("r y []", 1, 2), ("r x []", 3, 4))


def test_a_check_broken_on_purpose_gives_no_verdict(monkeypatch):
    history = recorded(SOUND)
    plugin = ElleListAppend().check(history, None, time_limit_s=300)
    assert plugin.verdict is Verdict.VALID

    def at_once(calls: Any, ends: Any, ok: Any) -> Any:
        start, end = runs(calls, ends, ok)
        return start, np.where(end != NEVER, start, end)

    monkeypatch.setattr("checkers.elle.infer.columns.runs", at_once)
    assert check_list_append(history).verdict is Verdict.INVALID
    plugin = ElleListAppend().check(history, None, time_limit_s=300)
    model, drawn = ListAppend().prepare(history, ModelSettings()).check(time_limit_s=300, draw=True)
    for result in (plugin, model):
        assert result.verdict is Verdict.UNKNOWN
        assert result.reason.startswith("the check crashed: its own certificate does not hold")
        assert "G-single-item-realtime: nothing puts op" in result.reason
        assert not result.details["not"]
        assert not result.details["anomalies"]
        assert "proof" not in result.details
    assert drawn is None


def test_underivable_cases_keep_their_verdict_and_say_so():
    history = recorded(CASES["list/G0"][2])
    result = check_list_append(history)
    bare = Case("PL-1-cycle-exists", ("There is a cycle.",), (), {"transactions": 2})
    after, proof = certified(
        replace(result, anomalies={bare.type: (bare,)}), history, "list-append"
    )

    assert after.verdict is Verdict.INVALID
    assert after.not_ == result.not_
    assert proof is not None
    assert proof["verified"] == []
    assert list(proof["not_verified"]) == ["PL-1-cycle-exists"]
    assert proof["text"].startswith("0 of 1 cases verified; by themselves they refute none")
    both = {bare.type: (bare,), **result.anomalies}
    after, proof = certified(replace(result, anomalies=both), history, "list-append")
    assert after.verdict is Verdict.INVALID
    assert proof is not None
    assert proof["text"] == "1 of 2 cases verified"


def test_a_verified_case_need_not_refute_the_weakest_model():
    history = recorded(CASES["list/G2-item"][2])
    result = check_list_append(history)
    bare = Case("PL-1-cycle-exists", ("There is a cycle.",), (), {"transactions": 2})
    told = replace(
        result, anomalies={**result.anomalies, bare.type: (bare,)}, not_=("read-uncommitted",)
    )

    after, proof = certified(told, history, "list-append")
    assert after.verdict is Verdict.INVALID
    assert proof is not None
    assert "only the whole check does" in proof["text"]


def test_verdicts_carry_their_certificate():
    history = recorded(CASES["list/lost-update"][2])
    plugin = ElleListAppend().check(history, None, time_limit_s=300)
    model, _ = ListAppend().prepare(history, ModelSettings()).check(time_limit_s=300, draw=False)
    for result in (plugin, model):
        assert result.verdict is Verdict.INVALID
        assert result.details["proof"]["text"] == "2 of 2 cases verified"
        assert result.details["proof"]["verified"] == ["G2-item", "lost-update"]
    assert model.explanation[-1] == "Certificate: 2 of 2 cases verified."


@pytest.mark.parametrize("flag", ["linearizable_keys", "sequential_keys", "wfr_keys"])
def test_the_verifier_gets_the_declared_guarantees(flag):
    history = {
        "linearizable_keys": sequence("w x 1", "w x 2", "r x 1"),
        "sequential_keys": sequence("w x 1", "w x 2", "r x 1", processes="000"),
        "wfr_keys": concurrent("w x 1, w y 1", "r x 1, w x 2, w y 2", "r x 2, r y 1, w y 3",
                               "r x 1, r y 3"),
    }[flag]  # fmt: skip
    flags: dict[str, Any] = {flag: True}
    result = ElleRwRegister(**flags).check(recorded(history), None, time_limit_s=300)

    assert result.verdict is Verdict.INVALID
    assert result.details["proof"]["not_verified"] == {}


def test_a_history_of_runs_is_read_as_recorded():
    history = recorded(concurrent("a x 1", "fail:a x 2", "info:a x 3"))
    found = list(transactions(history))

    assert [(t.type, t.process, t.call) for t in found] == [
        ("ok", 0, 0),
        ("fail", 1, 1),
        ("info", 2, 2),
    ]
    assert [t.end for t in found] == [3, float("inf"), float("inf")]
    assert [t.index for t in found] == [0, 1, 2]
