"""Confidence intervals of rates, if trials come in clusters, such as the operations of a run."""

import random

import pytest

from results.statistics.clusters import Clusters, same_share
from results.statistics.exact import binomial_interval


def test_without_any_spread_the_interval_is_clopper_and_pearsons_for_many_clusters():
    hits, trials = 40, 400
    even = Clusters.of([(hits // 40, trials // 40)] * 40)
    low, high = even.interval()
    exact = binomial_interval(hits, trials)
    assert low == pytest.approx(exact.low, rel=0.05)
    assert high == pytest.approx(exact.high, rel=0.05)
    assert low <= exact.low < exact.high <= high


def test_the_design_effect_is_the_size_of_clusters_that_agree_within():
    assert Clusters.of([(10, 10), (0, 10)] * 20).design_effect() == pytest.approx(10 * 40 / 39)
    assert Clusters.of([(5, 10)] * 20).design_effect() == 1
    assert Clusters.of([(10, 10)] * 20).design_effect() is None
    assert Clusters.of([(0, 10), (0, 0)]).trials == (10,)


def test_a_share_of_zero_borrows_the_spread_of_the_other_side():
    never, bursts = Clusters.of([(0, 100)] * 12), Clusters.of([(100, 100)] + [(0, 100)] * 11)
    alone, beside = never.interval(), never.interval(effect=bursts.design_effect())
    assert beside.high > 10 * alone.high
    assert same_share(never, bursts) > 0.5
    steady = Clusters.of([(9, 100), (8, 100)] * 6)
    assert same_share(never, steady) < 1e-4


@pytest.mark.parametrize("few", [[], [(1, 5)]])
def test_too_few_clusters_show_nothing(few):
    assert Clusters.of(few).interval() == (0.0, 1.0)
    assert same_share(Clusters.of(few), Clusters.of([(9, 10)] * 9)) == 1.0


def test_equal_targets_rarely_differ():
    rng = random.Random(7)

    def side():
        blocks = []
        for _ in range(12):
            share, trials = rng.betavariate(0.5, 4), rng.randrange(20, 60)
            blocks.append((sum(rng.random() < share for _ in range(trials)), trials))
        return Clusters.of(blocks)

    alarms = sum(same_share(side(), side()) < 0.05 for _ in range(100))
    assert alarms <= 5
