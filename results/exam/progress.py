"""The status line of an exam, with the defects found so far, false alarms, and the time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TextIO

from harness.cli.soak.progress import duration_text
from harness.cli.status_line import StatusLine
from harness.errors import counted
from harness.soak.result import SeedResult
from results.exam.rows import CLEAN, DEFECT, SWITCH, Row

PIPE_INTERVAL_S: Final = 10.0
RUNS_MIN: Final = 10
"""The number of runs before the time left is estimated. The first runs wait for their workers."""


class ExamProgress:
    """Shows the progress of an exam over `rows` on the status line."""

    def __init__(self, rows: Sequence[Row], stream: TextIO | None = None) -> None:
        """Create the progress; nothing is shown until the first result."""
        self._status = StatusLine(stream, pipe_interval_s=PIPE_INTERVAL_S)
        self._rows = {kind: sum(row.kind == kind for row in rows) for kind in (SWITCH, DEFECT)}
        self._left = sum(len(row.seeds) for row in rows)
        self._over: set[str] = set()
        self._found: set[str] = set()
        self._begin_s = time.monotonic()
        self._runs = 0
        self._cpu_s = 0.0

    def take(self, row: Row, result: SeedResult, *, tried: int) -> None:
        """Count a result. `tried` is the number of seeds of the row that have a result."""
        self._runs += 1
        self._cpu_s += result.cpu_s
        if row.key not in self._over:
            self._left -= 1
        if row.is_hit(result):
            if row.kind == CLEAN:
                self._status.line(
                    f"{row.target} {row.name} is blamed at seed {result.seed}: {result.reason}"
                )
            if row.first and row.key not in self._over:
                self._over.add(row.key)
                self._left -= len(row.seeds) - tried
            self._found.add(row.key)
        if self._status.due_s() is not None:
            self._status.show(self.line(time.monotonic() - self._begin_s))

    def line(self, elapsed_s: float) -> str:
        """Return the progress as one line. `elapsed_s` is the time since the exam (re)started."""
        parts = [counted(self._runs, "run")]
        for kind, name in ((SWITCH, "switches"), (DEFECT, "planted defects")):
            if self._rows[kind]:
                hits = sum(key.startswith(f"{kind} ") for key in self._found)
                parts.append(f"{hits} of {self._rows[kind]} {name} found")
        blamed = sum(key.startswith(f"{CLEAN} ") for key in self._found)
        parts.append(f"{blamed} blamed")
        parts.append(f"{self._cpu_s:.0f} CPU s")
        if self._runs >= RUNS_MIN:
            left_s = self._left * elapsed_s / self._runs
            parts.append(f"at most {duration_text(left_s)} to go")
        return "exam: " + ", ".join(parts)

    def finish(self) -> None:
        """End the status line."""
        self._status.finish()
