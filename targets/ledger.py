"""Building blocks of the ledgers of bundled targets: one row per switch.

`targets.kudu.bugs` explains what a ledger is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Find:
    """The way to find the defect.

    `words` are options for `harness soak --env sim --bug ID`, `checker` is the checker that reports
    the defect, and `seed` is a seed that shows it. Seeds change when draws or schedules change; the
    exam then tries more of them.
    """

    words: str
    checker: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One defect."""

    title: str
    upstream: str  # the original's behaviour
    fixed: str  # when, or "open"
    where: tuple[str, ...]  # the modules that contain the switch
    find: Find | None  # None if no available test finds it; `upstream` then says what would
    profiles: tuple[str, ...] = ()
    topic: str = ""  # the row of the table of profiles

    @property
    def until(self) -> str:
        """The version of the original up to which it has the defect."""
        return self.fixed if self.fixed.startswith("open") else f"fixed {self.fixed}"


class Switch(enum.Enum):
    """The base of a target's enumeration of defects; the value of each member is its row."""

    _value_: Row

    # Every call looks up some members; the hash of an enum is that of its name, computed in Python.
    __hash__ = object.__hash__

    @property
    def id(self) -> str:
        """The defect's name on the command line and in cases: `DROP_DROP` is `DROP-DROP`."""
        return self.name.replace("_", "-")


AnySwitch = TypeVar("AnySwitch", bound=Switch)


def titles_of(ledger: type[Switch]) -> dict[str, str]:
    """All switches, one line each, sorted."""
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
    """The rows of `profile` and the rows of `ids`; raises `UsageError` for unknown ids."""
    if profile not in profiles:
        raise UsageError(f"the profile {profile!r} is not one of: {', '.join(profiles)}")
    by_id = {bug.id: bug for bug in ledger}
    for name in ids:
        if name not in by_id:
            raise UsageError(f"the bug {name!r} is not one of: {', '.join(sorted(by_id))}")
    return profiles[profile] | {by_id[name] for name in ids}
