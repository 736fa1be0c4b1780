"""The words of a failing test: the verdict with its reasons, the run, and how to replay it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.checking import Judgement
from harness.cli.verdict_text import describe
from harness.ops import CheckResult, Verdict

__all__ = ["failure_text"]


def failure_text(
    verdict: Verdict,
    results: Sequence[CheckResult],
    *,
    expected: Verdict,
    facts: Mapping[str, str],
) -> str:
    """What pytest shows: no traceback says more than the verdict does."""
    if expected is not Verdict.VALID:
        head = f"the verdict is {verdict.value}, expected {expected.value}"
    elif verdict is Verdict.INVALID:
        head = "INVALID: a promise was broken"
    else:
        head = "UNKNOWN: nothing was proven; see the reasons (allow_unknown=True accepts this)"
    lines = [f"harness: {head}"]
    lines += describe(Judgement(tuple(results)), certificate=verdict is not Verdict.INVALID)
    lines.append("")
    lines += [f"{name:12} {value}" for name, value in facts.items() if value]
    return "\n".join(lines)
