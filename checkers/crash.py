"""No node's process ends except by the nemesis (invariant I9 of the bug catalogue)."""

from __future__ import annotations

from typing import Final

from checkers._sentences import seconds
from harness.ops import CheckResult, History, Verdict

__all__ = ["CrashChecker"]

EXITS_MAX: Final = 10
LOG_LINES_MAX: Final = 10
LINE_CHARACTERS_MAX: Final = 300


class CrashChecker:
    """Every exit that the harness saw was expected."""

    api_version = 1
    name = "crash"
    doc = "no node ends by itself"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge the `node-exit` facts; the last log lines of a crashed node are the explanation."""
        del case, time_limit_s
        exits = list(history.facts("node-exit"))
        # An exit that does not say that it was expected was not.
        crashes = [op for op in exits if not op.value.get("expected", False)]
        details = {"exits": len(exits), "crashes": len(crashes)}
        if not crashes:
            reason = f"no node ended by itself; the nemesis ended {len(exits)}"
            return CheckResult(self.name, Verdict.VALID, reason, details=details)
        text: list[str] = []
        for op in crashes[:EXITS_MAX]:
            node, code = op.value.get("node"), op.value.get("code")
            text.append(f"Node {node} ended by itself at {seconds(op.time)} s with code {code}.")
            log = [str(line) for line in op.value.get("log") or ()]
            text.extend(f"  {node}: {line[:LINE_CHARACTERS_MAX]}" for line in log[-LOG_LINES_MAX:])
        if len(crashes) > EXITS_MAX:
            text.append(f"{len(crashes) - EXITS_MAX} more crashes are not shown.")
        names = sorted({str(op.value.get("node")) for op in crashes})
        return CheckResult(
            self.name,
            Verdict.INVALID,
            f"{len(crashes)} unexpected exits, of {', '.join(names)}",
            tuple(text),
            tuple(op.index for op in crashes),
            details,
        )
