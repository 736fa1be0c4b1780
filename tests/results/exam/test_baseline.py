"""An exam is compared with a baseline, and random variation rarely raises an alarm."""

import math
import random

import pytest

from results.exam.baseline import compare
from results.exam.rows import CLEAN, SWITCH
from results.statistics.exact import (
    Outcome,
    binomial_interval,
    disagreement,
    first_hit_interval,
)
from tests.results.exam.made import board, results, row


def verdicts(hits, seeds):
    return results(*["invalid"] * hits, *["valid"] * (seeds - hits))


def fixed(**hits):
    """Build a scoreboard whose switches have these numbers of hits in 30 seeds."""
    return board(*((row(name, SWITCH), verdicts(count, 30)) for name, count in hits.items()))


def stopped(**trials):
    """Build a scoreboard whose rows stopped at these seeds, at which their switches were found."""
    return board(
        *(
            (row(name, SWITCH, first=True), results(*["valid"] * (count - 1), "invalid"))
            for name, count in trials.items()
        )
    )


def test_an_equal_exam_has_no_changes():
    made = fixed(a=0, b=30, c=11)
    assert compare(made, made).changes == ()
    assert compare(made, made).compared == 3


def test_a_lost_rate_is_a_change_and_so_is_a_gained_one():
    (worse,) = compare(fixed(a=0, b=15), fixed(a=20, b=15)).changes
    assert (worse.after.name, worse.is_worse) == ("a", True)
    (better,) = compare(fixed(a=20, b=15), fixed(a=0, b=15)).changes
    assert (better.after.name, better.is_worse) == ("a", False)


def test_a_small_difference_is_chance():
    assert compare(fixed(a=12), fixed(a=16)).changes == ()


def test_more_rows_need_stronger_evidence():
    alone = compare(fixed(a=8), fixed(a=18)).changes
    many = {f"r{number}": 15 for number in range(80)}
    assert len(alone) == 1
    assert compare(fixed(a=8, **many), fixed(a=18, **many)).changes == ()


def test_exams_that_stop_are_compared_with_exams_that_do_not():
    assert compare(stopped(a=2), fixed(a=15)).changes == ()
    (change,) = compare(board((row("a", SWITCH, first=True), verdicts(0, 30))), fixed(a=30)).changes
    assert change.is_worse


def test_rows_of_one_exam_only_are_named_and_clean_profiles_are_not_compared():
    clean = (row("p", CLEAN), verdicts(0, 30))
    before = board((row("a", SWITCH), verdicts(9, 30)), clean)
    now = board((row("b", SWITCH), verdicts(9, 30)), clean)
    found = compare(now, before)
    assert (found.gone, found.new) == (("switch toy-register a",), ("switch toy-register b",))
    assert found.compared == 0


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_intervals_hold_the_rate_as_often_as_they_say(rate):
    binomial = sum(
        math.comb(30, hits) * rate**hits * (1 - rate) ** (30 - hits)
        for hits in range(31)
        if (found := binomial_interval(hits, 30)).low <= rate <= found.high
    )
    geometric = sum(
        (1 - rate) ** (trials - 1) * rate
        for trials in range(1, 2000)
        if (found := first_hit_interval(trials)).low <= rate <= found.high
    )
    assert binomial >= 0.95
    assert geometric >= 0.95 - 1e-9


def test_a_p_value_is_small_only_for_different_rates():
    assert disagreement(Outcome(1, 1, stopped=True), Outcome(30, 30)) == 1.0
    assert disagreement(Outcome(0, 30, stopped=True), Outcome(30, 30)) < 1e-6
    assert disagreement(Outcome(0, 0), Outcome(30, 30)) == 1.0
    far = disagreement(Outcome(1, 400, stopped=True), Outcome(30, 30))
    assert disagreement(Outcome(1, 20, stopped=True), Outcome(30, 30)) > far


@pytest.mark.slow
@pytest.mark.parametrize("stops", [False, True])
def test_clean_repeats_seldom_alarm(stops):
    rng = random.Random(7)
    rates = [rng.random() ** 2 for _ in range(20)]

    def exam():
        pairs = []
        for number, rate in enumerate(rates):
            drawn = ["invalid" if rng.random() < rate else "valid" for _ in range(30)]
            pairs.append((row(f"r{number}", SWITCH, first=stops), results(*drawn)))
        return board(*pairs)

    alarms = sum(bool(compare(exam(), exam()).changes) for _ in range(100))
    assert alarms <= 5
