"""Does it live again? A quorum once healed must serve, and with all healed it must settle.

The harness records both facts, `live` and `converged`, with the bound and what was still missing;
this checker judges them. A run that ended before they were recorded proves nothing: `unknown`.
"""

from __future__ import annotations

from typing import Any

from harness.ops import CheckResult, History, Op, Verdict, worst

__all__ = ["LivenessChecker"]

WORDS_MAX = 20


def _list(words: object) -> str:
    if not isinstance(words, list | tuple) or not words:
        return "nothing in particular"
    shown = ", ".join(str(word) for word in words[:WORDS_MAX])
    more = f" and {len(words) - WORDS_MAX} more" if len(words) > WORDS_MAX else ""
    return shown + more


def _last(history: History, f: str) -> Op | None:
    found = None
    for op in history.facts(f):
        found = op
    return found


class LivenessChecker:
    """With a quorum healed every kind of operation succeeds; with all healed all settles."""

    api_version = 1
    name = "liveness"
    doc = "a healed quorum serves within its bound, and with all healed the target settles"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge the last `live` and `converged` facts."""
        del case, time_limit_s
        verdicts: list[Verdict] = []
        text: list[str] = []
        operations: list[int] = []
        details: dict[str, Any] = {}
        for f, open_key, good, bad in (
            ("live", "missing", "served again", "did not succeed again"),
            ("converged", "pending", "settled", "was still open"),
        ):
            op = _last(history, f)
            if op is None or not isinstance(op.value, dict) or "ok" not in op.value:
                verdicts.append(Verdict.UNKNOWN)
                text.append(f"The run ended before it was known whether the target {good}.")
                continue
            value = op.value
            bound, took = value.get("bound_s"), value.get("took_s")
            details[f] = {"ok": value["ok"], "took_s": took, "bound_s": bound}
            if value["ok"]:
                verdicts.append(Verdict.VALID)
                continue
            verdicts.append(Verdict.INVALID)
            operations.append(op.index)
            core = f" (with {_list(value['core'])} healed)" if value.get("core") else ""
            text.append(
                f"Within {bound} s of healing{core} this {bad}: {_list(value.get(open_key))}."
            )
        verdict = worst(verdicts)
        if verdict is Verdict.VALID:
            live, rest = details["live"], details["converged"]
            reason = f"live after {_s(live)} and at rest after {_s(rest)}"
        else:
            # The gravest finding is the reason, whichever comes first in the run.
            reason = text[0] if len(text) == 1 or verdicts[0] is verdict else text[1]
        return CheckResult(self.name, verdict, reason, tuple(text), tuple(operations), details)


def _s(fact: dict[str, Any]) -> str:
    took, bound = fact["took_s"], fact["bound_s"]
    if not isinstance(took, int | float):
        return "an unknown time"
    return f"{took:.1f} s of {bound:g} s" if isinstance(bound, int | float) else f"{took:.1f} s"
