"""The verifier of cases with predicate reads confirms true cases and rejects all others."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from checkers.elle import Case, Reason, Step, Transaction, check_closed_predicate
from checkers.elle.infer.predicate_columns import Predicate
from checkers.elle.models import UNKNOWN_TYPES
from checkers.elle.recorded import CaseError, NotVerified, fits
from checkers.elle.verify import predicates as verify_predicates
from checkers.elle.verify.predicates import PredicateVerifier
from checkers.foreign.transactions import ClosedPredicate
from harness.formats.edn.jepsen import load_edn
from harness.ops import CheckResult, ModelSettings, OpType, Verdict
from tests.elle.predicates import LEVELS, at_once, run, timed
from tests.elle.test_predicate_stores import invented
from tests.elle.test_predicates import CASES, SERIAL, STRICT
from tests.elle.test_verify import raw

MODELS = (STRICT, SERIAL)


def outcome(history: list[Transaction], universe: dict[str, int], case: Case) -> str:
    """Verify a case; return "verified", "beyond" (the verifier cannot decide it) or "refused"."""
    try:
        PredicateVerifier(raw(history), [case], universe).verify(case)
    except NotVerified:
        return "beyond"
    except CaseError:
        return "refused"
    return "verified"


def found(history: list[Transaction], universe: dict[str, int]) -> Iterator[Case]:
    for model in MODELS:
        result = check_closed_predicate(history, universe=universe, consistency_models=(model,))
        for name, cases in result.anomalies.items():
            if name not in UNKNOWN_TYPES and not name.endswith("-cycle-exists"):
                yield from cases


# --- true cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_case_of_a_minimal_history_verifies(name):
    history, universe, _, _ = CASES[name]
    told = [(case.type, outcome(history, universe, case)) for case in found(history, universe)]

    assert (name, "verified") in told
    assert {how for _, how in told} == {"verified"}


SINGLE = {
    "G1a": (at_once("fail: w x 2", "rp = 2 {x 2}"), {"x": 1}),
    "G1a of nothing shown": (at_once("fail: d x", "rp true {}"), {"x": 1}),
    "G1a of nil": (at_once("fail: d x", "r x nil"), {"x": 1}),
    "G1b": (at_once("w x 2; w x 3", "r x 2"), {"x": 1}),
    "G1b of nothing shown": (at_once("d x; i x 3", "rp true {}"), {"x": 1}),
    "garbage-read": (at_once("rp true {x 7}"), {"x": 1}),
    "garbage-read of nil": (at_once("r x nil"), {"x": 1}),
    "future-read": (at_once("r x 2; w x 2"), {"x": 1}),
    "future-read by a predicate": (at_once("rp = 2 {x 2}; w x 2"), {"x": 1}),
    "internal": (at_once("w x 2; rp = 2 {}"), {"x": 1}),
    "internal of two reads": (at_once("r x 1; r x 2", "w x 2"), {"x": 1}),
    "internal of a delete": (at_once("d x; r x 1"), {"x": 1}),
    "predicate-read-miss": (at_once("rp mod 2 1 {}", "w x 3"), {"x": 1}),
    "predicate-read-miss of too much": (at_once("rp = 2 {x 1}"), {"x": 1}),
    "lost-update": (at_once("r x 1; w x 2", "r x 1; w x 3"), {"x": 1}),
    "lost-update of nil": (at_once("r x nil; i x 2", "r x nil; i x 3"), {}),
}


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_every_anomaly_that_is_no_cycle_verifies(name):
    history, universe = SINGLE[name]
    told = [(case.type, outcome(history, universe, case)) for case in found(history, universe)]

    assert (name.split(" of ", maxsplit=1)[0].split(" by ", maxsplit=1)[0], "verified") in told
    assert {how for _, how in told} == {"verified"}


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_that_is_found_in_stores_is_refused(level):
    for seed in range(25):
        universe, history = run(
            level, seed, keys="uvwxyzab"[: 3 + seed % 6], once=seed % 2 == 0, lost_answers=0.1
        )
        for case in found(history, universe):
            assert outcome(history, universe, case) == "verified", (seed, case.text)


def test_nothing_that_is_found_in_invented_histories_is_refused():
    told: dict[str, int] = {}
    for seed in range(500):
        universe, history = invented(random.Random(seed))
        for case in found(history, universe):
            how = outcome(history, universe, case)
            told[how] = told.get(how, 0) + 1
            assert how == "verified" or (how, case.type) == ("beyond", "G1b"), (seed, case.text)

    assert told["verified"] > 150


# --- false cases -----------------------------------------------------------------------------

OTHER = {"wr": "wrp", "wrp": "wr", "rw": "rwp", "rwp": "rw", "process": "wr", "realtime": "wrp"}


def altered(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield copies of the case in which one necessary part is changed, with the part's name."""
    yield "type", replace(case, type="G1c" if case.type != "G1c" else "G2")
    yield "operations", replace(case, operations=(*case.operations[:-1], 99))
    yield "twice", replace(case, operations=(*case.operations, *case.operations))
    for at, step in enumerate(case.steps):

        def with_step(*others: Step, at: int = at) -> Case:
            return replace(case, steps=(*case.steps[:at], *others, *case.steps[at + 1 :]))

        yield "step left out", with_step()
        told = step.reason
        if told.relation not in ("process", "realtime"):
            yield "value", with_step(replace(step, reason=replace(told, value="77")))
        if told.relation in ("rw", "rwp"):
            yield "next value", with_step(replace(step, reason=replace(told, next_value="77")))
        yield (
            "relation",
            with_step(replace(step, reason=replace(told, relation=OTHER[told.relation]))),
        )
    if case.steps:
        yield "order", replace(case, operations=case.operations[::-1])
        back = [Step(step.target, step.source, step.reason) for step in reversed(case.steps)]
        yield "backwards", replace(case, operations=tuple(b.source for b in back), steps=(*back,))


@pytest.mark.parametrize("name", sorted(CASES) + sorted(SINGLE))
def test_altered_cases_are_refused(name):
    history, universe = CASES[name][:2] if name in CASES else SINGLE[name]
    for case in found(history, universe):
        for what, other in altered(case):
            assert outcome(history, universe, other) == "refused", (what, case.type)


def cycle(type_: str, *steps: tuple[int, int, str, str, str, str]) -> Case:
    made = [
        Step(source, target, Reason(relation, "", key or None, value or None, after or None))
        for source, target, relation, key, value, after in steps
    ]
    return Case(type_, (), tuple(step.source for step in made), steps=tuple(made))


def single(type_: str, *ops: int) -> Case:
    return Case(type_, (), ops, {"key": "x"})


def back(relation: str, value: str, after: str = "") -> Case:
    """Build a cycle: op 1 precedes op 0 in real time, and `relation` orders op 0 before op 1."""
    name = {"wr": "G1c", "wrp": "G1c", "rw": "G-single-item", "rwp": "G-single"}[relation]
    return cycle(
        f"{name}-realtime", (0, 1, relation, "x", value, after), (1, 0, "realtime", "", "", "")
    )


def late(first: str, second: str, *others: str) -> list[Transaction]:
    """Build a history in which op 1 ends before op 0 begins; all other ops overlap both."""
    return timed((first, 50, 60, 0), (second, 10, 20, 1), *((text, 0, 99, 2) for text in others))


# name -> (case, transactions of a `late` history), with true cases and nearly true ones
BACK = {
    "refused": {
        "wr of another value": ("wr 2", "w x 2", "r x 1"),
        "wr of another's write": ("wr 2", "w x 3", "r x 2", "w x 2"),
        "wr of an own write": ("wr 2", "w x 2", "w x 3; r x 2"),
        "wr of what was overwritten": ("wr 2", "w x 2; w x 3", "r x 2"),
        "wr read by a predicate": ("wr 2", "w x 2", "rp = 2 {x 2}"),
        "wrp read by the key": ("wrp 2", "w x 2", "r x 2"),
        "wrp of nothing shown, of two": ("wrp absent", "d x", "rp = 1 {}", "w x 2"),
        "wrp behind an own write": ("wrp absent", "d x", "w x 2; rp = 1 {}"),
        "wrp of what matches": ("wrp 2", "w x 2", "rp = 1 {}"),
        "rw of nil, of two": ("rw absent 2", "r x nil", "i x 2", "d x"),
        "rw from a later version": ("rw 3 2", "r x 3", "w x 2", "w x 3"),
        "rw told from the first": ("rw 1 2", "r x 3", "w x 2", "w x 3"),
        "rw to what was overwritten": ("rw 1 2", "r x 1", "w x 2; w x 3"),
        "rw to another's": ("rw 1 2", "r x 1", "r x 2", "w x 2"),
        "rwp to what does not match": ("rwp 1 2", "rp = 3 {}", "w x 2"),
        "rwp of what may be another's": ("rwp 1 2", "rp = 2 {}", "w x 2", "w x 3"),
        "rwp by another remainder": ("rwp 1 2", "rp mod 2 1 {x 1}", "w y 2"),
    },
    "verified": {
        "wr": ("wr 2", "w x 2", "r x 2"),
        "wrp": ("wrp 2", "w x 2", "rp = 2 {x 2}"),
        "wrp of nothing shown": ("wrp absent", "d x", "rp = 1 {}"),
        "wrp of nothing shown, but its own later": ("wrp absent", "d x", "rp = 1 {}; w x 2"),
        "rw": ("rw 1 2", "r x 1", "w x 2"),
        "rw of nil": ("rw absent 2", "r x nil", "i x 2"),
        "rwp": ("rwp 1 2", "rp = 2 {}", "w x 2"),
        "rwp of what was shown": ("rwp 1 2", "rp = 1 {x 1}", "w x 2"),
        "rwp by a remainder": ("rwp 1 2", "rp mod 2 0 {}", "w x 2"),
    },
}
# name -> (case about the key x, transactions that overlap)
ALONE = {
    "refused": {
        "G1a of a nil that may be true": ("G1a 1 0", "fail: d x", "r x nil", "d x"),
        "G1a of an ok write": ("G1a 1 0", "w x 2", "r x 2"),
        "G1a of what was overwritten": ("G1a 1 0", "w x 2; w x 3", "r x 2"),
        "G1a of another's": ("G1a 1 2", "fail: w x 2", "r x 2", "fail: w x 3"),
        "G1b of what failed": ("G1b 1 0", "fail: w x 2; w x 3", "r x 2"),
        "G1b of the last write": ("G1b 1 0", "w x 2; w x 3", "r x 3"),
        "garbage that failed": ("garbage-read 1", "fail: w x 2", "r x 2"),
        "garbage of the universe": ("garbage-read 0", "r x 1"),
        "garbage that is written later": ("garbage-read 0", "r x 2; w x 2"),
        "garbage of what was left out": ("garbage-read 0", "rp true {}"),
        "a miss of a value that no transaction wrote": ("predicate-read-miss 0", "rp true {x 7}"),
        "nil before a delete": ("future-read 0", "r x nil; d x"),
        "internal, but deleted": ("internal 0", "d x; r x nil"),
        "internal, but its own does not match": ("internal 0", "w x 2; rp = 3 {}"),
        "internal, but read before it wrote": ("internal 0", "rp true {x 1}; w x 2"),
        "lost by one that did not write": ("lost-update 0 1", "r x 1; w x 2", "r x 1"),
        "a read after the write": ("future-read 0", "w x 2; r x 2"),
        "a miss that may be another's": ("predicate-read-miss 0", "rp = 1 {}", "w x 2"),
        "a miss of its own delete": ("predicate-read-miss 0", "d x; rp = 1 {}"),
        "internal, but not ok": ("internal 0", "info: w x 2; r x nil"),
        "internal, but of another key": ("internal 0", "w x 2; r y 1"),
        "internal, but written between": ("internal 0", "r x 1; w x 2; r x 2; rp = 2 {x 2}"),
        "lost by one alone": ("lost-update 0", "r x 1; w x 2"),
        "lost, but of two versions": ("lost-update 0 1", "r x 1; w x 2", "r x 2; w x 3"),
        "lost, but written first": ("lost-update 0 1", "r x 1; w x 2", "w x 3; r x 3"),
        "lost, but read by a predicate": ("lost-update 0 1", "r x 1; w x 2", "rp = 1 {x 1}; w x 3"),
    },
    "beyond": {
        "G1a or G1b": ("G1b 1 2", "fail: d x", "rp true {}", "d x; i x 3"),
    },
}
OTHERS: dict[str, dict[str, tuple[list[Transaction], Case]]] = {
    "refused": {
        "a step to itself": (
            at_once("r x 1; w x 2"),
            cycle("G-single-item", (0, 0, "rw", "x", "1", "2")),
        ),
        "steps that do not close": (
            late("r x 1", "r y 1", "w x 2"),
            cycle(
                "G-single-item-realtime",
                (0, 2, "rw", "x", "1", "2"),
                (1, 0, "realtime", "", "", ""),
            ),
        ),
        "time that touches": (
            timed(("rp = 2 {}", 20, 60, 0), ("w x 2", 10, 20, 1)),
            back("rwp", "1", "2"),
        ),
        "a failed writer": (
            [late("r x 2", "r x 2")[0], Transaction([["w", "x", 2]], 0, 99, OpType.FAIL, 3)],
            cycle("G1c", (1, 0, "wr", "x", "2", ""), (0, 1, "wr", "x", "2", "")),
        ),
        "an unanswered reader": (
            at_once("info: r x 1; r z 5", "w x 2; w z 5"),
            cycle("G-single-item", (0, 1, "rw", "x", "1", "2"), (1, 0, "wr", "z", "5", "")),
        ),
        "another process": (
            timed(("rp = 2 {}", 50, 60, 0), ("w x 2", 10, 20, 1)),
            cycle("G-single-process", (0, 1, "rwp", "x", "1", "2"), (1, 0, "process", "", "", "")),
        ),
    },
    "verified": {
        "wrp of nothing shown, beside a failed delete": (
            [*late("d x", "rp = 1 {}"), *at_once("fail: d x")],
            back("wrp", "absent", ""),
        ),
        "the same process": (
            timed(("rp = 2 {}", 50, 60, 0), ("w x 2", 10, 20, 0)),
            cycle("G-single-process", (0, 1, "rwp", "x", "1", "2"), (1, 0, "process", "", "", "")),
        ),
    },
}


def nearly() -> Iterator[tuple[str, str, list[Transaction], Case]]:
    for wanted in ("refused", "verified", "beyond"):
        for name, (text, *txns) in BACK.get(wanted, {}).items():
            yield wanted, name, late(*txns), back(*text.split())
        for name, (text, *txns) in ALONE.get(wanted, {}).items():
            type_, *ops = text.split()
            yield wanted, name, at_once(*txns), single(type_, *map(int, ops))
        for name, (history, case) in OTHERS.get(wanted, {}).items():
            yield wanted, name, history, case


BEGINS_EMPTY = ("wrp of what matches", "rw of nil", "rw of nil, of two")


@pytest.mark.parametrize(
    ("wanted", "name", "history", "case"),
    [pytest.param(*row, id=" ".join(row[:2])) for row in nearly()],
)
def test_near_misses_of_cases_are_refused(wanted, name, history, case):
    universe = {} if name in BEGINS_EMPTY else {"x": 1, "y": 1}

    assert outcome(history, universe, case) == wanted


@pytest.mark.parametrize(
    ("name", "kinds", "holds"),
    [
        ("G1c", "wrp wr", True),
        ("G1c-realtime", "process realtime", False),
        ("G0-realtime", "wr realtime", False),
        ("G-single", "rwp wr", True),
        ("G-single-item", "rwp wr", False),
        ("G-single", "rw wrp", False),
        ("G2", "rw rwp", True),
        ("G2-item", "rw rw", True),
        ("G2", "rwp wr rw", True),  # the last and the first edge are adjacent
        ("G-nonadjacent", "rwp wr rw wr", True),
        ("G2-process", "rwp rw process", True),
        ("G2-realtime", "rwp rw process realtime", True),
        ("G1c", "ww wr", False),
    ],
)
def test_meanings_of_cycle_names(name, kinds, holds):
    assert fits(name, kinds.split(), verify_predicates.OF_DATA) is holds


def test_a_value_given_twice_proves_nothing():
    history = at_once("r x 2; w x 2", "w x 2")
    assert outcome(history, {"x": 1}, single("future-read", 0)) == "refused"


def test_the_existence_of_a_cycle_alone_is_beyond_these_means():
    assert outcome([], {}, Case("PL-3-cycle-exists", (), ())) == "beyond"


# --- the verifier within a check -------------------------------------------------------------

PHANTOM = """
{:index 0, :process 0, :type :invoke, :f :init, :value {:bob 7}}
{:index 1, :process 0, :type :ok, :f :init, :value {:bob 7}}
{:index 2, :process 0, :type :invoke, :f :txn, :value [[:rp [:= 1] nil] [:insert :amy 2]]}
{:index 3, :process 1, :type :invoke, :f :txn, :value [[:rp [:= 2] nil] [:insert :joe 1]]}
{:index 4, :process 0, :type :ok, :f :txn, :value [[:rp [:= 1] {}] [:insert :amy 2]]}
{:index 5, :process 1, :type :ok, :f :txn, :value [[:rp [:= 2] {}] [:insert :joe 1]]}
"""


def judged(tmp_path: Path, text: str = PHANTOM) -> CheckResult:
    path = tmp_path / "h.edn"
    path.write_text(text)
    prepared = ClosedPredicate().prepare(load_edn(path), ModelSettings())
    return prepared.check(time_limit_s=60.0, draw=False)[0]


def test_a_verdict_carries_its_certificate(tmp_path):
    result = judged(tmp_path)

    assert result.verdict is Verdict.INVALID
    assert result.explanation[-1] == "Certificate: 1 of 1 cases verified."
    assert result.details["proof"]["verified"] == ["G2"]


def test_a_history_that_declares_no_universe_has_a_certificate(tmp_path):
    result = judged(tmp_path, "\n".join(PHANTOM.strip().splitlines()[2:]))

    assert result.verdict is Verdict.INVALID
    assert result.details["proof"]["verified"] == ["G2"]


def test_a_check_broken_on_purpose_gives_no_verdict(tmp_path, monkeypatch):
    genuine = Predicate.matches
    monkeypatch.setattr(
        Predicate, "matches", lambda self, value: value == 7 or genuine(self, value)
    )
    result = judged(tmp_path)

    assert result.verdict is Verdict.UNKNOWN
    assert "its own certificate does not hold" in result.reason
