"""Confidence intervals and tests agree with textbooks, brute force, and data with known truth."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.statistics.estimates import (
    Sums,
    fisher_exact,
    holm,
    median_interval,
    nearest_rank,
    rank_sum,
    risk_ratio,
    student_quantile,
    wilson,
    zero_bound,
)
from tests.results.report.oracle import arrangements
from tests.tiers import examples


def binomial_tail(n, p, least):
    """Return P(X >= least), summed term by term."""
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1))


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [
        (0.975, 1, 12.7062047364),
        (0.975, 2, 4.3026527297),
        (0.975, 10, 2.2281388520),
        (0.95, 30, 1.6972608866),
        (0.025, 5, -2.5705818356),
        (0.5, 3, 0.0),
    ],
)
def test_quantiles_of_student_are_those_of_the_tables(p, df, expected):
    assert student_quantile(p, df) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (5, 10, 0.2366, 0.7634),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilson_is_newcombes_table(hits, trials, low, high):
    assert wilson(hits, trials) == pytest.approx((low, high), abs=5e-5)


def test_of_none_in_n_the_rate_is_below_the_exact_bound():
    assert zero_bound(4000) == pytest.approx(0.00074865, abs=1e-8)
    for trials in (1, 2, 59, 4000):
        assert (1 - zero_bound(trials)) ** trials == pytest.approx(0.05)
    assert zero_bound(0) == 1.0
    assert wilson(0, 0) == (0.0, 1.0)


def test_fisher_tasted_tea():
    assert fisher_exact(3, 4, 1, 4) == pytest.approx(34 / 70)
    assert fisher_exact(1, 10, 11, 14) == pytest.approx(0.0027594, abs=1e-7)
    assert fisher_exact(0, 10, 0, 20) == pytest.approx(1.0)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_fisher_counts_all_tables(n, m, data):
    a, b = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))

    def ways(k):
        return math.comb(n, k) * math.comb(m, a + b - k) if 0 <= a + b - k <= m else 0

    extreme = sum(ways(k) for k in range(n + 1) if ways(k) <= ways(a))
    assert fisher_exact(a, n, b, m) == pytest.approx(extreme / math.comb(n + m, a + b))


VALUES = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=5)


@settings(max_examples=examples(60))
@given(VALUES, VALUES)
def test_rank_sum_counts_all_arrangements(first, second):
    assert rank_sum(first, second) == pytest.approx(arrangements(first, second))


def test_rank_sum_of_many_runs_is_close_to_the_exact_one(monkeypatch):
    rng = random.Random(5)
    for _ in range(20):
        first = [float(rng.randrange(8)) for _ in range(15)]
        second = [float(rng.randrange(8) + rng.randrange(3)) for _ in range(18)]
        approximate = rank_sum(first, second)
        with monkeypatch.context() as patch:
            patch.setattr("results.statistics.estimates._EXACT_RUNS_MAX", 100)
            exact = rank_sum(first, second)
        assert approximate == pytest.approx(exact, abs=0.02)
    assert rank_sum([1.0] * 20, [1.0] * 20) == 1.0
    assert rank_sum([], [1.0]) == 1.0


@given(st.lists(st.integers(0, 50).map(float), min_size=1, max_size=40), st.integers(1, 1000))
def test_nearest_rank_is_its_definition(values, permille):
    found = nearest_rank(sorted(values), permille)

    assert sum(value <= found for value in values) * 1000 >= permille * len(values)
    assert all(
        sum(other <= value for other in values) * 1000 < permille * len(values)
        for value in values
        if value < found
    )


def test_median_intervals_cover_at_least_what_they_say():
    assert median_interval([1.0] * 5) is None
    assert median_interval([float(n) for n in range(6)]) == (0.0, 5.0)
    assert median_interval([float(n) for n in range(1, 16)]) == (4.0, 12.0)  # 96.5 % coverage
    for n in range(6, 60):
        low, high = median_interval([float(value) for value in range(1, n + 1)])
        k = int(low)
        assert (low, high) == (k, n + 1 - k)
        assert 2 * (1 - binomial_tail(n, 0.5, k)) <= 0.05 < 2 * (1 - binomial_tail(n, 0.5, k + 1))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(0, 10, 0, 10)] * 3, "it never happens"),
        ([(3, 10, 0, 10)] * 3, "it never happens without the fault"),
        ([(0, 10, 2, 10)] * 3, "it never happens with the fault"),
        ([(1, 10, 2, 10)], "one run tells no spread"),
        ([(0, 0, 2, 10)] * 3, "nothing with the fault"),
        ([(2, 10, 0, 0)] * 3, "nothing without the fault"),
        ([], "nothing with the fault"),
    ],
)
def test_a_missing_interval_has_a_reason(rows, why):
    found = risk_ratio(Sums.of(rows))

    assert found.interval is None
    assert found.why == why


@given(
    st.lists(
        st.tuples(*[st.integers(0, 10**6), st.integers(10**6, 10**13)] * 2), min_size=2, max_size=30
    )
)
def test_sums_over_runs_say_of_the_spread_what_the_runs_themselves_say(rows):
    sums = Sums.of(rows)
    assert Sums.of(rows[::-1]) == sums
    parts = Sums(*map(sum, zip(Sums.of(rows[:1]), Sums.of(rows[1:]), strict=True)))
    assert parts == sums
    found = risk_ratio(sums)
    if found.interval is None:
        return
    a, n, b, m = (Fraction(sum(row[at] for row in rows)) for at in range(4))
    residuals = [row[0] / a - row[1] / n - row[2] / b + row[3] / m for row in rows]
    spread = math.sqrt(len(rows) / (len(rows) - 1) * float(sum(one * one for one in residuals)))
    half = min(student_quantile(0.975, len(rows) - 1) * spread, 700)
    assert math.log(found.interval.high / found.interval.low) == pytest.approx(2 * half, rel=1e-6)


def test_intervals_of_risk_ratios_cover_the_truth_though_operations_come_in_clusters():
    rng = random.Random(11)
    covered = naive = total = 0
    for _ in range(300):
        rows = []
        for _ in range(30):
            hits = []
            for rate in (0.3, 0.1):
                mood = rate * (2 if rng.random() < 0.5 else 0)
                hits.append(sum(rng.random() < mood for _ in range(40)))
            rows.append((hits[0], 40, hits[1], 40))
        found = risk_ratio(Sums.of(rows))
        total += 1
        covered += found.interval.low <= 3 <= found.interval.high
        a, b = sum(row[0] for row in rows), sum(row[2] for row in rows)
        half = 1.96 * math.sqrt(1 / a - 1 / 1200 + 1 / b - 1 / 1200)
        naive += abs(math.log(a / b / 3)) <= half
    assert covered / total == pytest.approx(0.95, abs=0.035)
    assert naive / total < 0.8


def test_holm_is_his_procedure():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.5]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
