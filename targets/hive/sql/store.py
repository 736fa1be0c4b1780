"""Committed rows, their unique keys, and recent changes for transactions with older snapshots.

A row never changes its number. `_recent` has the commits after the oldest open snapshot. `since`
returns their changes. A reader undoes these changes to reconstruct its snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from targets.hive.sql.protocol import Row, Where
from targets.hive.sql.schema import SCHEMA

Place = tuple[str, int]
Key = tuple[str, int, tuple[Any, ...]]
"""A table, the index of one of its unique keys, and the values of the key's columns."""


class Change(NamedTuple):
    """A changed row: `old` is `None` if the row is new, and `new` is `None` if it is deleted."""

    place: Place
    old: Row | None
    new: Row | None


class Image(msgspec.Struct, frozen=True):
    """All committed state, as a checkpoint stores it."""

    rows: dict[str, dict[int, Row]]
    numbers: dict[str, int]  # the number of each table's next row
    serials: dict[str, int]


def matches(row: Mapping[str, Any], where: Where) -> bool:
    """Whether the row satisfies all conditions."""
    return all(condition.holds(row) for condition in where)


def keys_of(table: str, row: Mapping[str, Any]) -> Iterator[Key]:
    """Yield the unique keys of a row."""
    for number, columns in enumerate(SCHEMA[table].unique):
        yield table, number, tuple(row[column] for column in columns)


class _Commit(NamedTuple):
    number: int
    changes: tuple[Change, ...]


class Store:
    """All committed rows, in memory."""

    def __init__(self, image: Image | None = None) -> None:
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
        """Copy all committed state, for a checkpoint."""
        rows = {table: dict(kept) for table, kept in self.rows.items()}
        return Image(rows, dict(self._numbers), dict(self._serials))

    def next_number(self, table: str) -> int:
        """Take a number for a new row. The number is not reused if the row is rolled back."""
        number = self._numbers[table]
        self._numbers[table] = number + 1
        return number

    def next_serial(self, table: str) -> int:
        """Take the table's next serial. As in PostgreSQL, it is not reused after a roll-back."""
        serial = self._serials[table]
        self._serials[table] = serial + 1
        return serial

    def holder(self, key: Key) -> int | None:
        return self._keys.get(key)

    def replay(self, changes: Iterable[Change]) -> None:
        for change in changes:
            table, number = change.place
            self._apply(change)
            self._numbers[table] = max(self._numbers[table], number + 1)
            serial = SCHEMA[table].serial
            used = change.new[serial] if serial and change.new is not None else None
            if isinstance(used, int):
                self._serials[table] = max(self._serials[table], used + 1)

    def commit(self, changes: tuple[Change, ...], *, keep: bool) -> None:
        """Apply changes. With `keep`, also remember them for open snapshots."""
        self.commits += 1
        for change in changes:
            self._apply(change)
        if keep:
            self._recent.append(_Commit(self.commits, changes))

    def forget(self, moment: int) -> None:
        """Forget the changes up to `moment`, because no open snapshot is older than `moment`."""
        while self._recent and self._recent[0].number <= moment:
            self._recent.popleft()

    def since(self, moment: int) -> Iterator[Change]:
        """Yield the remembered changes after `moment`, in commit order."""
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
        """Return the numbers of all rows that may match; at most one if `where` fixes a key."""
        values = {c.column: c.value for c in where if c.operator == "="}
        for number, columns in enumerate(SCHEMA[table].unique):
            if all(column in values for column in columns):
                holder = self._keys.get((table, number, tuple(values[c] for c in columns)))
                return () if holder is None else (holder,)
        return tuple(self.rows[table])
