"""Groups pending runs into tasks of about equal cost.

The tasks of a first job (`results.spark.range_answers`) cut the pending work of their runs into
small ranges. The driver joins neighbouring ranges to tasks whose size suits the total work. A run
is a task of its own if it costs more than a task should, or if it reached a budget before. The most
expensive tasks start first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from results.judging.pending_results import Place
from results.spark.ranges import Range

TASKS_A_SLOT: Final = 12
"""Tasks per slot (a core for one task): many, so a lost task is cheap and progress shows early."""
COST_MIN: Final = 8_000_000_000
"""The minimum cost of a task (CPU ns). A cheaper task takes less time than its start and commit.

If the work per slot costs less than `COST_MIN`, the minimum is a quarter of `COST_MIN`.
"""
COST_MAX: Final = 60_000_000_000
"""The maximum cost of a task, unless a single run costs more."""
TASKS_MAX: Final = 100_000


class Lacking(msgspec.Struct, frozen=True, array_like=True):
    """A range of neighbouring runs that lack results: where it starts, and its pending work."""

    run: str
    keys: int  # number of the first run's key range; -1 is the whole run
    runs: int
    results: int
    again: int  # number of these results that are retried with a larger budget
    cost: int

    @property
    def first(self) -> Place:
        return self.run, self.keys


class Between(NamedTuple):
    """The range of a task: places (run, key range) from `first` up to but not including `end`."""

    first: Place
    end: Place | None

    @property
    def runs(self) -> Range:
        if self.end is None or self.end[1] < 0:
            return self.first[0], self.end and self.end[0]
        return self.first[0], f"{self.end[0]} "


class Task(NamedTuple):
    """A task: its range, the number of its runs that lack results, and their cost."""

    between: Between
    runs: int
    cost: int


class Todo(NamedTuple):
    """All pending work of a report, as tasks, with totals."""

    tasks: tuple[Task, ...]
    runs: int
    results: int
    cost: int
    is_again: bool  # whether all results are retries


def todo_of(ranges: Sequence[Lacking], slots: int) -> Todo:
    """Join neighbouring ranges to tasks of suitable cost. `slots` tasks run at once."""
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
    """Return the target cost of the ranges into which a reading task cuts its runs."""
    return max(COST_MIN // 4, min(COST_MAX, total // (TASKS_A_SLOT * slots)))


def task_cost(total: int, slots: int) -> int:
    """Return the target cost of a task, chosen so that all slots get equally many tasks."""
    waves = max(1, min(TASKS_A_SLOT, total // (slots * COST_MIN)))
    even = -(-total // (slots * waves))
    return max(COST_MIN // 4, 1, min(COST_MAX, even), -(-total // TASKS_MAX))
