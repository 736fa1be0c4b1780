"""Survival and detection curves with intervals.

*Survival* is the share of runs without a failure after a number of operations. A run that ends
without a failure is censored at its end: nothing is known about further operations. The estimate is
Kaplan and Meier's (1958), and its variance Greenwood's (1926). The interval is computed for
log(-log S), so it stays between 0 and 1 (Kalbfleisch and Prentice, *The Statistical Analysis of
Failure Time Data*, 1.4).

*Detection* is the probability that n seeds find a failure: 1 - (1 - p)^n, if a share p of all seeds
fails. This probability rises with p, so the ends of Wilson's interval of p give the ends of the
curve's interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from results.statistics.estimates import Interval, wilson

_Z: Final = 1.959963984540054
SURE: Final = 0.95


class Step(NamedTuple):
    """A step of a survival curve: the share of runs without a failure, from `at` operations on.

    A share of 0 has no interval, because its variance is unknown.
    """

    at: int
    at_risk: int
    failed: int
    survival: float
    interval: Interval | None


class Found(NamedTuple):
    """The probability that `seeds` seeds find a failure, with its confidence interval."""

    seeds: int
    probability: float
    low: float
    high: float


def kaplan_meier(cells: Iterable[tuple[int, int, int]]) -> list[Step]:
    """Return the survival curve of runs, with one step per number of operations until a failure.

    A cell is (number of operations, runs that failed after it, other runs that ended after it).
    """
    sums: dict[int, tuple[int, int]] = {}
    for at, failed, ended in cells:
        before = sums.get(at, (0, 0))
        sums[at] = before[0] + failed, before[1] + ended
    at_risk = sum(failed + ended for failed, ended in sums.values())
    survival, spread = 1.0, 0.0
    steps: list[Step] = []
    for at, (failed, ended) in sorted(sums.items()):
        if failed:
            survival *= (at_risk - failed) / at_risk
            if at_risk > failed:
                spread += failed / (at_risk * (at_risk - failed))
            interval = _log_log(survival, spread) if at_risk > failed else None
            steps.append(Step(at, at_risk, failed, survival, interval))
        at_risk -= failed + ended
    return steps


def _log_log(survival: float, spread: float) -> Interval:
    width = math.exp(_Z * math.sqrt(spread) / -math.log(survival))
    return Interval(survival**width, survival ** (1 / width))


def found_within(seeds: int, hits: int, runs: int) -> Found:
    """Return the probability that `seeds` seeds find a failure that `hits` of `runs` runs had."""
    low, high = wilson(hits, runs)
    share = hits / runs if runs else 0.0
    return Found(seeds, *(_within(seeds, p) for p in (share, low, high)))


def _within(seeds: int, share: float) -> float:
    return 1.0 if share >= 1 else -math.expm1(seeds * math.log1p(-share))


def seeds_for(share: float, *, sure: float = SURE) -> int | None:
    """Return how many seeds it takes to find a failure of rate `share` with probability `sure`.

    Return `None` for a rate of 0.
    """
    if share <= 0:
        return None
    return 1 if share >= sure else math.ceil(math.log1p(-sure) / math.log1p(-share))
