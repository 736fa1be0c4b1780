"""Filters runs by key, target, label and day, the columns by which a lake is divided and sorted.

The log has each file's partition, first run and last run, so files without a match need not be
read.
"""

from __future__ import annotations

import bisect
import datetime as dt
import functools
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from harness.errors import UsageError, listed, shown

if TYPE_CHECKING:
    from results.lake.log.files import FileRef, Partition

Name = TypeVar("Name", str, str | None)
_DAYS: Final = re.compile(r"(\d{4}-\d\d-\d\d)?\.\.(\d{4}-\d\d-\d\d)?")


class Filters(TypedDict, total=False):
    """The arguments of `Runs.only`. Several values of one filter are alternatives."""

    runs: str | Iterable[str]  # keys of runs, as in the column `run`
    target: str | Iterable[str]
    label: str | Iterable[str | None] | None  # None: runs without a label
    day: str | dt.date  # "2026-11-26", or "2026-11-01..2026-11-30"; either end may be left out


@dataclass(frozen=True)
class Choice:
    """Conditions on runs; `None` accepts any value. `first_day` and `last_day` are inclusive."""

    runs: frozenset[str] | None = None
    targets: frozenset[str] | None = None
    labels: frozenset[str | None] | None = None
    first_day: dt.date | None = None
    last_day: dt.date | None = None

    def narrowed(self, other: Choice) -> Choice:
        """Return the choice that selects only runs that both choices select."""
        first = [day for day in (self.first_day, other.first_day) if day is not None]
        last = [day for day in (self.last_day, other.last_day) if day is not None]
        return Choice(
            runs=_both(self.runs, other.runs),
            targets=_both(self.targets, other.targets),
            labels=_both(self.labels, other.labels),
            first_day=max(first, default=None),
            last_day=min(last, default=None),
        )

    def takes(self, partition: Partition) -> bool:
        """Whether a partition (target, label, day) may have runs that match."""
        target, label, day = partition
        if (self.first_day, self.last_day) != (None, None) and day is None:
            return False
        return (
            (self.targets is None or target in self.targets)
            and (self.labels is None or label in self.labels)
            and (self.first_day is None or day is None or day >= self.first_day)
            and (self.last_day is None or day is None or day <= self.last_day)
        )

    def takes_file(self, file: FileRef) -> bool:
        """Whether a file may have rows of runs that match."""
        return self.takes(file.partition) and (
            self.runs is None or self._between(file.first_run, file.last_run)
        )

    @functools.cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.runs or ())

    def _between(self, first: str, last: str) -> bool:
        place = bisect.bisect_left(self._sorted, first)
        return place < len(self._sorted) and self._sorted[place] <= last

    def rows(self) -> ds.Expression | None:
        """Return a condition on the rows of a matching file; `None` if all rows match."""
        if self.runs is None:
            return None
        return ds.field("run").isin(pa.array(self._sorted, pa.string()))


EVERYTHING: Final = Choice()


def chosen(filters: Filters) -> Choice:
    """Convert filters to a choice; raise `UsageError` for a malformed filter."""
    unknown = sorted(filters.keys() - Filters.__annotations__.keys())
    if unknown:
        raise UsageError(
            f"there is no filter {unknown[0]!r}; there are {', '.join(Filters.__annotations__)}. "
            "To filter by other columns, query the table `runs`, and give runs=KEYS"
        )
    first, last = _days(filters["day"]) if "day" in filters else (None, None)
    return Choice(
        runs=_names("runs", filters["runs"]) if "runs" in filters else None,
        targets=_names("target", filters["target"]) if "target" in filters else None,
        labels=(None if "label" not in filters else frozenset({None})
                if filters["label"] is None else _names("label", filters["label"])),
        first_day=first,
        last_day=last,
    )  # fmt: skip


def require(what: str, wanted: Collection[str | None], there: Iterable[str | None]) -> None:
    """Raise `UsageError` for a name that does not exist: a typo must not give an empty table."""
    existing = set(there)
    missing = sorted(repr(name) for name in wanted if name not in existing)
    if missing:
        names = [name or "none" for name in sorted(existing, key=lambda name: name or "")]
        hint = (
            "give keys from the column `run`, such as NAME/ID@0123456789ab"
            if what == "run"
            else f"there are {listed(names, limit=10)}"
        )
        raise UsageError(f"there is no {what} {listed(missing, limit=3)}; {hint}")


def _both(one: frozenset[Name] | None, other: frozenset[Name] | None) -> frozenset[Name] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _names(what: str, value: str | Iterable[Name]) -> frozenset[Name]:
    names = frozenset([value] if isinstance(value, str) else value)
    wrong = [name for name in names if not (isinstance(name, str) or name is None)]
    if wrong:
        raise UsageError(f"{what} is {shown(wrong[0])}; give a name, or several")
    return names


def _days(value: str | dt.date) -> tuple[dt.date | None, dt.date | None]:
    """Return the first and the last day of a filter `day`; `None` is an open end."""
    if isinstance(value, dt.date):
        day = value.date() if isinstance(value, dt.datetime) else value
        return day, day
    match = _DAYS.fullmatch(value) if isinstance(value, str) and value != ".." else None
    try:
        if match is not None:
            first, last = match.groups()
            return _day(first), _day(last)
        day = dt.date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"day is {shown(value)}; give a date such as 2026-11-21, or 2026-11-01..2026-11-30 "
            "with either end left out"
        ) from error
    return day, day


def _day(text: str | None) -> dt.date | None:
    return None if text is None else dt.date.fromisoformat(text)
