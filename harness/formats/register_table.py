"""Tables of one register: `is_write value call return`, four whole numbers a line.

A return of 1000000 or more means that the answer was lost.
"""

from __future__ import annotations

import re
from typing import Final

from harness.errors import HistoryError, located
from harness.formats.source import Row, Table

NEVER: Final = 1_000_000
_WORD: Final = re.compile(r"\S+")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_FIRST_LINE: Final = re.compile(rb"\s*[01](?:[ \t]+-?[0-9]+){3}[ \t]*\r?(?:\n|\Z)")


def is_register_table(head: bytes) -> bool:
    """Whether a file that begins like this is such a table."""
    return _FIRST_LINE.match(head) is not None


class RegisterTable(Table):
    """One such table."""

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
            what = f"{len(words)} columns; there must be 4: is_write, value, call, return"
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
            returned if returned < NEVER else None,
            f,
            value if is_write else None,
            value,
        )
