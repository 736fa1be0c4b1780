"""Histories as tables: eleven columns separated by tabs for a catalog, four for a register.

    op name name2 payload result id version seen_payload listing call return

`op` is create, drop, alter, ren, get or list. A result of `?`, with a return of 1000000000 or more,
means that the answer was lost; a create with a lost answer still has the id that the table got if
the create took effect. In ops, an invocation's value is `{name, name2, payload, id}`, a
completion's value is `{result, id, version, payload, listing}`.

    is_write value call return

A register has these four whole numbers per line; a return of 1000000 or more means that the answer
was lost.
"""

from __future__ import annotations

import re
from typing import Any, Final

from harness.errors import HistoryError, counted, located
from harness.formats.source import Row, Table

CATALOG_NEVER: Final = 1_000_000_000
COLUMNS: Final = (
    "op",
    "name",
    "name2",
    "payload",
    "result",
    "id",
    "version",
    "seen_payload",
    "listing",
    "call",
    "return",
)
OPERATIONS: Final = ("create", "drop", "alter", "ren", "get", "list")
_RESULTS: Final = {
    "create": ("ok", "ex", "?"),
    "drop": ("ok", "nf", "?"),
    "alter": ("ok", "nf", "?"),
    "ren": ("ok", "nf", "ex", "?"),
    "get": ("ok", "nf", "?"),
    "list": ("ok", "?"),
}
_NUMBERS: Final = ("payload", "id", "version", "seen_payload", "call", "return")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
REGISTER_NEVER: Final = 1_000_000
_WORD: Final = re.compile(r"\S+")
_REGISTER_LINE: Final = re.compile(rb"\s*[01](?:[ \t]+-?[0-9]+){3}[ \t]*\r?(?:\n|\Z)")
_ENTRY: Final = re.compile(r"([^:,]+):(-?[0-9]{1,18})")
_CATALOG_LINE: Final = re.compile(
    rb"\s*(?:" + "|".join(OPERATIONS).encode() + rb")\t(?:[^\t\n]*\t){9}[^\t\n]*(?:\n|\Z)"
)


def is_catalog_table(head: bytes) -> bool:
    """Whether a file that begins with `head` is a catalog table."""
    return _CATALOG_LINE.match(head) is not None


class CatalogTable(Table):
    """A history file that is a catalog table."""

    format = "catalog-table"

    def _row(self, line: int, text: str) -> Row:
        cells = text.split("\t")

        def error(column: str, what: str) -> HistoryError:
            before = cells[: COLUMNS.index(column)]
            return located(self._path, line, sum(len(cell) + 1 for cell in before) + 1, what)

        if len(cells) != len(COLUMNS):
            columns = f"{len(COLUMNS)}: {', '.join(COLUMNS)}"
            what = f"{counted(len(cells), 'column')} separated by tabs; there must be {columns}"
            raise located(self._path, line, len(text) + 1, what)
        row = dict(zip(COLUMNS, cells, strict=True))
        numbers: dict[str, int] = {}
        for column in _NUMBERS:
            if not _NUMBER.fullmatch(row[column]):
                raise error(column, f"{column} is {row[column][:80]!r}, not a whole number")
            numbers[column] = int(row[column])
        f, result = row["op"], row["result"]
        if f not in OPERATIONS:
            raise error("op", f"{f[:80]!r} is not an operation; they are {', '.join(OPERATIONS)}")
        if result not in _RESULTS[f]:
            allowed = ", ".join(_RESULTS[f])
            raise error("result", f"{result[:80]!r} is not a result of {f}; they are {allowed}")
        call, returned = numbers["call"], numbers["return"]
        if returned < call:
            raise error("return", f"it returns at {returned}, before its call at {call}")
        if (returned >= CATALOG_NEVER) is not (result == "?"):
            raise error(
                "result",
                f"the result is {result!r} but the return {returned}; operations with the "
                f"result '?', and only they, return at {CATALOG_NEVER} or later",
            )
        listing = []
        for entry in row["listing"].split(",") if row["listing"] else []:
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise error("listing", f"{entry[:80]!r} in the listing is not name:id")
            listing.append([match[1], int(match[2])])
        return self._interval(line, row, numbers, listing)

    def _interval(
        self, line: int, row: dict[str, str], numbers: dict[str, int], listing: list[Any]
    ) -> Row:
        request = {
            "name": row["name"],
            "name2": row["name2"],
            "payload": numbers["payload"],
            "id": numbers["id"] if row["op"] == "create" else 0,
        }
        answer = {
            "result": row["result"],
            "id": numbers["id"],
            "version": numbers["version"],
            "payload": numbers["seen_payload"],
            "listing": listing,
        }
        returned = None if row["result"] == "?" else numbers["return"]
        return Row(line, numbers["call"], returned, row["op"], request, answer)


def is_register_table(head: bytes) -> bool:
    """Whether a file that begins with `head` is a register table."""
    return _REGISTER_LINE.match(head) is not None


class RegisterTable(Table):
    """A history file that is a register table."""

    format = "register-table"

    def _row(self, line: int, text: str) -> Row:
        words = list(_WORD.finditer(text))

        def error(number: int, what: str) -> HistoryError:
            start = words[number].start() if number < len(words) else len(text)
            return located(self._path, line, start + 1, what)

        for number, word in enumerate(words[:4]):
            if not _NUMBER.fullmatch(word[0]):
                raise error(number, f"{word[0][:80]!r} is not a whole number")
        if len(words) != 4:
            what = (
                f"{counted(len(words), 'column')}; there must be 4: is_write, value, call, return"
            )
            raise error(4, what)
        is_write, value, call, returned = (int(word[0]) for word in words)
        if is_write not in {0, 1}:
            raise error(0, f"is_write is {is_write}; it is 0 or 1")
        if returned < call:
            raise error(3, f"it returns at {returned}, before its call at {call}")
        f = "write" if is_write else "read"
        return Row(
            line,
            call,
            returned if returned < REGISTER_NEVER else None,
            f,
            value if is_write else None,
            value,
        )
