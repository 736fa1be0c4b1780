"""A report on a lake by DuckDB and by every kind of Spark: all tables and answers are the same.

Each engine judges all runs of a copy of its own and answers all questions, in a process of its own.
The results that it stored are then gathered by DuckDB, with nothing left to judge.
"""

import contextlib
import shutil
import sys
from pathlib import Path

import pytest

from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from results.lake.log.files import RESULTS
from tests.results.spark.equality import answers_in, differences, result_tables, sizes
from tests.support.programs import run_program
from tests.support.spark_programs import connect_server, spark_programs, standalone_cluster
from tests.support.spark_session import spark_test

pytestmark = [pytest.mark.lake, pytest.mark.process]

ROOT = Path(__file__).parents[3]
LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
TWO_EXECUTORS = {"PYSPARK_SUBMIT_ARGS": "--conf spark.executor.cores=1 pyspark-shell"}


@contextlib.contextmanager
def spark_of(engine, folder):
    """The master of this kind, and the environment of a report on it."""
    if engine == "local-cluster":
        yield "local-cluster[2,1,1024]", {}
        return
    with spark_programs(folder) as start:
        if engine == "standalone":
            yield standalone_cluster(start, folder / "work", **LOCAL), TWO_EXECUTORS
        else:
            yield connect_server(start, "local[2,3]", **LOCAL), {}


def report(lake, folder, *words, **environ):
    """All tables and answers of a report on a copy of the lake, without its results."""
    copy = shutil.copytree(
        lake, folder / "lake", ignore=lambda at, _: [RESULTS] if Path(at) == lake else []
    )
    words = ["report", copy, "--output", folder / "answers", *words]
    done = run_program(
        sys.executable, "-P", "-m", "harness", *words, timeout_s=None, **LOCAL, **environ
    )
    assert done.returncode in {EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN}, done.stderr[-3000:]
    return answers_in(folder / "answers") | result_tables(str(copy), {})


@pytest.fixture(scope="module")
def expected(lake, tmp_path_factory):
    return report(lake, tmp_path_factory.mktemp("duckdb"), "--engine", "duckdb")


@spark_test
@pytest.mark.parametrize(
    "engine",
    [
        "connect",
        pytest.param("standalone", marks=pytest.mark.nightly),
        pytest.param("local-cluster", marks=pytest.mark.nightly),
    ],
)
def test_every_spark_says_what_duckdb_says(engine, lake, expected, tmp_path):
    """All tables and all answers; `local[2]` is in `test_report`."""
    with spark_of(engine, tmp_path) as (url, environ):
        tables = report(lake, tmp_path, "--spark-master", url, **environ)
    assert differences(expected, tables) == []
    assert sizes(tables) > (20, 200)
