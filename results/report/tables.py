"""Formats the cells of the page's tables, and limits their rows.

Every number has a formatted text for readers, and its raw value for tests (`data-v` on the page).
If an answer has more rows than its table's limit, the page says how many. The Parquet file of the
same name has all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from results.report.number_words import count, duration, p_value, ratio, share, size

ROWS_MAX: Final = 100
POPULATION: Final = "of"
"""The column with the words of a population."""
SHORT_CHARS_MAX: Final = 24
"""The page keeps a string with at most this many characters on one line."""
CELL_CHARS_MAX: Final = 240
WORDS_CHARS_MAX: Final = 2_000

Column = tuple[str, str, str]


class Cell(msgspec.Struct, frozen=True):
    """The text of a cell. For a number, also its raw value."""

    text: str
    value: float | int | None = None
    kind: str = ""
    link: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table with a limited number of rows. `source` is the name of the answer with all rows."""

    id: str
    caption: str
    columns: tuple[tuple[str, bool], ...]  # header, and whether the column has numbers
    rows: tuple[tuple[Cell, ...], ...]
    heads: tuple[str, ...]  # for each row: the words of the population that begins here, or ""
    not_shown: int
    source: str
    behind: str = ""  # SQL that selects the runs behind a row


class Layout(msgspec.Struct, frozen=True):
    """The layout of an answer: caption, columns (field, heading, format), limit of rows.

    A table that shows only a part of an answer has a name of its own, and `source` then names the
    answer. `behind` names the columns of the table `runs` (`results.open`) that select the runs
    behind a row.
    """

    caption: str
    columns: tuple[Column, ...]
    limit: int = ROWS_MAX
    source: str | None = None
    behind: str = ""


def _text(value: Any) -> Cell:
    words = "" if value is None else str(value)
    kind = "short" if len(words) <= SHORT_CHARS_MAX else ""
    return Cell(words if len(words) <= CELL_CHARS_MAX else f"{words[:CELL_CHARS_MAX]}…", kind=kind)


def _words(value: Any) -> Cell:
    text = "" if value is None else str(value)
    return Cell(
        text if len(text) <= WORDS_CHARS_MAX else f"{text[:WORDS_CHARS_MAX]}…", kind="words"
    )


def _code(value: Any) -> Cell:
    return Cell("" if value is None else str(value), kind="code")


def _run(value: Any) -> Cell:
    return Cell("") if value is None else Cell(value[0], link=value[1])


def _names(value: Any) -> Cell:
    return _text(value or "none")


def _verdict(value: Any) -> Cell:
    return Cell(str(value), None, str(value).replace(" ", "-"))


def _yes(value: Any) -> Cell:
    return Cell("yes" if value else "no")


_WRITERS: Final[dict[str, Callable[[Any], Cell]]] = {
    "text": _text,
    "names": _names,
    "words": _words,
    "code": _code,
    "run": _run,
    "verdict": _verdict,
    "yes": _yes,
}
_NUMBERS: Final[dict[str, Callable[[Any], str]]] = {
    "count": count,
    "ns": duration,
    "share": share,
    "ratio": ratio,
    "p": p_value,
    "size": size,
}


def _cell(way: str, value: Any) -> Cell:
    """Format a value as a cell. `value` may also be a pair of a number and a link to runs."""
    if way not in _NUMBERS:
        return _WRITERS[way](value)
    number, link = value if isinstance(value, tuple) else (value, "")
    return Cell(_NUMBERS[way](number), number, link=link)


def make_table(
    name: str, layout: Layout, rows: Sequence[Mapping[str, Any]], *, total: int | None = None
) -> Table:
    """Make a table of some rows of an answer with `total` rows (default: the number of `rows`).

    If populations have several rows each, their words are headings instead of a column.
    """
    listed, columns = rows[: layout.limit], layout.columns
    heads = [""] * len(listed)
    if (POPULATION, "text") in {(field, way) for field, _, way in columns}:
        words = [str(row[POPULATION]) for row in listed]
        firsts = [at for at, text in enumerate(words) if at == 0 or text != words[at - 1]]
        if 2 * len(firsts) <= len(listed):
            columns = tuple(column for column in columns if column[0] != POPULATION)
            for at in firsts:
                heads[at] = words[at]
    return Table(
        id=name,
        caption=layout.caption,
        columns=tuple((header, way in _NUMBERS) for _, header, way in columns),
        rows=tuple(tuple(_cell(way, row[field]) for field, _, way in columns) for row in listed),
        heads=tuple(heads),
        not_shown=max(0, (len(rows) if total is None else total) - layout.limit),
        source=layout.source or name,
        behind=_behind(layout.behind),
    )


def _behind(columns: str) -> str:
    chosen = (f"{name} {'LIKE' if name == 'versions' else '='} …" for name in columns.split())
    return f"SELECT * FROM runs WHERE {' AND '.join(chosen)}" if columns else ""  # noqa: S608
