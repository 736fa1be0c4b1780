"""A soak and a report on containers that share nothing. Each of them loses one worker.

Two workers, a master, a driver and an S3-compatible server run in separate containers. The test
compares everything with a soak and a report on this machine: the rows of the lake, the kept folders
of failing runs with their pages, the tables of the report, and every answer.
"""

import sys
import threading
from pathlib import Path

import pytest

from harness.environments.docker.image.executor.image import build_executor
from harness.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from tests.results.spark.equality import (
    answers_in,
    differences,
    folders_of,
    lake_tables,
    result_tables,
    sizes,
)
from tests.support.programs import run_program
from tests.support.spark_containers import spark_containers
from tests.support.spark_session import spark_test
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
ON_SPARK = ("--spark-master", "spark://master:7077")
SEEDS = 12
SOAK = (
    *("harness", "soak", "--seeds", f"1..{SEEDS}", "--name", "n", "--label", "v1"),
    *("--workload", "ddl", "--nemesis", "any", "--draw", "3", "--bug", "NO-LEASE"),
    *("--time-limit", "2", "--artefacts", str(SEEDS)),
)
DEADLINE_S = 3600.0
SOAKING = "ls -d /tmp/harness-soak-*"
"""A shell command that finds the folder in which a soak's task keeps runs before they are stored.
"""
REPORTING = "ls -d /work/app-*/ | sed -n 2p | grep ."
"""A shell command that succeeds once a worker has two application folders: soak and report."""


def check_code(code, errors):
    assert code in {EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN}, errors[-3000:]


def do_with_a_kill(cluster, worker, sign, *words):
    """Run a command in the driver's container; kill the worker once `sign` shows that it works."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(cluster.run(*words)), daemon=True)
    thread.start()
    wait_until(lambda: answers or cluster.run_in(worker, "sh", "-c", sign)[0] == 0, DEADLINE_S)
    assert not answers, "it was over before a worker was killed"
    cluster.kill(worker)
    thread.join(DEADLINE_S)
    code, _, errors = answers[0]
    check_code(code, errors)


def do_here(*words, **environ):
    done = run_program(sys.executable, "-m", *words, cwd=ROOT, timeout_s=None, **environ)
    check_code(done.returncode, done.stderr)


@pytest.mark.nightly
@spark_test
@pytest.mark.docker
@pytest.mark.lake
@pytest.mark.s3
@pytest.mark.process
def test_killed_workers_without_shared_state_agree_with_one_machine(tmp_path):
    local, report = str(tmp_path / "lake"), ("harness", "report")
    with spark_containers(build_executor(print)) as cluster:
        uri, options = cluster.uri, cluster.options
        cluster.assert_nothing_shared()
        places = ("--store", "/work/store", "--lake", uri)
        do_with_a_kill(cluster, "worker-1", SOAKING, *SOAK, *places, *ON_SPARK)
        cluster.start_worker("worker-1")
        output = ("--output", "/work/report")
        do_with_a_kill(cluster, "worker-2", REPORTING, *report, uri, *ON_SPARK, *output)
        (tmp_path / "there").mkdir()
        cluster.copy_out("/work/report", tmp_path / "there")
        do_here(*SOAK, "--store", tmp_path / "store", "--lake", local)
        do_here(*report, local, "--engine", "duckdb", "--output", tmp_path / "local")
        do_here(*report, uri, "--engine", "duckdb", "--output", tmp_path / "again", **options)
        for tables in (lake_tables, folders_of, result_tables):
            expected = tables(local, {})
            assert differences(tables(uri, options), expected) == []
            assert sizes(expected) > (0, 0)
    for output in ("there/report", "again"):
        assert differences(answers_in(tmp_path / output), answers_in(tmp_path / "local")) == []
