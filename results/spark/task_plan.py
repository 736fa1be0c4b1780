"""Ranges of runs as tasks: runs that lack results, at about equal costs.

Each reading task (`results.spark.range_answers`) cuts the pending work of its runs into small
ranges. The driver joins neighbours until tasks have the size that suits the whole work: it sees a
few numbers per range, and no run. A run that costs more than a task should, or that a budget cut
short before, is a task of its own. The most expensive tasks start first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from results.judging.pending_results import Place
from results.spark.ranges import Range

TASKS_A_SLOT: Final = 12
"""Many more than slots: a lost task costs little, and progress shows early how long it takes."""
COST_MIN: Final = 8_000_000_000
"""Of a task: a smaller one costs more to start, and to commit, than it gains. Where there is no
more than that for each slot, it is a quarter of it."""
COST_MAX: Final = 60_000_000_000
"""Of a task, unless a single run costs more."""
TASKS_MAX: Final = 100_000


class Lacking(msgspec.Struct, frozen=True, array_like=True):
    """Neighbours that lack results: the first place, and how much there is to do."""

    run: str
    keys: int  # a range of the run's keys; -1 is the whole run
    runs: int
    results: int
    again: int  # of these results, those with a larger budget than before
    cost: int  # estimated CPU ns

    @property
    def first(self) -> Place:
        """The first place."""
        return self.run, self.keys


class Between(NamedTuple):
    """The work of a task: from one place to before another; `None` is the end."""

    first: Place
    end: Place | None

    @property
    def runs(self) -> Range:
        """The range of keys of runs in which it is."""
        if self.end is None or self.end[1] < 0:
            return self.first[0], self.end and self.end[0]
        return self.first[0], f"{self.end[0]} "  # with a part of that run; no key is between these


class Task(NamedTuple):
    """A range, the runs in it that lack something, and their cost."""

    between: Between
    runs: int
    cost: int


class Todo(NamedTuple):
    """Pending work."""

    tasks: tuple[Task, ...]
    runs: int
    results: int
    cost: int
    is_again: bool  # whether all of it is tried once more


def todo_of(ranges: Sequence[Lacking], slots: int) -> Todo:
    """Tasks for all ranges, which are in the order of keys; `slots` tasks run at once."""
    cost = sum(part.cost for part in ranges)
    size = task_cost(cost, slots)
    joined: list[Lacking] = []
    for part in ranges:
        before = joined[-1] if joined else None
        if before is None or before.again or part.again or before.cost + part.cost > size:
            joined.append(part)
        else:
            joined[-1] = Lacking(
                *before.first, before.runs + part.runs, before.results + part.results, 0,
                before.cost + part.cost,
            )  # fmt: skip
    ends = [*(part.first for part in joined[1:]), None]
    tasks = [
        Task(Between(part.first, end), part.runs, part.cost)
        for part, end in zip(joined, ends, strict=True)
    ]
    results = sum(part.results for part in ranges)
    return Todo(
        tasks=tuple(sorted(tasks, key=lambda task: -task.cost)),
        runs=sum(part.runs for part in ranges),
        results=results,
        cost=cost,
        is_again=sum(part.again for part in ranges) == results,
    )


def range_cost(total: int, slots: int) -> int:
    """The target cost of one of the ranges into which the runs of one task are cut."""
    return max(COST_MIN // 4, min(COST_MAX, total // (TASKS_A_SLOT * slots)))


def task_cost(total: int, slots: int) -> int:
    """The target cost of a task, so that all slots get equally many."""
    waves = max(1, min(TASKS_A_SLOT, total // (slots * COST_MIN)))
    even = -(-total // (slots * waves))
    return max(COST_MIN // 4, 1, min(COST_MAX, even), -(-total // TASKS_MAX))
