"""Waits for a processor: an overloaded host slows its nodes, which is not their doing.

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
from typing import Final, NamedTuple

from harness.environments import procfs
from harness.environments.host.logs import EventBus

LINK_PROXY: Final = "the link proxy"
_HARNESS: Final = "the harness"
_WAITED_SHARE_MIN: Final = 0.5
"""Of a look's time, by the thread that waited longest: it ran half as fast as it could, or slower.
On two idle cores six nodes that start at once wait for up to 0.42 of a second, and 0.05 once they
run; of fifty nodes there, some waited longer than this in almost every second."""
_LOOK_S: Final = 1.0
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Look(NamedTuple):
    """The result of one look: it ends at `at_s`, and the previous one was `took_s` earlier."""

    at_s: float
    took_s: float
    waited_s: dict[str, float]  # the thread of each name that waited longest

    @property
    def starved(self) -> dict[str, float]:
        """The names that waited for most of the time, or for longer than it took."""
        least_s = _WAITED_SHARE_MIN * self.took_s
        return {name: s for name, s in sorted(self.waited_s.items()) if s >= least_s > 0}


class Waits:
    """The waits of some process trees since the last look."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """Clocks are in seconds; `boot_clock` is the one by which threads begin."""
        self._clock = clock
        self._boot_clock = boot_clock
        self._at_s: float | None = None
        self._booted_s = 0.0
        self._known: dict[procfs.ThreadId, procfs.Scheduled] = {}
        self._ready_since_s: dict[procfs.ThreadId, float] = {}

    def look(self, roots: Mapping[str, int]) -> Look:
        """Look now; `roots` has the first process of each name. The first look sees no wait."""
        at_s, booted_s = self._clock(), self._boot_clock()
        took_s = at_s - (at_s if self._at_s is None else self._at_s)
        before_all, ready, self._known, self._ready_since_s = (
            self._known,
            self._ready_since_s,
            {},
            {},
        )
        waited_s: dict[str, float] = {}
        for name, root in roots.items():
            threads = procfs.threads(root, descendants=root != os.getpid())
            self._known |= threads
            for thread, now in threads.items():
                before = before_all.get(thread)
                if before == now and now.state == "R" and now.ran_ns:
                    # It waits since then, or longer: the kernel counts a wait once it is over.
                    # (One that never ran is of a kernel that does not count.)
                    since_s = self._ready_since_s[thread] = ready.get(thread, at_s)
                    waits_s = at_s - since_s
                elif before is not None:
                    waits_s = (now.waited_ns - before.waited_ns) / 1e9
                elif thread.start_ticks * _TICK_S >= self._booted_s - _TICK_S:
                    waits_s = now.waited_ns / 1e9
                else:  # it is older than our last look, which did not see it
                    waits_s = 0.0
                if self._at_s is not None:
                    waited_s[name] = max(waited_s.get(name, 0.0), waits_s)
        self._at_s, self._booted_s = at_s, booted_s
        return Look(at_s, took_s, waited_s)


async def watch_processors(roots: Callable[[], Mapping[str, int]], bus: EventBus) -> None:
    """Look until cancelled, and publish each time in which one of `roots` or we ourselves starved:
    `starvation` {until_ns, took_s, waited_s: {name: s}}, on the driver's monotonic clock.
    """
    waits = Waits()
    while True:
        look = await asyncio.to_thread(waits.look, {**roots(), _HARNESS: os.getpid()})
        if starved := look.starved:
            data = {
                "until_ns": int(look.at_s * 1e9),
                "took_s": max(look.took_s, *starved.values()),  # a wait that is over began before
                "waited_s": {name: round(waited_s, 3) for name, waited_s in starved.items()},
            }
            bus.publish("", "starvation", data)
        await asyncio.sleep(_LOOK_S)
