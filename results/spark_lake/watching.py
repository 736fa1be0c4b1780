"""How far a job on Spark is, seen from the lake: executors append what they find, rows are runs.

So it is known on any kind of Spark, Connect as well, and costs one look at a log now and then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from harness.errors import HarnessError
from results.lake.files import MAIN
from results.lake.log import Log
from results.lake.trouble import AgainError
from results.pipeline import Progress

if TYPE_CHECKING:
    from results.lake.lake import Lake
    from results.spark_lake.planning import Todo

__all__ = ["Watch"]

EVERY_S: Final = 2.0
END_S: Final = 30.0


class Watch:
    """Tells `progress` how many of the runs are judged, from a thread, as long as it is open."""

    def __init__(
        self, results: Lake, todo: Todo, progress: Callable[[Progress], None] | None
    ) -> None:
        self._log = Log(results.place, MAIN)  # its own: a log is for one thread
        self._before = {file.name for file in results.files(MAIN)}
        self._todo = todo
        self._progress = progress
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Begin to look."""
        if self._progress is not None:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Look no more."""
        self._ended.set()
        if self._progress is not None:
            self._thread.join(END_S)

    def _run(self) -> None:
        assert self._progress is not None
        while not self._ended.wait(EVERY_S):
            try:
                done = self.judged()
            except (HarnessError, AgainError):
                continue  # the work goes on without being watched
            self._progress(
                Progress(
                    stage="check",
                    done=done,
                    units=self._todo.runs,
                    cost_done=self._todo.cost * done // self._todo.runs,
                    cost=self._todo.cost,
                    noun="runs",
                )
            )

    def judged(self) -> int:
        """Runs of which something was appended since; what a compaction merged counts no more."""
        if not self._log.exists():
            return 0
        files = self._log.refresh().files.values()
        rows = sum(file.rows for file in files if file.batch and file.name not in self._before)
        return min(rows, self._todo.runs)
