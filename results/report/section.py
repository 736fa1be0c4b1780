"""The parts of a page, and helpers for its sections."""

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
"""The maximum of drawings per kind; the tables below them have all populations."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section of a page: heading, explanation, drawings, tables."""

    id: str
    title: str
    words: str
    plots: tuple[Plot, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


class Telling(Protocol):
    """Answers, with words for populations and links for runs."""

    answers: Answers
    places: Addresses
    of: Populations

    def rows(self, name: str) -> Rows:
        """The rows of an answer, with words for their population and links for their runs."""
        ...

    def tables(self, *names: str, **given: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
        """The non-empty tables of these answers; rows in `given` replace the answer's own."""
        ...

    def by_population(self, rows: Rows) -> list[tuple[str, Rows]]:
        """The words and rows of the populations to draw, at most `PLOTS_MAX`."""
        ...


def ranged(rows: Iterable[Mapping[str, Any]], unit: str) -> Rows:
    """The rows with one more cell, `range`: the text of the interval from `low` to `high`."""
    return [{**row, "range": interval(row["low"], row["high"], unit)} for row in rows]


def linked(
    report: Telling, rows: Iterable[Mapping[str, Any]], *fields: str, column: str = "runs"
) -> Rows:
    """The rows; each number of runs links to the runs of the population with equal `fields`."""
    cells = []
    for row in rows:
        filters = {**report.of.filters(row["population"]), **{name: row[name] for name in fields}}
        cells.append({**row, column: (row[column], report.places.runs(**filters))})
    return cells


def counts_of(row: Mapping[str, Any]) -> list[int]:
    """The numbers of runs by verdict, in the order of `VERDICTS`."""
    return [row[name] for name, _ in VERDICTS]
