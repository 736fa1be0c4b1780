"""`harness report LAKE`: the same report as of a store, of the runs of a lake.

DuckDB answers in this process, unless Spark is asked for: below `SPARK_PAYS_RUNS` that would cost
more, and above it takes a cluster to gain by it. Checks and questions may each be on either; what
is found is in the lake, wherever it was.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from harness.case import replay_command
from harness.checking import CHECK_TIME_LIMIT_S
from harness.errors import UsageError
from results.lake.log.files import LOG_FOLDER, MAIN
from results.lake.log.storage_errors import troubles
from results.lake.transfer.folders import FOLDERS
from results.report import REPORT_FOLDER
from results.report.making import Asked, make_report, register
from results.report.populations import served_runs

if TYPE_CHECKING:
    from results.judging.pipeline import Checked, Progress
    from results.lake.log.lake import Lake
    from results.lake.log.snapshot import Snapshot
    from results.questions.aggregate import Answers
    from results.questions.engines import Engine
    from results.report.summary import Summary

__all__ = ["SPARK_PAYS_RUNS", "LakePlaces", "chosen_engine", "is_lake", "report_lake"]

SPARK_PAYS_RUNS: Final = 1_000_000
"""Below so many runs DuckDB answers in two minutes of CPU. Spark takes as much a run and some ten
seconds of start, so it breaks even where other machines are idle, not in CPU (docs/spark.md)."""
ROWS_OF_RUNS_MAX: Final = 1_000
"""Of what lists runs: the lake has all of them."""
REMOTE_OUTPUT: Final = Path("lake-report")
_PAGE: Final = "report.html"


def is_lake(place: str) -> bool:
    """Whether a place is a lake: an address of an object store, or a folder with its main table.

    Raises `UsageError` where we may not look.
    """
    with troubles(place):
        return "://" in place or (Path(place) / MAIN / LOG_FOLDER).is_dir()


def default_output(place: str) -> Path:
    """Where the report of a lake goes: into its folder, or here where it has none."""
    return REMOTE_OUTPUT if "://" in place else Path(place) / REPORT_FOLDER


def chosen_engine(runs: int, asked: str | None, spark_master: str | None) -> tuple[str, str]:
    """The engine, and why it was chosen."""
    if asked is not None:
        return asked, "--engine asks for it"
    if spark_master is not None:
        return "spark", "--spark-master asks for it"
    if runs < SPARK_PAYS_RUNS:
        return "duckdb", f"{runs:,} runs; a Spark cluster may pay from {SPARK_PAYS_RUNS:,} on"
    return "duckdb", f"{runs:,} runs; a Spark cluster may pay, which --spark-master names"


def report_lake(
    uri: str,
    *,
    output: Path,
    engine: str | None = None,
    executor: str = "auto",
    jobs: int | None = None,
    spark_master: str | None = None,
    baseline: str | None = None,
    label: str | None = None,
    check_time_limit_s: float = CHECK_TIME_LIMIT_S,
    again: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Summary, Answers, Path]:
    """Judge what is new, aggregate and write; returns what was found and where the page is.

    Raises `UsageError` for labels that no run has or an empty lake, and `InfrastructureError`.
    """
    from results.judging.budgets import Budget
    from results.judging.executors.pool import default_jobs
    from results.judging.lake_source import LakeSource
    from results.judging.pipeline import check
    from results.lake.log.duckdb_views import readable
    from results.questions.baseline import accept_labels
    from results.questions.engines import DuckEngine, Extent

    lake, snapshot = _with_runs(uri)
    accept_labels(labels_of(snapshot), baseline=baseline, label=label)
    runs = sum(file.rows for file in snapshot.files("runs"))
    first = Budget(cpu_s=check_time_limit_s)
    budgets = (first, first.larger())
    only = label if baseline is None else None
    chosen, why = chosen_engine(runs, engine, spark_master)
    asked = Asked(
        place=uri, output=output, engine=chosen, engine_why=why, baseline=baseline, label=label,
        most=ROWS_OF_RUNS_MAX, stored=stored_bytes(snapshot),
    )  # fmt: skip
    places = LakePlaces(uri, snapshot, output)
    found: Checked | None = None
    with contextlib.ExitStack() as stack:
        checks_there = executor == "spark" or (executor == "auto" and spark_master is not None)
        if checks_there or chosen == "spark":
            from results.spark.driver import SparkLake
            from results.spark.session import get_spark

            work = SparkLake(
                get_spark(spark_master or "local[*]"),
                lake,
                snapshot,
                budgets=budgets,
                extent=Extent(ROWS_OF_RUNS_MAX, baseline is not None),
                label=only,
                jobs=jobs,
                again=again and checks_there,
            )
            if checks_there:
                found = work.check(progress)
        if found is None or chosen != "spark":
            source = LakeSource(snapshot, budgets=budgets, label=only, slots=jobs or default_jobs())
            stack.enter_context(contextlib.closing(source))
            again = again and not checks_there
            local = "auto" if checks_there else executor
            checked = check(source, executor=local, jobs=jobs, again=again, progress=progress)
            found = checked if found is None else _after(checked, found)
        opened: Engine
        if chosen == "spark":
            found, opened = work.ask(found)
        else:
            stack.enter_context(readable(uri))
            opened = duckdb = DuckEngine(source.spill())
            register(duckdb, found)
        return make_report(found, asked, places, crashed=0, opened=opened, progress=progress)


def _with_runs(uri: str) -> tuple[Lake, Snapshot]:
    """The lake, and its state now; raises `UsageError` where it holds no run."""
    from results.lake.log.lake import Lake

    lake = Lake.open(uri)
    snapshot = lake.snapshot()
    if not any(file.rows for file in snapshot.files("runs")):
        raise UsageError(f"the lake {uri!r} holds no run; `harness ingest` puts some in")
    return lake, snapshot


def _after(checked: Checked, found: Checked) -> Checked:
    """What was gathered, with the account of the work that went before."""
    return msgspec.structs.replace(
        checked,
        results_known=found.results_known,
        results_new=found.results_new,
        units=found.units,
        cpu_s=checked.cpu_s + found.cpu_s,
        wall_s=checked.wall_s + found.wall_s,
        executor=found.executor,
    )


def labels_of(snapshot: Snapshot) -> set[str | None]:
    """All labels of the lake: it is partitioned by them."""
    return {file.partition[1] for file in snapshot.files("runs")}


def stored_bytes(snapshot: Snapshot) -> dict[tuple[Any, ...], int]:
    """What the files of each partition take, by target, label and day."""
    found: dict[tuple[Any, ...], int] = {}
    for table in snapshot.schemas:
        for file in snapshot.files(table):
            target, label, day = file.partition
            at = (target, label, None if day is None else str(day))
            found[at] = found.get(at, 0) + file.size_bytes
    return found


class LakePlaces:
    """Where the lake keeps what it keeps of its runs, seen from a report."""

    def __init__(self, uri: str, snapshot: Snapshot, output: Path) -> None:
        self._uri = uri.rstrip("/")
        self._snapshot = snapshot
        self._remote = "://" in uri
        self._way = self._uri if self._remote else os.path.relpath(uri, output)
        self._served = not self._remote and output.resolve() == default_output(uri).resolve()
        self._kept: dict[str, bool] | None = None

    def _has_page(self, run: str) -> bool | None:
        """Whether the folder kept of a run has its page; `None` where nothing is kept."""
        if self._kept is None:
            self._kept = self._look()
        return self._kept.get(run)

    def _look(self) -> dict[str, bool]:
        """The runs of which something is kept: those that are not valid, which are few."""
        import pyarrow.compute as pc

        kept = self._snapshot.dataset("runs").to_table(
            ["run"], filter=~pc.field("folder").is_null()
        )
        return {
            run: self._remote or (Path(self._uri) / FOLDERS / run / _PAGE).is_file()
            for run in kept["run"].to_pylist()
        }

    def link(self, run: str) -> str:
        """The address of the kept page or folder of a run; empty where nothing is kept."""
        has_page = self._has_page(run)
        if has_page is None:
            return ""
        return quote(f"{self._way}/{FOLDERS}/{run}/{_PAGE if has_page else ''}", safe=":/@")

    def runs(self, **fields: str | None) -> str:
        """The address of a list of runs in `harness serve`; empty where it cannot have one."""
        return served_runs(fields) if self._served else ""

    def replay(self, run: str, environment: str | None) -> str:
        """A command that runs the case again, or one that makes a run's folder again."""
        if self._has_page(run) is not None and not self._remote:
            return replay_command(Path(self._uri) / FOLDERS / run / "case.json", environment)
        return (
            f"harness lake export {shlex.quote(self._uri)} --store again --run {shlex.quote(run)}"
        )
