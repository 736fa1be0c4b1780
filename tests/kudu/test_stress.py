"""DDL across elections: the bench for a short time, and what it counts."""

from collections import Counter

import pytest

from bench.stress import ACKNOWLEDGED, ACROSS, ELECTIONS, Met, case_of, claims, met, run
from harness.ops import HARNESS, Attempt, CheckResult, History, Op, OpType, Verdict
from harness.verdict.judge import Judgement

KINDS = ("alter", "create", "delete", "rename")


@pytest.mark.slow
def test_a_short_run_is_valid_and_changes_meet_elections():
    found, judgement = run(case_of(seconds=12.0, seed=2), "sim")
    assert judgement.verdict is Verdict.VALID
    assert found.elections >= 4
    assert min(found.acknowledged[f] for f in KINDS) > 0
    assert found.across.total() > 10
    assert found.across_ok.total() > 0


def history(*ops: Op) -> History:
    return History(ops)


def leader(index: int, term: int) -> Op:
    value = {"node": f"m{term % 3 + 1}", "term": term}
    return Op(index, 10 * index, HARNESS, OpType.INFO, "leader", value)


def invoke(index: int, process: int, f: str = "create") -> Op:
    return Op(index, 10 * index, process, OpType.INVOKE, f, {})


def done(index, process, *sent_at: int, kind=OpType.OK, f="create") -> Op:
    attempts = tuple(Attempt("m1", 10 * at, 10 * at + 1, "ok") for at in sent_at)
    return Op(index, 10 * index, process, kind, f, {}, attempts=attempts)


def test_what_was_sent_before_an_election_and_ended_after_it_met_it():
    found = met(history(leader(0, 1), invoke(1, 1), leader(2, 2), done(3, 1, 1)))
    assert found == Met(1, Counter(create=1), Counter(create=1), Counter(create=1))


@pytest.mark.parametrize("kind", [OpType.FAIL, OpType.INFO])
def test_what_was_not_acknowledged_may_have_met_one(kind):
    found = met(history(leader(0, 1), invoke(1, 1), leader(2, 2), done(3, 1, 1, kind=kind)))
    assert (found.acknowledged.total(), found.across["create"]) == (0, 1)
    assert found.across_ok.total() == 0


@pytest.mark.parametrize(
    "ops",
    [
        [leader(0, 1), leader(1, 2), invoke(2, 1), done(3, 1, 2)],  # began after it
        [leader(0, 1), invoke(1, 1), done(2, 1, 1), leader(3, 2)],  # ended before it
        [leader(0, 1), invoke(1, 1), leader(2, 2), done(4, 1, 3)],  # waited for it
        [leader(0, 1), invoke(1, 1), leader(2, 2), done(3, 1)],  # was never sent
        [leader(0, 1), invoke(1, 1, "get"), leader(2, 2), done(3, 1, 1, f="get")],  # a read
        [leader(0, 2), invoke(1, 1), leader(2, 1), done(3, 1, 1)],  # an older term, heard late
        [leader(0, 1), invoke(1, 1), leader(2, 2)],  # never ended
    ],
)
def test_what_met_none_is_not_counted(ops):
    assert met(history(*ops)).across.total() == 0


def enough() -> Met:
    each = Counter(dict.fromkeys(KINDS, ACROSS))
    acknowledged = Counter(dict.fromkeys(KINDS, ACKNOWLEDGED // len(KINDS)))
    return Met(ELECTIONS, acknowledged, each, each)


def judged(verdict: Verdict) -> Judgement:
    return Judgement((CheckResult(checker="x", verdict=verdict, reason=""),))


def broken(found: Met, verdict: Verdict = Verdict.VALID, where: str = "sim") -> int:
    return sum(not claim.holds for claim in claims(found, judged(verdict), where))


def test_too_little_of_anything_does_not_hold():
    assert broken(enough()) == 0
    few = enough()
    few.acknowledged["alter"] -= 1
    assert (broken(few), broken(few, where="process")) == (1, 0)
    few = enough()
    few.across["rename"] -= 1
    assert broken(few) == 1
    few = Met(ELECTIONS - 1, enough().acknowledged, enough().across, Counter())
    assert (broken(few), broken(few, where="process")) == (1, 0)
    none = Met(0, Counter(), enough().across, Counter())
    assert broken(none, where="process") == 2


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.VALID])
def test_a_history_that_is_not_valid_does_not_hold(verdict):
    assert broken(enough(), verdict) == 1
