"""The defects of a ledger, as `harness exam` looks for them.

Node processes load `targets.ledger`, but not this module: it loads the base classes of plug-ins.
"""

from __future__ import annotations

from dataclasses import replace

from harness.plugins import BugSwitch
from targets.ledger import Switch


def switches_of(ledger: type[Switch]) -> tuple[BugSwitch, ...]:
    """Return the defects of a ledger in its order, as `harness exam` looks for them."""
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
