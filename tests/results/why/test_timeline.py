"""The failure rate over time, and the time at which a failure became inevitable."""

import pytest

from harness.ops import NS_PER_S, History
from results.why.answer import Count, Inevitable, Point
from results.why.timeline import POINTS_FIRST, POINTS_MAX, find_points, inevitable_from
from tests.results.run.page.runs import MS, small_run
from tests.results.why.fakes import KIND, FakeTrials, case, result

UNTIL_NS = 10 * NS_PER_S
RESEEDS = 10


def turning_at(turn_s, before=0.3):
    """Return a function that maps a case to its result.

    A rerun that diverges after `turn_s` always fails, and an earlier one in the share `before` of
    cases.
    """

    def outcome(one):
        share = 1.0 if one.knobs["reseed_at_s"] > turn_s else before
        fails = one.knobs["reseed"] <= share * RESEEDS
        return result(one.seed, *([KIND] if fails else []))

    return outcome


def points(outcome, **options):
    trials = FakeTrials(outcome, **options)
    found = find_points(
        case(), KIND, trials, until_ns=UNTIL_NS, reseeds=RESEEDS, on_trial=lambda: None
    )
    return found, trials


@pytest.mark.parametrize("turn_s", [0.5, 4.321, 9.9])
def test_points_gather_where_the_rate_jumps(turn_s):
    found, trials = points(turning_at(turn_s))
    assert len(found) <= POINTS_MAX
    times = [point.at_ns for point in found]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0, UNTIL_NS)
    inevitable = inevitable_from(found, History(()))
    assert inevitable.before_ns <= turn_s * NS_PER_S < inevitable.from_ns
    assert inevitable.from_ns - inevitable.before_ns < UNTIL_NS / 100
    assert {each.seed for each in trials.tried} == {case().seed}


def test_an_even_rate_needs_no_more_points():
    found, _ = points(turning_at(1000, before=0.4))
    assert len(found) == POINTS_FIRST
    assert {point.count for point in found} == {Count(failed=4, runs=10)}
    assert inevitable_from(found, History(())) == Inevitable(before_ns=UNTIL_NS)


def test_the_limit_leaves_out_an_incomplete_point():
    found, _ = points(turning_at(5.0), runs_max=3 * RESEEDS + 5)
    assert len(found) == 3
    assert all(point.count.runs == RESEEDS for point in found)


def test_a_case_that_always_fails_is_inevitable_from_its_begin():
    found, _ = points(turning_at(-1))
    assert inevitable_from(found, History(())) == Inevitable(from_ns=0)
    assert inevitable_from((), History(())) == Inevitable()


@pytest.mark.parametrize(("failed", "is_turn"), [((8, 7), False), ((2, 8), True), ((4, 9), True)])
def test_a_turn_needs_an_earlier_time_with_another_rate(failed, is_turn):
    counts = [Count(each, RESEEDS) for each in (*failed, RESEEDS, RESEEDS)]
    found = [Point(at_ns=at, count=each, low=0, high=1) for at, each in enumerate(counts)]
    inevitable = inevitable_from(found, History(()))
    assert (inevitable.from_ns, inevitable.is_turn) == (2, is_turn)


def test_events_just_before_the_time_are_named():
    history = small_run()
    begun = [op for op in history if op.f == "partition-leader"]
    at_ns = begun[0].time

    def point(time_ns, failed):
        return Point(at_ns=time_ns, count=Count(failed, 10), low=0.0, high=1.0)

    found = inevitable_from([point(at_ns - MS, 4), point(at_ns + MS, 10)], history)
    assert (found.before_ns, found.from_ns) == (at_ns - MS, at_ns + MS)
    assert any("partition-leader begins" in text for text in found.between)
