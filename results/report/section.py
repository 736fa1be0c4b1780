"""The parts of a page, and what its sections are made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from harness.ops import Verdict
from results.questions.aggregate import Answers, Rows
from results.report.addresses import Addresses
from results.report.number_words import interval
from results.report.plots import Chart, Plot
from results.report.populations import Populations
from results.report.tables import Table

VERDICTS: Final = tuple((verdict.value, verdict.value) for verdict in Verdict)
PLOTS_MAX: Final = 6
"""Drawings per kind: populations without bugs first, then the largest. Tables have all."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A heading, what it means, drawings, tables."""

    id: str
    title: str
    words: str
    plots: tuple[Plot, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


class Telling(Protocol):
    """Answers, and what the runs in them are called."""

    answers: Answers
    places: Addresses
    of: Populations

    def rows(self, name: str) -> Rows:
        """The rows of an answer, with words for their population and links for their runs."""
        ...

    def tables(self, *names: str, **given: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
        """The tables of answers that have rows; `given` rows instead of an answer's own."""
        ...

    def by_population(self, rows: Rows) -> list[tuple[str, Rows]]:
        """Rows of the populations to draw, with their words; as many as are drawn of a kind."""
        ...


def ranged(rows: Iterable[Mapping[str, Any]], unit: str) -> Rows:
    """Rows with their two ends written as one cell, `range`."""
    return [{**row, "range": interval(row["low"], row["high"], unit)} for row in rows]


def linked(
    report: Telling, rows: Iterable[Mapping[str, Any]], *fields: str, column: str = "runs"
) -> Rows:
    """Rows with a link at their number of runs: to runs of the population with equal `fields`."""
    cells = []
    for row in rows:
        filters = {**report.of.filters(row["population"]), **{name: row[name] for name in fields}}
        cells.append({**row, column: (row[column], report.places.runs(**filters))})
    return cells


def counts_of(row: Mapping[str, Any]) -> list[int]:
    """The number of runs by verdict, in the order of `VERDICTS`."""
    return [row[name] for name, _ in VERDICTS]
