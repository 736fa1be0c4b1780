"""Shows the progress of a shrink: one line that is redrawn on a terminal, or else periodic
lines.
"""

from __future__ import annotations

from typing import Final, TextIO

from harness.case import Case
from harness.cli.status_line import StatusLine
from harness.errors import counted
from harness.trials.shrink import Step
from harness.trials.trials import Trials

PIPE_INTERVAL_S: Final = 5.0


class ShrinkProgress:
    """The progress display of one shrink; `finish` ends its line."""

    def __init__(self, cpu_s_max: float, stream: TextIO | None = None) -> None:
        self._cpu_s_max = cpu_s_max
        self._status = StatusLine(stream, pipe_interval_s=PIPE_INTERVAL_S)
        self._trials: Trials | None = None
        self._size = "looking for the failure"

    def follow(self, trials: Trials) -> None:
        """Show the counts of `trials` from now on."""
        self._trials = trials

    def on_step(self, step: Step, case: Case) -> None:
        """Record that this step of the reduction made the case smaller."""
        ops = "" if case.ops is None else f", {counted(len(case.ops), 'operation')}"
        self._size = f"{counted(len(case.faults or ()), 'fault')}{ops} ({step.words})"
        self.show()

    def show(self) -> None:
        """Show the progress if the last update is long enough ago."""
        if self._trials is not None and self._status.due_s() is not None:
            self._status.show(self.line())

    def line(self) -> str:
        """Return the progress as one line of text."""
        assert self._trials is not None, "follow() comes first"
        return (
            f"shrinking: {self._size}, {counted(self._trials.runs, 'trial')}, "
            f"{self._trials.cpu_s:.0f} of {self._cpu_s_max:g} CPU s"
        )

    def finish(self) -> None:
        self._status.finish()
