"""Judging a history: every checker of the workload, each within its time, merged by one rule.

A checker that crashes or runs out of budget says `unknown` with the reason, never `valid`.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, CheckerLimitError
from harness.ops import CheckResult, History, Verdict, worst
from harness.plugins import Checker, Workload, load_plugin
from harness.signatures import sign
from harness.situation import explained

__all__ = ["CHECK_TIME_LIMIT_S", "EXIT_CODES", "Judgement", "checkers_of", "judge"]

CHECK_TIME_LIMIT_S: Final = 120.0
EXIT_CODES: Final = {
    Verdict.VALID: EXIT_VALID,
    Verdict.UNKNOWN: EXIT_UNKNOWN,
    Verdict.INVALID: EXIT_INVALID,
}


class Judgement(msgspec.Struct, frozen=True):
    """All results over one history, and the verdict they add up to."""

    results: tuple[CheckResult, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        return worst(result.verdict for result in self.results)

    @property
    def exit_code(self) -> int:
        """The exit code of the verdict."""
        return EXIT_CODES[self.verdict]


def checkers_of(case: Case) -> tuple[Checker, ...]:
    """The checkers that the case's workload names; needs no target. Raises `UsageError`."""
    workload: Workload = load_plugin("workloads", case.workload)
    return tuple(load_plugin("checkers", name) for name in workload.checkers)


def judge(
    history: History,
    case: Case,
    checkers: Sequence[Checker],
    *,
    time_limit_s: float = CHECK_TIME_LIMIT_S,
) -> Judgement:
    """Run `checkers` over `history`, one after the other, `time_limit_s` for each."""
    found = [_run(checker, history, case, time_limit_s) for checker in checkers]
    return Judgement(explained(history, sign(found, history)))


def _run(checker: Checker, history: History, case: Case, time_limit_s: float) -> CheckResult:
    try:
        return checker.check(history, case, time_limit_s=time_limit_s)
    except CheckerLimitError as error:
        return CheckResult(checker.name, Verdict.UNKNOWN, f"hit a limit: {error}")
    except Exception as error:  # noqa: BLE001 - a crash of a checker becomes a recorded verdict
        return CheckResult(
            checker.name,
            Verdict.UNKNOWN,
            f"the checker crashed: {error!r}",
            explanation=tuple(traceback.format_exc().splitlines()[-20:]),
        )
