"""Follows the progress of a Spark job in the lake, to which executors append a row per judged run.

This works with any kind of Spark, including Connect, and only takes one read of a log now and then.
A task has a range of keys, so the first run of an append identifies the task. The cost of the
appended runs follows from the task's cost.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable
from typing import Final, Self

from harness.errors import HarnessError
from results.judging.pace import Schedule
from results.judging.pipeline import Progress
from results.lake.log.delta import Log
from results.lake.log.files import MAIN, FileRef
from results.lake.log.lake import Lake
from results.lake.log.storage_errors import AgainError
from results.spark.task_plan import Todo

EVERY_S: Final = 2.0
END_S: Final = 30.0


class Watch:
    """Calls `progress` with the number of judged runs, in a thread, until it is closed."""

    def __init__(
        self, results: Lake, todo: Todo, progress: Callable[[Progress], None] | None, *, slots: int
    ) -> None:
        self._log = Log(results.place, MAIN)  # a separate log, since a log must stay in one thread
        self._before = {file.name for file in results.files(MAIN)}
        self._todo = todo
        self._progress = progress
        self._tasks = sorted(todo.tasks)
        self._schedule = Schedule([task.cost for task in todo.tasks], slots)
        self._stage = "again" if todo.is_again else "check"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        if self._progress is not None:
            self._thread.join(END_S)

    def _run(self) -> None:
        assert self._progress is not None
        while not self._ended.wait(EVERY_S):
            try:
                done, cost = self.judged()
            except (HarnessError, AgainError):
                continue
            self._progress(
                Progress(
                    stage=self._stage,
                    done=done,
                    units=self._todo.runs,
                    cost_done=cost,
                    cost=self._todo.cost,
                    noun="runs",
                    time_part=self._schedule.part(cost),
                )
            )

    def judged(self) -> tuple[int, int]:
        """Return number and cost of the runs whose results were appended since the job began.

        Appends that a compaction merged no longer count.
        """
        if not self._log.exists():
            return 0, 0
        files = self._log.refresh().files.values()
        new = [file for file in files if file.batch and file.name not in self._before]
        rows, cost = sum(file.rows for file in new), sum(map(self._cost, new))
        return min(rows, self._todo.runs), min(cost, self._todo.cost)

    def _cost(self, file: FileRef) -> int:
        key = file.first_run
        place = bisect.bisect_right(self._tasks, key, key=lambda task: task.between.first[0]) - 1
        task = self._tasks[max(0, place)]
        return task.cost * min(file.rows, task.runs) // task.runs
