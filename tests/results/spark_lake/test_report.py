"""A report on a lake is the same from the store's files, from DuckDB and from Spark."""

import contextlib
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from results.aggregate import aggregate
from results.budgets import Budget
from results.engines import DuckEngine
from results.lake import SCHEMA_VERSION, schemas
from results.lake.files import MAIN
from results.lake.judged import ResultLake
from results.lake.lake import Lake
from results.pipeline import check, check_store
from results.schema import COLUMNS
from results.sources.lake import LakeSource
from results.spark_lake import driver
from results.spark_lake.driver import SparkLake
from tests.spark_support import spark_test

pytestmark = pytest.mark.lake

BUDGETS = (Budget(), Budget().larger())
TIMES = ("wall_ns", "cpu_ns")


def opened(uri):
    return Lake.open(str(uri), schemas=schemas(), version=SCHEMA_VERSION)


def on_spark(uri, progress=None, **asked):
    """What a report on Spark says, its tables, and the answers to all questions."""
    from results.spark import get_spark

    lake = opened(uri)
    with contextlib.closing(
        SparkLake(get_spark("local[2]"), lake, lake.snapshot(), budgets=BUDGETS, **asked)
    ) as work:
        checked, engine = work.ask(work.check(progress))
        with contextlib.closing(engine):
            for name in COLUMNS:
                engine.register(name, ())
            answers = aggregate(engine, baseline=None, label=None)
            return checked, tables_of(engine), answers.tables


def on_duckdb(uri):
    """The same from a lake, by local workers and DuckDB."""
    lake = opened(uri)
    source = LakeSource(lake, lake.snapshot(), budgets=BUDGETS)
    with contextlib.closing(source), contextlib.closing(DuckEngine()) as engine:
        checked = check(source, executor="inline")
        for name in COLUMNS:
            engine.register(name, checked.tables[name])
        answers = aggregate(engine, baseline=None, label=None)
        return checked, tables_of(engine), answers.tables


def tables_of(engine):
    """All rows of each table, in an order of their own, without what times them."""
    found = {}
    for name in COLUMNS:
        table = engine.sql(f"SELECT * FROM {name}")
        kept = table.drop_columns([column for column in TIMES if column in table.column_names])
        found[name] = sorted(kept.to_pylist(), key=repr)
    return found


def of_store(store, folder):
    """The tables that the store itself gives."""
    copy = shutil.copytree(store, folder / "store")
    checked = check_store(copy, executor="inline")
    return {
        name: sorted((row for path in paths for row in pq.read_table(path).to_pylist()), key=repr)
        for name, paths in checked.tables.items()
    }


def alike(tables):
    """What a store and a lake say alike of a run: all but how they name it and its results."""
    return {
        name: sorted(
            (
                {
                    column: value.partition("@")[0] if column == "run" else value
                    for column, value in row.items()
                    if column not in {*TIMES, "result_id"}
                }
                for row in rows
            ),
            key=repr,
        )
        for name, rows in tables.items()
    }


def results_in(uri):
    """Run and id of every result that the lake lists."""
    results = ResultLake.beside(str(uri), {})
    rows = results.dataset(MAIN).to_table(["run", "results"]).to_pylist()
    return sorted((row["run"], one) for row in rows for one in row["results"])


@spark_test
def test_the_store_duckdb_and_spark_say_the_same(store, lake, tmp_path):
    here = shutil.copytree(lake, tmp_path / "here")
    there = shutil.copytree(lake, tmp_path / "there")
    _, tables, _ = on_duckdb(here)
    checked, same_tables, answers = on_spark(there)

    assert checked.problems == ()
    assert (checked.results_known, checked.results_unsettled) == (0, 0)
    assert checked.results_new == len(results_in(there)) == len(set(results_in(there)))
    assert {row["verdict"] for row in tables["verdicts"]} > {"valid", "invalid"}
    assert same_tables == tables
    assert alike(same_tables) == alike(of_store(store, tmp_path))
    # What one of them judged is known to the other, and is all that their answers depend on.
    checked, same_tables, same_answers = on_duckdb(there)
    assert checked.results_new == 0
    assert same_tables == tables
    assert same_answers == answers
    checked, some, _ = on_spark(here, label="new")
    assert checked.results_new == 0
    assert some["runs"] == [row for row in tables["runs"] if row["label"] == "new"] != []


def dying_after(appends, flag):
    """What a task does whose worker is killed once, after so many appends of a run each."""

    def work(batches, *, job):
        from results.lake import judged
        from results.sources import lake_work
        from results.spark_lake.judging import judge_rows

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

        judged.ResultLake.append, lake_work.APPEND_EVERY_S = append, 0.0
        try:
            yield from judge_rows(batches, job=job)
        finally:
            judged.ResultLake.append = put

    return work


@spark_test
def test_a_task_that_is_killed_midway_is_repeated_without_doubled_rows(lake, tmp_path, monkeypatch):
    """All runs are in one task; two are judged and there when its worker dies."""
    there = shutil.copytree(lake, tmp_path / "there")
    monkeypatch.setattr(driver, "judge_rows", dying_after(2, str(tmp_path / "died")))
    told = []
    checked, tables, _ = on_spark(there, told.append)
    monkeypatch.undo()

    assert (tmp_path / "died").exists()
    assert checked.problems == ()
    found = results_in(there)
    assert len(found) == len(set(found)) == checked.results_new
    assert all(0 <= one.done <= one.units == len(tables["runs"]) for one in told)
    assert on_duckdb(there)[1:] == on_spark(there)[1:]
