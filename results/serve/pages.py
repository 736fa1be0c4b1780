"""What each page shows, once for its template and once as plain data for the API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HistoryError
from harness.ops import CheckResult
from results.facts.run_numbers import RunNumbers
from results.serve.compare import differences, kinds_of_both
from results.serve.drawing import availability, peak
from results.serve.group_pages import labels
from results.serve.groups import failures_of
from results.serve.library import ARTEFACTS, Library
from results.serve.page import Page
from results.serve.paths import NotThere
from results.serve.query import (
    LISTS,
    PAGE_ROWS,
    BadQuery,
    Query,
    column_of,
    matching,
    ordered,
    parse_query,
)
from results.serve.run_index import OUTCOMES, RunRow
from results.serve.run_table import NONE, RunTable
from results.statistics.estimates import QUANTILES

if TYPE_CHECKING:
    from results.facts.intervals import Ints

__all__ = ["Page", "compare", "run", "runs", "the_run"]

CHOICES_MAX: Final = 60
EXPLANATION_LINES_MAX: Final = 60
FILES_SHOWN_MAX: Final = 500
GROUPS_SHOWN_MAX: Final = 12
SIBLINGS_MAX: Final = 20
SIBLINGS_NEAR: Final = 8
_CHOICE_FIELDS: Final = (
    *("verdict", "nemesis", "bug", "workload", "label", "environment", "target", "profile"),
    *("name", "code", "checker", "signature"),
)


def the_run(library: Library, key: str) -> RunRow:
    """The run with this key; raises `NotThere`."""
    row = library.row(key)
    if row is None:
        raise NotThere
    return row


def runs(library: Library, query_text: str) -> Page:
    """The list of runs."""
    query, _ = parse_query(query_text)
    table = library.table()
    found = matching(table, query)
    pages = max(1, math.ceil(len(found) / PAGE_ROWS))
    first = (query.page - 1) * PAGE_ROWS
    places = ordered(table, found, query.sort)[first : first + PAGE_ROWS]
    shown = [table.row(int(place)) for place in places]
    counts = table.outcomes(found)
    groups = failures_of(table, found)
    context = {
        "query": query,
        "rows": shown,
        "matching": len(found),
        "total": len(table),
        "pages": pages,
        "first": first,
        "counts": [(name, counts[name]) for name in OUTCOMES if name in counts],
        "index_notes": table.notes,
        "choices": _choices(table, query),
        "groups": groups[:GROUPS_SHOWN_MAX],
        "groups_cut": max(0, len(groups) - GROUPS_SHOWN_MAX),
    }
    data = {
        library.kind: library.place,
        "total": len(table),
        "matching": len(found),
        "page": query.page,
        "pages": pages,
        "counts": counts,
        "notes": table.notes,
        "signatures": groups[:GROUPS_SHOWN_MAX],
        "runs": [_row_data(row) for row in shown],
    }
    return Page("runs.html", context, data)


def _row_data(row: RunRow) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(row)
    return data


def _choices(table: RunTable, query: Query) -> dict[str, list[str] | None]:
    """The values to choose from, by filter; `None` where there are too many for a menu."""
    found: dict[str, list[str] | None] = {}
    for name in _CHOICE_FIELDS:
        texts = table.texts[column_of(name)]
        values = set(texts.names)
        if name in LISTS:
            assert texts.lists is not None
            values = {item for names in texts.lists for item in names}
        if name == "bug":
            values.add(NONE)
        chosen = query.filters.get(name)
        if chosen is not None:
            values.add(chosen)  # a link may ask for what there is no more
        found[name] = sorted(values) if len(values) <= CHOICES_MAX else None
    return found


def run(library: Library, row: RunRow) -> Page:
    """One run."""
    files, more = library.files(row)
    checks, trouble = library.checks(row)
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
        "command": library.command(row),
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


def _siblings(library: Library, row: RunRow) -> list[RunRow]:
    """Runs to compare with: of the same seed first, then the nearest of the same series."""
    table = library.table()
    own = table.find(row.key)
    same_seed: Ints = table.every[:0]
    if row.seed is not None:
        same_seed = matching(table, Query({"seed": str(row.seed)}))
    series = matching(table, Query({"name": row.name}))
    same_seed = same_seed[same_seed != own][:SIBLINGS_NEAR]
    at = len(series) if own is None else int(series.searchsorted(own))
    newer, older = series[max(0, at - SIBLINGS_NEAR) : at], series[at : at + SIBLINGS_NEAR + 1]
    places = [*same_seed, *older, *newer[::-1]]
    found = [int(place) for place in dict.fromkeys(places) if place != own]
    return [table.row(place) for place in found[:SIBLINGS_MAX]]


def _end_s(numbers: RunNumbers) -> int:
    return max(math.ceil(numbers.end_ns / 1e9), len(numbers.seconds), 1)


def compare(library: Library, query_text: str) -> Page:
    """Two runs, or two labels."""
    query, also = parse_query(query_text, also=("run", "label"))
    keys = also["run"]
    if also["label"] and not keys:
        return labels(library, query, also["label"])
    if len(keys) != 2:
        raise BadQuery(
            f"a comparison is of two runs, and {len(keys)} are given: tick two in the list"
        )
    pair = [the_run(library, key) for key in keys]
    cases = [library.case(row) for row in pair]
    found = differences((cases[0], pair[0]), (cases[1], pair[1]))
    checks = [library.checks(row) for row in pair]
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
