"""Exact intervals of a rate, either for a fixed number of trials or for trials until the first hit.

The number of trials until the first hit has a geometric distribution. So hits divided by trials
overestimates the rate, and Wilson's interval does not apply. Instead, `first_hit_interval` inverts
the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from results.statistics.estimates import ALPHA, Interval, fisher_exact

_STEPS: Final = 40
"""The number of bisections of an interval of length 1, down to 1e-12."""
_P_MIN: Final = 1e-12


class Outcome(NamedTuple):
    """The number of hits in `trials` trials. If `stopped`, the trials end at the first hit."""

    hits: int
    trials: int
    stopped: bool = False

    def interval(self, alpha: float = ALPHA) -> Interval:
        """Return the exact two-sided interval. It misses the rate with probability <= `alpha`."""
        if self.stopped and self.hits:
            return first_hit_interval(self.trials, alpha)
        return binomial_interval(self.hits, self.trials, alpha)


def first_hit_interval(trials: int, alpha: float = ALPHA) -> Interval:
    """Return the interval of the rate if the last of `trials` trials was the first hit."""
    low = -math.expm1(math.log1p(-alpha / 2) / trials)
    high = 1.0 if trials == 1 else -math.expm1(math.log(alpha / 2) / (trials - 1))
    return Interval(low, high)


def binomial_interval(hits: int, trials: int, alpha: float = ALPHA) -> Interval:
    """Return Clopper and Pearson's interval of the rate (Biometrika 26, 1934)."""
    if hits == 0:
        return Interval(0.0, -math.expm1(math.log(alpha / 2) / trials))
    if hits == trials:
        return Interval(math.exp(math.log(alpha / 2) / trials), 1.0)
    return Interval(
        _bisected(lambda rate: _at_least(hits, trials, rate) > alpha / 2),
        _bisected(lambda rate: 1 - _at_least(hits + 1, trials, rate) < alpha / 2),
    )


def disagreement(one: Outcome, other: Outcome) -> float:
    """Return a two-sided p-value for the hypothesis that both outcomes have the same rate.

    If both numbers of trials were fixed, this is Fisher's exact test. Otherwise it is the result of
    `smallest_error`.
    """
    if not (one.trials and other.trials):
        return 1.0
    if not (one.stopped or other.stopped):
        return fisher_exact(one.hits, one.trials, other.hits, other.trials)

    return smallest_error(one.interval, other.interval)


def smallest_error(one: Callable[[float], Interval], other: Callable[[float], Interval]) -> float:
    """Return the smallest error at which two intervals, each with half of the error, are disjoint.

    `one` and `other` map an error to the interval with this error. If both rates are equal, at
    least one of two disjoint intervals misses the rate, so the result is a p-value. It is at least
    `_P_MIN`.
    """

    def disjoint(alpha: float) -> bool:
        first, second = one(alpha / 2), other(alpha / 2)
        return first.high < second.low or second.high < first.low

    if not disjoint(1.0):
        return 1.0
    low = math.log(_P_MIN)
    return math.exp(low * (1 - _bisected(lambda part: disjoint(math.exp(low * (1 - part))))))


def _at_least(hits: int, trials: int, rate: float) -> float:
    """Return the probability of at least `hits` hits in `trials` trials at this `rate`."""
    if rate in {0.0, 1.0}:
        return rate
    return math.fsum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(rate)
            + (trials - k) * math.log1p(-rate)
        )
        for k in range(hits, trials + 1)
    )


def _bisected(holds: Callable[[float], bool]) -> float:
    """Return the smallest value from 0 to 1 for which `holds`, a monotone condition, is true."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
