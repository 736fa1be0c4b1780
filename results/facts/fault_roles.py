"""Counts operations by phase, by the nemesis of the active fault, and by the fault's role.

A network partition that isolates the leader differs from one that isolates a follower, though both
come from the same nemesis. A fault's role says which kind of node it hit, as of its injection:

| role    | nodes that the fault hit                                            |
|---------|---------------------------------------------------------------------|
| leader  | the last leader that the harness had seen, and maybe other nodes    |
| other   | other nodes only                                                    |
| unknown | some nodes, before the harness had seen any leader                  |

Rows without a role count the operations of the same phase while no fault of the nemesis was active.
They are the baseline for the other rows. Only the phases from `chaos` until all faults are healed
have rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from harness.ops import Op
from harness.timeline import Fault
from results.facts.operations import Operations, counted
from results.facts.timeline import Timeline, field_of, moments, sweep

LEADER: Final = "leader"
OTHER: Final = "other"
UNKNOWN: Final = "unknown"
PHASES: Final = ("chaos", "heal-core")

Row = tuple[str, str, str | None, int, int]


def role_exposure(ops: Operations, timeline: Timeline, leaders: Sequence[Op]) -> list[Row]:
    """Return the rows of `exposure_by_role`: nemesis, phase, role, operations, unanswered ones."""
    hit = [fault for fault in timeline.faults if fault.targets]
    nemeses = sorted({fault.nemesis for fault in hit})
    if not nemeses:
        return []
    active = [((f.nemesis, _role(f, leaders)), timeline.interval(f)) for f in hit]
    edges, members = sweep(active)
    counts: Counter[tuple[str, str, str | None]] = Counter()
    bad: Counter[tuple[str, str, str | None]] = Counter()
    columns = (timeline.phase_numbers(ops.start), moments(edges, ops.start), ops.answered)
    for (phase, moment, answered), n in counted(*columns):
        name = timeline.phase_name(phase)
        if name not in PHASES:
            continue
        for nemesis in nemeses:
            roles = sorted(role for owner, role in members[moment] if owner == nemesis)
            for role in roles or (None,):
                counts[nemesis, name, role] += n
                bad[nemesis, name, role] += 0 if answered else n
    cells = sorted(counts, key=lambda cell: (cell[0], cell[1], cell[2] or ""))
    return [(*cell, counts[cell], bad[cell]) for cell in cells]


def _role(fault: Fault, leaders: Sequence[Op]) -> str:
    # Compare lines instead of times, because in virtual time many lines have the same time.
    before = [op for op in leaders if op.index < fault.begin.index]
    leader = field_of(before[-1], "node") if before else None
    if leader is None:
        return UNKNOWN
    return LEADER if str(leader) in fault.targets else OTHER
