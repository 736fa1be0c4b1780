"""The sections of a report's page, and helpers to make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from harness.ops import Verdict
from results.questions.aggregate import Answers, Rows
from results.report.addresses import Addresses
from results.report.layouts import LAYOUTS
from results.report.number_words import interval
from results.report.plots import Chart, Plot
from results.report.populations import Populations
from results.report.tables import Table, make_table

VERDICTS: Final = (
    *((verdict.value, verdict.value) for verdict in Verdict),
    ("expected", "invalid with a bug"),
)
"""The parts of a bar that shows runs by verdict: CSS class and words of each part."""
PLOTS_MAX: Final = 6
"""The maximum number of drawings of one kind. The tables below have all populations."""
_RUN_COLUMNS: Final = ("run", "first_run", "last_run")


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section of a page: a heading, how to read the section, its method, drawings and tables."""

    id: str
    title: str
    words: str
    reading: str = ""
    plots: tuple[Plot, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


class Report:
    """The answers of a report. Their rows get words for populations, and links to runs."""

    def __init__(self, answers: Answers, places: Addresses) -> None:
        self.answers = answers
        self.places = places
        self.of = Populations(answers.rows("populations"))

    def rows(self, name: str) -> Rows:
        """Return an answer's rows, with words for their populations and links to their runs."""
        return self.told(self.answers.tables[name])

    def told(self, table: pa.Table) -> Rows:
        """Return the rows of `table`, with words for their populations and links to their runs."""
        return [self._told(row) for row in table.to_pylist()]

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        linked_row = dict(row)
        if isinstance(row.get("population"), int):
            linked_row["of"] = self.of.words(row["population"])
        for name in _RUN_COLUMNS:
            if row.get(name) is not None:
                linked_row[name] = (row[name], self.places.link(row[name]))
        return linked_row

    def tables(self, *names: str, **given: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
        """Make tables of these answers, without empty tables. `given` replaces an answer's rows."""
        made = (
            make_table(name, LAYOUTS[name], given[name])
            if name in given
            else self.head(name, self.answers.tables[name])
            for name in names
        )
        return tuple(table for table in made if table.rows)

    def head(self, name: str, answer: pa.Table) -> Table:
        """Make a table of the first rows of an answer, without reading its other rows."""
        layout = LAYOUTS[name]
        rows = self.told(answer.slice(0, layout.limit))
        total = None if name not in self.answers.tables else self.answers.total(name)
        return make_table(name, layout, rows, total=total)

    def by_population(self, rows: Rows) -> list[tuple[str, Rows]]:
        """Return words and rows of each population to draw, at most `PLOTS_MAX` populations."""
        by_population: dict[int, Rows] = {}
        for row in rows:
            by_population.setdefault(row["population"], []).append(row)
        chosen = self.of.drawn_first(by_population)[:PLOTS_MAX]
        return [(self.of.words(number), by_population[number]) for number in chosen]

    def cut(self, rows: Rows) -> str:
        """Say how many populations are not drawn; empty if all are drawn."""
        left = len({row["population"] for row in rows}) - PLOTS_MAX
        return f" {left} more groups of runs are not drawn, but in the tables." if left > 0 else ""


def ranged(rows: Iterable[Mapping[str, Any]], unit: str) -> Rows:
    """Add a field `range` to each row: the interval from `low` to `high`, as text."""
    return [{**row, "range": interval(row["low"], row["high"], unit)} for row in rows]


def linked(
    report: Report, rows: Iterable[Mapping[str, Any]], *fields: str, column: str = "runs"
) -> Rows:
    """Link each row's number of runs to the list of these runs: by population and `fields`."""
    cells = []
    for row in rows:
        filters = {**report.of.filters(row["population"]), **{name: row[name] for name in fields}}
        cells.append({**row, column: (row[column], report.places.runs(**filters))})
    return cells


def counts_of(row: Mapping[str, Any]) -> list[int]:
    """Return a row's numbers of runs by verdict, in the order of `VERDICTS`."""
    bug = bool(row["bugs"])
    counts = {**row, "invalid": 0 if bug else row["invalid"]}
    counts["expected"] = row["invalid"] if bug else 0
    return [counts[name] for name, _ in VERDICTS]
