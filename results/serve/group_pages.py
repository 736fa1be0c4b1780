"""Makes the pages about many runs: the verdict matrix, the trends, two labels side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from harness.errors import choices_near
from harness.ops import Verdict
from results.facts.setting import IGNORABLE
from results.report.time_plots import Series, Value, series
from results.serve.groups import (
    DIMENSIONS,
    ORDERED,
    TREND_DIMENSIONS,
    Cell,
    compare_labels,
    failures_of,
    first_values,
    matrix_of,
    outcomes_of,
    totals_of,
    trends_of,
)
from results.serve.library import Library
from results.serve.query import BadQuery, Query, parse_query
from results.serve.render import Page
from results.serve.run_rows import FINISHED, NONE, OUTCOMES
from results.serve.runs import Reading

LINES_MAX: Final = 60
NEW_SHOWN_MAX: Final = 40
POINTS_MIN: Final = 2
LABELS_SHOWN_MAX: Final = 60
_RATE: Final = "invalid runs, % of those with a known verdict"

Row = dict[str, Any]


def matrix(library: Library, query_text: str) -> Page:
    """Make the page of the verdict matrix: outcomes by two dimensions."""
    query, also = parse_query(query_text, also=("down", "across"))
    down = _dimension(also["down"], "nemesis", "down", DIMENSIONS)
    across = _dimension(also["across"], "workload", "across", DIMENSIONS)
    with library.reading() as reading:
        made = matrix_of(reading, query.where(), down, across)
        notes = (*reading.notes, *made.notes)
    context = {
        "query": query,
        "down": down,
        "across": across,
        "dimensions": DIMENSIONS,
        "outcomes": OUTCOMES,
        "matrix": made,
        "notes": notes,
        "has_report": library.has_report(),
    }
    data = {
        "down": down,
        "across": across,
        "runs": made.total.total,
        "cells": {
            up: {side: cell.counts for side, cell in cells.items()}
            for up, cells in made.cells.items()
        },
        "totals": {
            "down": {name: cell.counts for name, cell in made.row_totals.items()},
            "across": {name: cell.counts for name, cell in made.column_totals.items()},
            "all": made.total.counts,
        },
        "notes": notes,
    }
    return Page("matrix.html", context, data)


def _dimension(given: list[str], default: str, name: str, known: Sequence[str]) -> str:
    value = next((text for text in reversed(given) if text), default)
    if value not in known:
        raise BadQuery(f"{name} is {value!r}; it is one of {', '.join(known)}")
    return value


def trends(library: Library, query_text: str) -> Page:
    """Make the page of failing shares and operation rates by one dimension, such as the day."""
    query, also = parse_query(query_text, also=("by",))
    where = query.where()
    with library.reading() as reading:
        names = _labels(reading, query)
        by = _dimension(also["by"], "label" if len(names) > 1 else "day", "by", TREND_DIMENSIONS)
        first = first_values(reading, where, by)
        failures = [
            {**row, "value": first[row["verdict"], row["signature"], row["target"], row["bugs"]]}
            for row in failures_of(reading, where)
        ]
        totals, notes = totals_of(reading, where, by, Counter(first.values()))
        points, point_notes = trends_of(reading, where, by)
        notes = [*reading.notes, *notes]
        runs = sum(outcomes_of(reading, where).values())
    new = sorted(failures, key=lambda row: row["first_day"] or "", reverse=True)
    context = {
        "query": query,
        "by": by,
        "dimensions": TREND_DIMENSIONS,
        "totals": totals,
        "total_plots": _total_plots(totals, joined=by in ORDERED),
        "new": new[:NEW_SHOWN_MAX],
        "new_cut": max(0, len(new) - NEW_SHOWN_MAX),
        "points": points,
        "plots": _plots(points, joined=by in ORDERED),
        "point_notes": point_notes,
        "notes": notes,
        "runs": runs,
        "has_report": library.has_report(),
        "labels": names[:LABELS_SHOWN_MAX] if len(names) > 1 else [],
    }
    data = {
        "by": by,
        "totals": totals,
        "new": new[:NEW_SHOWN_MAX],
        "points": points,
        "notes": [*notes, *point_notes],
    }
    return Page("trends.html", context, data)


def _labels(reading: Reading, query: Query) -> list[str]:
    where = query.where()
    sql = f"SELECT DISTINCT coalesce(label, '{NONE}') AS label FROM runs WHERE {where.sql}"  # noqa: S608
    return sorted(row["label"] for row in reading.rows(sql, where.values))


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _shares(rows: Sequence[Row], words: Sequence[tuple[str, str]], *, joined: bool) -> Series:
    values = [
        Value(row["value"], *of, _percent(row["rate"]), _percent(row["low"]), _percent(row["high"]))
        if row["rate"] is not None
        else Value(row["value"], *of, None)
        for row, of in zip(rows, words, strict=True)
    ]
    return series(_RATE, values, joined=joined)


def _total_plots(totals: Sequence[Row], *, joined: bool) -> list[Series]:
    """Plot the number of runs, the failing share and the new failures, each over all runs.

    If the dimension has only one value, there are no plots.
    """
    if len(totals) < POINTS_MIN:
        return []
    words = ("all runs", "")
    counts, new = (
        [Value(row["value"], *words, row[name]) for row in totals] for name in ("runs", "new")
    )
    return [
        series("runs", counts, joined=joined),
        _shares(totals, [words] * len(totals), joined=joined),
        series("failures never seen before", new, joined=joined),
    ]


def _plots(points: Sequence[Row], *, joined: bool) -> list[Series]:
    """Plot failing shares and operation rates. `joined` draws lines through a population's points.

    Only populations with several points are drawn.
    """
    counts = Counter(row["population"] for row in points)
    points = [row for row in points if counts[row["population"]] >= POINTS_MIN]
    if not points:
        return []
    words = [(row["words"], str(row["population"])) for row in points]
    rates = [
        Value(row["value"], *of, row["ok_per_s"]) for row, of in zip(points, words, strict=True)
    ]
    return [
        _shares(points, words, joined=joined),
        series("acknowledged operations per second of the run", rates, joined=joined),
    ]


def labels(library: Library, query: Query, names: Sequence[str], ignore: Sequence[str]) -> Page:
    """Make the page that compares how, and how often, runs of equal settings fail under two labels.

    `ignore` are the parts of settings in which compared runs may differ.
    """
    for name in ignore:
        if name not in IGNORABLE:
            raise BadQuery(f"ignore is {name!r}; {choices_near(name, IGNORABLE)}")
    if len(names) != 2 or names[0] == names[1]:
        raise BadQuery(
            f"a comparison needs two labels, and the query has: {', '.join(names)}; write "
            f"label=A&label=B ({NONE} for runs without one)"
        )
    sides = [Query({**query.filters, "label": name}) for name in names]
    parts = [name for name in IGNORABLE if name in ignore]
    ignored = library.ignored(parts)
    with library.reading() as reading:
        cells = [Cell(outcomes_of(reading, side.where())) for side in sides]
        for name, cell in zip(names, cells, strict=True):
            if not any(cell.of(verdict) for verdict in FINISHED):
                raise BadQuery(f"no finished run here has the label {name!r}")
        bare = {key: value for key, value in query.filters.items() if key != "label"}
        comparison = compare_labels(reading, Query(bare).where(), names, ignored)
        notes = reading.notes
    lines = comparison.comparison.lines
    context = {
        "query": query,
        "names": names,
        "sides": sides,
        "ignored": parts,
        "cells": cells,
        "found": comparison,
        "lines": lines[:LINES_MAX],
        "lines_cut": max(0, len(lines) - LINES_MAX),
        "changes": comparison.changes[:LINES_MAX],
        "changes_cut": max(0, len(comparison.changes) - LINES_MAX),
        "notes": notes,
        "outcomes": OUTCOMES,
        "invalid": Verdict.INVALID.value,
    }
    data = {
        "labels": names,
        "ignored": parts,
        "counts": [cell.counts for cell in cells],
        "comparison": comparison.comparison,
        "changes": comparison.changes,
    }
    return Page("labels.html", context, data)
