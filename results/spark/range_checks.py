"""A task on Spark that judges a range of runs that lack results, and its answer.

The task plans and judges its runs with the code of every other executor
(`results.judging.report_runs`, `results.judging.unit_judge`), and appends the results to the lake.
One small row returns to the driver. A task that is repeated, on any machine, first looks for
the results of its runs; rows that exist twice nevertheless count once
(`results.judging.result_lake`).
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
    """One task that came to an end: what it cost, and what could not be done."""

    cpu_ns: int
    problems: tuple[Problem, ...]
    limited: bool = False  # whether a budget may have cut something short


def judge_ranges(
    batches: Iterable[pa.RecordBatch],
    *,
    asking: Asking,
    tasks: Sequence[Between],
    config: RoundConfig,
) -> Iterator[pa.RecordBatch]:
    """Do what one of these tasks has to."""
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
    """A folder of this machine for one round; a worker that is killed leaves its marks in it."""
    folder = Path(tempfile.gettempdir()) / f"harness-{round_}"
    folder.mkdir(mode=0o700, exist_ok=True)
    yield folder
    for left in (folder / "started", folder):
        with contextlib.suppress(OSError):  # others are at work
            left.rmdir()
