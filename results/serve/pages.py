"""Makes the content of each page, for its template and as plain data for the API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harness.errors import HistoryError
from harness.ops import CheckResult
from results.facts.run_numbers import RunNumbers
from results.report.time_plots import completions, peak
from results.serve.compare import differences, kinds_of_both
from results.serve.group_pages import labels
from results.serve.groups import failures_of, outcomes_of
from results.serve.library import Library
from results.serve.paths import NotThere
from results.serve.query import (
    LISTS,
    PAGE_ROWS,
    BadQuery,
    Query,
    Where,
    column_of,
    order_of,
    parse_query,
)
from results.serve.render import Page
from results.serve.run_folders import ARTEFACTS
from results.serve.run_rows import NONE, RunRow, row_of
from results.serve.runs import Reading
from results.statistics.estimates import QUANTILES

__all__ = ["Page", "compare", "run", "runs", "the_run"]

CHOICES_MAX: Final = 60
EXPLANATION_LINES_MAX: Final = 60
FILES_SHOWN_MAX: Final = 500
GROUPS_SHOWN_MAX: Final = 12
TWINS_MAX: Final = 20
_OF_SETTING: Final = ("bugs", "profile", "workload", "nemeses", "environment", "target")
_TWIN_FIELDS: Final = ("seed", *_OF_SETTING, "label", "code", "options")
_DIFFERS: Final = ", ".join(
    f"CASE WHEN {differs} THEN '{field}' END"
    for field, differs in {
        **{field: f"r.{field} IS DISTINCT FROM me.{field}" for field in _TWIN_FIELDS},
        "options": " AND ".join(
            (
                "r.setting IS DISTINCT FROM me.setting",
                *(f"r.{field} IS NOT DISTINCT FROM me.{field}" for field in _OF_SETTING),
            )
        ),
    }.items()
)
_CHOICE_FIELDS: Final = (
    *("verdict", "nemesis", "bug", "workload", "label", "environment", "target", "profile"),
    *("name", "code", "checker", "signature", "shape"),
)


def the_run(library: Library, key: str) -> RunRow:
    """Return the run with this key; raise `NotThere` if no run has the key."""
    row = library.row(key)
    if row is None:
        raise NotThere
    return row


def runs(library: Library, query_text: str) -> Page:
    """Make the page with the list of runs."""
    query, _ = parse_query(query_text)
    where = query.where()
    first = (query.page - 1) * PAGE_ROWS
    with library.reading() as reading:
        if "q" in query.filters:
            where = reading.once(where)
        counts = outcomes_of(reading, where)
        rows = reading.runs(where, order_of(query.sort), limit=PAGE_ROWS, offset=first)
        total = sum(outcomes_of(reading, Where("true", ())).values())
        groups = failures_of(reading, where, library.known)
        choices = _choices(reading, query)
        notes = reading.notes
    matching = sum(counts.values())
    pages = max(1, math.ceil(matching / PAGE_ROWS))
    context = {
        "query": query,
        "rows": rows,
        "matching": matching,
        "total": total,
        "pages": pages,
        "first": first,
        "counts": list(counts.items()),
        "index_notes": notes,
        "has_known": bool(library.known),
        "gone": library.known.gone(group["signature"] for group in groups),
        "choices": choices,
        "groups": groups[:GROUPS_SHOWN_MAX],
        "groups_cut": max(0, len(groups) - GROUPS_SHOWN_MAX),
    }
    data = {
        library.kind: library.place,
        "total": total,
        "matching": matching,
        "page": query.page,
        "pages": pages,
        "counts": counts,
        "notes": notes,
        "signatures": groups[:GROUPS_SHOWN_MAX],
        "gone": library.known.gone(group["signature"] for group in groups),
        "runs": [_row_data(row) for row in rows],
    }
    return Page("runs.html", context, data)


def _row_data(row: RunRow) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(row)
    return data


def _choices(reading: Reading, query: Query) -> dict[str, list[str] | None]:
    values = ", ".join(
        f"list_slice(list(DISTINCT {column}), 1, {CHOICES_MAX + 1}) AS {name}"
        if name not in LISTS
        else f"list_slice(list_distinct(flatten(list(DISTINCT string_split({column}, '+')))), 1, "
        f"{CHOICES_MAX + 1}) AS {name}"
        for name in _CHOICE_FIELDS
        for column in [column_of(name)]
    )
    (row,) = reading.rows(f"SELECT {values} FROM runs")  # noqa: S608
    choices: dict[str, list[str] | None] = {}
    for name in _CHOICE_FIELDS:
        # The menu also gets the value of the current filter, even if no run has this value.
        distinct = {NONE if value is None else value for value in row[name] or ()}
        distinct |= {query.filters[name]} if name in query.filters else set()
        distinct |= {NONE} if name == "bug" else set()
        choices[name] = sorted(distinct) if len(distinct) <= CHOICES_MAX else None
    return choices


def run(library: Library, row: RunRow) -> Page:
    """Make the page of one run."""
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
        "plot": None if numbers is None else completions(numbers, end_s=_end_s(numbers)),
        "command": library.folders.command(row),
        "twins": _twins(library, row),
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


_TWINS: Final = f"""
    WITH me AS (SELECT * FROM runs WHERE key = ?),
    others AS (
        SELECT r.*, list_distinct([{_DIFFERS}]) AS differs,
               abs(epoch(TRY_CAST(r.started AS TIMESTAMP))
                   - epoch(TRY_CAST(me.started AS TIMESTAMP))) AS away_s
        FROM runs r, me WHERE r.key <> me.key AND (r.seed = me.seed OR r.name = me.name)
    )
    SELECT * FROM others
    ORDER BY list_contains(differs, 'seed'), len(differs), away_s NULLS LAST, key
    LIMIT {TWINS_MAX}
"""  # noqa: S608


def _twins(library: Library, row: RunRow) -> list[tuple[RunRow, list[str]]]:
    """Return runs to compare with `row`, each with its differing fields, the most similar first."""
    with library.reading() as reading:
        rows = reading.rows(_TWINS, (row.key,))
    return [(row_of(twin), sorted(twin["differs"], key=_TWIN_FIELDS.index)) for twin in rows]


def _end_s(numbers: RunNumbers) -> int:
    return max(math.ceil(numbers.end_ns / 1e9), len(numbers.seconds), 1)


def compare(library: Library, query_text: str) -> Page:
    """Make the page that compares two runs, or two labels."""
    query, also = parse_query(query_text, also=("run", "label", "ignore"))
    keys = also["run"]
    if also["label"] and not keys:
        return labels(library, query, also["label"], also["ignore"])
    if len(keys) != 2:
        raise BadQuery(
            f"a comparison needs two runs, and the query has {len(keys)}: select two in the list"
        )
    pair = [the_run(library, key) for key in keys]
    cases = [library.case(row) for row in pair]
    changes = differences((cases[0], pair[0]), (cases[1], pair[1]))
    checks = [library.checks(row) for row in pair]
    numbers = [_numbers(library, row) for row in pair]
    there = [made for made, _ in numbers if made is not None]
    end_s = max((_end_s(made) for made in there), default=1)
    most = max((peak(made, end_s=end_s) for made in there), default=1)
    verdicts = _verdicts([results for results, _ in checks])
    context = {
        "pair": pair,
        "found": changes,
        "verdicts": verdicts,
        "there": [bool(results) for results, _ in checks],
        "troubles": [(row, text) for row, (_, text) in zip(pair, checks, strict=True) if text],
        "numbers": [made for made, _ in numbers],
        "no_numbers": [text for _, text in numbers],
        "kinds": kinds_of_both(*(_kinds(made) for made, _ in numbers)),
        "quantiles": [permille / 1000 for permille in QUANTILES],
        "plots": [
            None if made is None else completions(made, end_s=end_s, most=most)
            for made, _ in numbers
        ],
    }
    data = {
        "runs": [_row_data(row) for row in pair],
        "differences": changes.listed,
        "differences_count": changes.count,
        "equal_fields": changes.equal,
        "verdicts": [
            {
                "checker": name,
                "verdicts": [None if check is None else check.verdict for check in both],
            }
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
