"""What each page shows, once for its template and once as plain data for the API."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import replay_command
from harness.errors import HistoryError
from harness.ops import CheckResult
from results.run_index import OUTCOMES, RunRow
from results.run_numbers import RunNumbers
from results.serve.compare import checks_of, differences, kinds_of_both
from results.serve.drawing import availability, peak, trend_plots
from results.serve.groups import (
    DIMENSIONS,
    ORDERED,
    TREND_DIMENSIONS,
    failures_of,
    matrix_of,
    sample,
    trends_of,
)
from results.serve.library import ARTEFACTS, Library
from results.serve.paths import NotThere, files_below
from results.serve.query import (
    PAGE_ROWS,
    BadQuery,
    Query,
    field_text,
    matching,
    parse_query,
    sorted_rows,
)
from results.statistics import QUANTILES

__all__ = ["Page", "compare", "matrix", "run", "runs", "the_run", "trends"]

CHOICES_MAX: Final = 60
EXPLANATION_LINES_MAX: Final = 60
FILES_SHOWN_MAX: Final = 500
GROUPS_SHOWN_MAX: Final = 12
SIBLINGS_MAX: Final = 20
MEASURE_S: Final = 2.0
_CHOICE_FIELDS: Final = (
    *("verdict", "nemesis", "bug", "workload", "label", "environment", "target", "profile"),
    *("name", "checker", "signature"),
)


class Page(msgspec.Struct, frozen=True):
    """A template, what it shows, and the same as data."""

    template: str
    context: dict[str, Any]
    data: Any


def the_run(library: Library, key: str) -> RunRow:
    """The run with this key; raises `NotThere`."""
    row = library.row(key)
    if row is None:
        raise NotThere
    return row


def runs(library: Library, query_text: str) -> Page:
    """The list of runs."""
    query, _ = parse_query(query_text)
    index = library.index()
    found = sorted_rows(matching(index.rows, query), query.sort)
    pages = max(1, math.ceil(len(found) / PAGE_ROWS))
    first = (query.page - 1) * PAGE_ROWS
    shown = found[first : first + PAGE_ROWS]
    counts = Counter(row.outcome for row in found)
    groups = failures_of(found)
    context = {
        "query": query,
        "rows": shown,
        "matching": len(found),
        "total": len(index.rows),
        "pages": pages,
        "first": first,
        "counts": [(name, counts[name]) for name in OUTCOMES if counts[name]],
        "index_notes": index.notes,
        "choices": _choices(index.rows, query),
        "groups": groups[:GROUPS_SHOWN_MAX],
        "groups_cut": max(0, len(groups) - GROUPS_SHOWN_MAX),
    }
    data = {
        "store": str(library.store),
        "total": len(index.rows),
        "matching": len(found),
        "page": query.page,
        "pages": pages,
        "counts": dict(counts),
        "notes": index.notes,
        "signatures": groups[:GROUPS_SHOWN_MAX],
        "runs": [_row_data(row) for row in shown],
    }
    return Page("runs.html", context, data)


def _row_data(row: RunRow) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(row)
    del data["text"]
    return data


def _choices(rows: Sequence[RunRow], query: Query) -> dict[str, list[str] | None]:
    """The values to choose from, by filter; `None` where there are too many for a menu."""
    found: dict[str, list[str] | None] = {}
    for name in _CHOICE_FIELDS:
        values: set[str] = set()
        for row in rows:
            if name in {"nemesis", "bug"}:
                values.update(row.nemeses if name == "nemesis" else row.bugs)
            else:
                values.add(field_text(row, name))
        if name == "bug":
            values.add("(none)")
        chosen = query.filters.get(name)
        if chosen is not None:
            values.add(chosen)  # a link may ask for what there is no more
        found[name] = sorted(values) if len(values) <= CHOICES_MAX else None
    return found


def run(library: Library, row: RunRow) -> Page:
    """One run."""
    folder = library.folder(row)
    checks, trouble = _checks(library, row)
    files, more = files_below(folder)
    numbers, no_numbers = _numbers(library, row)
    context = {
        "row": row,
        "checks": [(check, _bounded(check)) for check in checks],
        "trouble": trouble,
        "files": files[:FILES_SHOWN_MAX],
        "files_cut": more or len(files) > FILES_SHOWN_MAX,
        "file_count": len(files),
        "artefacts": ARTEFACTS,
        "numbers": numbers,
        "no_numbers": no_numbers,
        "quantiles": [permille / 1000 for permille in QUANTILES],
        "plot": None if numbers is None else availability(numbers, end_s=_end_s(numbers)),
        "replay": _replay(library.store, row),
        "siblings": _siblings(library, row),
    }
    data = {
        "run": _row_data(row),
        "checkers": checks,
        "files": files,
        "numbers": numbers,
        "notes": [text for text in (trouble, no_numbers) if text],
    }
    return Page("run.html", context, data)


def _checks(library: Library, row: RunRow) -> tuple[tuple[CheckResult, ...], str | None]:
    """What checkers said: beside the run, or else in the last `harness report` of the store."""
    checks, trouble = checks_of(library.folder(row))
    if checks:
        return checks, trouble
    reported = library.reported_checks(row)
    if not reported:
        return (), trouble
    return reported, "there is no results.json: these are the verdicts of the last harness report"


def _numbers(library: Library, row: RunRow) -> tuple[RunNumbers | None, str | None]:
    try:
        return library.numbers(row), None
    except HistoryError as error:
        return None, str(error)


def _bounded(check: CheckResult) -> list[str]:
    lines = list(check.explanation)
    if len(lines) <= EXPLANATION_LINES_MAX:
        return lines
    rest = len(lines) - EXPLANATION_LINES_MAX
    return [*lines[:EXPLANATION_LINES_MAX], f"... and {rest} more lines, in results.json"]


def _replay(store: Path, row: RunRow) -> str | None:
    if row.seed is None or not row.environment:
        return None
    return replay_command(store / row.name / row.run / "case.json", row.environment)


def _siblings(library: Library, row: RunRow) -> list[RunRow]:
    """Runs to compare with: of the same seed first, then the nearest of the same series."""
    others = [other for other in library.index().rows if other.key != row.key]
    same_seed = [other for other in others if row.seed is not None and other.seed == row.seed]
    series = sorted(
        (other for other in others if other.name == row.name), key=lambda other: other.started
    )
    before = [other for other in reversed(series) if other.started <= row.started]
    after = [other for other in series if other.started > row.started]
    ordered = {other.key: other for other in (*same_seed[:8], *before[:8], *after[:8])}
    return list(ordered.values())[:SIBLINGS_MAX]


def _end_s(numbers: RunNumbers) -> int:
    return max(math.ceil(numbers.end_ns / 1e9), len(numbers.seconds), 1)


def compare(library: Library, query_text: str) -> Page:
    """Two runs."""
    _, also = parse_query(query_text, also=("run",))
    keys = also["run"]
    if len(keys) != 2:
        raise BadQuery(
            f"a comparison is of two runs, and {len(keys)} are given: tick two in the list"
        )
    pair = [the_run(library, key) for key in keys]
    folders = [library.folder(row) for row in pair]
    found = differences((folders[0], pair[0]), (folders[1], pair[1]))
    checks = [_checks(library, row) for row in pair]
    numbers = [_numbers(library, row) for row in pair]
    there = [made for made, _ in numbers if made is not None]
    end_s = max((_end_s(made) for made in there), default=1)
    most = max((peak(made, end_s=end_s) for made in there), default=1)
    verdicts = _verdicts([results for results, _ in checks])
    context = {
        "pair": pair,
        "found": found,
        "verdicts": verdicts,
        "there": [bool(results) for results, _ in checks],
        "troubles": [(row, text) for row, (_, text) in zip(pair, checks, strict=True) if text],
        "numbers": [made for made, _ in numbers],
        "no_numbers": [text for _, text in numbers],
        "kinds": kinds_of_both(*(_kinds(made) for made, _ in numbers)),
        "quantiles": [permille / 1000 for permille in QUANTILES],
        "plots": [
            None if made is None else availability(made, end_s=end_s, most=most)
            for made, _ in numbers
        ],
    }
    data = {
        "runs": [_row_data(row) for row in pair],
        "differences": found.shown,
        "differences_count": found.count,
        "equal_fields": found.equal,
        "verdicts": [
            {"checker": name, "verdicts": [None if one is None else one.verdict for one in both]}
            for name, both in verdicts
        ],
        "numbers": [made for made, _ in numbers],
        "notes": [text for _, text in (*checks, *numbers) if text],
    }
    return Page("compare.html", context, data)


def _kinds(made: RunNumbers | None) -> tuple[Any, ...]:
    return () if made is None else (made.total, *made.kinds)


def _verdicts(
    both: Sequence[Sequence[CheckResult]],
) -> list[tuple[str, tuple[CheckResult | None, ...]]]:
    by_name = [{check.checker: check for check in checks} for checks in both]
    names = sorted({name for checks in by_name for name in checks})
    return [(name, tuple(checks.get(name) for checks in by_name)) for name in names]


def matrix(library: Library, query_text: str) -> Page:
    """Outcomes by two dimensions."""
    query, also = parse_query(query_text, also=("down", "across"))
    down = _dimension(also["down"], "nemesis", "down", DIMENSIONS)
    across = _dimension(also["across"], "workload", "across", DIMENSIONS)
    rows = matching(library.index().rows, query)
    made = matrix_of(rows, down, across)
    context = {
        "query": query,
        "down": down,
        "across": across,
        "dimensions": DIMENSIONS,
        "outcomes": OUTCOMES,
        "matrix": made,
        "notes": (*library.index().notes, *made.notes),
        "has_report": library.has_report(),
    }
    data = {
        "down": down,
        "across": across,
        "runs": len(rows),
        "cells": {
            up: {side: cell.counts for side, cell in cells.items()}
            for up, cells in made.cells.items()
        },
        "totals": {
            "down": {name: cell.counts for name, cell in made.row_totals.items()},
            "across": {name: cell.counts for name, cell in made.column_totals.items()},
            "all": made.total.counts,
        },
        "notes": context["notes"],
    }
    return Page("matrix.html", context, data)


def _dimension(given: list[str], default: str, name: str, known: Sequence[str]) -> str:
    value = next((text for text in reversed(given) if text), default)
    if value not in known:
        raise BadQuery(f"{name} is {value!r}; it is one of {', '.join(known)}")
    return value


def trends(library: Library, query_text: str) -> Page:
    """Failure rate, rate of operations and latency over labels or days."""
    query, also = parse_query(query_text, also=("by",))
    rows = matching(library.index().rows, query)
    labels = {row.label for row in rows}
    default = "label" if len(labels) > 1 else "day"
    by = _dimension(also["by"], default, "by", TREND_DIMENSIONS)
    wanted = sample(rows, by)
    briefs = library.briefs(wanted, time_limit_s=MEASURE_S)
    points, cut = trends_of(rows, by, briefs)
    notes = [*library.index().notes, *cut]
    if len(briefs) < len(wanted):
        notes.append(f"{len(briefs)} of {len(wanted)} histories are read so far; reload to read on")
    context = {
        "query": query,
        "by": by,
        "dimensions": TREND_DIMENSIONS,
        "points": points,
        "plots": trend_plots(points, joined=by in ORDERED),
        "notes": notes,
        "runs": len(rows),
        "has_report": library.has_report(),
    }
    return Page("trends.html", context, {"by": by, "points": points, "notes": notes})
