"""A slow processor for one node: computing takes longer, since the node is stopped in between.

A process outside of any control group of ours can be slowed down by signals alone: cpulimit
does the same. At each look the node owes more time: its computing time since the last
one, times `factor - 1`. For that time it is stopped. So a node that computes runs for `PERIOD_S /
factor` in each `PERIOD_S`, and one that only waits is left alone: its timers and its answers are no
later than on a slow machine. The time on a processor counts, not the time on the clock, so it
matters neither how late we look nor what else the host is doing. Several threads that compute at
once count as one: each of them is slowed down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 0.1
STOP_S_MIN: Final = 0.005
"""Shorter stops are saved up, since each costs two signals."""
STOP_S_MAX: Final = 0.5
"""What a late look finds beyond this is forgiven: a busy harness must not freeze nodes."""
_LOOK_S_MIN: Final = 0.002


class SlowProcessor:
    """The stops of one node, over all of its incarnations. Each begins and ends a duty."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        used_s: Callable[[], float],
        stop: Callable[[float], bool],
        go_on: Callable[[], None],
    ) -> None:
        """`used_s`: the node's time on processors so far. `stop` gets the duration, and
        returns false where there is no process to stop any more.
        """
        self._loop = loop
        self._measure = used_s
        self._stop = stop
        self._go_on = go_on
        self.factor = 1.0
        self.stopped = False
        self._owes_s = 0.0
        self._used_s = 0.0
        self._since_s = 0.0  # it runs, or is stopped
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The node runs, and is slow from now on if `factor` says so."""
        self.end()
        if self.factor > 1.0:
            self._used_s = self._measure()
            self._owes_s = 0.0
            self._run()

    def end(self) -> None:
        """Let go of the node: one that is stopped goes on."""
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
        # A child that was not waited for takes its time with it when it ends.
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
        # What we are late by it need not be stopped for the next time.
        self._owes_s = max(self._owes_s - (self._loop.time() - self._since_s), -PERIOD_S)
        self.stopped = False
        self._go_on()
        self._run()
