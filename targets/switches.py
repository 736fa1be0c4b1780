"""The defects of a ledger, in the form that `harness exam` uses to search for them.

Node processes load `targets.ledger`, but not this module, because it imports the base classes of
plug-ins.
"""

from __future__ import annotations

from dataclasses import replace

from harness.plugins import BugSwitch
from targets.ledger import Switch


def switches_of(ledger: type[Switch]) -> tuple[BugSwitch, ...]:
    """Convert the defects of a ledger for `harness exam`, in the ledger's order."""
    return tuple(_as_switch(bug) for bug in ledger)


def _as_switch(bug: Switch) -> BugSwitch:
    row = bug.value
    about = BugSwitch(
        id=bug.id, title=row.title, cause=row.upstream, status=row.until, options=None
    )
    if row.find is None:
        return about
    find = row.find
    return replace(about, options=find.words, checker=find.checker, seed=find.seed)
