"""The parts of ledgers of bundled targets: one row per switch.

`targets.kudu.bugs` says what a ledger is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Find:
    """The way to find it: options of `harness soak --env sim --bug ID`, who says so, a seed that
    finds it. Seeds move when what draws or schedules changes; the exam then looks at more of them.
    """

    words: str
    checker: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One defect."""

    title: str
    upstream: str  # what the original did
    fixed: str  # when, or "open"
    where: tuple[str, ...]  # our modules that ask for it
    find: Find | None  # None where nothing we have finds it; `upstream` then says what would
    profiles: tuple[str, ...] = ()
    topic: str = ""  # row of the table of profiles

    @property
    def until(self) -> str:
        """The version until which the original has it."""
        return self.fixed if self.fixed.startswith("open") else f"fixed {self.fixed}"


class Switch(enum.Enum):
    """The base of a target's enumeration of defects; the value of each is its row."""

    _value_: Row

    # Every call asks for some; an enum's own hash is that of its name, made in Python.
    __hash__ = object.__hash__

    @property
    def id(self) -> str:
        """Its name on the command line and in cases: `DROP_DROP` is `DROP-DROP`."""
        return self.name.replace("_", "-")


AnySwitch = TypeVar("AnySwitch", bound=Switch)


def titles_of(ledger: type[Switch]) -> dict[str, str]:
    """Every switch in one line, sorted."""
    return {
        bug.id: f"{bug.value.title} ({bug.value.until})"
        for bug in sorted(ledger, key=lambda bug: bug.name)
    }


def profiles_of(ledger: type[AnySwitch], names: Iterable[str]) -> dict[str, frozenset[AnySwitch]]:
    """The rows of each profile."""
    return {name: frozenset(bug for bug in ledger if name in bug.value.profiles) for name in names}


def switched_on(
    ledger: type[AnySwitch],
    profiles: Mapping[str, frozenset[AnySwitch]],
    profile: str,
    ids: tuple[str, ...],
) -> frozenset[AnySwitch]:
    """The rows of `profile` and those of `ids`; raises `UsageError` for unknown ones."""
    if profile not in profiles:
        raise UsageError(f"the profile {profile!r} is not one of: {', '.join(profiles)}")
    by_id = {bug.id: bug for bug in ledger}
    for name in ids:
        if name not in by_id:
            raise UsageError(f"the bug {name!r} is not one of: {', '.join(sorted(by_id))}")
    return profiles[profile] | {by_id[name] for name in ids}
