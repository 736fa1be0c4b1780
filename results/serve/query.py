"""What a list of runs is filtered and sorted by; the same words for pages, links and the API.

| parameter                        | a run is shown if                                             |
|----------------------------------|---------------------------------------------------------------|
| q                                | every word stands somewhere in it, in any case of letters     |
| name, label, workload, code, ... | the field is exactly this; `(none)` where it is empty         |
| nemesis, bug                     | these, with commas between, are among its nemeses or bugs     |
| verdict                          | valid, permitted, unknown, invalid, unfinished or broken      |
| seed                             | 7, or 1..200                                                  |
| ops, wall_s, simulated_s, faults | 10.., ..10 or 10..20; a run that does not say is left out     |
| day                              | 2026-11-21, or 2026-11-01..2026-11-30 (UTC)                   |

`sort` is a column, with a minus before it for descending; `page` counts from 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from results.serve.run_index import OUTCOMES
from results.serve.run_table import LIST_SEPARATOR, NONE, RunTable

if TYPE_CHECKING:
    from results.facts.intervals import Flags, Ints

__all__ = [
    "EXACT",
    "LISTS",
    "PAGE_ROWS",
    "RANGES",
    "SORTS",
    "BadQuery",
    "Query",
    "column_of",
    "matching",
    "ordered",
    "parse_query",
]

PAGE_ROWS: Final = 128
PARAMETERS_MAX: Final = 50
VALUE_CHARS_MAX: Final = 500

EXACT: Final = (
    *("name", "run", "label", "environment", "target", "profile", "workload", "nemeses", "bugs"),
    *("verdict", "checker", "signature", "code", "setting", "digest"),
)
LISTS: Final = {"nemesis": "nemeses", "bug": "bugs"}
RANGES: Final = ("seed", "ops", "wall_s", "simulated_s", "faults")
SORTS: Final = (
    *("started", "name", "run", "label", "environment", "target", "profile", "workload"),
    *("nemeses", "bugs", "verdict", "checker", "signature", "code"),
    *RANGES,
)
_INT64_MAX: Final = (1 << 63) - 1
_NUMBER: Final = r"-?\d{1,19}(?:\.\d{1,9})?"
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


def column_of(name: str) -> str:
    """The column of a table that a parameter or dimension is about."""
    return {"verdict": "outcome", **LISTS}.get(name, name)


def matching(table: RunTable, query: Query) -> Ints:
    """The runs that pass all filters, in the order of the table."""
    found = table.every
    for predicate in _predicates(query.filters):
        found = found[predicate(table)[found]]
    return found


def ordered(table: RunTable, rows: Ints, sort: str) -> Ints:
    """These runs by a column; what has nothing in it comes last either way."""
    if sort == "-started":
        return rows  # as the table has them
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    return table.sorted(rows, column_of(name), descending=descending)


Predicate = Callable[[RunTable], "Flags"]


def _predicates(filters: dict[str, str]) -> list[Predicate]:
    made: list[Predicate] = []
    for name, value in filters.items():
        if name == "q":
            made += [_word(word) for word in value.lower().split()]
        elif name == "day":
            made.append(_day(value))
        elif name in RANGES:
            made.append(_range(name, value))
        elif name in LISTS:
            made.append(_among(LISTS[name], value))
        else:
            if name == "verdict" and value not in OUTCOMES:
                raise BadQuery(f"verdict is {value!r}; it is one of {', '.join(OUTCOMES)}")
            made.append(_exactly(column_of(name), value))
    return made


def _word(word: str) -> Predicate:
    return lambda table: table.containing(word)


def _exactly(column: str, value: str) -> Predicate:
    return lambda table: table.texts[column].equal(value)


def _among(column: str, value: str) -> Predicate:
    if value == NONE:
        return lambda table: table.texts[column].listing(lambda names: not names)
    values = set(value.split(LIST_SEPARATOR))
    return lambda table: table.texts[column].listing(
        lambda names: value in names or values.issubset(names)
    )


def _range(name: str, value: str) -> Predicate:
    found = _RANGE.fullmatch(value.strip())
    if found is None or value.strip() == "..":
        raise BadQuery(f"{name} is {value!r}; write 7, 1..200, 10.. or ..200")
    low, high, exact = (None if part is None else _number(part) for part in found.groups())
    if exact is not None:
        low = high = exact

    def inside(table: RunTable) -> Flags:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = table.numbers[name]
        least, most = -math.inf if low is None else low, math.inf if high is None else high
        if pa.types.is_floating(numbers.type):
            least, most = float(least), float(most)
        else:  # whole bounds: Arrow compares no others with whole numbers exactly
            least = -_INT64_MAX if least < -_INT64_MAX else math.ceil(min(least, 1 << 63))
            most = _INT64_MAX if most > _INT64_MAX else math.floor(max(most, -1 << 63))
        if least > most:
            return np.zeros(len(table), np.bool_)
        within = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
        found: Flags = pc.fill_null(within, False).to_numpy(zero_copy_only=False)
        return found

    return inside


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _day(value: str) -> Predicate:
    if value == NONE:
        return lambda table: table.texts["day"].that(lambda day: not day)
    found = _DAY.fullmatch(value.strip())
    if found is None or value.strip() == "..":
        raise BadQuery(f"day is {value!r}; write 2026-11-21 or 2026-11-01..2026-11-30")
    first, last, exact = found.groups()
    first, last = first or exact or "", last or exact or "9999-99-99"
    return lambda table: table.texts["day"].that(lambda day: bool(day) and first <= day <= last)
