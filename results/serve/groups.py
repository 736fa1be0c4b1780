"""The verdict matrix, and the trends over labels or days.

A cell counts runs by outcome and links to them. A rate has Wilson's interval of 95 %, which also
holds for 0 of 20. Rates are invalid runs of all that finished: one that is unknown was not found
guilty, and those that are broken or unfinished say nothing.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from harness.ops import Verdict
from results.run_index import OUTCOMES, RunRow
from results.serve.library import Brief
from results.serve.query import NONE, field_text
from results.statistics import wilson

__all__ = [
    "DIMENSIONS",
    "ORDERED",
    "TREND_DIMENSIONS",
    "Cell",
    "FailureGroup",
    "Matrix",
    "TrendPoint",
    "failures_of",
    "matrix_of",
    "sample",
    "trends_of",
]

DIMENSIONS: Final = (
    *("nemesis", "nemeses", "workload", "bug", "bugs", "label", "environment", "target"),
    *("profile", "name", "day", "checker", "signature"),
)
TREND_DIMENSIONS: Final = ("label", "day", "name", "environment", "nemeses", "workload", "bugs")
ORDERED: Final = ("label", "day")
"""Dimensions whose values follow each other in time: only those are joined by a line."""
SIDE_MAX: Final = 60
POINTS_MAX: Final = 60
SAMPLE_MAX: Final = 40
_EACH: Final = {"nemesis": "nemeses", "bug": "bugs"}


class Cell(msgspec.Struct, frozen=True):
    """Runs by outcome; `total` is all of them."""

    counts: dict[str, int]

    @property
    def total(self) -> int:
        """All runs of the cell."""
        return sum(self.counts.values())

    @property
    def finished(self) -> int:
        """Those with a verdict."""
        return sum(self.counts.get(verdict.value, 0) for verdict in Verdict)

    @property
    def worst(self) -> str:
        """The worst outcome that there is."""
        return next((name for name in OUTCOMES if self.counts.get(name)), "")

    def of(self, outcome: str) -> int:
        """Runs with one outcome."""
        return self.counts.get(outcome, 0)


class Matrix(msgspec.Struct, frozen=True):
    """Cells by row and column; a pair that never happened has no cell."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]
    row_totals: dict[str, Cell]
    column_totals: dict[str, Cell]
    total: Cell
    notes: tuple[str, ...]


def matrix_of(rows: Sequence[RunRow], down: str, across: str) -> Matrix:
    """Count `rows` by two dimensions.

    By `nemesis` or `bug` a run counts once for each of its own, so that sums exceed the runs.
    """
    cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    down_totals: dict[str, Counter[str]] = defaultdict(Counter)
    across_totals: dict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for row in rows:
        total[row.outcome] += 1
        ups, sides = _values(row, down), _values(row, across)
        for up in ups:
            down_totals[up][row.outcome] += 1
            for side in sides:
                cells[up][side][row.outcome] += 1
        for side in sides:
            across_totals[side][row.outcome] += 1
    notes = [
        f"a run with several counts once for each {name}: sums can exceed the number of runs"
        for name in dict.fromkeys((down, across))
        if name in _EACH
    ]
    kept_down, kept_across = _largest(down_totals), _largest(across_totals)
    for name, kept, all_of in (
        (down, kept_down, down_totals),
        (across, kept_across, across_totals),
    ):
        if len(kept) < len(all_of):
            notes.append(f"only the {SIDE_MAX} most frequent of {len(all_of)} values of {name}")
    return Matrix(
        kept_down,
        kept_across,
        {
            up: {side: Cell(dict(cells[up][side])) for side in kept_across if side in cells[up]}
            for up in kept_down
        },
        {up: Cell(dict(down_totals[up])) for up in kept_down},
        {side: Cell(dict(across_totals[side])) for side in kept_across},
        Cell(dict(total)),
        tuple(notes),
    )


def _values(row: RunRow, dimension: str) -> tuple[str, ...]:
    if dimension in _EACH:
        return tuple(dict.fromkeys(getattr(row, _EACH[dimension]))) or (NONE,)
    return (field_text(row, dimension),)


def _largest(totals: dict[str, Counter[str]]) -> tuple[str, ...]:
    """The most frequent values within the bound, then by name."""
    ordered = sorted(totals, key=lambda name: (-totals[name].total(), name))
    return tuple(sorted(ordered[:SIDE_MAX]))


class FailureGroup(msgspec.Struct, frozen=True):
    """Runs that failed alike: of one target, with the same bugs switched on."""

    outcome: str
    signature: str
    target: str
    bugs: tuple[str, ...]
    runs: int
    first: str  # the key of the oldest


def failures_of(rows: Iterable[RunRow]) -> list[FailureGroup]:
    """Groups of runs with a signature: invalid ones first, without bugs first, then the largest."""
    found: dict[tuple[str, str, str, tuple[str, ...]], list[RunRow]] = defaultdict(list)
    for row in rows:
        if row.signature:
            found[row.outcome, row.signature, row.target, row.bugs].append(row)
    groups = [
        FailureGroup(*key, len(members), min(members, key=lambda row: (row.started, row.key)).key)
        for key, members in found.items()
    ]
    rank = {outcome: place for place, outcome in enumerate(OUTCOMES)}
    return sorted(
        groups, key=lambda group: (rank[group.outcome], bool(group.bugs), -group.runs, group.first)
    )


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
    measured: int
    ok_per_s: float | None
    p99_ns: float | None


def trends_of(
    rows: Sequence[RunRow], dimension: str, briefs: dict[str, Brief]
) -> tuple[list[TrendPoint], list[str]]:
    """A point a value and kind of runs, in the order of their first runs, and what was cut.

    Runs of different settings are never one point, nor are those of different labels.
    """
    groups = _grouped(rows, dimension)
    points = []
    for value, members in groups:
        one = members[0]
        counts = Counter(row.outcome for row in members)
        cell = Cell(dict(counts))
        invalid = cell.of(Verdict.INVALID.value)
        low, high = wilson(invalid, cell.finished) if cell.finished else (None, None)
        known = [briefs[row.key] for row in members if row.key in briefs]
        paces = [brief.ok_per_s for brief in known if brief.ok_per_s is not None]
        tails = [brief.p99_ns for brief in known if brief.p99_ns is not None]
        points.append(
            TrendPoint(
                value=value,
                population=_words(one, dimension),
                setting=one.setting,
                label="" if dimension == "label" else one.label or NONE,
                first_started=min((row.started for row in members if row.started), default=""),
                counts=dict(counts),
                finished=cell.finished,
                invalid=invalid,
                rate=invalid / cell.finished if cell.finished else None,
                low=low,
                high=high,
                measured=len(paces),
                ok_per_s=statistics.median(paces) if paces else None,
                p99_ns=statistics.median(tails) if tails else None,
            )
        )
    settings: dict[str, set[str]] = defaultdict(set)
    for point in points:
        settings[point.population].add(point.setting)
    points = [
        point
        if len(settings[point.population]) == 1
        else msgspec.structs.replace(
            point, population=f"{point.population} · options {point.setting[:6]}"
        )
        for point in points
    ]
    notes = []
    if len(points) > POINTS_MAX:
        notes.append(f"only the last {POINTS_MAX} of {len(points)} values of {dimension}")
    return points[-POINTS_MAX:], notes


def _grouped(rows: Iterable[RunRow], dimension: str) -> list[tuple[str, list[RunRow]]]:
    """Rows by value and kind of runs; kinds side by side, each by its first run."""
    kinds: dict[tuple[str, str], dict[str, list[RunRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        label = "" if dimension == "label" else row.label or NONE
        kinds[row.setting, label][field_text(row, dimension)].append(row)

    def since(members: list[RunRow]) -> str:
        return min((row.started for row in members), default="")

    ordered = sorted(
        kinds.items(), key=lambda item: (min(map(since, item[1].values()), default=""), item[0])
    )
    return [
        group
        for _, values in ordered
        for group in sorted(values.items(), key=lambda item: (since(item[1]), item[0]))
    ]


def _words(row: RunRow, dimension: str) -> str:
    """What the runs of a point have in common, but for the dimension itself."""
    parts = ("target", "environment", "name", "bugs", "label")
    said = [field_text(row, part) for part in parts if part != dimension]
    return " · ".join(text for text in said if text != NONE)


def sample(rows: Sequence[RunRow], dimension: str) -> list[RunRow]:
    """Runs to measure: up to `SAMPLE_MAX` finished ones a value, evenly spread over time.

    The first of every value come first, so that a deadline leaves something of each.
    """
    chosen: list[list[RunRow]] = []
    for _, members in _grouped(rows, dimension)[-POINTS_MAX:]:
        finished = sorted(
            (row for row in members if row.outcome in {verdict.value for verdict in Verdict}),
            key=lambda row: (row.started, row.key),
        )
        step = max(1, math.ceil(len(finished) / SAMPLE_MAX))
        chosen.append(finished[::step])
    longest = max((len(members) for members in chosen), default=0)
    return [
        members[place] for place in range(longest) for members in chosen if place < len(members)
    ]
