"""Intervals and tests that SQL cannot compute portably.

* Shares of runs (verdicts, detection) use Wilson's score interval. For 0 of N runs there is also
  the one-sided exact bound "rate < x at 95 %".
* Operations of one run are not independent trials, because one long outage makes hundreds of them
  fail. So for counts of operations, and for times, the unit is the **run**. `risk_ratio` is a ratio
  of two pooled rates whose variance is linearised over runs (Woodruff 1971; Cochran, *Sampling
  Techniques*, 6), with Student's t.
* Comparisons of two labels use Fisher's exact test for shares of runs, and the rank-sum test
  (Wilcoxon, Mann-Whitney) for quantities that each run has. With many runs, the rank-sum test uses
  the normal approximation, corrected for ties and continuity. Intervals of a median are order
  statistics.
* A table of many comparisons uses Holm's step-down procedure, which keeps the chance of any false
  alarm in the whole table at 5 % or less (Holm 1979).

Quantiles of distributions come from `scipy.special`, because an import of `scipy.stats` takes a
second.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple, TypeVar

ALPHA: Final = 0.05
QUANTILES: Final = (500, 900, 990, 1000)
"""Quantiles of latencies, in permille."""
_Z: Final = 1.959963984540054
_EXACT_RUNS_MAX: Final = 24
"""Up to this many runs in both groups together, the rank-sum test is exact."""


T = TypeVar("T", int, float)


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


class Ratio(NamedTuple):
    """A ratio of two rates. If it has no `interval`, `why` explains this."""

    with_rate: float | None
    without_rate: float | None
    ratio: float | None
    interval: Interval | None
    runs: int
    why: str | None


def wilson(hits: int, trials: int) -> Interval:
    """Return Wilson's score interval of the share `hits / trials`; 0 to 1 without trials."""
    if trials == 0:
        return Interval(0.0, 1.0)
    share = hits / trials
    scale = 1 + _Z * _Z / trials
    centre = (share + _Z * _Z / (2 * trials)) / scale
    half = _Z * math.sqrt(share * (1 - share) / trials + _Z * _Z / (4 * trials * trials)) / scale
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == trials else min(1.0, centre + half)
    return Interval(low, high)


def zero_bound(trials: int) -> float:
    """Return the 95 % upper bound for the rate of an event that happened in none of `trials`."""
    return 1.0 if trials == 0 else -math.expm1(math.log(ALPHA) / trials)


def student_quantile(p: float, df: float) -> float:
    """Return the `p` quantile of Student's t distribution with `df` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(df, p))


@functools.lru_cache(maxsize=1 << 12)
def fisher_exact(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """Return Fisher's two-sided p-value for two shares.

    The p-value is the total probability of all 2x2 tables that are no likelier than the observed
    table.
    """
    total, drawn = trials + other_trials, hits + other_hits
    low, high = max(0, drawn - other_trials), min(drawn, trials)
    logs = [
        _log_choose(trials, k) + _log_choose(other_trials, drawn - k) for k in range(low, high + 1)
    ]
    whole = _log_choose(total, drawn)
    limit = logs[hits - low] + 1e-9  # the margin includes equally likely tables despite rounding
    return min(1.0, math.fsum(math.exp(value - whole) for value in logs if value <= limit))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


class Sums(NamedTuple):
    """Sums over runs. A run has `a` hits in `n` trials with a fault, and `b` in `m` without.

    There are also sums of products: for example, `an` is the sum over runs of `a * n`.
    """

    runs: int
    a: int
    n: int
    b: int
    m: int
    aa: int
    an: int
    nn: int
    bb: int
    bm: int
    mm: int
    ab: int
    am: int
    nb: int
    nm: int

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int]]) -> Sums:
        """Add up runs. A row has the `a`, `n`, `b` and `m` of one run."""
        sums = [0] * len(cls._fields)
        for a, n, b, m in rows:
            terms = (
                a,
                n,
                b,
                m,
                a * a,
                a * n,
                n * n,
                b * b,
                b * m,
                m * m,
                a * b,
                a * m,
                n * b,
                n * m,
            )
            for place, value in enumerate((int(n > 0 or m > 0), *terms)):
                sums[place] += value
        return cls(*sums)


def risk_ratio(sums: Sums) -> Ratio:
    """Return the rate with a fault, divided by the rate without. Trials may be times in ns."""
    a, n, b, m, runs = sums.a, sums.n, sums.b, sums.m, sums.runs
    with_rate = a / n if n else None
    without_rate = b / m if m else None
    if with_rate is None or without_rate is None:
        what = "with" if with_rate is None else "without"
        return Ratio(with_rate, without_rate, None, None, runs, f"nothing {what} the fault")
    if b == 0:
        why = "it never happens" if a == 0 else "it never happens without the fault"
        return Ratio(with_rate, without_rate, None, None, runs, why)
    ratio = with_rate / without_rate
    if a == 0:
        return Ratio(with_rate, without_rate, ratio, None, runs, "it never happens with the fault")
    if runs < 2:
        return Ratio(with_rate, without_rate, ratio, None, runs, "one run tells no spread")
    variance = runs / (runs - 1) * float(_squares(sums))
    half = student_quantile(1 - ALPHA / 2, runs - 1) * math.sqrt(variance)
    centre = math.log(ratio)
    interval = Interval(math.exp(max(centre - half, -700)), math.exp(min(centre + half, 700)))
    return Ratio(with_rate, without_rate, ratio, interval, runs, None)


def _squares(of: Sums) -> Fraction:
    """Return the sum over runs of `(a/A - n/N - b/B + m/M)²`; capital letters are totals.

    The square is multiplied out, so that the sums over runs are enough. The terms nearly cancel, so
    the arithmetic uses exact fractions.
    """
    a, n, b, m = (Fraction(1, total) for total in (of.a, of.n, of.b, of.m))
    return (
        of.aa * a * a + of.nn * n * n + of.bb * b * b + of.mm * m * m
        - 2 * (of.an * a * n + of.ab * a * b + of.nm * n * m + of.bm * b * m)
        + 2 * (of.am * a * m + of.nb * n * b)
    )  # fmt: skip


def quantiles(values: Sequence[int], permilles: Iterable[int] = QUANTILES) -> tuple[int, ...]:
    """Return the nearest-rank quantiles in the order of `permilles`; empty without values."""
    ordered = sorted(values)
    return tuple(nearest_rank(ordered, permille) for permille in permilles) if ordered else ()


def nearest_rank(ordered: Sequence[T], permille: int) -> T:
    """Return the smallest value that at least `permille`/1000 of the values do not exceed."""
    return ordered[max(0, -(-permille * len(ordered) // 1000) - 1)]


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return a 95 % interval of the median from order statistics; `None` for under six values."""
    ordered = sorted(values)
    n = len(ordered)
    # The k-th values from both ends, for the largest k with P(Binomial(n, 1/2) < k) <= alpha / 2.
    below, k = 0.0, 0
    while k < n // 2:
        mass = math.exp(_log_choose(n, k) - n * math.log(2))
        if below + mass > ALPHA / 2:
            break
        below += mass
        k += 1
    return Interval(ordered[k - 1], ordered[n - k]) if k else None


def rank_sum(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the rank-sum test's two-sided p-value for groups with the same distribution."""
    if not first or not second:
        return 1.0
    doubled = _doubled_midranks([*first, *second])
    total = sum(doubled[: len(first)])
    if len(doubled) <= _EXACT_RUNS_MAX:
        return _rank_sum_exact(doubled, len(first), total)
    n, m = len(first), len(second)
    ties = sum(count**3 - count for count in Counter(doubled).values())
    variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)))
    if variance <= 0:
        return 1.0
    distance = abs(total / 2 - n * (n + m + 1) / 2)
    return min(1.0, math.erfc(max(0.0, distance - 0.5) / math.sqrt(2 * variance)))


def _doubled_midranks(values: Sequence[float]) -> list[int]:
    """Return twice the rank of each value: an integer, although tied values get their mean rank."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    ranks = [0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for at in order[begin:end]:
            ranks[at] = begin + 1 + end
        begin = end
    return ranks


def _rank_sum_exact(doubled: Sequence[int], size: int, observed: int) -> float:
    """Return the share of all choices of `size` ranks whose sum is as extreme as `observed`."""
    ways: list[Counter[int]] = [Counter() for _ in range(size + 1)]
    ways[0][0] = 1
    for rank in doubled:
        for count in range(size, 0, -1):
            for value, number in list(ways[count - 1].items()):
                ways[count][value + rank] += number
    middle = size * (len(doubled) + 1)
    far = abs(observed - middle)
    extreme = sum(number for value, number in ways[size].items() if abs(value - middle) >= far)
    return extreme / math.comb(len(doubled), size)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values. A value below `ALPHA` is significant despite many tests."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for place, at in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[at]))
        adjusted[at] = running
    return adjusted
