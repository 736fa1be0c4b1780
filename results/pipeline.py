"""From a store to tables: scan, plan, check what is new, try again what a budget cut short, gather.

`check_store` is the whole of it. The verdicts are made anew from the histories, by the checkers as
they are now; what `run.json` says of a verdict is only compared. Every result is stored under the
hash of what it depends on, so that a second report does what is new and nothing else, and one that
was interrupted goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness.errors import InfrastructureError, UsageError
from results.budgets import Budget
from results.executors import Executor
from results.executors.inline import InlineExecutor
from results.facts import bare
from results.manifest import Manifest, Unit, Wanted, plan
from results.packing import BINS_A_CORE, pack
from results.store_scan import NO_LOSS, Problem, Problems, RunInfo, scan_store
from results.stored import (
    RESULTS,
    forget_markers,
    forget_unsettled,
    gather,
    index,
    is_unsettled,
)
from results.units import Config, no_verdict, table_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EXECUTORS", "Checked", "Progress", "check_store"]

EXECUTORS: Final = ("auto", "inline", "pool", "spark")
ROUNDS_MAX: Final = 8
SMALL_COST_NS: Final = 2_000_000_000
"""Estimated work below which processes are not worth their start."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a report is; costs are estimates, and only their proportion means anything."""

    stage: str  # "check", or "again" with a larger budget
    done: int
    units: int
    cost_done: int
    cost: int


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What `check_store` found."""

    store: Path
    runs: tuple[RunInfo, ...]
    tables: dict[str, tuple[Path, ...]]  # Parquet files by the names of `results.schema`
    problems: tuple[Problem, ...]  # at most `store_scan.PROBLEMS_MAX`
    problems_total: int
    results_known: int
    results_new: int
    results_unsettled: int  # of both: unknown for want of time, memory or a worker
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
    at. With `again`, what an earlier call left unsettled (see `results.stored`) is judged anew;
    without it, it stays. `accept` is shown all runs of the store before any work is done, and may
    raise. `spark_master` is any URL that `results.spark.get_spark` takes. Raises `UsageError` for
    what cannot be, and `InfrastructureError` where Spark or the disk fails.
    """
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    scan = scan_store(store)
    if accept is not None:
        accept(scan.runs)
    runs = tuple(info for info in scan.runs if label is None or info.label == label)
    first = budget or Budget()
    job = _Job(
        results=store / RESULTS,
        runs=runs,
        problems=scan.problems,
        budgets=(first, first.larger()) if second_pass else (first,),
        checkers=checkers,
        facts=facts,
        again=again,
        progress=progress or (lambda _: None),
    )
    choice = _Choice(executor, jobs, spark_master)
    try:
        manifest, tables = job.run(choice)
    except OSError as error:
        raise InfrastructureError(
            f"results cannot be stored below {job.results}: {error}; "
            "free some space, or copy the store to where it can be written"
        ) from error
    finally:
        choice.close()
    return Checked(
        store=store,
        runs=runs,
        tables={name: (path,) for name, path in tables.items()},
        problems=scan.problems.kept,
        problems_total=scan.problems.total,
        results_known=job.known,
        results_new=max(0, len(manifest.wanted) - job.known),
        results_unsettled=job.unsettled,
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

    def executor(self, units: Sequence[Unit]) -> Executor:
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
            from results.executors.pool import PoolExecutor, default_jobs

            return PoolExecutor(self._jobs or default_jobs())
        from results.executors.cluster import SparkExecutor

        return SparkExecutor(self._master or "local[*]", self._jobs)

    def close(self) -> None:
        """Let go of what was made."""
        if self._made is not None:
            self._made.close()


@dataclasses.dataclass(kw_only=True)
class _Job:
    """One call of `check_store`."""

    results: Path
    runs: tuple[RunInfo, ...]
    problems: Problems
    budgets: Sequence[Budget]
    checkers: Sequence[str] | None
    facts: bool
    again: bool
    progress: Callable[[Progress], None]
    unsettled: int = 0
    known: int = 0
    units: int = 0
    away_ns: int = 0  # CPU time of other processes

    def run(self, choice: _Choice) -> tuple[Manifest, dict[str, Path]]:
        """Rounds of plan and work until nothing is left that can be done."""
        given_up: set[str] = set()  # ids of results that had their chance
        if self.again:
            there = index(self.results)
            ids = {result_id for want in self._plan().wanted for result_id in want.ids}
            forget_unsettled(there[result_id] for result_id in ids & there.keys())
        for number in range(ROUNDS_MAX):
            manifest = self._plan()
            if number == 0:
                self.known = manifest.known
            units = [left for unit in manifest.units if (left := _without(unit, given_up))]
            if units:
                self._round(choice, units)
                given_up.update(result_id for unit in units for result_id in _ids(unit))
                continue
            tables, damaged = self._gather(manifest)
            if not damaged:
                return manifest, tables
            self.known = max(0, self.known - len(damaged))  # they are made anew
        raise InfrastructureError(
            f"results below {self.results} were still missing or damaged after {ROUNDS_MAX} "
            "rounds; remove the folder and try again"
        )

    def _plan(self) -> Manifest:
        return plan(
            self.runs,
            index(self.results),
            budgets=self.budgets,
            checkers=self.checkers,
            facts=self.facts,
            problems=self.problems,
        )

    def _round(self, choice: _Choice, units: Sequence[Unit]) -> None:
        """Do units; those that do not come to an end are named."""
        executor = choice.executor(units)
        again = all(unit.budget.level > self.budgets[0].level for unit in units)
        # What a budget cut short once may do so again: one unit a task, so that nobody waits.
        bins = pack(units, len(units) if again else executor.slots * BINS_A_CORE)
        by_id = {unit.unit_id: unit for unit in units}
        config = Config(
            results=str(self.results.resolve()),
            round=uuid.uuid4().hex,
            limit_memory=executor.name != "inline",
        )
        self.results.mkdir(exist_ok=True)
        left = dict(by_id)
        cost = sum(unit.cost for unit in units)
        cost_done = 0
        try:
            with contextlib.closing(executor.run(bins, config)) as ended:
                for done in ended:
                    unit = left.pop(done.unit, None)
                    if unit is None:
                        continue
                    for problem in done.problems:
                        self.problems.add(problem)
                    self.units += 1
                    cost_done += unit.cost
                    self.away_ns += done.cpu_ns if executor.name != "inline" else 0
                    self.progress(
                        Progress(
                            stage="again" if again else "check",
                            done=len(by_id) - len(left),
                            units=len(by_id),
                            cost_done=cost_done,
                            cost=cost,
                        )
                    )
        finally:
            forget_markers(self.results, config.round)
        for unit in left.values():
            text = "the executor lost it: its results are missing, try again"
            self.problems.add(Problem(unit.key, "lost", text))

    def _gather(self, manifest: Manifest) -> tuple[dict[str, Path], list[str]]:
        there = index(self.results)
        wanted: list[tuple[str, str, Path]] = []
        missing: list[Wanted] = []
        for want in manifest.wanted:
            # The result of the largest budget that there is; none where it could not be made.
            for result_id in reversed(want.ids):
                if result_id in there:
                    wanted.append((want.run, result_id, there[result_id]))
                    break
            else:
                missing.append(want)
        self.unsettled = sum(is_unsettled(path) for _, _, path in wanted)
        return gather(self.results, wanted, self._besides(missing, {run for run, _, _ in wanted}))

    def _besides(
        self, missing: Sequence[Wanted], begun: AbstractSet[str]
    ) -> dict[str, dict[str, pa.Table]]:
        """What stands in for results that could not be made, of runs that have others.

        Without it a run would be valid for want of a verdict, or an invalid one of no table.
        """
        named = {item.run for item in self.problems.kept if item.kind not in NO_LOSS}
        infos = {info.key: info for info in self.runs}
        found: dict[str, dict[str, pa.Table]] = {}
        for want in missing:
            what = "its facts" if want.checker is None else f"the verdict of {want.checker}"
            if want.run not in named:
                self.problems.add(Problem(want.run, "lost", f"{what} could not be had; try again"))
            if want.run not in begun:
                continue
            if want.checker is None:
                found[f"{want.run} {want.ids[0]}"] = bare(infos[want.run])
            else:
                row = no_verdict(want.checker)
                found[f"{want.run} {want.checker}"] = {"verdicts": table_of([row], want.run, "")}
        return found


def _ids(unit: Unit) -> list[str]:
    """The results that a unit makes."""
    found = [check.result_id for check in unit.checks]
    return found if unit.facts_id is None else [*found, unit.facts_id]


def _without(unit: Unit, given_up: AbstractSet[str]) -> Unit | None:
    """The unit without results that had their chance; `None` if nothing is left of it."""
    left = msgspec.structs.replace(
        unit,
        checks=tuple(check for check in unit.checks if check.result_id not in given_up),
        facts_id=None if unit.facts_id in given_up else unit.facts_id,
    )
    return left if _ids(left) else None
