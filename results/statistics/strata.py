"""Pools the effect of a fault in many settings (strata) to one ratio with an interval.

Adding up runs of different settings can reverse an effect (Simpson's paradox). So each stratum
compares its own trials with and without a fault, and the ratios are pooled by the Mantel-Haenszel
method (1959; for ratios of rates: Rothman, Greenland and Lash, *Modern Epidemiology*, 15):

R = sum(a m / (n + m)) / sum(b n / (n + m))

Here a stratum has `a` hits in `n` trials with the fault, and `b` hits in `m` trials without it. For
a single stratum, R is the ratio of the two rates, with the same interval as in
`results.statistics.estimates.risk_ratio`: log R is linearised over the totals of runs. The terms
nearly cancel, so the arithmetic is exact up to the final square root.

Cochran's Q tests whether the log ratios of the strata agree. If its p-value is small, a single
number does not describe all strata.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from results.statistics.estimates import ALPHA, Interval, Sums, risk_ratio, student_quantile

_NAMES: Final = ("a", "n", "b", "m")
_LOG_MAX: Final = 700.0

Gradient = tuple[Fraction, Fraction, Fraction, Fraction]


class Pooled(NamedTuple):
    """A ratio over several strata. If it has no `interval`, `why` explains this."""

    ratio: float | None
    interval: Interval | None
    strata: int  # number of strata with several runs and with trials both with and without a fault
    runs: int
    agree_p: float | None  # p-value of Cochran's Q; `None` unless two strata have a variance
    why: str | None


def pooled_ratio(strata: Sequence[Sums]) -> Pooled:
    """Return the Mantel-Haenszel ratio over the strata that `Pooled.strata` counts."""
    usable = [s for s in strata if s.runs > 1 and s.n and s.m]
    runs = sum(s.runs for s in usable)
    if not usable:
        return Pooled(None, None, 0, 0, None, "no stratum has runs with and without the fault")
    above = sum((Fraction(s.a * s.m, s.n + s.m) for s in usable), Fraction(0))
    below = sum((Fraction(s.b * s.n, s.n + s.m) for s in usable), Fraction(0))
    if not below:
        why = "it never happens without the fault" if above else "it never happens"
        return Pooled(None, None, len(usable), runs, None, why)
    ratio = float(above / below)
    if not above:
        return Pooled(ratio, None, len(usable), runs, None, "it never happens with the fault")
    variance = float(sum(_variance(s, _gradient(s, above, below)) for s in usable))
    half = student_quantile(1 - ALPHA / 2, runs - len(usable)) * math.sqrt(variance)
    centre = math.log(ratio)
    interval = Interval(
        math.exp(max(centre - half, -_LOG_MAX)), math.exp(min(centre + half, _LOG_MAX))
    )
    return Pooled(ratio, interval, len(usable), runs, _agreement(usable), None)


def _gradient(stratum: Sums, above: Fraction, below: Fraction) -> Gradient:
    """Return the gradient of log R with respect to the sums of one stratum."""
    a, n, b, m = stratum.a, stratum.n, stratum.b, stratum.m
    total = n + m
    return (
        m / (total * above),
        -a * m / (total**2 * above) - b * m / (total**2 * below),
        -n / (total * below),
        a * n / (total**2 * above) + b * n / (total**2 * below),
    )


def _variance(stratum: Sums, gradient: Gradient) -> Fraction:
    total = Fraction(0)
    for i, first in enumerate(_NAMES):
        for j, second in enumerate(_NAMES):
            name = first + second if i <= j else second + first
            product, sums = getattr(stratum, name), (getattr(stratum, x) for x in (first, second))
            total += gradient[i] * gradient[j] * (stratum.runs * product - math.prod(sums))
    return max(Fraction(0), total / (stratum.runs - 1))


def _agreement(strata: Sequence[Sums]) -> float | None:
    logs, weights = [], []
    for stratum in strata:
        ratio = risk_ratio(stratum)
        if ratio.ratio and ratio.interval is not None and ratio.interval.low < ratio.interval.high:
            above, below = (
                Fraction(x * y, stratum.n + stratum.m)
                for x, y in ((stratum.a, stratum.m), (stratum.b, stratum.n))
            )
            logs.append(math.log(ratio.ratio))
            weights.append(1 / float(_variance(stratum, _gradient(stratum, above, below))))
    if len(logs) < 2:
        return None
    centre = math.fsum(w * x for w, x in zip(weights, logs, strict=True)) / math.fsum(weights)
    q = math.fsum(w * (x - centre) ** 2 for w, x in zip(weights, logs, strict=True))
    from scipy.special import chdtrc

    return float(chdtrc(len(logs) - 1, q))
