"""What becomes of what checkers return, raise or cannot say."""

import pytest

from checkers.linearizable import CatalogLinearizable, RegisterLinearizable
from harness.case import Case
from harness.checking import judge
from harness.errors import CheckerLimitError
from harness.ops import CheckResult, History, Op, OpType, Verdict

CASE = Case(seed=1, target="toy-register", workload="register")


class Checker:
    """Does what it was told."""

    api_version = 1

    def __init__(self, name, does):
        self.name = name
        self._does = does

    def check(self, history, case, *, time_limit_s):
        return self._does()


def says(verdict, **fields):
    return Checker(verdict, lambda: CheckResult(verdict, Verdict(verdict), "so it is", **fields))


def raising(error):
    def fail():
        raise error

    return Checker("failing", fail)


def only(checker):
    (result,) = judge(History(()), CASE, [checker]).results
    return result


@pytest.mark.parametrize("error", [CheckerLimitError("too many states"), ValueError("a defect")])
def test_a_checker_that_gives_up_or_crashes_says_nothing_of_the_target(error):
    result = only(raising(error))
    assert result.verdict is Verdict.UNKNOWN
    assert str(error) in result.reason


class Mute:
    """An error that cannot even say what it is."""

    def __str__(self):
        raise SystemExit(0)

    __repr__ = __str__


class MuteLimitError(Mute, CheckerLimitError):
    pass


class MuteCrashError(Mute, ValueError):
    pass


@pytest.mark.parametrize("kind", [MuteLimitError, MuteCrashError])
def test_an_error_that_cannot_be_told_costs_its_own_checker_the_verdict(kind):
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
    # A workload of a plug-in need not have `stats`, whose doubts would tell.
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
def test_a_conviction_outlives_what_cannot_be_stored_of_it(verdict):
    result = only(says(verdict, details={"found": object()}))
    assert result.verdict == ("invalid" if verdict == "invalid" else "unknown")
    assert "cannot be stored" in result.reason
