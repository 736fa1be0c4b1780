"""The writer of a cell: a value that only one write put into a row identifies it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from checkers.rows.model import Row
from checkers.rows.reading import Part, RowsHistory, Written

Cell = tuple[str, str, str]
"""A table, a key and a column."""


class Writers:
    """The writes of every cell by value, refused ones included: those should not be seen."""

    def __init__(self, read: RowsHistory) -> None:
        self._by: dict[tuple[Cell, Any], list[tuple[Part, Written]]] = {}
        for part in read.parts:
            for row in part.rows:
                for column, value in row.step.cells:
                    if value is not None:
                        cell = (part.table, row.key, column)
                        self._by.setdefault((cell, value), []).append((part, row))

    def of(self, cell: Cell, value: Any) -> list[tuple[Part, Written]]:
        """All that wrote this, or tried to."""
        return self._by.get((cell, value), [])

    def only(self, cell: Cell, value: Any) -> tuple[Part, Written] | None:
        """The one write of this value; `None` where there is none, or there are several."""
        found = self.of(cell, value)
        return found[0] if len(found) == 1 else None

    def repeated(self) -> frozenset[Cell]:
        """Cells to which one value was written more than once, refused writes left out."""
        return frozenset(
            cell
            for (cell, _), found in self._by.items()
            if sum(row.result in {"ok", None} for _, row in found) > 1
        )


def cells_of(table: str, rows: Mapping[str, Row]) -> Iterator[tuple[Cell, Any]]:
    """All cells of some rows."""
    for key, row in rows.items():
        for column, value in row or ():
            yield (table, key, column), value
