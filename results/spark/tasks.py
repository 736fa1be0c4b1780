"""What a task on Spark does with the runs of a lake that it is given, and what it says in the end.

The executor opens the files of the snapshot that was planned on, reads the rows of its runs in one
pass, judges each with the functions of every other executor (`results.judging.lake_work`), and
appends what it finds to the lake itself. Back to the driver goes one small row. A task that is
repeated, on whatever machine, looks first what there is of its runs already; rows that are there
twice nevertheless count once (`results.judging.result_lake`).
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from results.judging.budgets import Budget
from results.judging.lake_work import do_units
from results.judging.problems import Problem
from results.judging.result_ids import Check
from results.judging.work import LakeConfig, LakeUnit
from results.lake.log.files import FileRef
from results.spark.planning import FACTS, Missing, missing_of
from results.spark.ranges import use

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["DONE_DDL", "Job", "TaskDone", "judge_rows"]

DONE_DDL: Final = "`done` STRING"


class Job(NamedTuple):
    """What all tasks share; it travels with every one of them."""

    config: LakeConfig
    files: Mapping[str, Sequence[FileRef]]  # by table, those of the snapshot
    budgets: Sequence[Budget]  # by level
    options: Mapping[str, str]  # of the object store, where the executor has none of its own


class TaskDone(msgspec.Struct, frozen=True):
    """One task that came to an end: what it cost, and what could not be done."""

    task: int
    runs: int
    cpu_ns: int
    problems: tuple[Problem, ...]
    limited: bool = False  # whether a budget may have cut something short


def judge_rows(batches: Iterable[pa.RecordBatch], *, job: Job) -> Iterator[pa.RecordBatch]:
    """Do the tasks of one partition, whose rows are those of `Todo.frame`."""
    import pyarrow as pa

    tasks: dict[int, list[dict[str, Any]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            tasks.setdefault(row["task"], []).append(row)
    use(job.options)
    with _scratch(job.config.round) as folder:
        config = msgspec.structs.replace(job.config, scratch=str(folder))
        for task, rows in sorted(tasks.items()):
            ended = [
                done for done in do_units(units_of(rows, job), config=config) if done.part >= 1
            ]
            done = TaskDone(
                task,
                len(rows),
                sum(done.cpu_ns for done in ended),
                tuple(problem for done in ended for problem in done.problems),
                any(done.limited for done in ended),
            )
            yield pa.RecordBatch.from_pydict({"done": [msgspec.json.encode(done).decode()]})


@contextlib.contextmanager
def _scratch(round_: str) -> Iterator[Path]:
    """A folder of this machine for one round; what was killed leaves its marks in it."""
    folder = Path(tempfile.gettempdir()) / f"harness-{round_}"
    folder.mkdir(mode=0o700, exist_ok=True)
    yield folder
    for left in (folder / "started", folder):
        with contextlib.suppress(OSError):  # others are at work
            left.rmdir()


def units_of(rows: Sequence[Mapping[str, Any]], job: Job) -> list[LakeUnit]:
    """The runs of a task by what they miss and at which level, in the order of their keys."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: str(row["run"])):
        groups.setdefault(row["missing"], []).append(row)
    found = []
    for text, own in sorted(groups.items()):
        levels: dict[int, list[Missing]] = {}
        for one in missing_of(text):
            levels.setdefault(one.level, []).append(one)
        found += [_unit(own, level, missing, job) for level, missing in levels.items()]
    return found


def _unit(
    rows: Sequence[Mapping[str, Any]], level: int, missing: Sequence[Missing], job: Job
) -> LakeUnit:
    lines = sum(row["lines"] for row in rows)
    facts = [one.result_id for one in missing if one.checker == FACTS]
    return LakeUnit(
        files={table: _names(files, rows) for table, files in job.files.items()},
        runs=tuple(row["run"] for row in rows),
        checks=tuple(Check(one.checker, one.result_id) for one in missing if one.checker != FACTS),
        facts_id=facts[0] if facts else None,
        budget=job.budgets[level - 1],
        n_ops=lines,
        cost=lines,
    )


def _names(files: Iterable[FileRef], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The files that may hold one of these runs: those of its append, or merged with others."""
    first, last = rows[0]["run"], rows[-1]["run"]
    return tuple(
        file.name
        for file in files
        if file.first_run <= last
        and file.last_run >= first
        and any(
            file.first_run <= row["run"] <= file.last_run
            and file.partition == (row["target"], row["label"], row["day"])
            and file.batch in {None, row["batch"]}
            for row in rows
        )
    )
