"""Shows the progress of a run: one line that is redrawn on a terminal, or else plain lines.

The run calls `Progress` with each recorded op. So the display needs no thread or timer, and also
works in virtual time.
"""

from __future__ import annotations

from typing import Final, TextIO

from harness.cli.status_line import StatusLine, fitting
from harness.errors import measured
from harness.ops import HARNESS, NEMESIS, Op, OpType
from harness.timeline import how_ended

PIPE_INTERVAL_S: Final = 5.0


class Progress:
    """The progress display of one run. The run calls it with each op; `finish` ends its line."""

    def __init__(self, stream: TextIO | None = None, *, simulated: bool = False) -> None:
        """Write to `stream` (default: stderr). With `simulated`, the times of ops are virtual."""
        self._unit = "s simulated" if simulated else "s"
        self._shown_run_s = 0.0
        self._status = StatusLine(stream, pipe_interval_s=PIPE_INTERVAL_S)
        self._shown_ops = 0
        self._phase = "setup"
        self._counts = {OpType.OK: 0, OpType.FAIL: 0, OpType.INFO: 0}
        self._leader = "no leader yet"
        self._active: dict[str, str] = {}
        self._last_error = ""

    def __call__(self, op: Op) -> None:
        if op.process == HARNESS:
            self._hear_fact(op)
        elif op.process == NEMESIS:
            self._hear_fault(op)
        elif op.type is not OpType.INVOKE:
            self._counts[op.type] += 1
            if op.error:
                self._last_error = op.error.split(":")[0][:40]
        if self._status.due_s() is not None:
            self._show(op.time / 1e9)

    def _hear_fact(self, op: Op) -> None:
        if op.f == "phase":
            self._phase = op.value["phase"]
            self._say(op, f"phase {self._phase}")
        elif op.f == "leader":
            node, term = op.value["node"], op.value["term"]
            self._say(op, f"{node} leads in term {term}")
            verb = "led when last asked," if op.value.get("asked") else "leads"
            self._leader = f"{node} {verb} in term {term}"
        elif op.f == "node-exit" and not op.value["expected"]:
            self._say(op, f"node {op.value['node']} ended {how_ended(op)}")
        elif op.f == "frozen":
            self._say(op, f"frozen: {op.value['checker']}: {op.value['reason']}")
        elif op.f == "infrastructure":
            about = f"{op.value['node']}: " if op.value.get("node") else ""
            self._say(op, f"{about}{op.value['what']}")

    def _hear_fault(self, op: Op) -> None:
        value = op.value
        if value["action"] == "inject":
            if value["targets"]:
                self._active[value["fault"]] = f"{op.f} on {', '.join(value['targets'])}"
            self._say(op, f"fault  {op.f}: {value['note']}")
        else:
            self._active.pop(value["fault"], None)
            bite = value["bite"]
            count, unit = bite["count"], bite["unit"]
            hit = f"an unknown number of {unit}" if count is None else measured(count, unit)
            did = {"ms": "off", "operations": "done"}.get(unit, "hit")
            self._say(op, f"healed {op.f}: {hit} {did}")

    def _say(self, op: Op, text: str) -> None:
        self._status.line(f"{op.time / 1e9:7.1f} s  {text}")

    def _show(self, run_s: float) -> None:
        counts, total = self._counts, sum(self._counts.values())
        rate = (total - self._shown_ops) / max(run_s - self._shown_run_s, 1e-9)
        self._shown_ops, self._shown_run_s = total, run_s
        parts = [
            f"{run_s:7.1f} {self._unit}",
            f"{self._phase}: {rate:.0f} op/s",
            f"{counts[OpType.OK]} ok, {counts[OpType.FAIL]} fail, {counts[OpType.INFO]} info",
            self._leader,
            "; ".join(self._active.values()) or "no fault",
        ]
        if self._last_error:
            parts.append(f"last error {self._last_error}")
        line = fitting(parts, self._status.width) if self._status.terminal else "  ".join(parts)
        self._status.show(line)

    def finish(self) -> None:
        self._status.finish()
