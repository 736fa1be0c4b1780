"""Makes the tables of a report: plans the work, judges new runs, and gathers the rows.

The installed checkers judge every history again, and do not use the verdict in `run.json`. Every
result is stored under the hash of its dependencies (`results.judging.result_ids`). So a second
report only does new work, and an interrupted report continues.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import InfrastructureError, UsageError
from harness.support.workers import Busy, WorkerPool, default_jobs
from results.facts.problems import Problem
from results.judging.report_runs import Gathered, ReportRuns
from results.judging.unit_judge import do_units
from results.judging.work_units import STAGES_BESIDE_CHECKS, Done, RoundConfig, Unit, stages_of
from results.lake.log.refusals import failure_of, raise_if_refused

EXECUTORS: Final = ("auto", "inline", "pool")
ROUNDS_MAX: Final = 8
SMALL_COST_NS: Final = 2_000_000_000
"""With less estimated work (CPU ns), starting worker processes takes longer than it saves."""
_HANG_FACTOR: Final = 4.0
_HANG_S: Final = 60.0
_DEATHS_A_STAGE: Final = 2


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a report. Costs are estimates; only their proportions mean anything."""

    stage: str  # "check", "again" with a larger budget, "gather", "answer" questions, "write"
    done: int
    units: int
    cost_done: int
    cost: int
    noun: str = "units"
    time_part: float | None = None
    """The share of the time that has passed (`results.judging.pace.Schedule`), if known."""
    left: tuple[str, ...] = ()  # the remaining units in words, once only a few remain
    kept: int = 0  # number of results stored so far; these survive an interrupt


LEFT_NAMED_MAX: Final = 3


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a report, and statistics about the work that made them."""

    tables: dict[str, tuple[Path, ...]]
    counting: dict[str, str] = {}  # by table: the SQL condition for rows that count, see `Gathered`
    problems: tuple[Problem, ...]
    problems_total: int
    results_known: int
    results_new: int
    results_unsettled: int  # results left unknown: time or memory ran out, or the worker died
    runs_unjudged: int = 0  # runs without any result; no table has a row of such a run
    units: int
    cpu_s: float  # CPU time of all processes except Spark's JVM
    wall_s: float
    executor: str


def check(
    source: ReportRuns,
    *,
    executor: str = "auto",
    jobs: int | None = None,
    again: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Checked:
    """Judge new runs, and gather the tables of all runs.

    With `again`, retry the results that an earlier call left unsettled (`results.judging.markers`).
    Raises `UsageError` for an unknown executor, and `InfrastructureError` if the disk fails.
    """
    if executor not in EXECUTORS:
        raise UsageError(f"the executor is {executor!r}; it must be one of {', '.join(EXECUTORS)}")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs is {jobs}; it must be at least 1")
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    job = _Job(
        source=source,
        executor=executor,
        jobs=jobs or default_jobs(),
        again=again,
        progress=progress or (lambda _: None),
    )
    try:
        gathered = job.run()
    except OSError as error:
        text = (
            f"results cannot be stored below {source.results}: {error}; "
            "free some space, or copy the store to where it can be written"
        )
        raise failure_of(error, text) from error
    return Checked(
        tables=gathered.tables,
        counting=gathered.counting,
        problems=source.problems.kept,
        problems_total=source.problems.total,
        results_known=job.stored,
        results_new=max(0, job.wanted - job.stored),
        results_unsettled=gathered.unsettled,
        runs_unjudged=gathered.unjudged,
        units=job.units,
        cpu_s=time.process_time() - cpu_s + job.away_ns / 1e9,
        wall_s=time.perf_counter() - begin_s,
        executor=job.executor,
    )


@dataclasses.dataclass(kw_only=True)
class _Job:
    """Plans and does the work of one report, in rounds."""

    source: ReportRuns
    executor: str
    jobs: int
    again: bool
    progress: Callable[[Progress], None]
    stored: int = 0
    wanted: int = 0
    units: int = 0
    away_ns: int = 0
    kept: int = 0

    def run(self) -> Gathered:
        """Plan and do work in rounds until no pending work remains, then gather the tables."""
        if self.again:
            self.source.forget_unsettled()
        for number in range(ROUNDS_MAX):
            plan = self.source.plan()
            self.wanted = plan.wanted
            if number == 0:
                self.stored = self.kept = plan.stored
            if plan.units:
                self._round(plan.units)
                continue
            self.progress(
                Progress(stage="gather", done=0, units=1, cost_done=0, cost=1, kept=self.kept)
            )
            return self.source.gather()
        raise InfrastructureError(
            f"results in {self.source.results} were still missing after {ROUNDS_MAX} rounds; "
            "remove this folder and try again"
        )

    def _round(self, units: Sequence[Unit]) -> None:
        if self.executor == "auto":
            small = sum(unit.cost for unit in units) < SMALL_COST_NS or len(units) < 2
            self.executor = "inline" if small else "pool"
        inline = self.executor == "inline"
        by_cost = sorted(units, key=lambda unit: -unit.cost)
        by_id = {unit.unit_id: unit for unit in units}
        config = self.source.begin(limit_memory=not inline)
        left = dict(by_id)
        parts = dict.fromkeys(by_id, 0.0)
        memory: dict[str, int] = {}
        self._say(by_id, left, parts, memory)
        if inline:  # in this process: no start-up cost, and a debugger can enter the checkers
            doing = do_units(by_cost, config=config)
        else:
            doing = in_workers(by_cost, config, self.jobs)
        try:
            with contextlib.closing(doing) as ended:
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
                        self.away_ns += 0 if inline else done.cpu_ns
                    self._say(by_id, left, parts, memory)
        finally:
            self.source.end()
        for unit in left.values():
            self.source.lose(unit)

    def _say(
        self,
        units: Mapping[str, Unit],
        left: Mapping[str, Unit],
        parts: Mapping[str, float],
        memory: Mapping[str, int],
    ) -> None:
        """Report the progress of a round. Once only a few units remain, name them."""
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


def _in_words(unit: Unit, memory_bytes: int) -> str:
    """Describe a unit: its first run, its checkers, the budget of a retry, its worker's memory."""
    checkers = " and ".join(check.checker for check in unit.checks)
    parts = [unit.key, checkers or "facts"]
    if unit.budget.level > 1:
        parts.append(f"retry with a larger budget ({unit.budget.cpu_s:g} s of CPU)")
    if memory_bytes:
        parts.append(f"{memory_bytes / 1e9:.1f} GB")
    return ", ".join(parts)


def in_workers(
    units: Sequence[Unit], config: RoundConfig, jobs: int
) -> Generator[Done, None, None]:
    """Process units in `jobs` worker processes. The workers end when the generator ends.

    A unit whose worker died, or hung for much longer than its budget allows, is tried again. The
    worker itself gives up a stage that killed two workers (`results.judging.markers.Marker`). A
    unit that no worker finishes yields no outcome.
    """
    pool: WorkerPool[Unit, Done] = WorkerPool(
        module="results.judging.worker",
        arguments=[msgspec.json.encode(config).decode()],
        answer=Done,
        timeout_s=_silence_max_s,
        deaths_max=lambda unit: _DEATHS_A_STAGE * stages_of(unit) + 1,
        retry_hung=True,
        is_last=lambda done: done.part >= 1.0,
    )
    with contextlib.closing(pool.run(units, jobs)) as answers:
        for unit, answer in answers:
            if isinstance(answer, Done):
                yield answer
            elif isinstance(answer, Busy):
                yield Done(unit.unit_id, 0, (), part=0.0, memory_bytes=answer.memory_bytes)


def _silence_max_s(unit: Unit) -> float:
    """Return the time without news from a unit's worker after which the worker counts as hung."""
    stages = len(unit.checks) + STAGES_BESIDE_CHECKS
    return _HANG_S + unit.budget.cpu_s * stages * _HANG_FACTOR
