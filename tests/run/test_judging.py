"""Judging a run, also with checkers that crash or return unusable results."""

import contextlib

import pytest

from checkers.catalog.linearizable import CatalogLinearizable
from checkers.registers.linearizable import RegisterLinearizable
from harness.case import Case
from harness.errors import CheckerLimitError
from harness.ops import CheckResult, History, Op, OpType, Verdict
from harness.plugins import Checker
from harness.verdict.judge import judge, judge_one, traceback_of, was_limited
from harness.verdict.limits import Limits
from harness.verdict.signature import failure_of
from results.judging.budgets import Budget
from results.judging.verdict_rows import judge_history

CASE = Case(seed=1, target="toy-register", workload="register")


class Scripted(Checker):
    """A checker that behaves as scripted."""

    api_version = 1

    def __init__(self, name, does):
        self.name = name
        self._does = does

    def check(self, history, case, *, time_limit_s):
        return self._does()


def says(verdict, **fields):
    return Scripted(verdict, lambda: CheckResult(verdict, Verdict(verdict), "so it is", **fields))


def raising(error):
    def fail():
        raise error

    return Scripted("failing", fail)


def only(checker):
    (result,) = judge(History(()), CASE, [checker]).results
    return result


@pytest.mark.parametrize("error", [CheckerLimitError("too many states"), ValueError("a defect")])
def test_a_checker_that_gives_up_or_crashes_says_nothing_of_the_target(error):
    result = only(raising(error))
    assert result.verdict is Verdict.UNKNOWN
    assert str(error) in result.reason


class Mute:
    """An error without a message, because its `__str__` raises."""

    def __str__(self):
        raise SystemExit(0)

    __repr__ = __str__


class MuteLimitError(Mute, CheckerLimitError):
    pass


class MuteCrashError(Mute, ValueError):
    pass


@pytest.mark.parametrize("kind", [MuteLimitError, MuteCrashError])
def test_an_unprintable_error_costs_only_its_checker_the_verdict(kind):
    judgement = judge(History(()), CASE, [raising(kind()), says("invalid")])
    assert [result.verdict for result in judgement.results] == ["unknown", "invalid"]
    assert kind.__name__ in judgement.results[0].reason


WRITE = [
    Op(0, 0, 0, OpType.INVOKE, "write", {"value": 1}),
    Op(1, 1, 0, OpType.OK, "write", {}),
]
READ = [Op(2, 2, 0, OpType.INVOKE, "read", {}), Op(3, 3, 0, OpType.OK, "read", {"value": 1})]
LIST = [Op(0, 0, 0, OpType.INVOKE, "list", {}), Op(1, 1, 0, OpType.OK, "list", {"tables": []})]


@pytest.mark.parametrize(
    ("checker", "ops", "verdict"),
    [
        (RegisterLinearizable(), [], Verdict.UNKNOWN),
        (RegisterLinearizable(), WRITE, Verdict.UNKNOWN),
        (RegisterLinearizable(), WRITE + READ, Verdict.VALID),
        (CatalogLinearizable(), [], Verdict.UNKNOWN),
        (CatalogLinearizable(), LIST[:1], Verdict.UNKNOWN),
        (CatalogLinearizable(), LIST, Verdict.VALID),
    ],
)
def test_a_run_without_an_answer_that_could_contradict_proves_nothing(checker, ops, verdict):
    # A plug-in's workload may lack `stats`, which would otherwise also report the doubts.
    (result,) = judge(History(ops), CASE, [checker]).results
    assert result.verdict is verdict
    assert (result.details.get("rule") == "exempt") is (verdict is Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        (("valid", "valid"), "valid"),
        (("valid", "unknown"), "unknown"),
        (("valid", "unknown", "invalid"), "invalid"),
        (("valid", "invalid", "unknown"), "invalid"),
    ],
)
def test_the_worst_verdict_counts_wherever_it_stands(verdicts, worst):
    assert judge(History(()), CASE, [says(verdict) for verdict in verdicts]).verdict == worst


@pytest.mark.parametrize("verdict", ["invalid", "unknown", "valid"])
def test_a_conviction_survives_details_that_cannot_be_stored(verdict):
    result = only(says(verdict, details={"found": object()}))
    assert result.verdict == ("invalid" if verdict == "invalid" else "unknown")
    assert "cannot be stored" in result.reason


class Searching(Scripted):
    """A checker that takes the limits of a search."""

    given = None

    def bounded(self, **given):
        self.given = given
        return self


def test_the_limits_of_a_search_are_given_to_the_checker_that_takes_them():
    checker = Searching("searching", lambda: CheckResult("searching", Verdict.VALID, "found"))
    judge_one(checker, History(()), CASE, Limits())
    assert checker.given is None  # the checker has limits of its own
    judge_one(checker, History(()), CASE, Limits(steps=5, configurations=7))
    assert checker.given == {"steps": 5, "configurations": 7}


class Alarmed(Limits, frozen=True, kw_only=True):
    alarm = True


def spinning():
    while True:
        with contextlib.suppress(Exception):
            sum(range(1000))


@pytest.mark.parametrize(
    ("does", "limits", "reason"),
    [
        (spinning, Alarmed(cpu_s=0.01), "stopped after 0.01 s of CPU, with 1 operation to judge"),
        (MemoryError, Limits(memory_mib=9), "more than 9 MiB of memory for 1 operation"),
        (MemoryError, Limits(), "there was not enough memory"),
        (lambda: CheckerLimitError("too many states"), Limits(), "too many states"),
    ],
)
def test_a_reached_limit_is_unknown_and_marked(monkeypatch, does, limits, reason):
    def fail():
        raise does()

    monkeypatch.setattr("harness.verdict.limits._GRACE_S", 0.01)
    result = judge_one(Scripted("greedy", fail), History(LIST), CASE, limits)
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, f"hit a limit: {reason}")
    assert was_limited(result)
    assert traceback_of(result) is None


def test_a_crash_has_its_traceback():
    result = only(raising(ValueError("a defect")))
    assert "in fail" in traceback_of(result)
    assert not was_limited(result)


def test_unexplained_results_keep_their_verdict(monkeypatch):
    def broken(*_):
        raise RuntimeError("no words")

    monkeypatch.setattr("harness.verdict.judge.explained", broken)
    assert only(says("invalid")).verdict is Verdict.INVALID


def test_a_judgement_that_cannot_be_tempered_convicts_of_nothing(monkeypatch):
    def broken(*_):
        raise RuntimeError("strange facts")

    monkeypatch.setattr("harness.verdict.judge.temper", broken)
    result = only(says("invalid"))
    assert result.verdict is Verdict.UNKNOWN
    assert "strange facts" in result.reason


def test_a_report_has_the_signature_that_the_run_has(monkeypatch):
    table = "0e7fb6aa" * 4
    answer = {"table_id": table, "term": 1}
    ops = [
        Op(0, 0, 0, OpType.INVOKE, "create", {"name": "t"}),
        Op(1, 1, 0, OpType.OK, "create", answer),
    ]
    checker = Scripted(
        "mine", lambda: CheckResult("mine", Verdict.INVALID, f"table {table} was lost", (), (0,))
    )
    judgement = judge(History(ops), CASE, [checker])
    monkeypatch.setattr("results.judging.verdict_rows.checker_named", lambda _: checker)
    row = judge_history("mine", History(ops), CASE, Budget())
    assert row.reason == judgement.results[0].reason == "table 't' (id 0e7fb6…) was lost"
    assert row.signature == failure_of(judgement.results).signature
    assert "table … was lost" in row.signature
