"""Compares two runs by their cases, their outcomes, and their operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.ops import CheckResult
from results.facts.run_numbers import KindNumbers
from results.serve.paths import read_bounded
from results.serve.run_rows import RunRow

DIFFERENCES_MAX: Final = 200
PATHS_MAX: Final = 20_000
TEXT_CHARS_MAX: Final = 300
_NESTED: Final = (Mapping, list, tuple)
_RECORD: Final = (
    *("environment", "label", "started", "wall_s", "simulated_s", "interrupted", "ops"),
    *("versions", "digest"),
)


class StoredChecks(msgspec.Struct, frozen=True):
    """The part of `results.json` that has the verdicts of the checkers."""

    checkers: list[CheckResult]


class Difference(msgspec.Struct, frozen=True):
    """A field in which two runs differ, with both values; `None` if a run lacks the field."""

    field: str
    first: str | None
    second: str | None


def checks_of(folder: Path) -> tuple[tuple[CheckResult, ...], str | None]:
    """Return the results in a run's `results.json`, and a reason if the file cannot be read."""
    try:
        content = read_bounded(folder / "results.json", 32 << 20)
        return tuple(msgspec.json.decode(content, type=StoredChecks).checkers), None
    except FileNotFoundError:
        return (), "there is no results.json: a soak writes none for a run that passed"
    except OSError as error:
        return (), f"results.json cannot be read: {error.strerror}"
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
        return (), f"results.json: {str(error)[:TEXT_CHARS_MAX]}"


def differences(
    first: tuple[Case | None, RunRow], second: tuple[Case | None, RunRow]
) -> Differences:
    """List differing fields of two runs' cases and records; count differing and equal fields.

    Fields of planned faults come last. Two seeds differ in nearly all of these, so they would hide
    the other fields.
    """
    left, right = (_fields(*run) for run in (first, second))
    names = sorted(dict.fromkeys([*left, *right]), key=_is_of_faults)
    changes = [
        Difference(name, left.get(name), right.get(name))
        for name in names
        if left.get(name) != right.get(name)
    ]
    return Differences(
        tuple(_cut(item) for item in changes[:DIFFERENCES_MAX]),
        len(changes),
        len(names) - len(changes),
    )


class Differences(msgspec.Struct, frozen=True):
    """The listed differences, the number of all differences, and the number of equal fields."""

    listed: tuple[Difference, ...]
    count: int
    equal: int

    @property
    def of_faults(self) -> tuple[Difference, ...]:
        """The differences in planned faults."""
        return tuple(item for item in self.listed if _is_of_faults(item.field))

    @property
    def others(self) -> tuple[Difference, ...]:
        """The differences in everything except planned faults."""
        return self.listed[: len(self.listed) - len(self.of_faults)]


def _is_of_faults(field: str) -> bool:
    return field.partition("[")[0].partition(".")[0] == "faults"


def _fields(case: Case | None, row: RunRow) -> dict[str, str]:
    fields = {} if case is None else dict(flat(msgspec.to_builtins(case)))
    for name in _RECORD:
        value = getattr(row, name)
        fields[f"run.{name}"] = value if isinstance(value, str) else _json(value)
    return fields


def flat(value: Any, prefix: str = "", *, most: int = PATHS_MAX) -> Iterator[tuple[str, str]]:
    """Yield the path (such as `faults[3].at_ns`) and the text of each leaf of nested JSON.

    A list of scalars is one leaf.
    """
    waiting: list[tuple[str, Any]] = [(prefix, value)]
    count = 0
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, Mapping) and item:
            below = [(f"{path}.{key}" if path else str(key), item[key]) for key in item]
            waiting += reversed(below)
        elif isinstance(item, (list, tuple)) and any(isinstance(part, _NESTED) for part in item):
            waiting += [(f"{path}[{place}]", part) for place, part in enumerate(item)][::-1]
        else:
            count += 1
            if count > most:
                yield "(cut)", f"more than {most} fields"
                return
            yield path, _json(item)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cut(item: Difference) -> Difference:
    first, second = (
        text if text is None or len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"
        for text in (item.first, item.second)
    )
    return Difference(item.field, first, second)


def kinds_of_both(
    first: tuple[KindNumbers, ...], second: tuple[KindNumbers, ...]
) -> list[tuple[str, KindNumbers | None, KindNumbers | None]]:
    """Return a row per kind of operation: its name, and its numbers in both runs."""
    left, right = ({kind.f: kind for kind in kinds} for kinds in (first, second))
    return [(f, left.get(f), right.get(f)) for f in sorted({*left, *right})]
