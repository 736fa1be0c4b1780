"""Detects CPU starvation: an overloaded host slows down nodes or the harness.

The harness itself may run well while its nodes starve, since the scheduler favours processes that
need little CPU. So the harness asks the kernel how long the threads of each node, of the link proxy
and of the harness were ready to run without running. If a thread waited for at least half of the
interval between two measurements, the history gets the event `starvation`. A node that hangs,
sleeps or is paused does not wait for a CPU.
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
"""The share of an interval that a starved thread waits for a CPU.

A thread that waits for this share runs at half speed or slower. On two idle cores, six nodes that
start at once wait for up to 0.42 of a second, and for 0.05 once they run. With fifty nodes, some
nodes exceeded this limit in almost every second."""
_LOOK_S: Final = 1.0
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Look(NamedTuple):
    """The waits for a CPU during one interval. The interval ended at `at_s` and lasted `took_s`."""

    at_s: float
    took_s: float
    waited_s: dict[str, float]  # process tree: the longest wait of any of its threads

    @property
    def starved(self) -> dict[str, float]:
        """The process trees that starved, with their waits."""
        least_s = _WAITED_SHARE_MIN * self.took_s
        return {name: s for name, s in sorted(self.waited_s.items()) if s >= least_s > 0}


class Waits:
    """Measures how long process trees wait for a CPU, from one call of `look` to the next."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """Both clocks return seconds; the kernel gives start times of threads by `boot_clock`."""
        self._clock = clock
        self._boot_clock = boot_clock
        self._at_s: float | None = None
        self._booted_s = 0.0
        self._known: dict[procfs.ThreadId, procfs.Scheduled] = {}
        self._ready_since_s: dict[procfs.ThreadId, float] = {}

    def look(self, roots: Mapping[str, int]) -> Look:
        """Measure the waits since the last call. The first call finds none.

        `roots` maps the name of each process tree to the pid of its root process.
        """
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
                    # The kernel counts a wait when it ends, so a ready thread with unchanged counts
                    # still waits. If `ran_ns` is 0, the kernel counts nothing.
                    since_s = self._ready_since_s[thread] = ready.get(thread, at_s)
                    waits_s = at_s - since_s
                elif before is not None:
                    waits_s = (now.waited_ns - before.waited_ns) / 1e9
                elif thread.start_ticks * _TICK_S >= self._booted_s - _TICK_S:
                    waits_s = now.waited_ns / 1e9
                else:  # an old thread that was not measured before: its waits are unknown
                    waits_s = 0.0
                if self._at_s is not None:
                    waited_s[name] = max(waited_s.get(name, 0.0), waits_s)
        self._at_s, self._booted_s = at_s, booted_s
        return Look(at_s, took_s, waited_s)


async def watch_processors(roots: Callable[[], Mapping[str, int]], bus: EventBus) -> None:
    """Measure CPU waits until cancelled. Publish each interval in which a process tree starved.

    The event is `starvation` {until_ns, took_s, waited_s: {name: s}}, with times on the driver's
    monotonic clock.
    """
    waits = Waits()
    while True:
        look = await asyncio.to_thread(waits.look, {**roots(), _HARNESS: os.getpid()})
        if starved := look.starved:
            data = {
                "until_ns": int(look.at_s * 1e9),
                "took_s": max(
                    look.took_s, *starved.values()
                ),  # a wait may be longer than the interval
                "waited_s": {name: round(waited_s, 3) for name, waited_s in starved.items()},
            }
            bus.publish("", "starvation", data)
        await asyncio.sleep(_LOOK_S)
