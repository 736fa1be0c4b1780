"""What a client knows of time: that of tablets, and when its own operation must end."""

from __future__ import annotations

import asyncio
from typing import Final

from harness.env import Clock

_NS: Final = 1e9
_LIMIT_S_MIN: Final = 0.001


class ClientTime:
    """The highest timestamp that was answered; 0 before any."""

    def __init__(self) -> None:
        self.timestamp = 0

    def learn(self, *timestamps: int) -> None:
        """What an answer said."""
        self.timestamp = max(self.timestamp, *timestamps)


class Deadline:
    """When an operation must have ended."""

    __slots__ = ("_clock", "_end_ns")

    def __init__(self, clock: Clock, after_s: float) -> None:
        """So long from now."""
        self._clock = clock
        self._end_ns = clock.monotonic_ns() + int(after_s * _NS)

    @property
    def left_s(self) -> float:
        """The time until then; below 0 once it has passed."""
        return (self._end_ns - self._clock.monotonic_ns()) / _NS

    def limit_s(self, most_s: float) -> float:
        """The time limit of an attempt that may take `most_s`, and end no later than this."""
        return max(_LIMIT_S_MIN, min(most_s, self.left_s))

    def within(self, after_s: float) -> Deadline:
        """This, or so long from now if that is sooner."""
        sooner = Deadline(self._clock, after_s)
        return sooner if sooner._end_ns < self._end_ns else self

    async def pause(self, pause_s: float) -> None:
        """Sleep for so long, and no longer than until then."""
        await asyncio.sleep(max(0.0, min(pause_s, self.left_s)))
