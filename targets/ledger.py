"""Base classes for ledgers.

A ledger lists the defects of a bundled target that a run can switch on. `targets.kudu.bugs` is an
example.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Find:
    """A run that shows a defect, as options for `harness soak`.

    `words` are the options to add to `harness soak --env sim --bug ID`. `checker` reports the
    defect, and `seed` shows it. If the drawing or scheduling of cases has changed since, that seed
    may no longer show the defect; the exam then tries more seeds.
    """

    words: str
    checker: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One defect in a ledger."""

    title: str
    upstream: str  # the behaviour of the real system, Kudu or Hive
    fixed: str  # date or version of the fix, or "open"
    where: tuple[str, ...]  # the modules that contain the code of the defect
    find: Find | None  # `None` if no run finds the defect; `upstream` then says why
    profiles: tuple[str, ...] = ()

    @property
    def until(self) -> str:
        """Return the state of the defect in the original system: "open ..." or "fixed ..."."""
        return self.fixed if self.fixed.startswith("open") else f"fixed {self.fixed}"


class Switch(enum.Enum):
    """The base of a target's enumeration of defects. The value of each member is its row."""

    _value_: Row

    # Every RPC hashes some members, and the default `__hash__` is slow because it is Python code.
    __hash__ = object.__hash__

    @property
    def id(self) -> str:
        """The defect's name on the command line and in cases: `DROP_DROP` is `DROP-DROP`."""
        return self.name.replace("_", "-")


AnySwitch = TypeVar("AnySwitch", bound=Switch)


def titles_of(ledger: type[Switch]) -> dict[str, str]:
    """Return the title and the time of the fix of each defect, by its id."""
    return {
        bug.id: f"{bug.value.title} ({bug.value.until})"
        for bug in sorted(ledger, key=lambda bug: bug.name)
    }


def profiles_of(ledger: type[AnySwitch], names: Iterable[str]) -> dict[str, frozenset[AnySwitch]]:
    """Return the defects of each profile in `names`."""
    return {name: frozenset(bug for bug in ledger if name in bug.value.profiles) for name in names}


def switched_on(
    ledger: type[AnySwitch],
    profiles: Mapping[str, frozenset[AnySwitch]],
    profile: str,
    ids: tuple[str, ...],
) -> frozenset[AnySwitch]:
    """Return the defects of `profile` and of `ids`. Raises `UsageError` for an unknown name."""
    if profile not in profiles:
        raise UsageError(f"the profile {profile!r} is not one of: {', '.join(profiles)}")
    by_id = {bug.id: bug for bug in ledger}
    for name in ids:
        if name not in by_id:
            raise UsageError(f"the bug {name!r} is not one of: {', '.join(sorted(by_id))}")
    return profiles[profile] | {by_id[name] for name in ids}
