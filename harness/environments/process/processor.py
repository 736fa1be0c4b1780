"""A slow CPU for one node, simulated by stopping the node again and again.

A process outside our control groups can only be slowed down by signals, as cpulimit does. At each
look, the CPU time that the node used since the last look, times `factor - 1`, is added to its debt,
and the node is stopped for that long. A computing node thus runs for `PERIOD_S / factor` in each
`PERIOD_S`. A node that only waits is not stopped, so its timers and answers are no later than on a
slow machine. CPU time counts, not elapsed time, so neither late looks nor other load on the host
matter. Threads that compute in parallel count as one, since a stop slows down all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 0.1
STOP_S_MIN: Final = 0.005
"""Shorter stops are accumulated, since each stop costs two signals."""
STOP_S_MAX: Final = 0.5
"""The maximum debt, so that a late look of a busy harness does not freeze a node."""
_LOOK_S_MIN: Final = 0.002


class SlowProcessor:
    """Stops and continues one node; each incarnation calls `begin` and `end`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        used_s: Callable[[], float],
        stop: Callable[[float], bool],
        go_on: Callable[[], None],
    ) -> None:
        """`used_s` returns the node's CPU time so far.

        `stop` gets a duration, and returns false if there is no process to stop any more.
        """
        self._loop = loop
        self._measure = used_s
        self._stop = stop
        self._go_on = go_on
        self.factor = 1.0
        self.stopped = False
        self._owes_s = 0.0
        self._used_s = 0.0
        self._since_s = 0.0  # start of the current run or stop
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start slowing down the running node if `factor` is above 1."""
        self.end()
        if self.factor > 1.0:
            self._used_s = self._measure()
            self._owes_s = 0.0
            self._run()

    def end(self) -> None:
        """Stop slowing down the node, and continue a stopped node."""
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
        # CPU time may fall: a child that ends before it is waited for no longer counts.
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
        # A stop that lasted too long reduces the next one.
        self._owes_s = max(self._owes_s - (self._loop.time() - self._since_s), -PERIOD_S)
        self.stopped = False
        self._go_on()
        self._run()
