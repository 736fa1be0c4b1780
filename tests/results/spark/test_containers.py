"""A soak and a report on containers that share nothing, with a kill in each; and Connect.

The whole measure of both is `python -m bench.results.spark_containers` and `python -m
bench.results.engines_equal`, with 300 runs; these are the same with few.
"""

import pytest

from bench.results.engines_equal import DUCKDB, judged_by
from bench.results.lake_equal import differences, sizes
from bench.results.spark_containers import exam
from harness.environments.docker.image.executor.image import build_executor
from tests.support.spark_containers import spark_containers
from tests.support.spark_session import spark_test

pytestmark = pytest.mark.lake


@pytest.mark.nightly
@spark_test
@pytest.mark.docker
@pytest.mark.s3
@pytest.mark.process
def test_workers_that_share_nothing_and_are_killed_do_what_one_machine_does(tmp_path):
    """Equal rows, folders, tables and answers; see `bench.results.spark_containers`."""
    with spark_containers(build_executor(print)) as cluster:
        assert exam(cluster, seeds=12, time_limit_s=2.0, scratch=tmp_path).wrong == []


@pytest.fixture(scope="module")
def measure(lake, tmp_path_factory):
    return judged_by(DUCKDB, lake, tmp_path_factory.mktemp("duckdb") / "own")[0]


@spark_test
@pytest.mark.process
@pytest.mark.parametrize(
    "engine",
    [
        "connect",
        pytest.param("standalone", marks=pytest.mark.nightly),
        pytest.param("local-cluster", marks=pytest.mark.nightly),
    ],
)
def test_every_spark_says_what_duckdb_says(engine, lake, measure, tmp_path):
    """All tables and all answers; `local[2]` is in `test_report`."""
    found, _ = judged_by(engine, lake, tmp_path / engine)
    assert differences(measure, found) == []
    assert sizes(found) > (20, 200)
