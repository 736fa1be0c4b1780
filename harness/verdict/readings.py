"""Checks a history that can be read in two ways; it is invalid only if it is so in both.

The values, the order of the ops or the model may be ambiguous. If the verdicts of the two readings
differ, the verdict is `unknown`, and its reason says how the user can decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import HistoryError, UsageError
from harness.ops import CheckResult, Counterexample, Verdict
from harness.plugins import PreparedCheck


@dataclass(frozen=True, slots=True)
class EitherCheck:
    """The check of two readings of one history. Their verdicts must agree.

    `titles` are the readings' names in explanations. `second` prepares the second reading's check;
    if this raises `HistoryError` or `UsageError`, only the first reading counts. `reason` turns the
    two verdicts into a reason, and `rule` is the rule of the verdict `unknown`. With
    `only_convictions`, the second reading is prepared and judged only if the first one is invalid.
    """

    name: str
    titles: tuple[str, str]
    first: PreparedCheck
    second: Callable[[], PreparedCheck]
    reason: Callable[[Verdict, Verdict], str]
    rule: str
    only_convictions: bool = False

    @property
    def operations(self) -> int:
        return self.first.operations

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge both readings. The verdict is `unknown` if their verdicts differ."""
        end_s = time.monotonic() + time_limit_s
        limit_s = time_limit_s if self.only_convictions else time_limit_s / 2
        first, drawn = self.first.check(time_limit_s=limit_s, draw=draw)
        if self.only_convictions and first.verdict is not Verdict.INVALID:
            return first, drawn
        left_s = max(0.0, end_s - time.monotonic())
        try:
            check = self.second()
        except (HistoryError, UsageError):
            return first, drawn
        second, _ = check.check(time_limit_s=left_s, draw=False)
        if first.verdict is second.verdict:
            return first, drawn
        results = (first, second)
        text: list[str] = []
        for title, result in zip(self.titles, results, strict=True):
            text.append(f"{title}, {result.verdict.value}: {result.reason}.")
            text += (f"  {sentence}" for sentence in result.explanation)
        details = {
            "operations": self.operations,
            "configurations": sum(r.details.get("configurations", 0) for r in results),
            "rule": self.rule,
        }
        reason = self.reason(first.verdict, second.verdict)
        return CheckResult(self.name, Verdict.UNKNOWN, reason, tuple(text), details=details), None
