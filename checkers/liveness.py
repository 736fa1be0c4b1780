"""Liveness as a verdict: once a quorum is whole, every kind of operation must succeed in time.

Two facts decide. `live` was recorded while only a quorum core was healed (TigerBeetle's liveness
mode, `src/vopr.zig`); `converged` after everything was. A run that never came so far has proven
nothing: `unknown`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from harness.case import Case
from harness.ops import CheckResult, History, Op, Verdict

__all__ = ["LivenessChecker"]

PENDING_SHOWN_MAX = 20


class LivenessChecker:
    """Judges the facts `live` and `converged`."""

    api_version: ClassVar[int] = 1
    name: ClassVar[str] = "liveness"
    doc: ClassVar[str] = (
        "after healing, every kind of operation succeeds and the target comes to rest"
    )

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Invalid if either demand was missed, unknown if either was never made."""
        del case, time_limit_s
        live = list(history.facts("live"))
        converged = list(history.facts("converged"))
        broken = [op for op in (*live, *converged) if op.value.get("ok") is not True]
        if broken:
            return CheckResult(
                self.name,
                Verdict.INVALID,
                _sentence(broken[0]),
                explanation=tuple(_sentence(op) for op in broken),
                operations=tuple(op.index for op in broken),
            )
        missing = [f for f, ops in (("live", live), ("converged", converged)) if not ops]
        if missing:
            return CheckResult(
                self.name,
                Verdict.UNKNOWN,
                f"the run ended before it could be judged: no {' and no '.join(missing)} fact",
            )
        took = {op.f: float(op.value["took_s"]) for op in (*live, *converged)}
        return CheckResult(
            self.name,
            Verdict.VALID,
            f"served {took['live']:.1f} s after a quorum was whole, "
            f"at rest {took['converged']:.1f} s after all was",
            details={f"{name}_took_s": value for name, value in took.items()},
        )


def _sentence(op: Op) -> str:
    value: dict[str, Any] = op.value
    bound_s = float(value.get("bound_s", 0.0))
    if op.f == "live":
        core = ", ".join(value.get("core", ()))
        kinds = ", ".join(value.get("missing", ()))
        return (
            f"Within {bound_s:g} s of {core} being whole again, no operation of these kinds "
            f"succeeded: {kinds}."
        )
    pending = list(value.get("pending", ()))
    more = len(pending) - PENDING_SHOWN_MAX
    text = "; ".join(pending[:PENDING_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
    return f"The target did not come to rest within {bound_s:g} s of all being healed: {text}."
