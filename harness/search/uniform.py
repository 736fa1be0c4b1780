"""Draws all faults of a case uniformly: the simplest search, and the baseline for the others.

Each fault of a case is drawn independently of the others. Its nemesis, its time in the chaos phase,
and its duration (from the range that soaks use) are distributed uniformly. As in every soak, the
last fault outlives the chaos phase. Knobs, options and clients are also drawn as in every soak.
"""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from harness.case import Case, Fault, stream
from harness.faults.nemesis_from_text import AimedNemesis, load_nemesis
from harness.ops import NS_PER_S
from harness.plan.fault_plans import drawn_by_hand
from harness.plan.random_case import DRAWN_TOGETHER, PACE
from harness.plugins import Target
from harness.registry import load_plugin

_PACES: Final = next(choices for label, choices in DRAWN_TOGETHER if label == PACE)
INTERVALS_S: Final = tuple(sorted(pace["interval_s"] for pace in _PACES))
DURATIONS_S: Final = tuple(sorted(pace["duration_s"] for pace in _PACES))


def with_uniform_faults(case: Case, candidates: tuple[str, ...]) -> Case:
    """Return a planned case with other faults. They are drawn uniformly over `candidates`."""
    rng = stream(case.seed, "search/uniform")
    horizon_ns = int(case.time_limit_s * NS_PER_S)
    interval_s = rng.uniform(INTERVALS_S[0], INTERVALS_S[-1])
    faults = []
    for number in range(max(1, round(case.time_limit_s / interval_s))):
        kind = of_kind(rng, case, candidates[rng.randrange(len(candidates))])
        faults.append(
            Fault(
                id=f"u{number}",
                at_ns=rng.randrange(horizon_ns),
                duration_ns=int(rng.uniform(DURATIONS_S[0], DURATIONS_S[-1]) * NS_PER_S),
                **kind,
            )
        )
    faults.sort(key=lambda fault: (fault.at_ns, fault.id))
    left_ns = horizon_ns - faults[-1].at_ns
    faults[-1] = msgspec.structs.replace(faults[-1], duration_ns=left_ns + faults[-1].duration_ns)
    used = tuple(dict.fromkeys(fault.nemesis for fault in faults))
    return msgspec.structs.replace(case, nemeses=used, faults=tuple(faults))


def of_kind(rng: random.Random, case: Case, name: str) -> dict[str, Any]:
    """Draw a fault of the nemesis `name`; returns its fields `nemesis` and `args`."""
    target: Target = load_plugin("targets", case.target)
    nemesis = load_nemesis(name).for_target(target)
    if isinstance(nemesis, AimedNemesis):
        return {"nemesis": name, "args": nemesis.draw_args(rng)}
    return {"nemesis": name, "args": drawn_by_hand(nemesis, rng)}
