"""Makes a report: judges new runs of a lake, answers the questions, writes the page.

A store is read through its lake (`results.lake.transfer.store_lake`). DuckDB answers in this
process, unless the user asks for Spark. Checkers and questions can run in different places (on this
machine or on Spark), because the results of checkers are in the lake.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import UsageError
from harness.verdict.known import NONE_KNOWN, KnownFailures
from harness.verdict.limits import CHECK_TIME_LIMIT_S
from results.facts.problems import NO_LOSS, Problems
from results.facts.schema import COLUMNS
from results.lake.log.files import LOG_FOLDER, MAIN
from results.lake.log.refusals import failure_of
from results.lake.log.storage_errors import troubles
from results.lake.tables.sealed_run import KEY_DIGITS
from results.questions.engines import query_names
from results.report.addresses import Addresses, default_output
from results.report.files import write_report
from results.report.store_problems import crashed_runs, with_problems

if TYPE_CHECKING:
    from results.judging.budgets import Budget
    from results.judging.pipeline import Checked, Progress
    from results.lake.log.lake import Lake
    from results.lake.log.snapshot import Snapshot
    from results.lake.transfer.ingest import Ingested
    from results.questions.aggregate import Answers
    from results.questions.engines import DuckEngine, Engine
    from results.questions.ignored import Ignored
    from results.report.summary import Summary

SPARK_PAYS_RUNS: Final = 1_000_000
"""The number of runs from which Spark may be faster.

DuckDB answers for this many runs in two minutes of CPU. Spark needs as much CPU per run, and about
ten seconds to start, so it is faster only with more machines (docs/spark.md).
"""
ROWS_OF_RUNS_MAX: Final = 1_000
"""The maximum number of rows in answers that list runs of a lake; its tables have all runs."""
RUN_COLUMNS: Final = ("run", "first_run", "last_run")
"""Columns of answers and tables that have keys of runs."""
NAME_OF_RUN: Final = f"left(run, -{KEY_DIGITS + 1})"
"""The SQL expression for the `NAME/ID` of a key. A `NAME/ID` is unique in a store."""

Say = Callable[["Progress"], None]


class Judged(NamedTuple):
    """The results of judging, an engine with the report's tables, and functions that write them."""

    checked: Checked
    engine: Engine
    tables: Mapping[str, Callable[[Path], object]]


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `report`, in the form that later steps need."""

    engine: str
    executor: str
    jobs: int | None
    spark_master: str | None
    baseline: str | None
    label: str | None
    ignored: Ignored
    again: bool
    budgets: tuple[Budget, ...]
    most: int | None
    store: Path | None
    known_failures: KnownFailures
    progress: Any

    @property
    def only(self) -> str | None:
        """The label to which the report is limited; `None`: all labels."""
        return self.label if self.baseline is None else None

    @property
    def checks_on_spark(self) -> bool:
        """Whether checkers run on Spark."""
        asked = self.executor == "auto" and self.spark_master is not None
        return self.executor == "spark" or asked


def is_lake(place: str) -> bool:
    """Whether a place is a lake: an address of an object store, or a folder with a table `runs`.

    Raises `UsageError` for a folder that cannot be read.
    """
    with troubles(place):
        return "://" in place or (Path(place) / MAIN / LOG_FOLDER).is_dir()


def chosen_engine(runs: int, asked: str | None, spark_master: str | None) -> tuple[str, str]:
    """Choose the engine; also return a hint (usually empty) that Spark may be faster."""
    if asked is not None:
        return asked, ""
    if spark_master is not None:
        return "spark", ""
    hint = f"{runs:,} runs; a Spark cluster may be faster (see --spark-master)"
    return "duckdb", "" if runs < SPARK_PAYS_RUNS else hint


def report(
    place: str,
    *,
    output: Path | None = None,
    engine: str | None = None,
    executor: str = "auto",
    jobs: int | None = None,
    spark_master: str | None = None,
    baseline: str | None = None,
    label: str | None = None,
    ignore: Sequence[str] = (),
    check_time_limit_s: float = CHECK_TIME_LIMIT_S,
    again: bool = False,
    known: KnownFailures = NONE_KNOWN,
    progress: Say | None = None,
) -> tuple[Summary, Answers, Path]:
    """Report on a store or a lake; return the summary, the answers and the path of the page.

    `ignore` lists the parts of settings in which compared runs may differ.

    Raises `UsageError` for a label that no run has or a place without runs, and
    `InfrastructureError`.
    """
    from results.judging.budgets import Budget
    from results.questions.baseline import accept_labels
    from results.questions.ignored import ignored_parts

    store = None if is_lake(place) else Path(place)
    output = output or default_output(place)
    lake, problems = _opened(place, store, progress)
    snapshot = lake.snapshot()
    runs = sum(file.rows for file in snapshot.files(MAIN))
    if not runs and not problems.total:
        hint = "give the --store of finished runs" if store else "`harness ingest` adds runs"
        raise UsageError(f"{place!r} holds no run; {hint}")
    accept_labels(labels_of(snapshot), baseline=baseline, label=label)
    chosen, hint = chosen_engine(runs, engine, spark_master)
    first = Budget(cpu_s=check_time_limit_s)
    asked = _Asked(
        engine=chosen, executor=executor, jobs=jobs, spark_master=spark_master, baseline=baseline,
        label=label, ignored=ignored_parts(snapshot, ignore), again=again,
        budgets=(first, first.larger()), store=store,
        most=None if store else ROWS_OF_RUNS_MAX, known_failures=known, progress=progress,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        judged = _judged(lake, snapshot, asked, stack)
        checked = with_problems(judged.checked, problems, store)
        answers = _answers(judged.engine, snapshot, checked, asked)
        summary = _summary(place, answers, checked, asked, hint)
        addresses = Addresses(place, snapshot, output, store=store)
        _say(asked, "write", 0, 1, checked)
        page = _write(summary, answers, addresses, output, judged.tables)
    return summary, answers, page


def _opened(place: str, store: Path | None, progress: Say | None) -> tuple[Lake, Problems]:
    """Open the lake, or update and open the store's lake; also return the store's problems."""
    from results.judging.pipeline import Progress
    from results.lake.log.lake import Lake
    from results.lake.transfer.store_lake import lake_of_store

    def say(found: Ingested) -> None:
        if progress is not None:
            progress(
                Progress(
                    stage="ingest",
                    done=found.looked,
                    units=found.total,
                    noun="runs",
                    cost_done=found.looked,
                    cost=found.total,
                )
            )

    if store is None:
        uri, problems = place, Problems()
    else:
        uri, _, problems = lake_of_store(store, progress=say)
    return Lake.open(uri), problems


def labels_of(snapshot: Snapshot) -> set[str | None]:
    """Return all labels of the lake. The names of its partitions contain them."""
    return {file.partition[1] for file in snapshot.files(MAIN)}


def stored_bytes(snapshot: Snapshot) -> dict[tuple[Any, ...], int]:
    """Return the total size of the files of each partition, by target, label and day."""
    sizes: dict[tuple[Any, ...], int] = {}
    for table in snapshot.schemas:
        for file in snapshot.files(table):
            target, label, day = file.partition
            at = (target, label, None if day is None else str(day))
            sizes[at] = sizes.get(at, 0) + file.size_bytes
    return sizes


# Judging -----------------------------------------------------------------------------------------


def _judged(lake: Lake, snapshot: Snapshot, asked: _Asked, stack: contextlib.ExitStack) -> Judged:
    """Judge new runs, in this process or on Spark. `stack` closes the engine and its tables."""
    from harness.support.workers import default_jobs
    from results.judging.pipeline import check
    from results.judging.report_runs import ReportRuns
    from results.lake.log.duckdb_views import readable
    from results.questions.engines import DuckEngine

    spark = checked = None
    if asked.checks_on_spark or asked.engine == "spark":
        spark = _spark(lake, snapshot, asked)
        if asked.checks_on_spark:
            checked = spark.check(asked.progress)
    if checked is None or asked.engine != "spark":
        source = ReportRuns(
            snapshot, budgets=asked.budgets, label=asked.only, slots=asked.jobs or default_jobs()
        )
        stack.enter_context(contextlib.closing(source))
        here = check(
            source,
            executor="auto" if asked.checks_on_spark else asked.executor,
            jobs=asked.jobs,
            again=asked.again and not asked.checks_on_spark,
            progress=asked.progress,
        )
        checked = here if checked is None else _after(here, checked)
    if spark is not None and asked.engine == "spark":
        checked, answers = spark.ask(checked)
        return Judged(checked, answers, {})
    stack.enter_context(readable(lake.place.uri))
    engine = stack.enter_context(contextlib.closing(DuckEngine(source.spill())))
    if asked.store is None:
        register(engine, checked)
        return Judged(checked, engine, {})
    register(engine, checked, run=NAME_OF_RUN)
    tables = {name: functools.partial(engine.write, name) for name in checked.tables}
    return Judged(checked, engine, tables)


def _spark(lake: Lake, snapshot: Snapshot, asked: _Asked) -> Any:
    from results.questions.engines import Extent
    from results.spark.driver import SparkLake
    from results.spark.session import get_spark

    return SparkLake(
        get_spark(asked.spark_master or "local[*]"),
        lake,
        snapshot,
        budgets=asked.budgets,
        extent=Extent(asked.most, asked.baseline is not None),
        label=asked.only,
        jobs=asked.jobs,
        again=asked.again and asked.checks_on_spark,
    )


def _after(here: Checked, before: Checked) -> Checked:
    return msgspec.structs.replace(
        here,
        results_known=before.results_known,
        results_new=before.results_new,
        units=before.units,
        cpu_s=here.cpu_s + before.cpu_s,
        wall_s=here.wall_s + before.wall_s,
        executor=before.executor,
    )


def register(engine: DuckEngine, checked: Checked, run: str = "run") -> None:
    """Register a report's tables in an engine. `run` is the SQL expression for a run's name."""
    for name in COLUMNS:
        where = checked.counting.get(name, "true")
        engine.register(name, checked.tables.get(name, ()), where, run)


# Answers -----------------------------------------------------------------------------------------


def _answers(engine: Engine, snapshot: Snapshot, checked: Checked, asked: _Asked) -> Answers:
    """Answer all questions. Runs of a store are named by `NAME/ID`, runs of a lake by keys."""
    from results.questions.aggregate import aggregate

    answers = aggregate(
        engine,
        baseline=asked.baseline,
        label=asked.label,
        most=asked.most,
        stored=stored_bytes(snapshot),
        known=asked.known_failures,
        ignored=asked.ignored,
        asking=lambda done, of: _say(asked, "answer", done, of, checked),
    )
    if asked.store is None or asked.engine != "spark":
        return answers
    tables = {name: _with_names(table) for name, table in answers.tables.items()}
    return msgspec.structs.replace(answers, tables=tables)


def _say(asked: _Asked, stage: str, done: int, of: int, checked: Checked) -> None:
    from results.judging.pipeline import Progress

    if asked.progress is not None:
        kept = checked.results_known + checked.results_new
        asked.progress(
            Progress(
                stage=stage,
                done=done,
                units=of,
                cost_done=done,
                cost=of,
                noun="questions",
                kept=kept,
            )
        )


def _with_names(table: pa.Table) -> pa.Table:
    for name in {*RUN_COLUMNS} & {*table.column_names}:
        column = pc.utf8_slice_codeunits(table[name], 0, -KEY_DIGITS - 1)
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _summary(place: str, answers: Answers, checked: Checked, asked: _Asked, hint: str) -> Summary:
    from results.report.summary import summarise

    crashed = crashed_runs(asked.store, checked.problems) if asked.store else []
    lost = [problem for problem in checked.problems if problem.kind not in NO_LOSS]
    return summarise(
        answers,
        store=place,
        label=asked.only,
        engine=asked.engine,
        engine_why=hint,
        executor=checked.executor,
        crashed=len({problem.run for problem in crashed}),
        not_judged=checked.runs_unjudged,
        unjudged=len(lost) + checked.problems_total - len(checked.problems),
        results_new=checked.results_new,
        results_known=checked.results_known,
        results_unsettled=checked.results_unsettled,
        check_cpu_s=checked.cpu_s,
        check_wall_s=checked.wall_s,
        problems=tuple((item.run, item.kind, item.text) for item in checked.problems),
        problems_total=checked.problems_total,
    )


def _write(
    summary: Summary,
    answers: Answers,
    addresses: Addresses,
    output: Path,
    tables: Mapping[str, Callable[[Path], object]],
) -> Path:
    from results.report.content import sections
    from results.report.page import render

    page = render(summary, answers, sections(answers, addresses), query_names())
    try:
        return write_report(output, tables=tables, answers=answers.tables, page=page)
    except OSError as error:
        text = f"cannot write the report to {output}: {error.strerror or error}"
        raise failure_of(error, f"{text}; choose another --output") from error
