"""Turns the operations that a run's generator made into an explicit list for a case."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.case import Case
from harness.ops import NS_PER_S, History, Pair, ScheduledOp
from harness.run.phases import WARM_UP_S
from harness.timeline import phases_of

_WARM_UP: Final = "warm-up"
_HEAL: Final = "heal-core"


def recorded_ops(case: Case, history: History) -> list[tuple[ScheduledOp, Pair]]:
    """Return the operations that clients invoked under load in a run of `case`, by start time.

    Times count from the start of the warm-up.
    """
    times = {name: time_ns for time_ns, name in reversed(phases_of(history))}
    begin_ns, end_ns = times.get(_WARM_UP, 0), times.get(_HEAL, 2**63)
    recorded = []
    for pair in history.pairs:
        call = pair.invoke
        if isinstance(call.process, int) and begin_ns <= call.time < end_ns:
            thread = call.process % case.concurrency
            recorded.append((ScheduledOp(call.time - begin_ns, thread, call.f, call.value), pair))
    return recorded


def after_warm_up(case: Case) -> Case:
    """Shift all faults and the end of the case by the length of the warm-up.

    A generator already invokes operations during the warm-up, but an explicit list starts with the
    chaos phase. So if a list replaces the generator, all operations come later by the length of the
    warm-up, and the faults must be shifted, too.
    """
    shift_ns = int(WARM_UP_S * NS_PER_S)
    return msgspec.structs.replace(
        case,
        time_limit_s=case.time_limit_s + WARM_UP_S,
        faults=tuple(
            msgspec.structs.replace(fault, at_ns=fault.at_ns + shift_ns)
            for fault in case.faults or ()
        ),
    )
