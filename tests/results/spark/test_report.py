"""A report on a lake is the same from DuckDB and from Spark."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

from harness.errors import InfrastructureError
from results.facts.schema import COLUMNS
from results.judging.budgets import Budget
from results.judging.pipeline import check
from results.judging.report_runs import ReportRuns
from results.judging.result_lake import ResultLake
from results.lake.log.files import MAIN
from results.lake.log.lake import Lake
from results.lake.transfer.folders import writer_to
from results.lake.transfer.ingest import ingest
from results.questions.aggregate import aggregate
from results.questions.engines import DuckEngine, Extent
from results.report.report import register
from results.spark import driver
from results.spark.driver import SparkLake
from tests.support.object_store import BUCKET, options_for, s3_server
from tests.support.spark_session import spark_test

pytestmark = [
    pytest.mark.lake,
    pytest.mark.xdist_group("spark"),  # one worker runs all tests, since they share fixtures
]

BUDGETS = (Budget(), Budget().larger())
TIMES = ("wall_ns", "cpu_ns")
MOST = 3
"""Maximum number of rows in lists of runs."""
GONE = 1
"""The number of requested results that cannot be computed."""


def opened(uri, options=None):
    return Lake.open(str(uri), storage_options=options)


def spark_lake(uri, master="local[2]", options=None, **asked):
    """Open the runs of a lake on the Spark of this process."""
    from results.spark.session import get_spark

    lake = opened(uri, options)
    spark = get_spark(master)
    return SparkLake(spark, lake, lake.snapshot(), budgets=BUDGETS, **asked)


def on_spark(uri, master="local[2]"):
    work = spark_lake(uri, master, extent=Extent(MOST))
    checked, engine = work.ask(work.check())
    return checked, aggregate(engine, baseline=None, label=None, most=MOST).tables


def on_duckdb(uri):
    """Judge a lake by local workers; return the summary, the tables, and DuckDB's answers."""
    lake = opened(uri)
    source = ReportRuns(lake.snapshot(), budgets=BUDGETS)
    with contextlib.closing(source), contextlib.closing(DuckEngine()) as engine:
        checked = check(source, executor="inline")
        register(engine, checked)
        answers = aggregate(engine, baseline=None, label=None, most=MOST)
        return checked, tables_of(engine), answers.tables


def tables_of(engine):
    """Return the sorted rows of each table, without times."""
    found = {}
    for name in COLUMNS:
        table = engine.sql(f"SELECT * FROM {name}")
        kept = table.drop_columns([column for column in TIMES if column in table.column_names])
        found[name] = sorted(kept.to_pylist(), key=repr)
    return found


def said(checked, answers):
    """Convert problems and answers to JSON, without the durations of checks."""
    rows = {
        name: [
            {column: value for column, value in row.items() if "cpu" not in column}
            for row in table.to_pylist()
        ]
        for name, table in answers.items()
        if not name.startswith("cost")
    }
    return json.loads(json.dumps([problems_of(checked), rows], default=str))


def results_in(uri):
    results = ResultLake.beside(str(uri), {})
    rows = results.dataset(MAIN).to_table(["run", "results"]).to_pylist()
    return sorted((row["run"], one) for row in rows for one in row["results"])


@pytest.fixture(scope="module")
def local(lake, tmp_path_factory):
    return on_duckdb(shutil.copytree(lake, tmp_path_factory.mktemp("local") / "lake"))


@pytest.fixture(scope="module")
def tables(local):
    return local[1]


def problems_of(checked):
    return sorted(map(str, checked.problems)), checked.problems_total


@spark_test
def test_spark_agrees_with_duckdb(lake, local, tables, tmp_path):
    there = shutil.copytree(lake, tmp_path / "there")
    checked, answers = on_spark(there)

    assert {row["verdict"] for row in tables["verdicts"]} > {"valid", "invalid"}
    assert problems_of(checked) == problems_of(local[0])
    assert (checked.results_known, checked.results_unsettled) == (0, 0)
    assert checked.results_new == local[0].results_new == len(results_in(there)) + GONE
    assert len(results_in(there)) == len(set(results_in(there)))
    # Each engine uses the results of the other; its answers depend only on results.
    checked, same_tables, same_answers = on_duckdb(there)
    assert checked.results_new == GONE
    assert same_tables == tables
    assert same_answers == answers
    # results with another budget change nothing
    other = ReportRuns(opened(there).snapshot(), budgets=(Budget(cpu_s=299.0),))
    with contextlib.closing(other):
        assert check(other, executor="inline").results_new > GONE
    assert on_spark(there)[1] == answers
    work = spark_lake(there, label="new")
    assert work.runs == sum(row["label"] == "new" for row in tables["runs"]) > 0
    assert work.check().results_new == 0


def dying_after(appends, flag):
    """Return a task that kills its worker once, after `appends` calls of `ResultLake.append`."""

    def work(batches, **given):
        from results.judging import result_lake as judged
        from results.judging import unit_judge
        from results.spark.range_checks import judge_ranges

        put = judged.ResultLake.append
        count = 0

        def append(self, rows):
            nonlocal count
            found = put(self, rows)
            count += 1
            if count == appends and not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), 9)
            return found

        judged.ResultLake.append, unit_judge.APPEND_EVERY_S = append, 0.0
        try:
            yield from judge_ranges(batches, **given)
        finally:
            judged.ResultLake.append = put

    return work


def test_local_workers_are_asked_for_missing_modules_only_after_failures(
    lake, tmp_path, monkeypatch
):
    there = opened(shutil.copytree(lake, tmp_path / "there"))
    seen, errors = [], []

    def kinds(_spark, _asking, *, slots):
        seen.append(slots)
        if errors:
            raise RuntimeError(errors.pop())
        return []

    def work():
        seen.clear()
        SparkLake(None, there, there.snapshot(), budgets=BUDGETS)

    monkeypatch.setattr(driver, "kinds", kinds)
    monkeypatch.setattr(driver, "cores_here", lambda: 3)
    monkeypatch.setattr(driver, "prepare_workers", lambda *_: seen.append("asked") or 2)
    work()
    assert seen == [3]
    errors.append("Traceback ...\nModuleNotFoundError: No module named 'results'")
    work()
    assert seen == [3, "asked", 2]
    errors.append("a torn file")
    with pytest.raises(InfrastructureError, match="a torn file"):
        work()
    assert seen == [3]
    # without local cores, Spark counts as a cluster
    monkeypatch.setattr(driver, "cores_here", lambda: 0)
    work()
    assert seen == ["asked", 2]


@spark_test
def test_a_task_that_is_killed_midway_is_repeated_without_doubled_rows(
    lake, local, tables, tmp_path, monkeypatch
):
    there = shutil.copytree(lake, tmp_path / "there")
    monkeypatch.setattr(driver, "judge_ranges", dying_after(2, str(tmp_path / "died")))
    told = []
    work = spark_lake(there)
    checked = work.check(told.append)

    assert (tmp_path / "died").exists()
    assert (problems_of(checked), checked.units) == (problems_of(local[0]), 1)
    found = results_in(there)
    assert len(found) == len(set(found)) == checked.results_new - GONE
    assert all(0 <= one.done <= one.units == len(tables["runs"]) for one in told)
    checked, same_tables, _ = on_duckdb(there)
    assert checked.results_new == GONE
    assert same_tables == tables


@pytest.mark.nightly
@pytest.mark.s3
@spark_test
def test_a_lake_in_an_object_store_needs_no_jar_and_no_settings_of_executors(
    store, local, tables, monkeypatch
):
    uri = f"s3://{BUCKET}/lake"
    with s3_server() as endpoint:
        options = options_for(endpoint)
        made = Lake.open(uri, storage_options=options, create=True)
        ingest(store, made, writer_to(made), unfinished=True)
        work = spark_lake(uri, options=options)
        checked, _ = work.ask(work.check())
        assert problems_of(checked) == problems_of(local[0])
        for name, value in options.items():
            monkeypatch.setenv(name, value)
        checked, same_tables, _ = on_duckdb(uri)
        assert (checked.results_new, same_tables) == (GONE, tables)


@spark_test
@pytest.mark.parametrize("table", ["runs", "ops"])
def test_a_file_that_cannot_be_read_leaves_as_one_line(lake, tmp_path, table):
    there = shutil.copytree(lake, tmp_path / "there")
    on_duckdb(there)
    folder = there if table == "runs" else there / "results"
    for path in (folder / table).rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-400] + b"torn" * 100)
    with pytest.raises(InfrastructureError) as raised:
        spark_lake(there).check()
    assert str(there) in str(raised.value)
    assert "\n" not in str(raised.value)
