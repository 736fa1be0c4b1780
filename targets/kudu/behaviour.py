"""Profiles and bug switches: each one is one named condition, read in one place.

The correct path and the broken one stand side by side in the target, behind a field of
`Behaviour`. The identifiers are those of Kudu's issue tracker where there is one.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.errors import UsageError

__all__ = ["BUGS", "PROFILES", "Behaviour", "behaviour_of"]


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What this cluster does where versions or defects of Kudu differ. Defaults are `strict`."""

    confirm_leadership: bool = True
    """A leader answers from its state only after a majority confirmed it in its current term, and
    steps down when it has lost contact to its majority. Without it (NO-LEASE, Kudu to this day) a
    cut-off ex-leader answers for as long as it is cut off."""

    replicate_before_publish: bool = True
    """CreateTable reserves the name, replicates one batch, commits, then publishes its maps.
    Without it (ORDER-CREATE, before 2016-04-01) the maps are published first and the tablets and
    the table are replicated one after another; a failure takes the table back."""

    load_after_commit: bool = True
    """A new leader loads the catalog only after an operation of its own term has committed, so
    that everything committed before is applied. Without it (KUDU-765) acknowledged tables are
    missing from its maps."""


PROFILES: Final = ("strict",)

BUGS: Final[dict[str, str]] = {
    "NO-LEASE": "leaders answer reads without asking a majority (open by design in Kudu)",
    "ORDER-CREATE": "CreateTable publishes its maps before it replicates (fixed 2016-04-01)",
    "KUDU-765": "a new leader loads the catalog before older terms' ops commit (fixed 2015-05-13)",
}

_SWITCHES: Final[dict[str, dict[str, Any]]] = {
    "NO-LEASE": {"confirm_leadership": False},
    "ORDER-CREATE": {"replicate_before_publish": False},
    "KUDU-765": {"load_after_commit": False},
}


def behaviour_of(profile: str, bugs: tuple[str, ...]) -> Behaviour:
    """The behaviour of `profile` with `bugs` switched on; raises `UsageError` for unknown ones."""
    if profile not in PROFILES:
        raise UsageError(f"the profile {profile!r} is not one of: {', '.join(PROFILES)}")
    changes: dict[str, Any] = {}
    for bug in bugs:
        if bug not in _SWITCHES:
            raise UsageError(f"the bug {bug!r} is not one of: {', '.join(sorted(_SWITCHES))}")
        changes.update(_SWITCHES[bug])
    return msgspec.structs.replace(Behaviour(), **changes)
