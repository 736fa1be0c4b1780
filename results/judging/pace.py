"""Formats a report's progress as one line: work done, pace, and estimated time left.

The pace is the mean since the start of the stage. A pace over the last few seconds would mislead,
because the costly tasks come first and end almost together.

A count of finished tasks hides the progress of running tasks. Near the end, a few long tasks leave
most worker slots idle. So a `Schedule` simulates the planned tasks on the same number of slots, and
maps finished work to elapsed time.
"""

from __future__ import annotations

import bisect
import heapq
import time
from collections.abc import Callable, Sequence
from typing import Final

from results.judging.pipeline import Progress

SAID_FROM: Final = 0.05
MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
_DONE: Final = {"ingest": "read", "check": "checked", "again": "tried again", "answer": "answered"}
_STEPS: Final = {"gather": "gathering the results", "write": "writing the report"}


class Schedule:
    """A simulated schedule: each task, in the given order, runs on the first free slot."""

    def __init__(self, costs: Sequence[int], slots: int) -> None:
        free = [0] * max(1, min(slots, len(costs)))
        ends = []
        for cost in costs:
            end = heapq.heappop(free) + cost
            heapq.heappush(free, end)
            ends.append((end, cost))
        self._ends: list[int] = []
        self._done: list[int] = []
        total = 0
        for end, cost in sorted(ends):
            total += cost
            self._ends.append(end)
            self._done.append(total)

    def part(self, done: int) -> float:
        """Return the share of the total time after which work of cost `done` is complete."""
        if not self._ends or not self._ends[-1]:
            return 1.0
        place = bisect.bisect_right(self._done, done)
        if place == len(self._done):
            return 1.0
        # Interpolate between the ends of two tasks, in proportion to the work that was done.
        before, done_before = (self._ends[place - 1], self._done[place - 1]) if place else (0, 0)
        share = (done - done_before) / (self._done[place] - done_before)
        return (before + (self._ends[place] - before) * share) / self._ends[-1]


class Pace:
    """Formats the progress of a pipeline as lines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = ""
        self._begin_s = 0.0
        self._begin: tuple[int, float] = (0, 0.0)

    def line(self, found: Progress) -> str:
        """Return the progress line. A new stage or a new total of work restarts the measurement."""
        now_s = self._clock()
        part = found.cost_done / found.cost if found.cost else 1.0
        stage = f"{found.stage} {found.units} {found.cost}"
        gone = part if found.time_part is None else found.time_part
        if stage != self._stage:
            self._stage, self._begin_s, self._begin = stage, now_s, (found.done, gone)
        if found.stage in _STEPS:
            return _STEPS[found.stage]
        text = f"{found.done}/{found.units} {found.noun} {_DONE[found.stage]}"
        if found.left:
            return f"{text}, {len(found.left)} left: {'; '.join(found.left)}"
        text += f", about {part:.0%} of the work"
        passed_s = now_s - self._begin_s
        done, gained = found.done - self._begin[0], gone - self._begin[1]
        if passed_s <= 0 or gained < SAID_FROM:
            return text
        left_s = passed_s * (1.0 - gone) / gained
        return f"{text}, {done / passed_s:.3g} a second, {_duration(left_s)} left"


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.1f} h"
