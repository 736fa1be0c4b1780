"""What the checkers of rows that look for single contradictions have in common."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.rows.permits import PowerCuts
from checkers.verdict.invariants import KEY, invariant_of
from checkers.verdict.permitted import permitted_result
from harness.errors import counted
from harness.ops import CheckResult, Verdict
from harness.permits import LOST_AFTER_POWER_CUT

SHOWN_MAX: Final = 4
"""Of each rule so many violations are told."""
OPERATIONS_MAX: Final = 64


@dataclass(slots=True)
class Findings:
    """Violations by rule, in the order found, and how often each rule was looked at."""

    cuts: PowerCuts
    violations: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)
    looked: Counter[str] = field(default_factory=Counter)
    exempt: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    excused: list[int] = field(default_factory=list)
    times_excused: int = 0

    def violate(self, rule: str, sentence: str, *operations: int) -> None:
        """Add a violation, unless a power cut explains it; beyond the bound they are counted."""
        if self.cuts.explain(operations):
            self.excuse(*operations)
            return
        self.found[rule] += 1
        if self.found[rule] <= SHOWN_MAX:
            self.violations.append((rule, sentence, operations))

    def excuse(self, *operations: int) -> None:
        """Count what a power cut explains."""
        self.times_excused += 1
        self.excused += operations[: OPERATIONS_MAX - len(self.excused)]

    def result(self, checker: str) -> CheckResult:
        """`invalid` with all that was found; else `valid`, if anything was looked at."""
        details: dict[str, Any] = {
            "looked": dict(sorted(self.looked.items())),
            KEY: {invariant_of("rows").name: self.looked.total()},
        }
        if self.exempt:
            details["exempt"] = dict(sorted(self.exempt.items()))
        if not self.violations:
            total = sum(self.looked.values())
            if self.times_excused:
                found = CheckResult(checker, Verdict.INVALID, "", details=details)
                counts = {LOST_AFTER_POWER_CUT: self.times_excused}
                return permitted_result(found, self.cuts.permits, counts, self.excused, details)
            if not total:
                reason = "there was nothing to judge"
                details["rule"] = "nothing-observed"
                return CheckResult(checker, Verdict.UNKNOWN, reason, details=details)
            reason = f"{counted(total, 'check')} of {counted(len(self.looked), 'rule')} hold"
            return CheckResult(checker, Verdict.VALID, reason, details=details)
        details |= {"rule": self.violations[0][0], "by_rule": dict(sorted(self.found.items()))}
        total = sum(self.found.values())
        text = [f"[{rule}] {sentence}" for rule, sentence, _ in self.violations]
        if total > len(text):
            text.append(f"{counted(total - len(text), 'more violation')} not shown.")
        indices = dict.fromkeys(index for *_, blamed in self.violations for index in blamed)
        first = ", first" if total > 1 else ""
        reason = f"{counted(total, 'violation')}{first}: {self.violations[0][1]}"
        blamed = tuple(indices)[:OPERATIONS_MAX]
        return CheckResult(checker, Verdict.INVALID, reason, tuple(text), blamed, details)
