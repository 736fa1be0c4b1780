"""A heartbeat that records when the harness's own event loop did not run.

A harness that was stopped (Ctrl-Z, a paused virtual machine) or starved of CPU would blame the
target for its own delay. So a timer on the driver's loop beats regularly, and if two beats are too
far apart, the history gets an op `heartbeat-gap`. In simulation time is virtual, and no beat is
ever late.
"""

from __future__ import annotations

import asyncio
from typing import Final

from harness.ops import NS_PER_S
from harness.run.interpreter import GUARD_MARGIN_S
from harness.run.recorder import Recorder

GAP_S_MIN: Final = GUARD_MARGIN_S
"""The smallest time between two beats that counts as a gap. It equals the time by which a client
may exceed its timeout before it counts as hanging: a shorter pause changes no outcome that the
harness decides. Even with ten busy processes per core, the loop was never more than 0.07 s late."""
BEAT_S: Final = GAP_S_MIN / 4


class Heartbeat:
    """A timer that beats on the running loop from `start` to `stop`."""

    def __init__(self, recorder: Recorder) -> None:
        """Make a heartbeat that does not beat yet."""
        self._recorder = recorder
        self._last_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._last_ns = self._recorder.now_ns()
        self._arm()

    def stop(self) -> None:
        """Check for a gap once more, since the loop may just have been blocked. Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._look()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        self._arm()
        self._look()

    def _look(self) -> None:
        now_ns = self._recorder.now_ns()
        last_ns, self._last_ns = self._last_ns, now_ns
        gap_s = (now_ns - last_ns) / NS_PER_S
        if gap_s > GAP_S_MIN:
            value = {"from_s": last_ns / NS_PER_S, "to_s": now_ns / NS_PER_S, "gap_s": gap_s}
            self._recorder.fact("heartbeat-gap", value)
