"""Describes in words the populations of runs to which a report's numbers belong.

A population is the runs of one label whose cases differ only in the seed. It is described by the
properties in which it differs from most others. Usual values are shown once for the whole report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_PARTS: Final = ("label", "workload", "asked", "bugs", "environment", "target", "profile")
_NAMES: Final = ("label", "workload", "asked")
"""The properties that make up a population's name if all its values are usual."""
_SEPARATOR: Final = " · "
ALL: Final = "all runs"
_EMPTY: Final = {"label": "no label", "bugs": "no bug", "environment": "cut short"}

_USUAL: Final = 0.75
"""A value is usual, and omitted in words, if this share of populations has it."""

Row = Mapping[str, Any]


class Populations:
    """The words of each population, made from the answer `populations`."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Choose the words of all populations; each of `rows` has the properties of one."""
        varying = [part for part in _PARTS if len({row[part] for row in rows}) > 1]
        fixed = [part for part in _PARTS if part not in varying]
        usual = {part: value for part in varying if (value := _usual(rows, part)) is not None}
        self.shared = _SEPARATOR.join(_in_words(rows[0], part) for part in fixed) if rows else ""
        self.usual = _SEPARATOR.join(usual.values())
        self._rows = {row["population"]: row for row in rows}
        self._words = _distinct(rows, varying, usual)
        self._settings = _distinct(rows, [part for part in varying if part != "label"], usual)

    def words(self, population: int) -> str:
        """Return the words that distinguish a population from other populations of the report."""
        return self._words[population] or ALL

    def setting(self, population: int) -> str:
        """Return a population's words without its label, equal for comparable populations."""
        return self._settings[population] or ALL

    def filters(self, population: int) -> dict[str, str | None]:
        """Return field values by which `harness serve` selects exactly the runs of a population."""
        row = self._rows[population]
        return {"setting": row["setting"], "label": row["label"]}

    def is_clean(self, population: int) -> bool:
        """Whether the runs of a population have no bug switched on."""
        return not self._rows[population]["bugs"]

    def drawn_first(self, numbers: Iterable[int]) -> list[int]:
        """Order populations for drawing: populations without bugs first, then by number of runs."""
        return sorted(set(numbers), key=lambda n: (not self.is_clean(n), -self._rows[n]["runs"], n))


def _usual(rows: Sequence[Row], part: str) -> str | None:
    value, count = Counter(_in_words(row, part) for row in rows).most_common(1)[0]
    return value if count >= _USUAL * len(rows) else None


def _in_words(row: Row, part: str) -> str:
    value: str | None = row[part]
    return value or _EMPTY.get(part, "none")


def _distinct(
    rows: Sequence[Row], parts: Sequence[str], usual: Mapping[str, str]
) -> dict[int, str]:
    """Map each population to its words. If the words are not unique, add a part of the hash."""
    words = {}
    for row in rows:
        every = {part: _in_words(row, part) for part in parts}
        unusual = [words for part, words in every.items() if words != usual.get(part)]
        words[row["population"]] = (
            unusual or [every[part] for part in _NAMES if part in every] or list(every.values())
        )
    settings: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        settings.setdefault(tuple(words[row["population"]]), set()).add(row["setting"])
    for row in rows:
        phrases = words[row["population"]]
        if len(settings[tuple(phrases)]) > 1:
            words[row["population"]] = [*phrases, f"options {row['setting'][:6]}"]
    return {number: _SEPARATOR.join(phrases) for number, phrases in words.items()}
