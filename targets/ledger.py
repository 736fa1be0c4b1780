"""The parts of ledgers of bundled targets: one row per switch.

`targets.kudu.bugs` says what a ledger is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from harness.errors import UsageError

Switch = TypeVar("Switch", bound=enum.Enum)


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


def switched_on(
    profiles: Mapping[str, frozenset[Switch]],
    by_id: Mapping[str, Switch],
    profile: str,
    ids: tuple[str, ...],
) -> frozenset[Switch]:
    """The rows of `profile` and those switched on; raises `UsageError` for unknown ones."""
    if profile not in profiles:
        raise UsageError(f"the profile {profile!r} is not one of: {', '.join(profiles)}")
    for name in ids:
        if name not in by_id:
            raise UsageError(f"the bug {name!r} is not one of: {', '.join(sorted(by_id))}")
    return profiles[profile] | {by_id[name] for name in ids}
