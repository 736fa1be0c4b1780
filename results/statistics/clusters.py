"""Intervals of a share whose trials come in clusters, and a test that compares two such shares.

Operations of one run are not independent trials, because one outage makes many of them fail. So
this module uses the interval of Korn and Graubard (Survey Methodology 24, 1998). It is Clopper and
Pearson's interval for the number of independent trials that would have the observed variance
between clusters. Student's t corrects it for a small number of clusters.

A share of 0 or 1 shows no variance between clusters. In a comparison, such a share gets the design
effect of the other share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from results.statistics.estimates import ALPHA, Interval, student_quantile
from results.statistics.exact import smallest_error


class Clusters(NamedTuple):
    """Hits and trials of each cluster."""

    hits: tuple[int, ...]
    trials: tuple[int, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> Clusters:
        """Collect (hits, trials) per cluster. Clusters without a trial are left out."""
        some = [pair for pair in pairs if pair[1]]
        return cls(tuple(hits for hits, _ in some), tuple(trials for _, trials in some))

    @property
    def share(self) -> float | None:
        return sum(self.hits) / sum(self.trials) if self.trials else None

    def design_effect(self) -> float | None:
        """The share's variance, divided by its variance if trials were independent; at least 1.

        `None` if there are fewer than two clusters, or if the share is 0 or 1.
        """
        count, total, share = len(self.trials), sum(self.trials), self.share
        if share is None or count < 2 or share in {0.0, 1.0}:
            return None
        squares = math.fsum(
            (hits - share * trials) ** 2
            for hits, trials in zip(self.hits, self.trials, strict=True)
        )
        return max(1.0, count / (count - 1) * squares / total / (share * (1 - share)))

    def interval(self, alpha: float = ALPHA, *, effect: float | None = None) -> Interval:
        """Return the interval of the share. `effect` replaces a design effect that is unknown.

        With fewer than two clusters, the variance is unknown, so the interval is 0 to 1.
        """
        count, total = len(self.trials), sum(self.trials)
        if count < 2:
            return Interval(0.0, 1.0)
        ratio = student_quantile(1 - alpha / 2, max(1, total - 1)) / student_quantile(
            1 - alpha / 2, count - 1
        )
        trials = min(float(total), total / (self.design_effect() or effect or 1.0) * ratio**2)
        return _binomial(sum(self.hits) / total * trials, trials, alpha)


def same_share(one: Clusters, other: Clusters) -> float:
    """Return a two-sided p-value for the hypothesis that both shares are equal; 1 if untestable."""
    if len(one.trials) < 2 or len(other.trials) < 2:
        return 1.0
    effects = one.design_effect(), other.design_effect()
    return smallest_error(
        lambda alpha: one.interval(alpha, effect=effects[1]),
        lambda alpha: other.interval(alpha, effect=effects[0]),
    )


def _binomial(hits: float, trials: float, alpha: float) -> Interval:
    """Return Clopper and Pearson's interval. Hits and trials need not be integers."""
    from scipy.special import betaincinv

    low = 0.0 if hits <= 0 else float(betaincinv(hits, trials - hits + 1, alpha / 2))
    high = 1.0 if hits >= trials else float(betaincinv(hits + 1, trials - hits, 1 - alpha / 2))
    return Interval(low, high)
