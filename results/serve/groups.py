"""Counts runs in groups: by outcome, in the verdict matrix, by failure, and in trends.

The report's own queries and statistics (`results.questions`) are applied to the runs that a page
shows. So every number equals the number in a report on the same runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harness.verdict.known import NONE_KNOWN, KnownFailures
from results.questions.baseline import Comparison, compare, setting_words
from results.questions.engines import query
from results.questions.failures import SIGNATURE, changes, signatures
from results.questions.ignored import Ignored
from results.questions.trends import trends
from results.serve.query import LISTS, Where, column_of
from results.serve.run_rows import FINISHED, NONE, OUTCOMES, as_report, signature_of
from results.serve.runs import Reading
from results.statistics.estimates import wilson

Row = dict[str, Any]

DIMENSIONS: Final = (
    *("nemesis", "nemeses", "workload", "bug", "bugs", "label", "environment", "target"),
    *("profile", "name", "day", "code", "checker", "signature", "shape"),
)
TREND_DIMENSIONS: Final = (
    *("label", "day", "code", "name", "environment", "nemeses", "workload", "bugs"),
)
ORDERED: Final = ("label", "day", "code")
"""Dimensions whose values have an order in time. Only plots over these dimensions have lines."""
SIDE_MAX: Final = 60
POINTS_MAX: Final = 60
_COUNTS: Final = ", ".join(
    f"count(*) FILTER (outcome = '{outcome}') AS {outcome}" for outcome in OUTCOMES
)


class Cell(msgspec.Struct, frozen=True):
    """One cell of the verdict matrix: the numbers of its runs by outcome."""

    counts: dict[str, int]

    @property
    def total(self) -> int:
        """The number of all runs of the cell."""
        return sum(self.counts.values())

    @property
    def worst(self) -> str:
        """The worst outcome in the cell; empty if the cell has no runs."""
        return next((name for name in OUTCOMES if self.counts.get(name)), "")

    def of(self, outcome: str) -> int:
        """Return the number of runs with this outcome."""
        return self.counts.get(outcome, 0)


def outcomes_of(reading: Reading, where: Where) -> dict[str, int]:
    """Count runs by outcome, in the order of `OUTCOMES`."""
    sql = f"SELECT outcome, count(*) AS n FROM runs WHERE {where.sql} GROUP BY outcome"  # noqa: S608
    counts = {row["outcome"]: row["n"] for row in reading.rows(sql, where.values)}
    return {name: counts[name] for name in OUTCOMES if name in counts}


class Matrix(msgspec.Struct, frozen=True):
    """The verdict matrix: its cells by row and column. A cell without runs is absent."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]
    row_totals: dict[str, Cell]
    column_totals: dict[str, Cell]
    total: Cell
    notes: tuple[str, ...]


def matrix_of(reading: Reading, where: Where, down: str, across: str) -> Matrix:
    """Count runs by two dimensions.

    For `nemesis` or `bug`, a run counts once for each of its nemeses or bugs, so sums may exceed
    the number of runs.
    """
    sides = [_totals(reading, where, name) for name in (down, across)]
    notes = [
        f"runs with several {LISTS[name]} count once under each: totals can exceed all runs"
        for name in dict.fromkeys((down, across))
        if name in LISTS
    ]
    kept = [_largest(side) for side in sides]
    for name, names, side in zip((down, across), kept, sides, strict=True):
        if len(names) < len(side):
            notes.append(f"only the {SIDE_MAX} most frequent of {len(side)} values of {name}")
    # Unnest one list after the other: two lists in one SELECT would be paired element by element.
    sql = f"""
        SELECT up, side, outcome, CAST(sum(n) AS BIGINT) AS n
        FROM (SELECT up, {_value(across)} AS side, outcome, n
              FROM (SELECT *, {_value(down)} AS up FROM {_alike(where, down, across)}))
        WHERE list_contains(?, up) AND list_contains(?, side)
        GROUP BY ALL
    """  # noqa: S608
    cells: dict[str, dict[str, Counter[str]]] = {up: {} for up in kept[0]}
    for row in reading.rows(sql, (*where.values, kept[0], kept[1])):
        cells[row["up"]].setdefault(row["side"], Counter())[row["outcome"]] = row["n"]
    return Matrix(
        kept[0],
        kept[1],
        {up: {side: Cell(dict(n)) for side, n in counts.items()} for up, counts in cells.items()},
        {up: sides[0][up] for up in kept[0]},
        {side: sides[1][side] for side in kept[1]},
        Cell(outcomes_of(reading, where)),
        tuple(notes),
    )


def _value(dimension: str) -> str:
    """Return SQL for a run's value of a dimension; if the value is a list, a row per element."""
    column = column_of(dimension)
    if dimension not in LISTS:
        return f"coalesce({column}, '{NONE}')"
    return f"unnest(list_distinct(string_split(coalesce({column}, '{NONE}'), '+')))"


def _alike(where: Where, *dimensions: str) -> str:
    """Return SQL that counts runs by outcome and dimensions. Lists of values are not split."""
    columns = ", ".join(sorted({"outcome", *map(column_of, dimensions)}))
    return f"(SELECT {columns}, count(*) AS n FROM runs WHERE {where.sql} GROUP BY ALL)"  # noqa: S608


def _totals(reading: Reading, where: Where, dimension: str) -> dict[str, Cell]:
    sql = f"""
        SELECT value, outcome, CAST(sum(n) AS BIGINT) AS n
        FROM (SELECT {_value(dimension)} AS value, outcome, n FROM {_alike(where, dimension)})
        GROUP BY ALL
    """  # noqa: S608
    by_value: dict[str, dict[str, int]] = {}
    for row in reading.rows(sql, where.values):
        by_value.setdefault(row["value"], {})[row["outcome"]] = row["n"]
    return {value: Cell(counts) for value, counts in by_value.items()}


def _largest(totals: dict[str, Cell]) -> tuple[str, ...]:
    ordered = sorted(totals, key=lambda name: (-totals[name].total, name))
    return tuple(sorted(ordered[:SIDE_MAX]))


def failures_of(reading: Reading, where: Where, known: KnownFailures = NONE_KNOWN) -> list[Row]:
    """Return failures by signature: the rows of a report's answer `signatures`."""
    newest = f"SELECT max(day) AS day FROM runs WHERE {where.sql}"  # noqa: S608
    days = [row["day"] for row in reading.rows(newest, where.values)]
    cells = _cells(reading, where, "signature_cells")
    rows: list[Row] = signatures(cells, days, known).to_pylist()
    return rows


def first_values(reading: Reading, where: Where, dimension: str) -> dict[tuple[str, ...], str]:
    """Map each failure to the value that its first run has in `dimension`.

    A failure is a tuple of verdict, signature, target and bugs.
    """
    sql = f"""
        {as_report(where.sql, dimension)}
        SELECT verdict, target, bugs, {signature_of("signature")} AS text,
               arg_min(day, (coalesce(started, ''), run)) AS value
        FROM (SELECT f.*, j.started FROM failing_runs f JOIN judged j USING (run))
        GROUP BY verdict, target, bugs, text
    """  # noqa: S608
    return {
        (row["verdict"], row["text"], row["target"], row["bugs"]): row["value"]
        for row in reading.rows(sql, where.values)
    }


def _cells(reading: Reading, where: Where, name: str, dimension: str | None = None) -> list[Row]:
    return reading.rows(
        f"{as_report(where.sql, dimension)} SELECT * FROM ({query(name)}) ORDER BY ALL",  # noqa: S608
        where.values,
    )


def totals_of(
    reading: Reading, where: Where, dimension: str, new: Counter[str]
) -> tuple[list[Row], list[str]]:
    """Count all runs by one dimension, with values ordered by their first runs.

    `new` maps a value to the number of failures whose first run has this value. The failing share
    covers runs whose verdict is known. Also returns notes about omitted rows.
    """
    sql = f"""
        SELECT {_value(dimension)} AS value, min(started) AS first_started,
               count(DISTINCT coalesce(setting, '')) AS settings, count(*) AS runs, {_COUNTS}
        FROM runs WHERE {where.sql} GROUP BY value
        ORDER BY first_started NULLS FIRST, value
    """  # noqa: S608
    rows = [
        {**row, **_share(row), "new": new[row["value"]]} for row in reading.rows(sql, where.values)
    ]
    notes = []
    if len(rows) > POINTS_MAX:
        notes.append(f"only the last {POINTS_MAX} of {len(rows)} values of {dimension}")
    return rows[-POINTS_MAX:], notes


def _share(row: Row) -> Row:
    decided = sum(row[name] for name in FINISHED if name != "unknown")
    low, high = wilson(row["invalid"], decided) if decided else (None, None)
    return {"rate": row["invalid"] / decided if decided else None, "low": low, "high": high}


def trends_of(reading: Reading, where: Where, dimension: str) -> tuple[list[Row], list[str]]:
    """Compute the rows of a report's answer `trend_by_...`; also return notes on omitted rows.

    Populations, and the points of each population, are ordered by their first runs.
    """
    sql = f"""
        {as_report(where.sql, dimension)}
        SELECT population, min(coalesce(started, '')) AS began, any_value(setting) AS setting,
               CASE WHEN count(DISTINCT label) = 1 THEN any_value(label) END AS label,
               {", ".join(f"any_value({name}) AS {name}" for name in _WORDS)}
        FROM judged GROUP BY population
    """  # noqa: S608
    of = {row["population"]: row for row in reading.rows(sql, where.values)}
    answer = trends(_cells(reading, where, "trend_cells", dimension), (), "day").to_pylist()
    rows = [
        {
            **row,
            "value": row["day"],
            "setting": of[row["population"]]["setting"],
            "label": None if dimension == "label" else of[row["population"]]["label"],
            "words": setting_words(of[row["population"]]),
        }
        for row in answer
    ]
    rows.sort(
        key=lambda row: (
            of[row["population"]]["began"], row["population"], row["first_started"], row["value"]
        )
    )  # fmt: skip
    if len(rows) <= POINTS_MAX:
        return rows, []
    last = sorted(rows, key=lambda row: row["first_started"])[-POINTS_MAX:]
    recent = {(row["population"], row["value"]) for row in last}
    return [row for row in rows if (row["population"], row["value"]) in recent], [
        f"only the {POINTS_MAX} of {len(rows)} points that began last"
    ]


_WORDS: Final = ("workload", "asked", "bugs", "environment", "profile")


class ComparedLabels(msgspec.Struct, frozen=True):
    """The comparison of two labels, as in a report with a baseline, but without latencies."""

    comparison: Comparison
    settings: dict[str, str]  # each setting's words -> its hash; empty if parts are ignored
    changes: list[Row]


def compare_labels(
    reading: Reading, where: Where, labels: Sequence[str], ignored: Ignored
) -> ComparedLabels:
    """Compare runs of the second label with runs of the first. Both labels need finished runs."""
    both = Where(f"{where.sql} AND coalesce(label, '{NONE}') IN (?, ?)", (*where.values, *labels))
    cells = _cells(reading, both, "run_cells")
    run_cells = f"{as_report(both.sql)}, run_cells AS ({query('run_cells')})"
    populations = reading.rows(
        f"{run_cells} SELECT * FROM ({query('populations')})",  # noqa: S608
        both.values,
    )
    answer = changes(
        ignored.of_failures(_cells(reading, both, "signature_cells")),
        [{**row} for row in ignored.of(populations)],
        baseline=labels[0],
        label=labels[1],
    )
    return ComparedLabels(
        compare(cells, (), baseline=labels[0], label=labels[1], ignored=ignored),
        {} if ignored.parts else {setting_words(cell): cell["setting"] for cell in cells},
        [row for row in answer.to_pylist() if row["level"] == SIGNATURE],
    )
