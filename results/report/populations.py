"""Populations of runs, in words: the runs behind a number.

A population is the runs of one label whose cases differ only in the seed. The words of a population
are the properties in which the populations differ. Properties that all populations share are shown
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_PARTS: Final = ("label", "workload", "asked", "bugs", "environment", "target", "profile")
_SEPARATOR: Final = " · "
_ALL: Final = "all runs"
_EMPTY: Final = {"label": "no label", "bugs": "no bug", "environment": "cut short"}

Row = Mapping[str, Any]


class Populations:
    """The words of each population, made from the answer `populations`."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """`rows` have the properties of each population."""
        varying = [part for part in _PARTS if len({row[part] for row in rows}) > 1]
        fixed = [part for part in _PARTS if part not in varying]
        self.shared = _SEPARATOR.join(_said(rows[0], part) for part in fixed) if rows else ""
        self._rows = {row["population"]: row for row in rows}
        self._words = _distinct(rows, varying)
        self._settings = _distinct(rows, [part for part in varying if part != "label"])

    def words(self, population: int) -> str:
        """The words that distinguish a population from the others of this store."""
        return self._words[population] or _ALL

    def setting(self, population: int) -> str:
        """The same words without the label: equal for populations that can be compared."""
        return self._settings[population] or _ALL

    def filters(self, population: int) -> dict[str, str | None]:
        """Field values that select exactly the runs of a population."""
        row = self._rows[population]
        return {"setting": row["setting"], "label": row["label"]}

    def is_clean(self, population: int) -> bool:
        """Whether the runs of a population have no bug switched on."""
        return not self._rows[population]["bugs"]

    def drawn_first(self, numbers: Iterable[int]) -> list[int]:
        """The populations in the order of drawing: without bugs first, then by number of runs."""
        return sorted(set(numbers), key=lambda n: (not self.is_clean(n), -self._rows[n]["runs"], n))


def _said(row: Row, part: str) -> str:
    value: str | None = row[part]
    return value or _EMPTY.get(part, "none")


def _distinct(rows: Sequence[Row], parts: Sequence[str]) -> dict[int, str]:
    """Words by population; settings with equal words also show a part of their hashes."""
    words = {row["population"]: [_said(row, part) for part in parts] for row in rows}
    settings: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        settings.setdefault(tuple(words[row["population"]]), set()).add(row["setting"])
    for row in rows:
        phrases = words[row["population"]]
        if len(settings[tuple(phrases)]) > 1:
            words[row["population"]] = [*phrases, f"options {row['setting'][:6]}"]
    return {number: _SEPARATOR.join(phrases) for number, phrases in words.items()}
