"""A leader confirms its leadership before it answers with its latest rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from targets.kudu.bugs import Bug
from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.messages import Entry, EntryKind, OpId
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.consensus.raft_core import Role
from targets.kudu.flags import Flags
from targets.kudu.messages import RaftConfig
from targets.kudu.tserver.scanners import Scans
from tests.support.virtual import run


def leader(applied: int) -> Replica:
    """Return a leader of term 4, whose first own entry is 3; everything is committed."""
    log = MemoryLog(OpId(0, 0), RaftConfig(-1, ()))
    log.append(tuple(Entry(term, n, EntryKind.NO_OP, b"") for n, term in enumerate((2, 2, 4), 1)))
    core: Any = SimpleNamespace(committed_in_term=True, term=4, log=log, role=Role.LEADER)
    applier: Any = SimpleNamespace(journal=SimpleNamespace(index=applied))
    replica = object.__new__(Replica)
    replica._core, replica._applier = core, applier
    return replica


@pytest.mark.parametrize(
    ("bugs", "applied", "asked"),
    [
        (frozenset(), 3, 1),
        (frozenset({Bug.NO_LEASE}), 3, 0),
        (frozenset({Bug.NO_LEASE}), 2, 1),
        (frozenset({Bug.NO_LEASE}), 0, 1),
    ],
)
def test_without_a_lease_nobody_is_asked_once_older_terms_are_applied(
    bugs, applied, asked, monkeypatch
):
    calls = []

    async def confirm(_replica: Replica, *, timeout_s: float) -> None:
        calls.append(timeout_s)

    monkeypatch.setattr(Replica, "confirm_leadership", confirm)
    node: Any = SimpleNamespace(uuid="u", bugs=bugs, flags=Flags())
    machine: Any = SimpleNamespace(last_timestamp=7)
    none: Any = None
    scans = Scans(node, replica=leader(applied), machine=machine, clock=none, safe_time=none)
    assert run(scans._latest(1000)) == 7
    assert len(calls) == asked
