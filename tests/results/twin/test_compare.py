"""The comparison of two targets, on runs whose differences are known."""

import msgspec
import pytest

from harness.ops import CheckResult, ScheduledOp, Verdict
from harness.plugins import KnownDifference
from results.twin.observed import NEVER_SENT
from results.twin.rows import Mark
from results.twin.text import headline, text_of
from results.twin.verb import exit_code_of
from tests.results.twin.made import OK, run, twin

SEEDS = (1, 2, 3)
EXISTS = ("refused", "TABLE_ALREADY_PRESENT/ALREADY_PRESENT")


def every(step, answer):
    """Return a function of an operation's number: every `step`th gets `answer`, others get ok."""
    return lambda number: answer if number % step == 0 else OK


def runs(answers, **options):
    return [run(answers, seed=seed, **options) for seed in SEEDS]


def names(made, mark):
    return {row.name for _, row in made.rows(mark)}


def test_equal_targets_have_no_marks():
    side = runs(every(4, EXISTS), fault_every_s=6)
    made = twin(side, side)
    assert {row.mark for row in made.cases[0].rows} <= {Mark.SAME, Mark.NOT_TESTED}
    assert exit_code_of(made) == 0
    assert made.compared > 5
    assert headline(made).startswith("no difference shown")


def test_another_code_for_the_same_refusal_differs_on_both_rows_and_nowhere_else():
    other = ("refused", "UNKNOWN_ERROR/INVALID_ARGUMENT")
    made = twin(runs(every(4, EXISTS)), runs(every(4, other)))
    assert names(made, Mark.DIFFERS) == {
        "message/create/TABLE_ALREADY_PRESENT/ALREADY_PRESENT",
        "message/create/UNKNOWN_ERROR/INVALID_ARGUMENT",
    }
    assert exit_code_of(made) == 1
    (row,) = [row for _, row in made.unexplained if row.name.endswith("INVALID_ARGUMENT")]
    assert row.samples[0] == ""
    assert row.samples[1].startswith("UNKNOWN_ERROR/INVALID_ARGUMENT: in words")
    assert (row.left.hits, row.left.of, row.right.hits, row.right.of) == (0, 720, 180, 720)


def test_another_rate_of_the_same_outcome_differs():
    made = twin(runs(every(2, EXISTS)), runs(every(4, EXISTS)))
    assert {"outcome/create/ok", "outcome/create/refused"} <= names(made, Mark.DIFFERS)


def test_a_code_that_only_one_run_shows_once_is_too_rare_and_no_difference():
    left = runs(every(4, EXISTS))
    right = [run(lambda n: ("failed", "X/Y") if n == 7 else every(4, EXISTS)(n)), *left[1:]]
    made = twin(left, right)
    assert names(made, Mark.DIFFERS) == set()
    assert names(made, Mark.ONE_SIDED) == set()
    assert names(made, Mark.RARE) == {"message/create/X/Y", "outcome/create/failed"}
    assert exit_code_of(made) == 0


def test_a_burst_of_failures_in_one_block_is_no_difference_of_rates():
    left = runs(every(4, EXISTS))
    burst = run(lambda n: ("failed", "X/Y") if n < 50 else every(4, EXISTS)(n))
    made = twin(left, [burst, *left[1:]])
    assert names(made, Mark.DIFFERS) == set()
    assert "message/create/X/Y" in names(made, Mark.RARE)


def test_one_run_tells_no_difference_of_times_but_its_blocks_tell_one_of_rates():
    made = twin([run(every(2, EXISTS))], [run(every(50, EXISTS))])
    assert "outcome/create/refused" in names(made, Mark.DIFFERS)
    short = twin([run(every(2, EXISTS), fault_every_s=20)], [run(OK_ONLY, fault_every_s=20)])
    assert not any(name.startswith("failover") for name in names(short, Mark.DIFFERS))


def OK_ONLY(_number):  # noqa: N802 - an answer like the constants
    return OK


def test_longer_failovers_and_elections_differ():
    left = runs(OK_ONLY, fault_every_s=6, down_ms=1000, led_after_ms=900)
    right = runs(OK_ONLY, fault_every_s=6, down_ms=4500, led_after_ms=4400)
    assert names(twin(left, right), Mark.DIFFERS) >= {
        "failover/kill-leader",
        "election/kill-leader",
        "outage/mutation",
    }


def test_faults_and_heals_before_the_same_change_count_once():
    """Faults come each second and last three, but nothing is acknowledged for the first ten."""
    late = run(lambda n: OK if n > 120 else ("failed", "X/Y"), fault_every_s=1)
    assert late.times["failover/kill-leader"][0] == 10_111_000_000
    assert len(late.times["failover/kill-leader"]) == 12
    assert late.times["recovery/kill-leader"][0] == 7_111_000_000
    steady = run(OK_ONLY, fault_every_s=1)
    assert len(steady.times["failover/kill-leader"]) == 22


@pytest.mark.parametrize(("later_ms", "differs"), [(900, False), (3500, True)])
def test_a_leader_that_is_asked_for_may_be_a_second_older(later_ms, differs):
    left = runs(OK_ONLY, fault_every_s=6, led_after_ms=900)
    right = runs(OK_ONLY, fault_every_s=6, led_after_ms=900 + later_ms, asked=True)
    made = twin(left, right)
    assert ("election/kill-leader" in names(made, Mark.DIFFERS)) is differs
    announced = runs(OK_ONLY, fault_every_s=6, led_after_ms=900 + later_ms)
    assert "election/kill-leader" in names(twin(left, announced), Mark.DIFFERS)


def test_permits_and_verdicts_of_one_side_are_too_rare_in_three_runs_and_differ_in_eight():
    stale = CheckResult(
        "linearizable-catalog", Verdict.PERMITTED, "", details={"permitted": {"stale-read": 2}}
    )
    expected = {"permit/stale-read", "verdict/linearizable-catalog permitted"}
    left, right = (
        [run(OK_ONLY, seed=seed, results=results) for seed in range(8)]
        for results in ((), (stale,))
    )
    assert names(twin(left[:3], right[:3]), Mark.RARE) == expected
    assert names(twin(left, right), Mark.DIFFERS) == expected


def test_listed_requests_are_compared_one_by_one():
    ops = [ScheduledOp(100 * n, 0, "create", {"name": f"t{n}", "nonce": "n"}) for n in range(20)]
    left = [run(every(4, EXISTS), ops=ops)]
    other = [run(lambda n: ("refused", "A/B") if n == 8 else every(4, EXISTS)(n), ops=ops)]
    made = twin(left, other)
    assert names(made, Mark.DIFFERS) == {'request/8 create {"name":"t8"}'}
    assert len(made.cases[0].of("request")) == 20
    (row,) = [row for _, row in made.rows(Mark.DIFFERS)]
    assert row.left.words == ("fail exists TABLE_ALREADY_PRESENT/ALREADY_PRESENT",)
    assert row.right.words == ("fail exists A/B",)
    # a request for which one side had no time proves nothing
    longer = [*ops, ScheduledOp(10**10, 0, "create", {"name": "late"})]
    sent = run(every(4, EXISTS), ops=longer)
    unsent = msgspec.structs.replace(
        sent, requests=[*(sent.requests or [])[:-1], ('create {"name":"late"}', NEVER_SENT)]
    )
    assert names(twin([sent], [unsent]), Mark.DIFFERS) == set()
    # an answer that both sides give in some run is not a difference
    assert names(twin([*left, *other], other), Mark.DIFFERS) == set()


def test_known_differences_are_explained_and_do_not_fail_the_comparison():
    known = KnownDifference(
        name="codes", original="apache-kudu", rows=("message/create/*",), why="other codes"
    )
    sides = runs(every(4, EXISTS)), runs(every(4, ("refused", "A/B")))
    made = twin(*sides, [known])
    assert {row.explained_by for _, row in made.rows(Mark.DIFFERS)} == {"codes"}
    assert (made.unexplained, exit_code_of(made)) == ([], 0)
    assert "all explained" in headline(made)
    other = KnownDifference(name="x", original="apache-kudu", rows=("message/alter/*",), why="")
    assert len(twin(*sides, [other]).unexplained) == 2


def test_nothing_is_no_agreement():
    assert exit_code_of(twin([], [])) == 2


def test_the_text_names_each_difference_once():
    made = twin(runs(every(4, EXISTS)), runs(every(4, ("refused", "A/B"))))
    from harness.cli.styles import plain

    lines = plain([*text_of(made)])
    assert sum("message/create/A/B" in line for line in lines) == 1
    assert any("180 of 720, 25.0 %" in line for line in lines)
