"""What changes over labels, days or versions of the code.

All runs together first: how many, how many of them failed, and which failures were never seen
before. Then points of runs that are alike: those of different settings or labels are never one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from results.serve.groups import FINISHED, Cell, FailureGroup, Share
from results.serve.run_table import NONE, RunTable

if TYPE_CHECKING:
    from results.facts.intervals import Ints

__all__ = [
    "ORDERED",
    "TREND_DIMENSIONS",
    "TotalOf",
    "TrendPoint",
    "sample",
    "totals_of",
    "trends_of",
    "words_of",
]

TREND_DIMENSIONS: Final = (
    *("label", "day", "code", "name", "environment", "nemeses", "workload", "bugs"),
)
ORDERED: Final = ("label", "day", "code")
"""Dimensions whose values follow each other in time: only those are joined by a line."""
POINTS_MAX: Final = 60
SAMPLE_MAX: Final = 40


class TotalOf(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one label, day or version together, whatever they are."""

    value: str
    first_started: str
    counts: dict[str, int]
    share: Share
    settings: int
    new: int  # groups of failures whose first run is among them


def totals_of(
    table: RunTable, rows: Ints, dimension: str, failures: Sequence[FailureGroup]
) -> tuple[list[TotalOf], list[str]]:
    """All runs by one dimension, in the order of their first runs, and what was cut."""
    import numpy as np

    new: dict[str, int] = defaultdict(int)
    for group in failures:
        new[group.value] += 1
    setting = table.texts["setting"]
    assert setting.codes is not None
    made = []
    for own in table.groups(rows, (dimension,)):
        value, cell = table.texts[dimension].shown(int(own[0])), Cell(table.outcomes(own))
        made.append(
            TotalOf(
                value=value,
                first_started=_since(table, own),
                counts=cell.counts,
                share=cell.share,
                settings=len(np.unique(setting.codes[own])),
                new=new[value],
            )
        )
    made.sort(key=lambda total: (total.first_started, total.value))
    notes = []
    if len(made) > POINTS_MAX:
        notes.append(f"only the last {POINTS_MAX} of {len(made)} values of {dimension}")
    return made[-POINTS_MAX:], notes


def _since(table: RunTable, rows: Ints) -> str:
    """When the first of these runs began, of which that is known; they are newest first."""
    started = table.texts["started"]
    return next((text for row in rows[::-1] if (text := started.at(int(row)))), "")


class TrendPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One label or day of runs that are alike otherwise.

    Rates and latencies are medians over `measured` of its finished runs.
    """

    value: str
    population: str  # what else the runs have in common, in words
    setting: str
    label: str
    first_started: str
    counts: dict[str, int]
    finished: int
    invalid: int
    rate: float | None
    low: float | None
    high: float | None
    measured: int = 0
    ok_per_s: float | None = None
    p99_ns: float | None = None


def trends_of(
    table: RunTable, rows: Ints, dimension: str
) -> tuple[list[tuple[TrendPoint, Ints]], list[str]]:
    """A point a value and kind of runs with those runs, kinds side by side, and what was cut.

    Runs of different settings are never one point, nor are those of different labels. Kinds come
    in the order of their first runs, and so do the points of each.
    """
    found = [(_point(table, own, dimension), own) for own in _grouped(table, rows, dimension)]
    notes = []
    settings: dict[str, set[str]] = defaultdict(set)
    for point, _ in found:
        settings[point.population].add(point.setting)
    if len(found) > POINTS_MAX:
        notes.append(f"only the {POINTS_MAX} of {len(found)} points that began last")
        began = sorted(point.first_started for point, _ in found)[-POINTS_MAX]
        found = [item for item in found if item[0].first_started >= began][-POINTS_MAX:]
    return [
        (
            point
            if len(settings[point.population]) == 1
            else msgspec.structs.replace(
                point, population=f"{point.population} · options {point.setting[:6]}"
            ),
            own,
        )
        for point, own in found
    ], notes


def _point(table: RunTable, rows: Ints, dimension: str) -> TrendPoint:
    cell, one = Cell(table.outcomes(rows)), int(rows[0])
    share = cell.share
    return TrendPoint(
        value=table.texts[dimension].shown(one),
        population=words_of(table, one, dimension),
        setting=table.texts["setting"].at(one),
        label="" if dimension == "label" else table.texts["label"].shown(one),
        first_started=_since(table, rows),
        counts=cell.counts,
        finished=share.finished,
        invalid=share.invalid,
        rate=share.rate,
        low=share.low,
        high=share.high,
    )


def _grouped(table: RunTable, rows: Ints, dimension: str) -> list[Ints]:
    """Runs by value and kind; kinds side by side, each by its first run."""
    names = ("setting", dimension) if dimension == "label" else ("setting", "label", dimension)
    started = table.texts["started"]
    kinds: dict[tuple[str, str], list[Ints]] = defaultdict(list)
    for own in table.groups(rows, names):
        one = int(own[0])
        label = "" if dimension == "label" else table.texts["label"].shown(one)
        kinds[table.texts["setting"].at(one), label].append(own)

    def since(own: Ints) -> str:
        return started.at(int(own[-1]))

    ordered = sorted(kinds.items(), key=lambda item: (min(map(since, item[1])), item[0]))
    texts = table.texts[dimension]
    return [
        own
        for _, groups in ordered
        for own in sorted(groups, key=lambda own: (since(own), texts.shown(int(own[0]))))
    ]


def words_of(table: RunTable, row: int, dimension: str) -> str:
    """What the runs of a point have in common, but for the dimension itself."""
    parts = ("target", "environment", "name", "bugs", "label")
    said = [table.texts[part].shown(row) for part in parts if part != dimension]
    return " · ".join(text for text in said if text != NONE)


def sample(table: RunTable, groups: Sequence[Ints]) -> list[list[int]]:
    """Runs to measure of each group: up to `SAMPLE_MAX` finished ones, evenly spread over time."""
    finished = table.texts["outcome"].that(lambda outcome: outcome in FINISHED)
    chosen: list[list[int]] = []
    for rows in groups:
        own = rows[finished[rows]][::-1]  # the oldest first
        chosen.append(own[:: max(1, math.ceil(len(own) / SAMPLE_MAX))].tolist())
    return chosen
