"""Of which runs a number is: populations in words, and where each run lies.

A population is the runs of one label whose cases differ in nothing but the seed. What all
populations of a store share is said once; the words of each are what it does not share.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from harness.case import replay_command
from results.report import REPORT_FOLDER

__all__ = ["Addresses", "Places", "Populations", "served_runs"]

_PARTS: Final = ("label", "workload", "asked", "bugs", "environment", "target", "profile")
_SEPARATOR: Final = " · "
_ALL: Final = "all runs"
_PAGE: Final = "report.html"
_EMPTY: Final = {"label": "no label", "bugs": "no bug", "environment": "cut short"}

Row = Mapping[str, Any]


class Populations:
    """The words of each population, made from the answer `populations`."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """`rows` name the parts of each."""
        varying = [part for part in _PARTS if len({row[part] for row in rows}) > 1]
        fixed = [part for part in _PARTS if part not in varying]
        self.shared = _SEPARATOR.join(_said(rows[0], part) for part in fixed) if rows else ""
        self._rows = {row["population"]: row for row in rows}
        self._words = _distinct(rows, varying)
        self._settings = _distinct(rows, [part for part in varying if part != "label"])

    def words(self, population: int) -> str:
        """What tells it from the others of this store."""
        return self._words[population] or _ALL

    def setting(self, population: int) -> str:
        """The same without its label: equal for runs that a label may be compared in."""
        return self._settings[population] or _ALL

    def filters(self, population: int) -> dict[str, str | None]:
        """The fields that all its runs, and no others, have."""
        row = self._rows[population]
        return {"setting": row["setting"], "label": row["label"]}

    def is_clean(self, population: int) -> bool:
        """Whether no bug was switched on."""
        return not self._rows[population]["bugs"]

    def drawn_first(self, numbers: Iterable[int]) -> list[int]:
        """Without bugs first, then those of many runs."""
        return sorted(set(numbers), key=lambda n: (not self.is_clean(n), -self._rows[n]["runs"], n))


def _said(row: Row, part: str) -> str:
    value: str | None = row[part]
    return value or _EMPTY.get(part, "none")


def _distinct(rows: Sequence[Row], parts: Sequence[str]) -> dict[int, str]:
    """Words by population; where those of two settings are equal, with a part of their hashes."""
    words = {row["population"]: [_said(row, part) for part in parts] for row in rows}
    settings: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        settings.setdefault(tuple(words[row["population"]]), set()).add(row["setting"])
    for row in rows:
        said = words[row["population"]]
        if len(settings[tuple(said)]) > 1:
            words[row["population"]] = [*said, f"options {row['setting'][:6]}"]
    return {number: _SEPARATOR.join(said) for number, said in words.items()}


def served_runs(fields: Mapping[str, str | None]) -> str:
    """The runs that have these fields, as `harness serve` lists them beside the page."""
    return f"../?{urlencode({name: value or '(none)' for name, value in fields.items()})}"


class Addresses(Protocol):
    """Where runs lie, seen from a report, and how to run them again."""

    def link(self, run: str) -> str:
        """The address of a run's page or folder; empty where it has none."""
        ...

    def runs(self, **fields: str | None) -> str:
        """The address of a list of runs in `harness serve`; empty where it cannot have one."""
        ...

    def replay(self, run: str, environment: str | None) -> str:
        """A command that runs the case again, or one that gets the run first."""
        ...


class Places:
    """Those of a store."""

    def __init__(self, store: Path, output: Path) -> None:
        """`output` is the folder of the report."""
        self._store = store
        self._way = os.path.relpath(store, output)
        self._served = output.resolve() == (store / REPORT_FOLDER).resolve()

    def link(self, run: str) -> str:
        """The address of the page of a run, or of its folder where it has none yet."""
        page = _PAGE if (self._store / run / _PAGE).is_file() else ""
        return quote(f"{self._way}/{run}/{page}")

    def runs(self, **fields: str | None) -> str:
        """See `Addresses`."""
        return served_runs(fields) if self._served else ""

    def replay(self, run: str, environment: str | None) -> str:
        """A command that runs the case again, or makes the page of a run that was cut short."""
        return replay_command(self._store / run / "case.json", environment)
