"""No node ends by itself (invariant I9): only the nemesis and the harness may end one."""

from __future__ import annotations

from typing import ClassVar

from harness.case import Case
from harness.ops import CheckResult, History, Verdict

__all__ = ["CrashChecker"]

EXITS_SHOWN_MAX = 10
LOG_LINES_SHOWN = 12


class CrashChecker:
    """Judges the facts `node-exit`."""

    api_version: ClassVar[int] = 1
    name: ClassVar[str] = "crash"
    doc: ClassVar[str] = "no node exits by itself"

    def check(self, history: History, case: Case, *, time_limit_s: float) -> CheckResult:
        """Invalid if a node exited that nobody stopped."""
        del case, time_limit_s
        exits = list(history.facts("node-exit"))
        crashes = [op for op in exits if not op.value.get("expected")]
        if not crashes:
            return CheckResult(
                self.name,
                Verdict.VALID,
                f"no node exited by itself ({len(exits)} were killed or stopped)",
            )
        lines: list[str] = []
        for op in crashes[:EXITS_SHOWN_MAX]:
            value = op.value
            lines.append(
                f"Node {value['node']} exited by itself with code {value.get('code')} at "
                f"{op.time / 1e9:.3f} s (op {op.index}); its last words:"
            )
            lines += [f"  {line}" for line in list(value.get("log", ()))[-LOG_LINES_SHOWN:]]
        if len(crashes) > EXITS_SHOWN_MAX:
            lines.append(f"... and {len(crashes) - EXITS_SHOWN_MAX} more exits.")
        first = crashes[0].value
        return CheckResult(
            self.name,
            Verdict.INVALID,
            f"{len(crashes)} exits by themselves, first {first['node']} "
            f"with code {first.get('code')}",
            explanation=tuple(lines),
            operations=tuple(op.index for op in crashes),
        )
