"""Seeds with the same failure have equal signatures. Other failures have different ones."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ops import HARNESS, NEMESIS, CheckResult, History, Op, OpType, Verdict
from harness.verdict.judge import judge
from harness.verdict.signature import (
    NO_FAULT,
    Failure,
    failure_of,
    rule_of_words,
    sign,
    signature,
)
from tests.tiers import examples

INVOKE, OK, INFO = OpType.INVOKE, OpType.OK, OpType.INFO


class Story:
    """A writer of a history, op by op."""

    def __init__(self):
        self.ops = []

    def _add(self, time, process, kind, f, value=None):
        self.ops.append(Op(len(self.ops), time, process, kind, f, value))
        return len(self.ops) - 1

    def call(self, time, f, process=0):
        return self._add(time, process, INVOKE, f), self._add(time + 1, process, OK, f)

    def inject(self, time, nemesis, fault="f1", *, kind=None, targets=("m1",)):
        value = {"action": "inject", "fault": fault, "targets": list(targets)}
        self._add(time, NEMESIS, INFO, nemesis, value if kind is None else value | {"kind": kind})

    def heal(self, time, nemesis, fault="f1"):
        self._add(time, NEMESIS, INFO, nemesis, {"action": "heal", "fault": fault})

    def fact(self, time, f, value):
        return self._add(time, HARNESS, INFO, f, value)

    @property
    def history(self):
        return History(self.ops)


def result(operations=(), verdict=Verdict.INVALID, reason="why", **details):
    return CheckResult("c", verdict, reason, (), tuple(operations), details)


def test_a_signature_names_checker_rule_fault_and_operations():
    story = Story()
    story.inject(0, "kill-leader", kind="kill")
    _, created = story.call(5, "create")
    story.heal(10, "kill-leader")
    read, _ = story.call(20, "list")
    found = signature(result([read, created], rule="acknowledged"), story.history)
    assert found == "c · acknowledged · kill · create+list"


@pytest.mark.parametrize(
    ("time", "kind"),
    [(5, NO_FAULT), (15, "cut"), (25, "kill"), (35, "cut"), (45, "kill")],
)
def test_the_fault_is_the_last_active_one_or_the_last_before(time, kind):
    story = Story()
    for begin, what, *data in sorted(
        [
            (time, "call"),
            (10, "inject", "partition-leader", "a", "cut"),
            (20, "inject", "kill-leader", "b", "kill"),
            (30, "heal", "kill-leader", "b"),
            (40, "heal", "partition-leader", "a"),
        ],
        key=lambda item: item[0],
    ):
        if what == "call":
            at, _ = story.call(begin, "get")
        elif what == "inject":
            story.inject(begin, data[0], data[1], kind=data[2])
        else:
            story.heal(begin, *data)
    assert signature(result([at], rule="r"), story.history) == f"c · r · {kind} · get"


def test_a_missed_fault_does_not_count_and_old_faults_are_known_by_name():
    story = Story()
    story.inject(0, "kill-leader", targets=())
    at, _ = story.call(1, "get")
    assert NO_FAULT in signature(result([at]), story.history)
    story.inject(3, "pause-leader", "f2")
    at, _ = story.call(5, "get")
    assert " pause " in signature(result([at]), story.history)


@pytest.mark.parametrize(
    ("details", "rule"),
    [
        ({"rule": "stale-read", "by_invariant": {"other": 1}}, "stale-read"),
        ({"by_invariant": {"acknowledged": 2, "ids-not-reused": 1}}, "acknowledged"),
        ({"anomalies": {"G-single": [], "G0": []}}, "G-single"),
        ({"live": {"ok": False}, "converged": {"ok": False}}, "missing"),
        ({"live": {"ok": True}, "converged": {"ok": False}}, "pending"),
        ({"failure": {"operation": 3}}, "no-order"),
        ({}, "why"),
    ],
)
def test_results_of_older_checkers_have_a_rule_too(details, rule):
    assert signature(result(**details), History(())) == f"c · {rule} · {NO_FAULT}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("node m1 ended by itself, code 7", "node m22 ended by itself, code None"),
        ("58 violations, first: the revision went", "9 violations, first: table 't1' was"),
        ("hit a limit: stopped after 3 s", "hit a limit: more than 100 MiB"),
        ("table 83d9969a565317095912c6b669433d4e is lost", "table 0e7fb6aa12 is lost"),
    ],
)
def test_words_of_a_signature_omit_details_that_vary_by_seed(one, other):
    assert rule_of_words(one) == rule_of_words(other)


def test_missing_kinds_of_liveness_are_its_shape():
    story = Story()
    at = story.fact(9, "live", {"ok": False, "missing": ["create", "alter"]})
    found = signature(result([at], live={"ok": False}), story.history)
    assert found == f"c · missing · {NO_FAULT} · alter+create"


def test_a_doubt_about_a_whole_run_names_no_fault():
    story = Story()
    story.inject(0, "kill-leader", kind="kill")
    doubt = result(verdict=Verdict.UNKNOWN, reason="no fault hit anything (and 2 more doubts)")
    assert signature(doubt, story.history) == "c · no fault hit anything"


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(-5, 60)), st.text(), st.dictionaries(st.text(max_size=9), st.none()))
def test_whatever_a_checker_says_has_a_signature(operations, reason, details):
    story = Story()
    for time in range(0, 20, 2):
        story.call(time, "get")
    story.fact(30, "snapshot", None)
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN):
        said = CheckResult("c", verdict, reason, (), tuple(operations), details)
        found = signature(said, story.history)
        assert found.startswith("c · ")
        assert len(found) < 200
        assert "\n" not in found


class _Says:
    name = "c"

    def __init__(self, verdict):
        self._verdict = verdict

    def check(self, history, case, *, time_limit_s):
        return result([0], self._verdict, "why", rule="r")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_judging_signs_results_that_are_not_valid(verdict):
    story = Story()
    story.call(0, "get")
    judgement = judge(story.history, None, [_Says(Verdict.VALID), _Says(verdict)])
    failure = failure_of(judgement.results)
    if verdict.holds:
        assert failure is None
        assert judgement.results == tuple(sign(judgement.results, story.history))
        assert "signature" not in judgement.results[1].details
    else:
        assert failure.signature == f"c · r · {NO_FAULT} · get"
        assert judgement.results[1].details["signature"] == failure.signature


def test_run_json_can_hold_any_failure():
    failure = failure_of([result(reason="why \ud800")])
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure


def test_a_run_without_any_check_is_a_failure():
    assert failure_of(()).signature == "no checker"
