"""When faults happen: a schedule drawn before the run, so that a case is plain data.

Each nemesis breaks something about once an interval. The last fault of a schedule outlives the
chaos phase on purpose: a run then has something broken when it must come back to life on a quorum
alone, as in TigerBeetle's liveness mode (`src/vopr.zig`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from harness.case import Fault

__all__ = ["FAULTS_MAX", "plan_periodic"]

FAULTS_MAX = 10_000


def plan_periodic(
    nemesis: str,
    rng: random.Random,
    *,
    horizon_ns: int,
    interval_ns: int,
    duration_ns: int,
    draw_args: Callable[[random.Random], dict[str, Any]],
) -> list[Fault]:
    """One fault in each interval of the horizon, at a random moment, for 0.6 to 1.2 durations.

    A fault ends before its interval does, except the last, which lasts beyond the horizon. At
    most `FAULTS_MAX` faults are planned.
    """
    count = min(max(1, horizon_ns // interval_ns), FAULTS_MAX)
    slot_ns = horizon_ns // count
    faults = []
    for number in range(count):
        length_ns = min(duration_ns * rng.randrange(60, 121) // 100, slot_ns * 9 // 10)
        start_ns = slot_ns * number + rng.randrange(max(1, slot_ns - length_ns))
        if number == count - 1:
            length_ns = horizon_ns - start_ns + duration_ns
        faults.append(
            Fault(
                id=f"{nemesis}-{number + 1}",
                nemesis=nemesis,
                at_ns=start_ns,
                duration_ns=length_ns,
                args=draw_args(rng),
            )
        )
    return faults
