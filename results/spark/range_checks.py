"""Judges ranges of runs that lack results, in Spark tasks, and appends the results to the lake.

A task plans and judges its runs with the same code as all other executors
(`results.judging.report_runs`, `results.judging.unit_judge`), and returns one small row to the
driver. If Spark repeats a task, on any machine, the task first looks for existing results of its
runs. If two tasks append the same results, these count only once.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from results.facts.problems import Problem
from results.judging.unit_judge import do_units
from results.judging.work_units import RoundConfig
from results.spark.ranges import Asking, sources
from results.spark.task_plan import Between

DONE_DDL: Final = "`done` STRING"


class TaskDone(msgspec.Struct, frozen=True):
    """The outcome of one task: its cost, and its problems."""

    cpu_ns: int
    problems: tuple[Problem, ...]
    limited: bool = False


def judge_ranges(
    batches: Iterable[pa.RecordBatch],
    *,
    asking: Asking,
    tasks: Sequence[Between],
    config: RoundConfig,
) -> Iterator[pa.RecordBatch]:
    """Judge the runs of the tasks whose numbers are in `batches`; yield a row per task."""
    with _scratch(config.round) as folder:
        config = msgspec.structs.replace(config, scratch=str(folder))
        for number, _, source in sources(batches, asking):
            units = source.units(asking.above, *tasks[number])
            ended = [done for done in do_units(units, config=config) if done.part >= 1]
            done = TaskDone(
                sum(done.cpu_ns for done in ended),
                tuple(problem for done in ended for problem in done.problems),
                any(done.limited for done in ended),
            )
            yield pa.RecordBatch.from_pydict({"done": [msgspec.json.encode(done).decode()]})


@contextlib.contextmanager
def _scratch(round_: str) -> Iterator[Path]:
    """Make a folder on this machine for one job. Killed workers leave markers in the folder."""
    folder = Path(tempfile.gettempdir()) / f"harness-{round_}"
    folder.mkdir(mode=0o700, exist_ok=True)
    yield folder
    for left in (folder / "started", folder):
        with contextlib.suppress(OSError):
            left.rmdir()
