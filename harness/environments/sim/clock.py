"""A machine's clocks in integer nanoseconds: monotonic and wall, with skew and drift.

Both clocks belong to the machine, so they keep running across restarts of the node. Drift changes
the rate of both: at `drift_ppm` 500_000 a local sleep of 3 s takes 2 s of world time. Skew moves
only the wall clock. A skewed clock still reports the `max_error_ns` that the NTP daemon had set
before, since the clock cannot know that it is wrong.
"""

from __future__ import annotations

from typing import Final

from harness.environments.sim.scheduler import Scheduler

_MILLION: Final = 1_000_000


class SimClock:
    """A machine's clocks: local time = anchor + rate x (world time since the anchor)."""

    __slots__ = (
        "_anchor_ns",
        "_drift_ppm",
        "_local_ns",
        "_max_error_ns",
        "_skew_ns",
        "_wall_ns",
        "_world",
    )

    def __init__(self, world: Scheduler, *, wall_base_ns: int, max_error_ns: int) -> None:
        self._world = world
        self._wall_ns = wall_base_ns
        self._max_error_ns = max_error_ns
        self._anchor_ns = 0  # world time of the last rate change
        self._local_ns = 0  # monotonic time at the anchor
        self._skew_ns = 0
        self._drift_ppm = 0

    def monotonic_ns(self) -> int:
        passed = self._world.now_ns - self._anchor_ns
        if self._drift_ppm:
            passed += passed * self._drift_ppm // _MILLION
        return self._local_ns + passed

    def wall_ns(self) -> int:
        now = self._world.now_ns
        drifted = (now - self._anchor_ns) * self._drift_ppm // _MILLION
        return self._wall_ns + now + drifted + self._skew_ns

    def max_error_ns(self) -> int:
        return self._max_error_ns

    def world_ns(self, local_ns: int) -> int:
        """The earliest world time at which `monotonic_ns` has reached `local_ns`."""
        left = local_ns - self._local_ns
        if self._drift_ppm:
            left = -(-left * _MILLION // (_MILLION + self._drift_ppm))
        return self._anchor_ns + left

    def adjust(self, *, skew_ns: int, drift_ppm: int) -> None:
        """Shift the wall clock by `skew_ns` from the correct time, and drift from now on."""
        self._local_ns = self.monotonic_ns()
        self._anchor_ns = self._world.now_ns
        self._skew_ns = skew_ns
        self._drift_ppm = drift_ppm
