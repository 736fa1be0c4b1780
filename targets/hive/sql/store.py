"""Committed rows, their unique keys, and what was changed lately, for transactions that look back.

A row has a number of its own for life. `changed` keeps the commits that some open transaction may
still have to look behind; `rows_at` undoes them for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from targets.hive.sql.protocol import Row, Where
from targets.hive.sql.schema import SCHEMA

Place = tuple[str, int]
"""A table and the number of a row in it."""
Key = tuple[str, int, tuple[Any, ...]]
"""A table, which of its unique keys, and the values of its columns."""


class Change(NamedTuple):
    """One row before and after; `None` where there was or is none."""

    place: Place
    old: Row | None
    new: Row | None


class Image(msgspec.Struct, frozen=True):
    """Everything that is committed, as a checkpoint holds it."""

    rows: dict[str, dict[int, Row]]
    numbers: dict[str, int]  # the next row's, by table
    serials: dict[str, int]


def matches(row: Mapping[str, Any], where: Where) -> bool:
    """Whether all conditions hold."""
    return all(condition.holds(row) for condition in where)


def keys_of(table: str, row: Mapping[str, Any]) -> Iterator[Key]:
    """The unique keys that a row takes."""
    for number, columns in enumerate(SCHEMA[table].unique):
        yield table, number, tuple(row[column] for column in columns)


class _Commit(NamedTuple):
    number: int
    changes: tuple[Change, ...]


class Store:
    """What is committed. Not one of its methods waits."""

    def __init__(self, image: Image | None = None) -> None:
        """Start from a checkpoint, or empty."""
        self.rows: Final[dict[str, dict[int, Row]]] = {table: {} for table in SCHEMA}
        self._keys: dict[Key, int] = {}
        self._numbers = dict.fromkeys(SCHEMA, 1)
        self._serials = dict.fromkeys(SCHEMA, 1)
        self._recent: deque[_Commit] = deque()
        self.commits = 0
        if image is not None:
            self._numbers.update(image.numbers)
            self._serials.update(image.serials)
            self.replay(
                Change((table, number), None, row)
                for table, rows in image.rows.items()
                for number, row in rows.items()
            )

    def image(self) -> Image:
        """All of it, for a checkpoint."""
        rows = {table: dict(found) for table, found in self.rows.items()}
        return Image(rows, dict(self._numbers), dict(self._serials))

    def next_number(self, table: str) -> int:
        """A number for a new row; it is used up, whatever becomes of the row."""
        number = self._numbers[table]
        self._numbers[table] = number + 1
        return number

    def next_serial(self, table: str) -> int:
        """As with PostgreSQL's sequences, no transaction takes it back."""
        serial = self._serials[table]
        self._serials[table] = serial + 1
        return serial

    def holder(self, key: Key) -> int | None:
        """The row that has this key."""
        return self._keys.get(key)

    def replay(self, changes: Iterable[Change]) -> None:
        """Apply changes that were committed once before."""
        for change in changes:
            table, number = change.place
            self._apply(change)
            self._numbers[table] = max(self._numbers[table], number + 1)
            serial = SCHEMA[table].serial
            used = change.new[serial] if serial and change.new is not None else None
            if isinstance(used, int):
                self._serials[table] = max(self._serials[table], used + 1)

    def commit(self, changes: tuple[Change, ...], *, keep: bool) -> None:
        """Apply changes; `keep` them for those who look at an earlier moment."""
        self.commits += 1
        for change in changes:
            self._apply(change)
        if keep:
            self._recent.append(_Commit(self.commits, changes))

    def forget(self, moment: int) -> None:
        """Nobody looks at a moment before this one any more."""
        while self._recent and self._recent[0].number <= moment:
            self._recent.popleft()

    def since(self, moment: int) -> Iterator[Change]:
        """What was changed after a moment, in order."""
        for commit in self._recent:
            if commit.number > moment:
                yield from commit.changes

    def _apply(self, change: Change) -> None:
        table, number = change.place
        rows, old = self.rows[table], self.rows[table].get(number)
        if old is not None:
            for key in keys_of(table, old):
                if self._keys.get(key) == number:
                    del self._keys[key]
        if change.new is None:
            rows.pop(number, None)
            return
        rows[number] = change.new
        for key in keys_of(table, change.new):
            self._keys[key] = number

    def find(self, table: str, where: Where) -> Iterable[int]:
        """Numbers of all rows that may match, by a unique key where it is given."""
        given = {c.column: c.value for c in where if c.operator == "="}
        for number, columns in enumerate(SCHEMA[table].unique):
            if all(column in given for column in columns):
                found = self._keys.get((table, number, tuple(given[c] for c in columns)))
                return () if found is None else (found,)
        return tuple(self.rows[table])
