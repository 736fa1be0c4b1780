"""Verdicts on the parts of a case, from trials with known failure rates."""

import msgspec
import pytest

from harness.soak.result import CheckerVerdict
from results.why.answer import (
    IMPOSSIBLE,
    LOWERS,
    NECESSARY,
    NO_DIFFERENCE,
    NOT_TRIED,
    RAISES,
    UNKNOWN,
    Count,
)
from results.why.causes import (
    FIRST_MIN,
    can_show_necessary,
    find_causes,
    seeds_to_show,
    verdict_of,
)
from results.why.variants import Variant
from tests.results.why.fakes import KIND, OTHER, FakeTrials, case, result

BASE = case(rate=1.0)
SEEDS = 30
VACUOUS = CheckerVerdict("stats", "unknown", "too little happened")


def variant(name, rate, **changes):
    """Build a variant that fails in this share of the seeds."""
    return Variant("fault", name, name, case(rate=rate), **changes)


def failing(one):
    """Make the base and the variants fail in the share of seeds that their rates give."""
    number = one.seed - BASE.seed - 1
    share = {1.0: 0.5}.get(one.rate, one.rate / 10)
    fails = (number * 7) % 10 < share * 10
    return result(one.seed, *([KIND] if fails else []))


def causes(*variants, trials=None, **options):
    rates = find_causes(
        BASE,
        BASE,
        variants,
        KIND,
        trials or FakeTrials(failing),
        seeds=SEEDS,
        on_trial=lambda: None,
        **options,
    )
    return rates, {cause.name: cause for cause in rates.causes}


def test_each_verdict_follows_from_the_rates():
    rates, found = causes(
        variant("same", 5.0), variant("never", 0.01), variant("more", 10.0), variant("less", 0.5)
    )
    assert rates.base == Count(failed=15, runs=30)
    assert {name: cause.verdict for name, cause in found.items()} == {
        "same": NO_DIFFERENCE,
        "never": RAISES,
        "more": LOWERS,
        "less": RAISES,
    }


@pytest.mark.parametrize(
    ("without", "p", "verdict"),
    [
        (Count(0, 30), 0.001, NECESSARY),
        (Count(1, 30), 0.001, RAISES),
        (Count(30, 30), 0.001, LOWERS),
        (Count(0, 30), 0.06, NO_DIFFERENCE),
    ],
)
def test_a_verdict_requires_significance(without, p, verdict):
    assert verdict_of(without, Count(15, 30), p) == verdict


def test_a_variant_without_a_sign_of_a_difference_gets_no_more_seeds():
    _, found = causes(variant("same", 5.0), variant("never", 0.001))
    assert found["same"].without.runs == FIRST_MIN
    assert found["never"].without.runs == SEEDS


def test_no_part_is_tried_if_the_case_fails_too_rarely_to_show_anything():
    def rarely(one):
        return result(one.seed, *([KIND] if one.seed % 10 == 0 else []))

    trials = FakeTrials(rarely)
    rates, found = causes(variant("part", 5.0), trials=trials)
    assert (rates.base.failed, found["part"].verdict) == (3, NOT_TRIED)
    assert trials.runs == SEEDS
    enough = seeds_to_show(rates.base)
    assert enough is not None
    assert can_show_necessary(Count(round(enough / 10), enough), enough)
    assert not can_show_necessary(Count(round(enough / 10) - 1, enough), enough)
    assert seeds_to_show(Count(0, SEEDS)) is None
    assert can_show_necessary(Count(0, 1), 1)


def test_many_parts_require_stronger_evidence():
    weak = [variant(f"w{n}", 2.0) for n in range(1)]
    many = [variant(f"w{n}", 2.0) for n in range(40)]
    assert causes(*weak)[1]["w0"].verdict == RAISES
    assert causes(*many)[1]["w0"].verdict == NO_DIFFERENCE


def test_only_the_same_failure_counts_and_crashes_are_not_runs():
    def outcome(one):
        number = (one.seed - BASE.seed) % 6
        if number < 3:
            said = ((), (CheckerVerdict("checker", "unknown", "?"),), (VACUOUS,))[number]
            verdict = ("crash", "unknown", "unknown")[number]
            return msgspec.structs.replace(result(one.seed, verdict=verdict), checkers=said)
        return result(one.seed, *((KIND,), (OTHER,), (OTHER, KIND))[number - 3])

    rates, _ = causes(trials=FakeTrials(outcome))
    assert rates.base == Count(failed=10, runs=20, failed_otherwise=5, unknown=5, crashed=5)


def test_a_part_without_which_nothing_can_be_judged_is_not_called_necessary():
    def outcome(one):
        if one.rate == BASE.rate:
            return result(one.seed, KIND)
        said = (CheckerVerdict("checker", "unknown", "?"),)
        return msgspec.structs.replace(result(one.seed, verdict="unknown"), checkers=said)

    _, found = causes(variant("needed", 5.0), trials=FakeTrials(outcome))
    assert found["needed"].verdict == UNKNOWN


def test_the_limit_leaves_parts_untried_and_some_cannot_be_left_out():
    needed = Variant("option", "needed", "--hms", None, why_not="the workload needs it")
    _, found = causes(
        variant("first", 5.0),
        variant("second", 5.0),
        needed,
        trials=FakeTrials(failing, runs_max=SEEDS + FIRST_MIN),
    )
    assert found["first"].without.runs == FIRST_MIN
    assert found["second"].verdict == NOT_TRIED
    assert found["needed"].verdict == IMPOSSIBLE
    assert found["needed"].why_not


def test_recorded_operations_have_a_base_of_their_own():
    recorded = case(rate=10.0)
    rates = find_causes(
        BASE,
        recorded,
        [variant("ops", 5.0, recorded=True), variant("fault", 5.0)],
        KIND,
        FakeTrials(failing),
        seeds=SEEDS,
        on_trial=lambda: None,
    )
    assert rates.recorded == Count(failed=30, runs=30)
    assert [(cause.name, cause.verdict) for cause in rates.causes] == [
        ("ops", RAISES),
        ("fault", NO_DIFFERENCE),
    ]
