"""From runs to tables: plan, check what is new, try again what a budget cut short, gather.

`check_store` is the whole of it for a store, `check` for any source (`results.judging.source`). The
verdicts are made anew from the histories, by the checkers as they are now; what `run.json` says of
a verdict is only compared. Every result is stored under the hash of what it depends on, so that a
second report does what is new and nothing else, and one that was interrupted goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import InfrastructureError, UsageError
from results.judging.budgets import Budget
from results.judging.executors import Executor
from results.judging.executors.inline import InlineExecutor
from results.judging.packing import BINS_A_CORE, pack
from results.judging.problems import Problem, RunInfo, scan_store
from results.judging.source import Gathered, Source
from results.judging.store_source import StoreSource
from results.judging.work import AnyUnit
from results.lake.log.refusals import failure_of, raise_if_refused

__all__ = ["EXECUTORS", "Checked", "Progress", "check", "check_store"]

EXECUTORS: Final = ("auto", "inline", "pool", "spark")
ROUNDS_MAX: Final = 8
SMALL_COST_NS: Final = 2_000_000_000
"""Estimated work below which processes are not worth their start."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a report is; costs are estimates, and only their proportion means anything."""

    stage: str  # "check", "again" with a larger budget, "gather", "answer" questions, "write"
    done: int
    units: int
    cost_done: int
    cost: int
    noun: str = "units"  # what is counted
    time_part: float | None = (
        None  # of the time, by `results.judging.pace.Schedule`; else that of the cost
    )
    left: tuple[str, ...] = ()  # what is not done, in words, once it is little
    kept: int = 0  # results that an interrupt leaves


LEFT_NAMED_MAX: Final = 3


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What `check_store` found."""

    runs: tuple[RunInfo, ...] = ()  # of a store; those of a lake stay there
    tables: dict[str, tuple[Path, ...]]  # Parquet files by the names of `results.facts.schema`
    counting: dict[str, str] = {}  # which of their rows count, see `Gathered`
    problems: tuple[Problem, ...]  # at most `store_scan.PROBLEMS_MAX`
    problems_total: int
    results_known: int
    results_new: int
    results_unsettled: int  # of both: unknown for want of time, memory or a worker
    runs_unjudged: int = 0  # without any result, so that no table has a row of them
    units: int  # pieces of work done
    cpu_s: float  # of all processes but Spark's Java side
    wall_s: float
    executor: str


def check_store(
    store: Path,
    *,
    executor: str = "auto",
    jobs: int | None = None,
    spark_master: str | None = None,
    budget: Budget | None = None,
    second_pass: bool = True,
    checkers: Sequence[str] | None = None,
    facts: bool = True,
    label: str | None = None,
    again: bool = False,
    accept: Callable[[Sequence[RunInfo]], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Checked:
    """Judge every run of `store` that is not judged yet, and gather the tables of all of them.

    `checkers` replaces those that each run's workload names; with `label` only its runs are looked
    at. With `again`, what an earlier call left unsettled (see `results.judging.markers`) is judged
    anew; without it, it stays. `accept` is shown all runs of the store before any work is done, and
    may raise. `spark_master` is any URL that `results.spark.session.get_spark` takes. Raises
    `UsageError` for what cannot be, and `InfrastructureError` where Spark or the disk fails.
    """
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    scan = scan_store(store)
    if accept is not None:
        accept(scan.runs)
    runs = tuple(info for info in scan.runs if label is None or info.label == label)
    first = budget or Budget()
    source = StoreSource(
        store,
        runs=runs,
        problems=scan.problems,
        budgets=(first, first.larger()) if second_pass else (first,),
        checkers=checkers,
        facts=facts,
    )
    checked = check(
        source,
        executor=executor,
        jobs=jobs,
        spark_master=spark_master,
        again=again,
        progress=progress,
        begun_s=(begin_s, cpu_s),
    )
    unjudged = checked.runs_unjudged + scan.unread
    return msgspec.structs.replace(checked, runs=runs, runs_unjudged=unjudged)


def check(
    source: Source,
    *,
    executor: str = "auto",
    jobs: int | None = None,
    spark_master: str | None = None,
    again: bool = False,
    progress: Callable[[Progress], None] | None = None,
    begun_s: tuple[float, float] | None = None,
) -> Checked:
    """Judge what is new of a source, and gather its tables; raises as `check_store`.

    `begun_s` are clock and CPU time at which the caller began.
    """
    begin_s, cpu_s = begun_s or (time.perf_counter(), time.process_time())
    job = _Job(source=source, again=again, progress=progress or (lambda _: None))
    choice = _Choice(executor, jobs, spark_master)
    try:
        gathered = job.run(choice)
    except OSError as error:
        text = (
            f"results cannot be stored below {source.results}: {error}; "
            "free some space, or copy the store to where it can be written"
        )
        raise failure_of(error, text) from error
    finally:
        choice.close()
    return Checked(
        tables=gathered.tables,
        counting=gathered.counting,
        problems=source.problems.kept,
        problems_total=source.problems.total,
        results_known=job.known,
        results_new=max(0, job.wanted - job.known),
        results_unsettled=gathered.unsettled,
        runs_unjudged=gathered.unjudged,
        units=job.units,
        cpu_s=time.process_time() - cpu_s + job.away_ns / 1e9,
        wall_s=time.perf_counter() - begin_s,
        executor=choice.name,
    )


class _Choice:
    """The executor, made when there is something to do."""

    def __init__(self, name: str, jobs: int | None, spark_master: str | None) -> None:
        if name not in EXECUTORS:
            raise UsageError(f"the executor is {name!r}; it is one of {', '.join(EXECUTORS)}")
        if jobs is not None and jobs < 1:
            raise UsageError(f"--jobs is {jobs}; it must be at least 1")
        if spark_master is not None and name not in {"auto", "spark"}:
            raise UsageError(f"--spark-master means nothing to --executor {name}; leave one out")
        self.name = "spark" if spark_master is not None else name
        self._jobs = jobs
        self._master = spark_master
        self._made: Executor | None = None

    def executor(self, units: Sequence[AnyUnit]) -> Executor:
        """The one for these units; the same for all rounds."""
        if self._made is not None:
            return self._made
        if self.name == "auto":
            small = sum(unit.cost for unit in units) < SMALL_COST_NS or len(units) < 2
            self.name = "inline" if small else "pool"
        self._made = self._make()
        return self._made

    def _make(self) -> Executor:
        if self.name == "inline":
            return InlineExecutor()
        if self.name == "pool":
            from harness.workers import default_jobs
            from results.judging.executors.pool import PoolExecutor

            return PoolExecutor(self._jobs or default_jobs())
        from results.judging.executors.cluster import SparkExecutor

        return SparkExecutor(self._master or "local[*]", self._jobs)

    def close(self) -> None:
        """Let go of what was made."""
        if self._made is not None:
            self._made.close()


@dataclasses.dataclass(kw_only=True)
class _Job:
    """One report's checks."""

    source: Source
    again: bool
    progress: Callable[[Progress], None]
    known: int = 0
    wanted: int = 0
    units: int = 0
    away_ns: int = 0  # CPU time of other processes
    kept: int = 0  # results that are stored

    def run(self, choice: _Choice) -> Gathered:
        """Rounds of plan and work until nothing is left that can be done."""
        if self.again:
            self.source.forget_unsettled()
        for number in range(ROUNDS_MAX):
            plan = self.source.plan()
            self.wanted = plan.wanted
            if number == 0:
                self.known = self.kept = plan.known
            if plan.units:
                self._round(choice, plan.units)
                continue
            self.progress(_step("gather", self.kept))
            gathered = self.source.gather()
            if not gathered.damaged:
                return gathered
            self.known = max(0, self.known - gathered.damaged)  # they are made anew
        raise InfrastructureError(
            f"results below {self.source.results} were still missing or damaged after "
            f"{ROUNDS_MAX} rounds; remove the folder and try again"
        )

    def _round(self, choice: _Choice, units: Sequence[AnyUnit]) -> None:
        """Do units; those that do not come to an end are named."""
        executor = choice.executor(units)
        again = all(unit.budget.level > 1 for unit in units)
        # What a budget cut short once may do so again: one unit a task, so that nobody waits.
        bins = pack(units, len(units) if again else executor.slots * BINS_A_CORE)
        by_id = {unit.unit_id: unit for unit in units}
        config = self.source.begin(limit_memory=executor.name != "inline")
        left = dict(by_id)
        parts = dict.fromkeys(by_id, 0.0)
        memory: dict[str, int] = {}
        self._say(by_id, left, parts, memory)
        try:
            with contextlib.closing(executor.run(bins, config)) as ended:
                for done in ended:
                    unit = left.get(done.unit)
                    if unit is None:
                        continue
                    parts[done.unit] = max(parts[done.unit], done.part)
                    memory[done.unit] = done.memory_bytes or memory.get(done.unit, 0)
                    if done.part >= 1.0:
                        del left[done.unit]
                        raise_if_refused(done.problems)
                        for problem in done.problems:
                            self.source.problems.add(problem)
                        self.units += 1
                        self.kept += len(unit.checks) + (unit.facts_id is not None)
                        self.away_ns += done.cpu_ns if executor.name != "inline" else 0
                    self._say(by_id, left, parts, memory)
        finally:
            self.source.end(units, config)
        for unit in left.values():
            self.source.lose(unit)

    def _say(
        self,
        units: Mapping[str, AnyUnit],
        left: Mapping[str, AnyUnit],
        parts: Mapping[str, float],
        memory: Mapping[str, int],
    ) -> None:
        """Say how far a round is, and what is left where that is little."""
        named = list(left.values()) if len(left) <= LEFT_NAMED_MAX else []
        self.progress(
            Progress(
                stage="again" if all(unit.budget.level > 1 for unit in units.values()) else "check",
                done=len(units) - len(left),
                units=len(units),
                cost_done=round(sum(units[key].cost * parts[key] for key in parts)),
                cost=sum(unit.cost for unit in units.values()),
                left=tuple(_in_words(unit, memory.get(unit.unit_id, 0)) for unit in named),
                kept=self.kept,
            )
        )


def _step(stage: str, kept: int) -> Progress:
    """The beginning of a stage that nobody can count."""
    return Progress(stage=stage, done=0, units=1, cost_done=0, cost=1, kept=kept)


def _in_words(unit: AnyUnit, memory_bytes: int) -> str:
    """A unit, its checkers, its retry and the memory of its worker."""
    checkers = " and ".join(check.checker for check in unit.checks)
    parts = [unit.key, checkers or "facts"]
    if unit.budget.level > 1:
        parts.append(f"retry with a larger budget ({unit.budget.cpu_s:g} s of CPU)")
    if memory_bytes:
        parts.append(f"{memory_bytes / 1e9:.1f} GB")
    return ", ".join(parts)
