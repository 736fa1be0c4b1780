"""Who had to wait for a processor: an overloaded host slows its nodes, which is not their doing.

The harness may run well where its nodes do not, since who needs little is served first. So the
kernel is asked how long the threads of each node, of the link proxy and of the harness were ready
to run without running. Where one of them waited for most of a look's time, the history gets the
fact `starvation`. A node that hangs, sleeps or is paused waits for no processor.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from harness.environments import procfs
from harness.environments.real.logs import EventBus

__all__ = ["LINK_PROXY", "STARVED_SHARE_MIN", "Waits", "watch_processors"]

LINK_PROXY: Final = "the link proxy"
_HARNESS: Final = "the harness"

STARVED_SHARE_MIN: Final = 0.5
"""Of a look's time, by the thread that waited longest: it ran half as fast as it could, or slower.
On two idle cores six nodes that start at once wait for up to 0.42 of a second, and 0.05 once they
run; of fifty nodes there, some waited longer than this in almost every second."""
_LOOK_S: Final = 1.0


class Waits:
    """How long each of some process trees waited since they were looked at last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds; the first look has nothing to compare with."""
        self._clock = clock
        self._looked_s: float | None = None
        self._delays_ns: dict[tuple[int, int], int] = {}

    def look(self, roots: Mapping[str, int]) -> tuple[float, dict[str, float]]:
        """The seconds since the last look, and how many of them each name's thread waited that
        waited longest. `roots` has the first process of each name.
        """
        now_s = self._clock()
        first, took_s = self._looked_s is None, now_s - (self._looked_s or now_s)
        self._looked_s = now_s
        known, self._delays_ns = self._delays_ns, {}
        waited_s: dict[str, float] = {}
        for name, root in roots.items():
            delays_ns = procfs.run_delays_ns(root, descendants=root != os.getpid())
            self._delays_ns |= delays_ns
            # A thread that is not known began since then, as does one whose number was used again.
            grown = [
                total - known[thread] if total >= known.get(thread, total + 1) else total
                for thread, total in delays_ns.items()
            ]
            if grown and not first:
                waited_s[name] = min(max(grown) / 1e9, took_s)
        return took_s, waited_s


async def watch_processors(roots: Callable[[], Mapping[str, int]], bus: EventBus) -> None:
    """Look until cancelled, and publish each time in which one of `roots` or we ourselves starved:
    `starvation` {took_s, waited_s: {name: s}}, of the time until now.
    """
    waits = Waits()
    while True:
        took_s, waited_s = waits.look({**roots(), _HARNESS: os.getpid()})
        starved = {
            name: round(each, 3)
            for name, each in sorted(waited_s.items())
            if each >= STARVED_SHARE_MIN * took_s > 0
        }
        if starved:
            bus.publish("", "starvation", {"took_s": took_s, "waited_s": starved})
        await asyncio.sleep(_LOOK_S)
