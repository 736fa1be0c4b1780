"""Progress of a report as one line: work done, pace, and estimated end.

The pace is measured since the start of the stage: costly work comes first and its parts end
together, so the last seconds say little. No end is estimated until `SAID_FROM` of the work is done.

Work that is only counted when a task ends hides the progress of running tasks, most of all of a
giant; and when few long tasks are left, slots are idle. A `Schedule` models both: it simulates the
planned tasks on the same number of slots, and maps finished work to elapsed time. The pace then
refers to this time (`Progress.time_part`).
"""

from __future__ import annotations

import bisect
import heapq
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from results.judging.pipeline import Progress

SAID_FROM: Final = 0.05
MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
_DONE: Final = {"ingest": "read", "check": "checked", "again": "tried again", "answer": "answered"}
_STEPS: Final = {"gather": "gathering the results", "write": "writing the report"}


class Schedule:
    """Tasks of these estimated costs, in their order, each on the first of `slots` that is free."""

    def __init__(self, costs: Sequence[int], slots: int) -> None:
        free = [0] * max(1, min(slots, len(costs)))  # a heap
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
        """The part of the time that has passed when tasks of this cost have ended."""
        if not self._ends or not self._ends[-1]:
            return 1.0
        place = bisect.bisect_right(self._done, done)
        if place == len(self._done):
            return 1.0
        # Between two ends, time advances with the stored results of the task that ends next.
        before, done_before = (self._ends[place - 1], self._done[place - 1]) if place else (0, 0)
        share = (done - done_before) / (self._done[place] - done_before)
        return (before + (self._ends[place] - before) * share) / self._ends[-1]


class Pace:
    """Makes lines of what a pipeline says of its progress."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = ""
        self._begin_s = 0.0
        self._begin: tuple[int, float] = (0, 0.0)  # done, and the part of the time

    def line(self, found: Progress) -> str:
        """The line; of another stage than before, or another amount of work, from its start on."""
        now_s = self._clock()
        part = found.cost_done / found.cost if found.cost else 1.0
        stage = f"{found.stage} {found.units} {found.cost}"
        gone = part if found.time_part is None else found.time_part
        if stage != self._stage:
            self._stage, self._begin_s, self._begin = stage, now_s, (found.done, gone)
        if found.stage in _STEPS:
            return _STEPS[found.stage]
        text = f"{found.done}/{found.units} {found.noun} {_DONE[found.stage]}"
        if found.left:  # of one task that takes long, no pace tells the end
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
