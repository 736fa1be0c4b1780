"""Parses the filters and the order of a list of runs. Pages, links and the API use the same names.

| parameter                        | a run is shown if                                             |
|----------------------------------|---------------------------------------------------------------|
| q                                | its fields contain every word, ignoring case                  |
| name, label, workload, code, ... | the field has exactly this value; `(none)`: it has no value   |
| nemesis, bug                     | it has all of these nemeses or bugs (separated by commas)     |
| verdict                          | valid, permitted, unknown, invalid, unfinished or broken      |
| seed                             | 7, or 1..200                                                  |
| ops, wall_s, simulated_s, faults | 10.., ..10 or 10..20; a run without the value is left out     |
| day                              | 2026-11-21, or 2026-11-01..2026-11-30 (UTC)                   |

`sort` is a column, with a minus in front for descending order; `page` counts from 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec

from results.facts.schema import LIST_SEPARATOR as JOINED_BY
from results.serve.run_rows import NONE, OUTCOMES

LIST_SEPARATOR: Final = ","
PAGE_ROWS: Final = 128
PARAMETERS_MAX: Final = 50
VALUE_CHARS_MAX: Final = 500

EXACT: Final = (
    *("name", "run", "label", "environment", "target", "profile", "workload", "nemeses", "bugs"),
    *("verdict", "checker", "signature", "shape", "code", "setting", "digest"),
)
LISTS: Final = {"nemesis": "nemeses", "bug": "bugs"}
RANGES: Final = ("seed", "ops", "wall_s", "simulated_s", "faults")
SORTS: Final = (
    *("started", "name", "run", "label", "environment", "target", "profile", "workload"),
    *("nemeses", "bugs", "verdict", "checker", "signature", "shape", "code"),
    *RANGES,
)
NEWEST_FIRST: Final = "started DESC NULLS LAST, key DESC"
_SEARCHED: Final = (
    *("key", "outcome", "problem", "started", "label", "environment", "target", "signature"),
    *("shape", "reason", "profile", "workload", "nemeses", "bugs", "digest", "versions"),
    *("CAST(seed AS VARCHAR)", "CASE WHEN interrupted THEN 'interrupted' END"),
)
_TEXT: Final = f"lower(concat_ws(chr(10), {', '.join(_SEARCHED)}))"
_INT64_MAX: Final = (1 << 63) - 1
_NUMBER: Final = r"-?\d{1,19}(?:\.\d{1,9})?"
_RANGE: Final = re.compile(rf"({_NUMBER})?\.\.({_NUMBER})?|({_NUMBER})")
_DAY: Final = re.compile(r"(\d{4}-\d\d-\d\d)?\.\.(\d{4}-\d\d-\d\d)?|(\d{4}-\d\d-\d\d)")


class BadQuery(Exception):  # noqa: N818 - the answer is 400
    """A query has an unknown parameter or a wrong value. The message says which."""


class Where(NamedTuple):
    """An SQL condition on the table `runs`, and the values of its parameters."""

    sql: str
    values: tuple[str | int | float, ...]


class Query(msgspec.Struct, frozen=True):
    """A parsed query: filters by parameter, sort order and page number."""

    filters: dict[str, str]
    sort: str = "-started"
    page: int = 1

    def where(self) -> Where:
        """Return the condition for runs that pass all filters; raise `BadQuery` for bad values."""
        parts = [part for name, value in self.filters.items() for part in _conditions(name, value)]
        return Where(
            " AND ".join(["true", *(part.sql for part in parts)]),
            tuple(value for part in parts for value in part.values),
        )

    def url(self, path: str, **changes: str | Sequence[str] | None) -> str:
        """Make a URL of `path` with this query. `changes` replace filters; `None` removes one."""
        parameters: dict[str, str | Sequence[str]] = {**self.filters, "sort": self.sort} | {
            name: value for name, value in changes.items() if value is not None
        }
        for name, value in changes.items():
            if value is None:
                parameters.pop(name, None)
        if parameters.get("sort") == "-started":
            del parameters["sort"]
        return f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path

    def chips(self, path: str, **also: str | Sequence[str]) -> list[tuple[str, str, str]]:
        """Return each filter: its name, its value, and the URL of the page without this filter."""
        chips = []
        for name, value in self.filters.items():
            separator = " " if name == "q" else LIST_SEPARATOR
            values = value.split(separator) if name in {"q", *LISTS} else [value]
            for part in filter(None, values):
                rest = separator.join(other for other in values if other not in {part, ""})
                changes: dict[str, str | Sequence[str] | None] = {**also, name: rest or None}
                chips.append((name, part, self.url(path, **changes)))
        return chips

    def narrowed(self, path: str, *also: tuple[str, str]) -> str:
        """Return a URL of `path` for this query, narrowed by the fields and values in `also`.

        A value in `also` replaces the filter of the same field. But a run may have several nemeses
        and bugs, so a nemesis or bug in `also` is added to the filter.
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
    """Parse a URL's query; also return the values of the parameters `also`; raise `BadQuery`."""
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="strict"
        )
    except (ValueError, UnicodeError) as error:
        raise BadQuery(f"the query cannot be read: {error}") from error
    fields = {"q", "day", *EXACT, *LISTS, *RANGES}
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
        elif name in fields:
            if value:
                filters[name] = value
        else:
            names = ", ".join(sorted({*fields, *others, "sort", "page"}))
            raise BadQuery(f"there is no parameter {name[:50]!r}; there are {names}")
    query = Query(filters, sort, page)
    query.where()
    return query, others


def _sort(value: str) -> str:
    if value.removeprefix("-") not in SORTS:
        raise BadQuery(f"sort is {value!r}; it is one of {', '.join(SORTS)}, or -COLUMN")
    return value


def column_of(name: str) -> str:
    """Return the column of the table `runs` for a parameter or dimension."""
    return {"verdict": "outcome", **LISTS}.get(name, name)


def order_of(sort: str) -> str:
    """Return the ORDER BY of a list. Runs without a value come last, in either direction."""
    name, way = sort.removeprefix("-"), "DESC" if sort.startswith("-") else "ASC"
    column = column_of(name)
    if name == "verdict":
        column = f"list_position({list(OUTCOMES)!r}, outcome)"
    return f"{column} {way} NULLS LAST, {NEWEST_FIRST}"


def _conditions(name: str, value: str) -> list[Where]:
    if name == "q":
        return [Where(f"contains({_TEXT}, ?)", (word,)) for word in value.lower().split()]
    if name == "day":
        return [_day(value)]
    if name in RANGES:
        return [_range(name, value)]
    column = column_of(name)
    if value == NONE:
        return [Where(f"{column} IS NULL", ())]
    if name in LISTS:
        items = f"string_split({column}, '{JOINED_BY}')"
        return [
            Where(f"list_contains({items}, ?)", (item,)) for item in value.split(LIST_SEPARATOR)
        ]
    if name == "verdict" and value not in OUTCOMES:
        raise BadQuery(f"verdict is {value!r}; it is one of {', '.join(OUTCOMES)}")
    if name in LISTS.values():
        value = JOINED_BY.join(value.split(LIST_SEPARATOR))
    return [Where(f"{column} = ?", (value,))]


def _range(name: str, value: str) -> Where:
    match = _RANGE.fullmatch(value.strip())
    if match is None or value.strip() == "..":
        raise BadQuery(f"{name} is {value!r}; write 7, 1..200, 10.. or ..200")
    low, high, exact = (None if part is None else _number(part) for part in match.groups())
    if exact is not None:
        low = high = exact
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    column = column_of(name)
    if name.endswith("_s"):
        return Where(f"{column} BETWEEN ? AND ?", (float(least), float(most)))
    # Use integer bounds, since SQL would round a 64-bit integer to compare it with a fraction.
    first = -_INT64_MAX if least < -_INT64_MAX else math.ceil(min(least, 1 << 63))
    last = _INT64_MAX if most > _INT64_MAX else math.floor(max(most, -1 << 63))
    if not -_INT64_MAX <= first <= last <= _INT64_MAX:
        return Where("false", ())
    return Where(f"{column} BETWEEN ? AND ?", (first, last))


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _day(value: str) -> Where:
    if value == NONE:
        return Where("day IS NULL", ())
    match = _DAY.fullmatch(value.strip())
    if match is None or value.strip() == "..":
        raise BadQuery(f"day is {value!r}; write 2026-11-21 or 2026-11-01..2026-11-30")
    first, last, exact = match.groups()
    return Where("day BETWEEN ? AND ?", (first or exact or "", last or exact or "9999-99-99"))
