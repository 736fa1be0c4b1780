"""Does a report's work on Spark: judges runs until no work is pending, then answers questions.

Tasks handle ranges of runs. The driver only handles kinds of runs, ranges and sums. If a job is
lost, the results that it appended stay. The driver then submits the remaining work again, as long
as every submission makes progress. Results that a finished job could not make are not tried again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from harness.errors import HarnessError, InfrastructureError
from results.facts.problems import Problem, Problems
from results.judging.budgets import Budget
from results.judging.pipeline import Checked, Progress
from results.judging.report_runs import name_lacking
from results.judging.required_results import Kind, Wants, wants_of
from results.judging.result_ids import Registry
from results.judging.result_lake import ResultLake
from results.judging.work_units import RoundConfig
from results.lake.log.lake import Lake
from results.lake.log.refusals import raise_if_refused
from results.lake.log.snapshot import Snapshot
from results.questions.engines import Extent
from results.spark.job_progress import Watch
from results.spark.range_answers import RunsOfKind, Told, ToldEngine, kinds, tell
from results.spark.range_checks import DONE_DDL, TaskDone, judge_ranges
from results.spark.ranges import Asking, Files, given_options, numbers
from results.spark.session import (
    cause_of,
    cores_here,
    prepare_workers,
    raise_if_interrupted,
)
from results.spark.task_plan import Todo, todo_of

SUBMISSIONS_MAX: Final = 20
EVERYTHING: Final = Extent()
CUT_SHORT: Final = "has no run.json: it was cut short"


class SparkLake:
    """The runs of a lake, or of one label, for one report on Spark."""

    def __init__(
        self,
        spark: Any,
        lake: Lake,
        snapshot: Snapshot,
        *,
        budgets: Sequence[Budget],
        extent: Extent = EVERYTHING,
        label: str | None = None,
        jobs: int | None = None,
        again: bool = False,
    ) -> None:
        """Prepare a report. `extent` limits its answers. `jobs` is the number of concurrent tasks.

        `jobs` defaults to the number of Spark's cores. With `again`, results that earlier reports
        left unsettled are computed again.
        """
        self.problems = Problems()
        self._spark = spark
        self._lake = lake
        self._snapshot = snapshot.of_label(label)
        self._budgets = tuple(budgets)
        self._jobs = jobs
        self._slots: int | None = None
        self._label = label
        self._extent = extent
        self._told: Told | None = None
        self._since = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if again else ""
        results = ResultLake.beside(lake.place.uri, lake.place.options, create=True)
        assert results is not None
        self._results = results
        self._begin: Files | None = Files.of(self._found())
        self._wants: dict[Kind, Wants] = {}
        self.runs = 0
        self.wanted = 0
        self.makeable = 0
        self._read_kinds()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn a failure of a job that only reads into an `InfrastructureError`."""
        try:
            yield
        except HarnessError:
            raise
        except Exception as error:
            raise_if_interrupted(error)
            raise InfrastructureError(
                f"Spark cannot read the lake: {cause_of(error)}; can every executor reach "
                f"{self._lake.place.uri}?"
            ) from error

    # Required results ----------------------------------------------------------------------------

    def _read_kinds(self) -> None:
        """Read the kinds of runs, and determine the results that runs of each kind need.

        Runs with the same workload and checkers in their cases need the same results.
        """
        registry = Registry()
        with self._reading():
            kinds = self._kinds()
        for of in kinds:
            self._name(of.first_unfinished, of.unfinished, "unfinished", CUT_SHORT)
            wants = self._wants[of.kind] = wants_of(of.kind, registry, self._budgets)
            for text in (*filter(None, [wants.trouble]), *(text for _, text in wants.gone)):
                self._name(of.first, of.runs, "checker", text)
            self.runs += of.runs
            per_run = len(wants.checks) + (wants.facts is not None)
            self.wanted += of.runs * (per_run + len(wants.gone))
            self.makeable += of.runs * per_run

    def _kinds(self) -> list[RunsOfKind]:
        """Run the first job, which reads the kinds of runs.

        Workers on this machine usually need no preparation. If they lack a module, the driver
        prepares them and runs the job again.
        """
        asking = self._asking(self._begin)
        try:
            return kinds(self._spark, asking, slots=self._readers())
        except Exception as error:
            raise_if_interrupted(error)
            if self._slots is not None or "ModuleNotFoundError" not in str(error):
                raise
        return kinds(self._spark, asking, slots=self._at_once())

    def _name(self, first: Sequence[str], total: int, what: str, text: str) -> None:
        self._add([Problem(run, what, text) for run in first], total)

    def _add(self, first: Sequence[Problem], total: int) -> None:
        for problem in first:
            self.problems.add(problem)
        self.problems.total += total - len(first)

    # Work ----------------------------------------------------------------------------------------

    def check(self, progress: Callable[[Progress], None] | None = None) -> Checked:
        """Judge new runs; raise `InfrastructureError` if Spark or the lake fails."""
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        tasks = away_ns = before = above = 0
        answers = self._tell(self._asking(self._begin)._replace(settled=True))
        self._begin, stale = None, False
        finished = self.makeable - answers.account.left
        for _ in range(SUBMISSIONS_MAX):
            if not answers.account.lacking:
                break
            todo = todo_of(answers.account.lacking, self._at_once())
            try:
                ended = self._submit(todo, above, progress)
            except Exception as error:
                raise_if_interrupted(error)
                if todo.results == before:
                    raise InfrastructureError(
                        f"the Spark job failed again, without any new result: "
                        f"{cause_of(error)}; can every executor reach {self._lake.place.uri}?"
                    ) from error
                before = todo.results
            else:
                tasks += len(ended)
                away_ns += sum(done.cpu_ns for done in ended)
                self._take([problem for done in ended for problem in done.problems])
                above += 1
                stale = above == len(self._budgets) or not any(done.limited for done in ended)
                if stale:
                    break
            # After a finished job, only results that a budget limited are pending. The job could
            # not make other missing results, so this report skips them.
            answers = self._tell(self._asking()._replace(settled=True, above=above))
        self._told = None if stale or answers.account.left else answers
        if tasks:
            self._results.tidy(self._label)
        return Checked(
            tables={},
            problems=self.problems.kept,
            problems_total=self.problems.total,
            results_known=finished,
            results_new=max(0, self.wanted - finished),
            results_unsettled=0,
            units=tasks,
            cpu_s=time.process_time() - cpu_s + away_ns / 1e9,
            wall_s=time.perf_counter() - begin_s,
            executor="spark",
        )

    def _take(self, problems: Sequence[Problem]) -> None:
        raise_if_refused(problems)
        for problem in problems:
            self.problems.add(problem)

    def _at_once(self) -> int:
        """Return how many tasks run at once. The first call starts and prepares workers."""
        if self._slots is None:
            self._slots = prepare_workers(self._spark, "duckdb")
        return self._jobs or self._slots

    def _readers(self) -> int:
        """Return how many reading tasks run at once. Their workers need only our own packages."""
        return self._jobs or self._slots or cores_here() or self._at_once()

    def _found(self) -> Snapshot:
        return self._results.snapshot().of_label(self._label)

    def _submit(
        self, todo: Todo, above: int, progress: Callable[[Progress], None] | None
    ) -> list[TaskDone]:
        config = RoundConfig(
            uri=self._lake.place.uri,
            scratch="",  # each executor creates a folder of its own
            round=uuid.uuid4().hex,
            since_s=time.time(),
            limit_memory=True,
            elsewhere=True,
        )
        tasks = tuple(task.between for task in todo.tasks)
        ranges = tuple(between.runs for between in tasks)
        asking = self._asking()._replace(ranges=ranges, above=above)
        work = functools.partial(judge_ranges, asking=asking, tasks=tasks, config=config)
        frame = numbers(self._spark, ranges).mapInArrow(work, DONE_DDL)
        with Watch(self._results, todo, progress, slots=self._at_once()):
            rows = frame.toArrow()
        return [msgspec.json.decode(text, type=TaskDone) for text in rows["done"].to_pylist()]

    # Answers -------------------------------------------------------------------------------------

    def ask(self, checked: Checked) -> tuple[Checked, ToldEngine]:
        """Return `checked` with final counts and problems, and an engine that has the answers."""
        engine, account = self._told or self._tell(self._asking())
        name_lacking(self.problems, account.lost, account.lost_total)
        checked_account = msgspec.structs.replace(
            checked,
            problems=self.problems.kept,
            problems_total=self.problems.total,
            results_unsettled=account.unsettled,
            runs_unjudged=account.unjudged,
        )
        return checked_account, engine

    def _tell(self, asking: Asking) -> Told:
        with self._reading():
            return tell(self._spark, asking, slots=self._readers())

    def _asking(self, results: Files | None = None) -> Asking:
        """Make a request to all tasks. `results` defaults to the result lake's current state."""
        return Asking(
            lake=Files.of(self._snapshot),
            results=results or Files.of(self._found()),
            options=given_options(self._lake.place),
            budgets=self._budgets,
            wants=self._wants,
            label=self._label,
            since=self._since,
            extent=self._extent,
        )
