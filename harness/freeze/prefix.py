"""Finds proven violations in an incomplete history, while the run is still in progress.

A checker takes part only if it `judges_prefixes`: if it finds the first part of a history invalid,
the whole run is invalid. This part may end between any two lines of the history, so its open
operations have an unknown outcome, like `info`. Checks that depend on the end of a run prove
nothing before it: liveness, convergence, bounds, exits of nodes (whose cause may be reported late),
and final snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.errors import UsageError, listed
from harness.ops import History, Op, Verdict
from harness.plugins import Checker
from harness.run.freeze import Violation
from harness.verdict.judge import judge_one
from harness.verdict.limits import Limits
from harness.verdict.signature import rule_of

CHECK_CPU_S_MAX: Final = 20.0
"""The CPU time of one checker for one check, so that the check ends while the run goes on."""


def prefix_checkers(checkers: Sequence[Checker]) -> tuple[Checker, ...]:
    """Return the checkers that may judge a run in progress; raises `UsageError` if none may."""
    able = tuple(checker for checker in checkers if checker.judges_prefixes)
    if not able:
        names = listed([checker.name for checker in checkers], limit=10)
        raise UsageError(
            f"--freeze: no checker of this case can judge a run in progress ({names} cannot); "
            "leave out --freeze, or choose another --workload"
        )
    return able


def find_violation(ops: Sequence[Op], case: Case, checkers: Sequence[Checker]) -> Violation | None:
    """Return the first violation that a checker proves in a history, or `None`."""
    history = History(ops)
    for checker in checkers:
        limits = Limits(cpu_s=CHECK_CPU_S_MAX)
        result = judge_one(checker, history, case, limits, whole=False)
        if result.verdict is Verdict.INVALID:
            return Violation(
                checker=checker.name, rule=rule_of(result), reason=result.reason, ops=len(ops)
            )
    return None
