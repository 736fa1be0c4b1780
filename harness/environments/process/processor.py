"""Simulates a slow CPU for one node by stopping the node again and again.

The harness runs processes without control groups, so it can slow them down only by signals, as
cpulimit does. At each check, the node's *debt* grows by the CPU time that the node has used since
the last check, times `factor - 1`. Then the harness stops the node for the time of the debt. So a
node that computes runs for `PERIOD_S / factor` in each `PERIOD_S`. A node that only waits is not
stopped, so its timers and answers are no later than on a slow machine. The debt depends on CPU time
and not on elapsed time, so late checks and other load on the host do not matter. Threads that
compute in parallel count as one thread, since a stop slows down all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 0.1
STOP_S_MIN: Final = 0.005
"""With a smaller debt, the node is not stopped yet, because each stop costs two signals."""
STOP_S_MAX: Final = 0.5
"""The longest stop, so that a busy harness with late checks does not stop a node for long."""
_LOOK_S_MIN: Final = 0.002


class SlowProcessor:
    """Slows down one node by stopping it; `begin` and `end` follow the node's starts and exits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        used_s: Callable[[], float],
        stop: Callable[[float], bool],
        go_on: Callable[[], None],
    ) -> None:
        """`used_s` returns the node's CPU time so far, and `go_on` lets a stopped node continue.

        `stop` stops the node for a duration, and returns false if the node has no process any more.
        """
        self._loop = loop
        self._measure = used_s
        self._stop = stop
        self._go_on = go_on
        self.factor = 1.0
        self.stopped = False
        self._owes_s = 0.0
        self._used_s = 0.0
        self._since_s = 0.0  # when the current run or stop began
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to slow down the running node if `factor` is above 1."""
        self.end()
        if self.factor > 1.0:
            self._used_s = self._measure()
            self._owes_s = 0.0
            self._run()

    def end(self) -> None:
        """End the slow-down. A stopped node continues."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.stopped:
            self.stopped = False
            self._go_on()

    def _run(self) -> None:
        self._since_s = self._loop.time()
        self._timer = self._loop.call_later(max(PERIOD_S / self.factor, _LOOK_S_MIN), self._look)

    def _look(self) -> None:
        used_s, now_s = self._measure(), self._loop.time()
        # The CPU time may fall, because it lacks ended children until the node waits for them.
        computed_s = max(0.0, min(used_s - self._used_s, now_s - self._since_s))
        self._used_s = used_s
        self._owes_s = min(self._owes_s + computed_s * (self.factor - 1), STOP_S_MAX)
        if self._owes_s < STOP_S_MIN:
            self._run()
        elif self._stop(self._owes_s):
            self.stopped = True
            self._since_s = now_s
            self._timer = self._loop.call_later(self._owes_s, self._stopped_long_enough)

    def _stopped_long_enough(self) -> None:
        # After a stop that was too long, the debt is negative and shortens the next stop.
        self._owes_s = max(self._owes_s - (self._loop.time() - self._since_s), -PERIOD_S)
        self.stopped = False
        self._go_on()
        self._run()
