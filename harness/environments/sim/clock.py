"""A machine's monotonic clock and wall clock in integer nanoseconds, with skew and drift.

Both clocks belong to the machine, so they keep running when the node restarts. Drift changes the
speed of both clocks: at `drift_ppm` 500_000 a local sleep of 3 s takes 2 s of world time. Skew
moves only the wall clock. A skewed clock still reports its normal `max_error_ns`, since a clock
cannot know that it is wrong.

Clocks, event loops and disks see the world as a `Scheduler`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

Entry = tuple[int, int, Callable[[Any], None] | None, Any]
"""An entry of the world's heap: (time in ns, sequence, action, argument). See `world`."""


class Scheduler(Protocol):
    """The part of a simulated world that clocks, loops and disks use: time, timers, callbacks."""

    now_ns: int
    heap: list[Entry]
    sequence: Iterator[int]
    runnable: deque[Any]
    current: Any

    def schedule(self, at_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Call `action(argument)` now or at a future time, outside of all nodes."""

    def timer_cancelled(self) -> None:
        """Count a cancelled timer, whose entry is still in the heap."""

    def note(self, node: str, what: str, data: bytes = b"") -> None:
        """Add an event of a node (`what`, with its `data`) to the run's digest and trace."""

    def log(self, node: str, line: str, data: bytes = b"") -> None:
        """Append a line to a node's log. `data` is text in UTF-8 that belongs to the line."""


_MILLION: Final = 1_000_000


class SimClock:
    """A machine's clocks (see `harness.env.Clock`), with skew and drift.

    The *anchor* is the moment at which the clocks' speed last changed. Local time is the local time
    at the anchor, plus the speed times the world time since the anchor.
    """

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
        self._anchor_ns = 0  # world time at the anchor
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

    @property
    def skew_ns(self) -> int:
        return self._skew_ns

    @property
    def drift_ppm(self) -> int:
        """The drift: by how many millionths both clocks run too fast."""
        return self._drift_ppm

    def world_ns(self, local_ns: int) -> int:
        """Return the earliest world time at which `monotonic_ns` reaches `local_ns`."""
        left = local_ns - self._local_ns
        if self._drift_ppm:
            left = -(-left * _MILLION // (_MILLION + self._drift_ppm))
        return self._anchor_ns + left

    def adjust(self, *, skew_ns: int, drift_ppm: int) -> None:
        """Set by how much the wall clock is wrong, and the drift of both clocks from now on."""
        self._local_ns = self.monotonic_ns()
        self._anchor_ns = self._world.now_ns
        self._skew_ns = skew_ns
        self._drift_ppm = drift_ppm
