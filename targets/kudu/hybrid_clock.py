"""Hybrid time: the wall clock, plus a counter that orders events within one microsecond.

As in Kudu's `clock/hybrid_clock.h`, a timestamp is the microseconds since the epoch, shifted left
by 12 bits, plus a logical counter (Kulkarni et al., "Logical Physical Clocks", 2014). The
timestamps of a node always rise, even if the wall clock is set back: only the counter advances
then, and overflows into the microseconds, until the wall clock has caught up.

A timestamp in a request advances the clock, so that later work on this node has a higher timestamp.
A request's timestamp that is too far ahead of the wall clock is refused
(`max_clock_sync_error_usec`). Otherwise a single wrong clock would drag all others along. A
timestamp in a log always advances the clock, because it is committed.
"""

from __future__ import annotations

from typing import Final

from harness.env import Clock

_LOGICAL_BITS: Final = 12
_NS_PER_US: Final = 1000


class ClockError(Exception):
    """A timestamp in a request is too far ahead of this node's clock."""


def from_micros(micros: int, logical: int = 0) -> int:
    """Return the timestamp for a time in microseconds since the epoch."""
    assert 0 <= logical < 1 << _LOGICAL_BITS, logical
    return micros << _LOGICAL_BITS | logical


def to_micros(timestamp: int) -> int:
    """Return the microseconds since the epoch in a timestamp."""
    return timestamp >> _LOGICAL_BITS


class HybridClock:
    """The clock of one node, shared by all its tablets."""

    def __init__(self, clock: Clock, *, max_error_us: int) -> None:
        self._clock = clock
        self._max_error_us = max_error_us
        self._last = 0

    def now(self) -> int:
        """Return a timestamp above all timestamps that this clock has issued or observed."""
        wall = from_micros(max(0, self._clock.wall_ns() // _NS_PER_US))
        self._last = max(wall, self._last + 1)
        return self._last

    def observe(self, timestamp: int) -> None:
        """Advance the clock to a timestamp from a log."""
        self._last = max(self._last, timestamp)

    def update(self, timestamp: int) -> None:
        """Advance the clock to a request's timestamp. Raises `ClockError` if it is too high."""
        if timestamp <= self._last:
            return
        wall_us = self._clock.wall_ns() // _NS_PER_US
        ahead_us = to_micros(timestamp) - wall_us
        if ahead_us > self._max_error_us:
            raise ClockError(
                f"the timestamp {timestamp} is {ahead_us} us ahead of this clock; at most "
                f"{self._max_error_us} us are accepted (flag max_clock_sync_error_usec)"
            )
        self._last = timestamp
