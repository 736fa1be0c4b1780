"""What a list of runs is filtered and sorted by; the same words for pages, links and the API.

| parameter                        | a run is shown if                                             |
|----------------------------------|---------------------------------------------------------------|
| q                                | every word stands somewhere in it, in any case of letters     |
| name, label, workload, bugs, ... | the field is exactly this; `(none)` where it is empty         |
| nemesis, bug                     | these, with commas between, are among its nemeses or bugs     |
| verdict                          | valid, permitted, unknown, invalid, unfinished or broken      |
| seed                             | 7, or 1..200                                                  |
| ops, wall_s, simulated_s, faults | 10.., ..10 or 10..20; a run that does not say is left out     |
| day                              | 2026-11-21, or 2026-11-01..2026-11-30 (UTC)                   |

`sort` is a column, with a minus before it for descending; `page` counts from 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from results.run_index import OUTCOMES, RunRow

__all__ = [
    "EXACT",
    "LISTS",
    "NONE",
    "PAGE_ROWS",
    "RANGES",
    "SORTS",
    "BadQuery",
    "Query",
    "field_text",
    "matching",
    "parse_query",
    "sorted_rows",
]

PAGE_ROWS: Final = 128
NONE: Final = "(none)"
PARAMETERS_MAX: Final = 50
VALUE_CHARS_MAX: Final = 500
LIST_SEPARATOR: Final = ","

EXACT: Final = (
    *("name", "run", "label", "environment", "target", "profile", "workload", "nemeses", "bugs"),
    *("verdict", "checker", "signature", "digest"),
)
LISTS: Final = {"nemesis": "nemeses", "bug": "bugs"}
RANGES: Final = ("seed", "ops", "wall_s", "simulated_s", "faults")
SORTS: Final = (
    *("started", "name", "run", "label", "environment", "target", "profile", "workload"),
    *(
        "nemeses",
        "bugs",
        "verdict",
        "checker",
        "signature",
        "seed",
        "faults",
        "ops",
        "wall_s",
        "simulated_s",
    ),
)
_NUMBER: Final = r"-?\d{1,18}(?:\.\d{1,9})?"
_RANGE: Final = re.compile(rf"({_NUMBER})?\.\.({_NUMBER})?|({_NUMBER})")
_DAY: Final = re.compile(r"(\d{4}-\d\d-\d\d)?\.\.(\d{4}-\d\d-\d\d)?|(\d{4}-\d\d-\d\d)")


class BadQuery(Exception):  # noqa: N818 - the answer is 400
    """A parameter that is none, or cannot have this value; the text says which and why."""


class Query(msgspec.Struct, frozen=True):
    """A parsed query: filters by parameter, the order, the page."""

    filters: dict[str, str]
    sort: str = "-started"
    page: int = 1

    def url(self, path: str, **changes: str | None) -> str:
        """`path` with this query; filters in `changes` replace others, `None` takes one away."""
        parameters = {**self.filters, "sort": self.sort} | {
            name: value for name, value in changes.items() if value is not None
        }
        for name, value in changes.items():
            if value is None:
                parameters.pop(name, None)
        if parameters.get("sort") == "-started":
            del parameters["sort"]
        return f"{path}?{urlencode(parameters)}" if parameters else path

    def narrowed(self, path: str, *also: tuple[str, str]) -> str:
        """`path` with this query and the values in `also`: exactly the runs that a cell counts.

        A field has one value, so another one replaces it; of nemeses and bugs a run may have many.
        """
        filters = dict(self.filters)
        for name, value in also:
            before = filters.get(name)
            if name in LISTS and before is not None and value not in before.split(LIST_SEPARATOR):
                filters[name] = f"{before}{LIST_SEPARATOR}{value}"
            else:
                filters[name] = before if name in LISTS and before is not None else value
        return Query(filters).url(path)


def parse_query(text: str, also: Iterable[str] = ()) -> tuple[Query, dict[str, list[str]]]:
    """The query, and the values of the parameters in `also`; raises `BadQuery`."""
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="strict"
        )
    except (ValueError, UnicodeError) as error:
        raise BadQuery(f"the query cannot be read: {error}") from error
    known = {"q", "day", *EXACT, *LISTS, *RANGES}
    filters: dict[str, str] = {}
    others: dict[str, list[str]] = {name: [] for name in also}
    sort, page = "-started", 1
    for name, value in pairs:
        if len(value) > VALUE_CHARS_MAX:
            raise BadQuery(f"{name[:50]} has more than {VALUE_CHARS_MAX} characters")
        if name in others:
            others[name].append(value)
        elif name == "sort":
            sort = _sort(value)
        elif name == "page":
            if not re.fullmatch(r"[1-9]\d{0,8}", value):
                raise BadQuery(f"page is {value!r}; pages are counted from 1")
            page = int(value)
        elif name in known:
            if value:  # an empty field of the form asks for nothing
                filters[name] = value
        else:
            names = ", ".join(sorted({*known, *others, "sort", "page"}))
            raise BadQuery(f"there is no parameter {name[:50]!r}; there are {names}")
    _predicates(filters)
    return Query(filters, sort, page), others


def _sort(value: str) -> str:
    if value.removeprefix("-") not in SORTS:
        raise BadQuery(f"sort is {value!r}; it is one of {', '.join(SORTS)}, or -COLUMN")
    return value


def field_text(row: RunRow, name: str) -> str:
    """A field as filters, links and cells have it; `(none)` where there is nothing."""
    if name == "verdict":
        return row.outcome
    if name == "day":
        return row.started[:10] or NONE
    value = getattr(row, name)
    if isinstance(value, tuple):
        return LIST_SEPARATOR.join(value) or NONE
    return NONE if value is None or value == "" else str(value)


def matching(rows: Iterable[RunRow], query: Query) -> list[RunRow]:
    """The rows that pass all filters, in the order given."""
    predicates = _predicates(query.filters)
    return [row for row in rows if all(predicate(row) for predicate in predicates)]


def _predicates(filters: dict[str, str]) -> list[Callable[[RunRow], bool]]:
    made: list[Callable[[RunRow], bool]] = []
    for name, value in filters.items():
        if name == "q":
            made.append(_words(value))
        elif name == "day":
            made.append(_day(value))
        elif name in RANGES:
            made.append(_range(name, value))
        elif name in LISTS:
            made.append(_among(LISTS[name], value))
        else:
            if name == "verdict" and value not in OUTCOMES:
                raise BadQuery(f"verdict is {value!r}; it is one of {', '.join(OUTCOMES)}")
            made.append(_exactly(name, value))
    return made


def _words(value: str) -> Callable[[RunRow], bool]:
    words = value.lower().split()
    return lambda row: all(word in row.text for word in words)


def _exactly(name: str, value: str) -> Callable[[RunRow], bool]:
    return lambda row: field_text(row, name) == value


def _among(field: str, value: str) -> Callable[[RunRow], bool]:
    if value == NONE:
        return lambda row: not getattr(row, field)
    values = set(value.split(LIST_SEPARATOR))
    return lambda row: value in getattr(row, field) or values.issubset(getattr(row, field))


def _range(name: str, value: str) -> Callable[[RunRow], bool]:
    found = _RANGE.fullmatch(value.strip())
    if found is None or value.strip() == "..":
        raise BadQuery(f"{name} is {value!r}; write 7, 1..200, 10.. or ..200")
    low, high, exact = (None if part is None else _number(part) for part in found.groups())
    if exact is not None:
        low = high = exact

    def inside(row: RunRow) -> bool:
        number = getattr(row, name)
        if number is None:
            return False
        return (low is None or number >= low) and (high is None or number <= high)

    return inside


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _day(value: str) -> Callable[[RunRow], bool]:
    if value == NONE:
        return lambda row: not row.started
    found = _DAY.fullmatch(value.strip())
    if found is None or value.strip() == "..":
        raise BadQuery(f"day is {value!r}; write 2026-11-21 or 2026-11-01..2026-11-30")
    first, last, exact = found.groups()
    first, last = first or exact or "", last or exact or "9999-99-99"
    return lambda row: bool(row.started) and first <= row.started[:10] <= last


def sorted_rows(rows: Sequence[RunRow], sort: str) -> list[RunRow]:
    """`rows` by a column; what has nothing in it comes last either way."""
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    rank = {outcome: place for place, outcome in enumerate(OUTCOMES)}
    there: list[tuple[str | int | float, RunRow]] = []
    absent: list[RunRow] = []
    for row in rows:
        value = rank[row.outcome] if name == "verdict" else getattr(row, name)
        if isinstance(value, tuple):
            value = LIST_SEPARATOR.join(value)
        if value is None or value == "":
            absent.append(row)
        else:
            there.append((value, row))
    there.sort(key=lambda item: item[0], reverse=descending)
    return [*(row for _, row in there), *absent]
