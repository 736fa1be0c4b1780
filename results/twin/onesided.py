"""Tests the rows that only one side shows, over all cases of a comparison.

A row such as `message/alter/RPC/NOT_SENT` may occur a few times in each of several cases, mostly on
the same side. The test of one row cannot show this difference, but all cases together can.

The unit is a *burst*: a stretch of neighbouring blocks of a run in which the row occurs, since the
operations of one outage are not independent. If the targets are equal, a burst falls on a side in
proportion to the side's part of the trials or of the blocks. Both are tried, and the larger p-value
counts, because one side may have more trials in the same time. Cases are strata: bursts are only
compared within a case, so a case of which one side had more does not matter (Simpson's paradox).
This is the exact conditional test of two Poisson rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from results.statistics.estimates import holm
from results.twin.rows import Row

Pick = Callable[[tuple[float, float]], float]


class Bursts(NamedTuple):
    """The bursts of one name in one case, and the left side's part of trials and of blocks."""

    left: int
    right: int
    parts: tuple[float, float]


def is_one_sided(row: Row) -> bool:
    """Whether the row occurs on only one side, although the other side had trials."""
    left, right = row.left, row.right
    if left.hits is None or right.hits is None or not (left.of and right.of):
        return False
    return (left.hits == 0) != (right.hits == 0)


def sided_names(tables: Sequence[Sequence[Row]]) -> dict[str, float]:
    """Return the corrected p-value over all cases, per name that is one-sided in some case."""
    rows = [row for table in tables for row in table]
    strata: dict[str, list[Bursts]] = {row.name: [] for row in rows if is_one_sided(row)}
    for row in rows:
        if row.name in strata and row.left.of and row.right.of:
            strata[row.name].append(_bursts(row))
    corrected = holm([same_rate(each) for each in strata.values()])
    return dict(zip(strata, corrected, strict=True))


def _bursts(row: Row) -> Bursts:
    left, right = row.left, row.right
    parts = left.of / (left.of + right.of), left.blocks / (left.blocks + right.blocks)
    return Bursts(left.bursts, right.bursts, parts)


def same_rate(strata: Sequence[Bursts]) -> float:
    """Return a two-sided p-value for the hypothesis that both sides have equal rates of bursts."""
    total = sum(each.left for each in strata)
    many = sum(_on_the_left(strata, max)[total:])
    few = sum(_on_the_left(strata, min)[: total + 1])
    return min(1.0, 2 * few, 2 * many)


def _on_the_left(strata: Sequence[Bursts], part: Pick) -> list[float]:
    """Return the distribution of the number of bursts on the left if both rates are equal."""
    chances = [1.0]
    for each in strata:
        p = part(each.parts)
        for _ in range(each.left + each.right):
            chances = [
                (1 - p) * stay + p * come
                for stay, come in zip([*chances, 0.0], [0.0, *chances], strict=True)
            ]
    return chances
