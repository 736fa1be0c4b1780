"""The ledger: one row a switch. Every defect that the target can show, and every profile.

The correct path and the broken one stand side by side in the target, behind one condition:
`if Bug.KUDU_765 in node.bugs`. Profiles are sets of rows and the defaults of some flags. A row says
where it is in our code (a test holds it to that) and how the harness finds it; `harness list`, the
track record in the README and the exam (`python -m bench.mutants --bugs`) are made from it.

Identifiers are those of Kudu's issue tracker where there is one. A topic, `P1` to `P23`, is a row
of the table of profiles: how Kudu of 2016 (`legacy`) and of today (`modern`) differ from `strict`.
Where all three agree, or where only flags differ, no switch is needed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.errors import UsageError

__all__ = ["BUGS", "FLAGS", "PROFILES", "Bug", "Find", "Row", "bugs_of"]

_MASTER: Final = "targets.kudu.master"
LEGACY: Final = ("legacy",)
STILL: Final = ("legacy", "modern")


@dataclass(frozen=True, slots=True)
class Find:
    """How it is found: options of `harness soak --env sim --bug ID`, who says so, a seed that
    finds it. Seeds move when what draws or schedules changes; the exam then looks at more of them.
    """

    words: str
    checker: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One defect."""

    title: str
    upstream: str  # what Kudu did
    fixed: str  # when, or "open"
    where: tuple[str, ...]  # our modules that ask for it
    find: Find | None  # None where nothing we have finds it; `upstream` then says what would
    profiles: tuple[str, ...] = ()
    topic: str = ""  # row of the table of profiles

    @property
    def until(self) -> str:
        """Whether Kudu still has it."""
        return self.fixed if self.fixed.startswith("open") else f"fixed {self.fixed}"


class Bug(enum.Enum):
    """All switches. The id on the command line has dashes: `Bug.KUDU_765` is `KUDU-765`."""

    NO_LEASE = Row(
        title="leaders answer reads without asking a majority",
        upstream="the leader check is local, no lease exists: a cut-off ex-leader answers, and "
        "leads on in its own eyes, for as long as it is cut off (6.7 s measured on 1.16)",
        fixed="open by design",
        profiles=STILL,
        topic="P10",
        where=(f"{_MASTER}.epoch", f"{_MASTER}.node"),
        find=Find("--nemesis partition-leader", "linearizable-catalog", 1),
    )
    KUDU_765 = Row(
        title="a new leader loads its catalog too early and forgets acknowledged tables",
        upstream="the catalog was loaded at once, before operations of older terms had committed",
        fixed="2015-05-13",
        where=(f"{_MASTER}.leadership",),
        find=Find("--nemesis kill-leader", "linearizable-catalog", 2),
    )
    ORDER_CREATE = Row(
        title="CreateTable publishes its maps before it replicates",
        upstream="the maps showed the table in state UNKNOWN, then its tablets and the table were "
        "replicated one after another, and a failure took the table back",
        fixed="2016-04-01",
        profiles=LEGACY,
        topic="P7",
        where=(f"{_MASTER}.ddl",),
        find=Find("--nemesis kill-leader", "linearizable-catalog", 1),
    )

    @property
    def id(self) -> str:
        """Its name on the command line and in cases."""
        return self.name.replace("_", "-")


BUGS: Final[Mapping[str, str]] = {
    bug.id: f"{bug.value.title} ({bug.value.until})" for bug in sorted(Bug, key=lambda b: b.name)
}
"""Every switch in one line, sorted."""

PROFILES: Final[Mapping[str, frozenset[Bug]]] = {
    profile: frozenset(bug for bug in Bug if profile in bug.value.profiles)
    for profile in ("strict", "modern", "legacy")
}
"""The rows of each profile."""

_NO_FSYNC: Final[Mapping[str, bool]] = {"log_force_fsync_all": False}
FLAGS: Final[Mapping[str, Mapping[str, bool]]] = {
    "strict": {},
    "modern": _NO_FSYNC,  # P18: as in Kudu, but for votes, which are always synced here
    "legacy": {**_NO_FSYNC, "raft_enable_pre_election": False},  # P16: pre-election came in 1.1
}
"""Flags whose defaults differ in a profile."""

_BY_ID: Final = {bug.id: bug for bug in Bug}


def bugs_of(profile: str, ids: tuple[str, ...]) -> frozenset[Bug]:
    """The rows of `profile` and those switched on; raises `UsageError` for unknown ones."""
    if profile not in PROFILES:
        raise UsageError(f"the profile {profile!r} is not one of: {', '.join(PROFILES)}")
    for name in ids:
        if name not in _BY_ID:
            raise UsageError(f"the bug {name!r} is not one of: {', '.join(BUGS)}")
    return PROFILES[profile] | {_BY_ID[name] for name in ids}
