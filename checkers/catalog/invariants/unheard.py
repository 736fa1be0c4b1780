"""Finds the moment from which a master may not know all tablet servers, and so may refuse a create.

All tablet servers heartbeat to all masters, so only a fault can keep a master from knowing all of
them. If the names of the masters are unknown, any fault or second leader may explain a refusal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from harness.ops import NEMESIS, History
from harness.timeline import KILL, OPERATION, PAUSE, POWER_CUT, RESTART, faults_of

_DISTURBING: Final = frozenset({"heartbeat-gap", "starvation", "infrastructure", "node-exit"})


def first_disturbance(history: History) -> float:
    """Return the index of the first fault, other disturbance, or second leader."""
    leaders = 0
    for op in history:
        if op.process == "nemesis" or op.f in _DISTURBING:
            if not op.is_client:
                return op.index
        elif op.process == "harness" and op.f == "leader":
            leaders += 1
            if leaders > 1:
                return op.index
    return math.inf


_STOPS_NODES: Final = frozenset({KILL, POWER_CUT, RESTART, PAUSE, OPERATION})
"""The kinds of faults whose effects are limited to their targets."""
ALL: Final = ("all",)
"""Replaces the targets of a disturbance without a known master, which then affects all masters."""


def first_that_hides_servers(history: History) -> dict[str, float]:
    """Map each master to the index from which it may not have heard from all tablet servers.

    This is the index of the first disturbance, without faults that only stopped other masters.
    Without a snapshot, the masters are unknown and the result is empty.
    """
    snapshots = [op.value for op in history.facts("snapshot") if isinstance(op.value, Mapping)]
    masters = snapshots[-1].get("masters") if snapshots else None
    if not isinstance(masters, Mapping):
        return {}
    first: dict[str, float] = dict.fromkeys(map(str, masters), math.inf)

    def touch(index: int, nodes: Sequence[str]) -> None:
        for master in nodes if set(nodes) <= set(first) else list(first):
            first[master] = min(first[master], index)

    for fault in faults_of(history, most=None):
        touch(fault.begin.index, fault.targets if fault.kind in _STOPS_NODES else ALL)
    for op in history:
        if op.f in _DISTURBING and not op.is_client and op.process != NEMESIS:
            touch(op.index, (str(op.value.get("node")),) if op.f == "node-exit" else ALL)
    return first
