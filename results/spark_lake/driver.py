"""A report's work on a lake, on Spark: plan, submit, plan again, until nothing is left; then ask.

Whatever is per run is a DataFrame; the driver knows kinds of cases, tasks and sums. A job that is
lost keeps what its tasks appended: what is missing is planned and submitted again, as long as every
submission gets somewhere. What could not be made by a job that came to its end is not tried again.
"""

from __future__ import annotations

import datetime as dt
import functools
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import InfrastructureError
from results.budgets import Budget
from results.engines import Extent
from results.lake.files import MAIN
from results.lake.judged import ResultLake
from results.lake.lake import Lake
from results.lake.rebuild import HISTORY_TABLES
from results.manifest import Registry
from results.pipeline import Checked, Progress
from results.sources.lake import name_lacking
from results.sources.wants import Kind, Wants, wants_of
from results.spark import cause_of, in_tasks, prepare_workers, raise_if_interrupted
from results.spark_lake.asking import (
    Asking,
    Files,
    RunsOfKind,
    Told,
    ToldEngine,
    kinds,
    rows_of,
    tell,
)
from results.spark_lake.frames import lake_frame, of_label
from results.spark_lake.judging import DONE_DDL, Job, TaskDone, given_options, judge_rows
from results.spark_lake.planning import FACTS, Todo, Wish, plan_tasks
from results.spark_lake.watching import Watch
from results.store_scan import Problem, Problems
from results.work import LakeConfig

if TYPE_CHECKING:
    from results.lake.snapshot import Snapshot

__all__ = ["SparkLake"]

SUBMISSIONS_MAX: Final = 20
PARTITIONS_MAX: Final = 200
ROWS_A_PARTITION: Final = 4_000_000
"""Of results, a shuffle; groups of rows are far fewer than rows."""
BROADCAST_BYTES_MAX: Final = 1 << 20
"""Of files that Spark takes to every executor unasked: their rows may take fifty times as much."""
ROWS_COMPILED: Final = 2_000_000
"""From so many rows on plans are compiled: compiling one takes a fifth of a second of CPU."""


EVERYTHING: Final = Extent()
CUT_SHORT: Final = "has no run.json: it was cut short"


class SparkLake:
    """The runs of a lake, or of one label of it, in one report on Spark."""

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
        """`extent` is of what is asked in the end; `jobs` is how many tasks run at once, where
        it is not as many as Spark has cores.

        With `again`, results that were unsettled before now do not count.
        """
        self.problems = Problems()
        self._spark = spark
        self._lake = lake
        self._snapshot = of_label(snapshot, label)
        self._budgets = tuple(budgets)
        self._slots = jobs
        self._label = label
        self._extent = extent
        self._told: Told | None = None  # where nothing came after it
        self._before: dict[str, str] = {}  # settings of the session that we changed
        self._since = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if again else ""
        results = ResultLake.beside(lake.place.uri, lake.place.options, create=True)
        assert results is not None
        self._results = results
        self._wishes: list[Wish] = []
        self._wants: dict[Kind, Wants] = {}
        self._view = f"harness_these_{uuid.uuid4().hex[:8]}"
        self._rows: Any = None  # what plans know of each run
        self.runs = 0
        self.wanted = 0
        self.makeable = 0  # of the wanted results
        self._read_kinds()

    def _suit(self, rows: int) -> None:
        """Have the session suit so many rows: what helps with millions costs more with few."""
        partitions = min(PARTITIONS_MAX, -(-rows // ROWS_A_PARTITION) or 1)
        compiled = str(rows >= ROWS_COMPILED).lower()
        for name, value in (
            ("spark.sql.shuffle.partitions", str(partitions)),
            ("spark.sql.codegen.wholeStage", compiled),
            ("spark.sql.autoBroadcastJoinThreshold", str(BROADCAST_BYTES_MAX)),
        ):
            self._before.setdefault(name, self._spark.conf.get(name))
            self._spark.conf.set(name, value)

    def _runs(self) -> Any:
        """What a plan has to know of each run."""
        if self._rows is None:
            self._suit(sum(file.rows for file in self._snapshot.files(MAIN)))
            self._rows = self._narrow().cache()
        return self._rows

    def _narrow(self) -> Any:
        columns = [
            "target",
            "label",
            "day",
            "run",
            "batch",
            "lines",
            "workload",
            "case",
            "finished",
        ]
        frame = lake_frame(self._spark, self._snapshot, MAIN, columns=columns)
        frame.createOrReplaceTempView(self._view)
        where = "" if self._label is None else "WHERE label = :label"
        text = NARROW.format(runs=self._view, where=where)
        return self._spark.sql(text, {"label": self._label or ""})

    # What is wanted ------------------------------------------------------------------------------

    def _read_kinds(self) -> None:
        """Runs whose cases name the same workload and checkers want the same results."""
        registry = Registry()
        for kind in kinds(self._spark, self._asking(), slots=self._at_once()):
            self._name(kind.first_unfinished, kind.unfinished, "unfinished", CUT_SHORT)
            self.runs += kind.runs
            wishes = self._wishes_of(kind, registry)
            self._wishes += wishes
            own = sum(wish.level == 1 for wish in wishes)
            self.wanted += kind.runs * (own + len(self._wants[kind.kind].gone))
            self.makeable += kind.runs * own

    def _wishes_of(self, of: RunsOfKind, registry: Registry) -> list[Wish]:
        wants = self._wants[of.kind] = wants_of(of.kind, registry, self._budgets)
        for text in (*filter(None, [wants.trouble]), *(text for _, text in wants.gone)):
            self._name(of.first, of.runs, "checker", text)
        assert wants.facts is not None
        name = " ".join(of.kind)
        found = [Wish(name, FACTS, 1, wants.facts)]
        for checker, ids in wants.checks:
            befores = (None, *ids)
            found += [Wish(name, checker, 1 + n, ids[n], befores[n]) for n in range(len(ids))]
        return found

    def _name(self, first: Sequence[str], total: int, what: str, text: str) -> None:
        """The same problem of many runs, of which the first few are named."""
        for run in first:
            self.problems.add(Problem(run, what, text))
        self.problems.total += total - len(first)

    # What is done --------------------------------------------------------------------------------

    def check(self, progress: Callable[[Progress], None] | None = None) -> Checked:
        """Judge what is new; raises `InfrastructureError` where Spark or the lake fails."""
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        known = tasks = away_ns = left = 0
        wishes: Sequence[Wish] = self._wishes
        for number in range(SUBMISSIONS_MAX):
            if number == 0:
                told = self._tell(settled=True)
                known = self.makeable - told.account.left
                if not told.account.left:
                    self._told = told
                    break
            todo = self._plan(wishes)
            try:
                if not todo.runs:
                    break
                try:
                    ended = self._submit(todo, progress)
                except Exception as error:  # Spark's errors are of many kinds
                    raise_if_interrupted(error)
                    if number and todo.results == left:
                        raise InfrastructureError(
                            f"the Spark job failed, and so did it before without any new result: "
                            f"{cause_of(error)}; can every executor reach {self._lake.place.uri}?"
                        ) from error
                    left = todo.results
                    continue
            finally:
                todo.close()
            tasks += len(ended)
            away_ns += sum(done.cpu_ns for done in ended)
            for problem in (problem for done in ended for problem in done.problems):
                self.problems.add(problem)
            # What is missing still could not be made; what was limited is tried once more.
            lowest = min(wish.level for wish in wishes)
            wishes = [wish for wish in wishes if wish.level > lowest]
            if not wishes:
                break
        return Checked(
            tables={},
            problems=self.problems.kept,
            problems_total=self.problems.total,
            results_known=known,
            results_new=max(0, self.wanted - known),
            results_unsettled=0,
            units=tasks,
            cpu_s=time.process_time() - cpu_s + away_ns / 1e9,
            wall_s=time.perf_counter() - begin_s,
            executor="spark",
        )

    def _plan(self, wishes: Sequence[Wish]) -> Todo:
        known = lake_frame(
            self._spark,
            self._found(),
            MAIN,
            columns=["run", "run_batch", "judged_at", "results", "marks"],
        )
        return plan_tasks(
            self._spark, self._runs(), known, wishes, slots=self._at_once, since=self._since
        )

    def _at_once(self) -> int:
        """How many tasks run at once; workers start when that is asked first."""
        if self._slots is None:
            self._slots = prepare_workers(self._spark, "duckdb")
        return self._slots

    def _found(self) -> Snapshot:
        """The results as they are now, of the runs that are looked at."""
        return of_label(self._results.snapshot(), self._label)

    def _submit(self, todo: Todo, progress: Callable[[Progress], None] | None) -> list[TaskDone]:
        place = self._lake.place
        job = Job(
            config=LakeConfig(
                uri=place.uri,
                scratch="",  # each executor has its own
                round=uuid.uuid4().hex,
                since_s=time.time(),
                limit_memory=True,
                elsewhere=True,
            ),
            files={name: self._snapshot.files(name) for name in (MAIN, *HISTORY_TABLES)},
            budgets=self._budgets,
            options=given_options(place),
        )
        work = functools.partial(judge_rows, job=job)
        frame = in_tasks(todo.frame, todo.tasks).mapInArrow(work, DONE_DDL)
        with Watch(self._results, todo, progress, slots=self._at_once()):
            rows = frame.toArrow()
        return [msgspec.json.decode(text, type=TaskDone) for text in rows["done"].to_pylist()]

    # What was found ------------------------------------------------------------------------------

    def ask(self, checked: Checked) -> tuple[Checked, ToldEngine]:
        """An engine that answers questions, and what is still to be said of `checked`."""
        engine, account = self._told or self._tell()
        name_lacking(self.problems, account.lost, account.lost_total)
        told = msgspec.structs.replace(
            checked,
            problems=self.problems.kept,
            problems_total=self.problems.total,
            results_unsettled=account.unsettled,
        )
        return told, engine

    def _tell(self, *, settled: bool = False) -> Told:
        asking = self._asking()._replace(settled=settled)
        return tell(self._spark, asking, slots=self._at_once())

    def table(self, name: str) -> Any:
        """A table of the report (`results.schema`) as a DataFrame."""
        return rows_of(self._spark, self._asking(), name, slots=self._at_once())

    def _asking(self) -> Asking:
        return Asking(
            lake=Files.of(self._snapshot),
            results=Files.of(self._found()),
            options=given_options(self._lake.place),
            budgets=self._budgets,
            wants=self._wants,
            label=self._label,
            since=self._since,
            extent=self._extent,
        )

    def close(self) -> None:
        """Forget the runs; the session goes on."""
        if self._rows is not None:
            self._rows.unpersist()
            self._spark.catalog.dropTempView(self._view)
        for name, value in self._before.items():
            self._spark.conf.set(name, value)


NARROW: Final = """
SELECT target, label, day, run, batch, lines, finished, workload,
       COALESCE(GET_JSON_OBJECT(`case`, '$.checkers'), '[]') AS others,
       CONCAT(workload, ' ', COALESCE(GET_JSON_OBJECT(`case`, '$.checkers'), '[]')) AS kind
FROM {runs} {where}
"""
