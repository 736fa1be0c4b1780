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

from harness.case import Case
from harness.errors import HarnessError, InfrastructureError
from results.budgets import Budget
from results.lake.files import MAIN
from results.lake.judged import FACTS_KEPT, ResultLake
from results.lake.lake import Lake
from results.lake.rebuild import HISTORY_TABLES
from results.manifest import Registry
from results.pipeline import Checked, Progress
from results.rights import raise_if_refused
from results.sources.result_ids import facts_id, verdict_id
from results.sources.rowless import TEXT, Rowless, rowless
from results.spark import cause_of, in_tasks, prepare_workers, raise_if_interrupted
from results.spark_lake.frames import lake_frame, listed_frame, of_label
from results.spark_lake.judging import DONE_DDL, Job, TaskDone, judge_rows
from results.spark_lake.planning import FACTS, Todo, Wish, plan_tasks
from results.spark_lake.tables import Lacking, LakeEngine, LakeTables
from results.spark_lake.watching import Watch
from results.store_scan import NO_LOSS, PROBLEMS_MAX, ROWLESS, Problem, Problems
from results.work import LakeConfig

if TYPE_CHECKING:
    from results.lake.snapshot import Snapshot

__all__ = ["SparkLake"]

LISTED_COLUMNS: Final = ("run", "run_batch", "batch", "judged_at", "results", "marks")
SUBMISSIONS_MAX: Final = 20
PARTITIONS_MAX: Final = 200
ROWS_A_PARTITION: Final = 4_000_000
"""Of results, a shuffle; groups of rows are far fewer than rows."""
BROADCAST_BYTES_MAX: Final = 1 << 20
"""Of files that Spark takes to every executor unasked: their rows may take fifty times as much."""
ROWS_COMPILED: Final = 2_000_000
"""From so many rows on plans are compiled: compiling one takes a fifth of a second of CPU."""


class SparkLake:
    """The runs of a lake, or of one label of it, in one report on Spark."""

    def __init__(
        self,
        spark: Any,
        lake: Lake,
        snapshot: Snapshot,
        *,
        budgets: Sequence[Budget],
        label: str | None = None,
        jobs: int | None = None,
        again: bool = False,
    ) -> None:
        """`jobs` is how many tasks run at once, where it is not as many as Spark has cores.

        With `again`, results that were unsettled before now do not count.
        """
        self.problems = Problems()
        self._spark = spark
        self._lake = lake
        self._snapshot = of_label(snapshot, label)
        self._budgets = tuple(budgets)
        self._slots = jobs
        self._label = label
        self._before: dict[str, str] = {}  # settings of the session that we changed
        self._last: Todo | None = None  # the last plan, if nothing came after it
        self._lost: list[Rowless] | None = None  # listed without a row
        self._since = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if again else ""
        results = ResultLake.beside(lake.place.uri, lake.place.options, create=True)
        assert results is not None
        self._results = results
        self._wishes: list[Wish] = []
        self._gone: list[tuple[str, str]] = []  # kinds, and their checkers that cannot be had
        self._view = f"harness_these_{uuid.uuid4().hex[:8]}"
        self._suit(sum(file.rows for file in self._snapshot.files(MAIN)))
        self._runs = self._narrow(label).cache()
        self._runs.createOrReplaceTempView(self._view)
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

    def _narrow(self, label: str | None) -> Any:
        """What a plan has to know of each run."""
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
        name = f"{self._view}_all"
        frame.createOrReplaceTempView(name)
        where = "" if label is None else "WHERE label = :label"
        return self._spark.sql(NARROW.format(runs=name, where=where), {"label": label or ""})

    # What is wanted ------------------------------------------------------------------------------

    def _read_kinds(self) -> None:
        """Runs whose cases name the same workload and checkers want the same results."""
        registry = Registry()
        kinds = self._spark.sql(KINDS.format(runs=self._view)).toArrow().to_pylist()
        for row in kinds:
            self.runs += row["runs"]
            wishes = self._wishes_of(row, registry)
            self._wishes += wishes
            own = sum(wish.level == 1 for wish in wishes)
            gone = sum(kind == row["kind"] for kind, _ in self._gone)
            self.wanted += row["runs"] * (own + gone)
            self.makeable += row["runs"] * own
        unfinished = sum(row["unfinished"] for row in kinds)
        if unfinished:
            text = "has no run.json: it was cut short"
            self._name("NOT finished", "unfinished", text, total=unfinished)

    def _wishes_of(self, row: dict[str, Any], registry: Registry) -> list[Wish]:
        kind = row["kind"]

        def complain(error: Exception | str) -> None:
            self._name("kind = :kind", "checker", str(error), total=row["runs"], kind=kind)

        names: tuple[str, ...] = ()
        try:
            others = tuple(msgspec.json.decode(row["others"], type=list[str]))
            names = registry.checkers_of(Case(seed=0, workload=row["workload"], checkers=others))
        except (HarnessError, msgspec.DecodeError) as error:
            complain(error)
        found = [Wish(kind, FACTS, 1, facts_id())]
        for name in names:
            if text := registry.trouble(name):
                self._gone.append((kind, name))
                complain(text)
                continue
            before: str | None = None
            for level, budget in enumerate(self._budgets, 1):
                result_id = verdict_id(name, registry.version(name), budget)
                found.append(Wish(kind, name, level, result_id, before))
                before = result_id
        return found

    def _name(self, where: str, kind_of: str, text: str, *, total: int, kind: str = "") -> None:
        """The same problem of many runs, of which the first few are named."""
        frame = self._spark.sql(
            f"SELECT run FROM {self._view} WHERE {where} ORDER BY run LIMIT {PROBLEMS_MAX}",  # noqa: S608
            {"kind": kind},
        )
        runs = frame.toArrow().column("run").to_pylist()
        for run in runs:
            self.problems.add(Problem(run, kind_of, text))
        self.problems.total += max(0, total - len(runs))

    # What is done --------------------------------------------------------------------------------

    def check(self, progress: Callable[[Progress], None] | None = None) -> Checked:
        """Judge what is new; raises `InfrastructureError` where Spark or the lake fails."""
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        known = tasks = away_ns = left = 0
        wishes: Sequence[Wish] = self._wishes
        for number in range(SUBMISSIONS_MAX):
            todo = self._plan(wishes)
            self._last = todo if number == 0 and not todo.runs else None
            try:
                if number == 0:
                    known = self.makeable - todo.results
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
            found = [problem for done in ended for problem in done.problems]
            raise_if_refused(found)
            for problem in found:
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
        found = self._found()
        known = listed_frame(self._spark, found, self._rowless(found), columns=LISTED_COLUMNS)
        return plan_tasks(
            self._spark, self._runs, known, wishes, slots=self._at_once, since=self._since
        )

    def _rowless(self, found: Snapshot) -> list[Rowless]:
        """Results that were listed without a row before this report; who lost some is named."""
        if self._lost is None:
            ids = sorted({wish.result_id for wish in self._wishes})
            self._lost = rowless(self._snapshot, found, ids)
            for run in sorted({one.run for one in self._lost if not one.again}):
                self.problems.add(Problem(run, ROWLESS, TEXT))
        return self._lost

    def _at_once(self) -> int:
        """How many tasks run at once; workers start when that is asked first."""
        if self._slots is None:
            self._slots = prepare_workers(self._spark)
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
            options={name: value for name, value in place.options.items() if name[:4] == "aws_"},
        )
        work = functools.partial(judge_rows, job=job)
        frame = in_tasks(todo.frame, todo.tasks).mapInArrow(work, DONE_DDL)
        with Watch(self._results, todo, progress, slots=self._at_once()):
            rows = frame.toArrow()
        return [msgspec.json.decode(text, type=TaskDone) for text in rows["done"].to_pylist()]

    # What was found ------------------------------------------------------------------------------

    def ask(self, checked: Checked) -> tuple[Checked, LakeEngine]:
        """The engine that answers a report's questions, and what is still to be said of `checked`.

        The engine is to be closed.
        """
        if self._last is None:  # something was done since
            self._last = self._plan(self._wishes)
            self._last.close()
        last = self._last
        self._suit(sum(file.rows for name in FACTS_KEPT for file in self._found().files(name)))
        tables = LakeTables(
            self._spark,
            self._snapshot,
            self._found(),
            plain=last.listed == last.there == self.makeable
            and not (last.runs or self._since or self._gone or self._lost),
            lost=self._lost or (),
            runs=self._view,
            wishes=self._wishes,
            gone=self._gone,
            since=self._since,
        )
        lacking = Lacking((), 0, last.unsettled) if tables.plain else tables.lacking()
        named = {item.run for item in self.problems.kept if item.kind not in NO_LOSS}
        for run, checker in lacking.runs:
            if run not in named:
                what = "its facts" if checker == FACTS else f"the verdict of {checker}"
                self.problems.add(Problem(run, "lost", f"{what} could not be had; try again"))
        self.problems.total += lacking.total - len(lacking.runs)
        told = msgspec.structs.replace(
            checked,
            problems=self.problems.kept,
            problems_total=self.problems.total,
            results_unsettled=lacking.unsettled,
            runs_unjudged=lacking.unjudged,
        )
        return told, LakeEngine(self._spark, tables, runs=self.runs)

    def close(self) -> None:
        """Forget the runs; the session goes on."""
        self._runs.unpersist()
        for name, value in self._before.items():
            self._spark.conf.set(name, value)
        for name in (self._view, f"{self._view}_all"):
            self._spark.catalog.dropTempView(name)


NARROW: Final = """
SELECT target, label, day, run, batch, lines, finished, workload,
       COALESCE(GET_JSON_OBJECT(`case`, '$.checkers'), '[]') AS others,
       CONCAT(workload, ' ', COALESCE(GET_JSON_OBJECT(`case`, '$.checkers'), '[]')) AS kind
FROM {runs} {where}
"""
KINDS: Final = """
SELECT kind, workload, others, COUNT(*) AS runs, COUNT_IF(NOT finished) AS unfinished
FROM {runs}
GROUP BY kind, workload, others
ORDER BY kind
"""
