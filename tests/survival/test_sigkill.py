"""SIGKILL of the harness at random moments leaves nothing behind, and loses no recorded op.

CI kills a few harnesses in each environment; `HARNESS_KILLS=20 pytest tests/survival` kills more.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from harness.environments.fuse.mounts import mounts
from harness.environments.procfs import all_processes, environment_of
from harness.environments.warden import RUN_VARIABLE
from harness.registry import load_plugin
from harness.store import load_run
from tests.support.cleaning import only_cleaner

KILLS = int(os.environ.get("HARNESS_KILLS", "2"))
GONE_S = 240.0


def processes_of(run_id):
    """Return processes with the run's mark, including wardens."""
    return [p for p in all_processes() if environment_of(p.pid).get(RUN_VARIABLE) == run_id]


def docker_of(run_id):
    """Return containers, networks and volumes with the run's label."""
    from harness.environments.docker.engine.engine import Engine
    from harness.environments.docker.engine.labels import RUN_LABEL

    engine = Engine()
    try:
        label = f"{RUN_LABEL}={run_id}"
        return [*engine.containers(label), *engine.networks(label), *engine.volumes(label)]
    finally:
        engine.close()


def servers_of(run_id):
    """Return processes that use the run's folders; a server may have overwritten its
    environment.
    """

    def works_there(process):
        try:
            return run_id in str(Path(f"/proc/{process.pid}/cwd").readlink())
        except OSError:
            return False  # the process has ended

    return [process for process in all_processes() if works_there(process)]


def folders_of(run_id):
    """Return folders of the run's nodes; a dying process may have created one."""
    return [str(path) for path in Path(tempfile.gettempdir()).glob(f"harness-*-{run_id}-*")]


def mounts_of(run_id):
    """Return faulty disks of the run's nodes."""
    return [str(path) for path, _ in mounts() if run_id in str(path)]


def kill_at(moment_s, environment, seed, store, run_id, name):
    """Start a harness, kill it after `moment_s`, and return the ops that it reported."""
    program = str(Path(__file__).with_name("controller.py"))
    controller = subprocess.Popen(
        [sys.executable, program, environment, str(seed), str(store), run_id, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    timer = threading.Timer(moment_s, lambda: os.kill(controller.pid, signal.SIGKILL))
    timer.start()
    try:
        # Only whole lines count, because the kill may cut the last one.
        lines = [line for line in controller.stdout if line.endswith(b"\n")]
    finally:
        timer.join()
        controller.stdout.close()
    assert controller.wait() == -signal.SIGKILL
    return [int(line) for line in lines]


def wait_until_gone(run_id, look):
    """Wait for the warden to undo everything; return what remains."""
    deadline_s = time.monotonic() + GONE_S
    while look(run_id) and time.monotonic() < deadline_s:
        threading.Event().wait(0.2)
    return look(run_id)


def survive(environment, number, tmp_path, looks, name="kudu", *, latest_s=15.0):
    """Kill a case once, at a moment drawn for its number, and check everything afterwards."""
    run_id = f"survival-{environment}-{os.getpid()}-{number}"
    moment_s = random.Random(f"{number}-{name}-{environment}").uniform(1.0, latest_s)
    reported = kill_at(moment_s, environment, number, tmp_path, run_id, name)
    for look in (*looks, folders_of):
        assert wait_until_gone(run_id, look) == []
    folder = tmp_path / "survival" / run_id
    if reported:
        stored = load_run(folder)
        assert [op.index for op in stored.history][: len(reported)] == reported
    with only_cleaner():
        lines = load_plugin("environments", environment).clean()
    assert [line for line in lines if run_id in line] == []


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.xdist_group("process")
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_among_processes(number, tmp_path):
    survive("process", number, tmp_path, [processes_of])


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("number", range(max(1, KILLS // 4)))
def test_killed_among_containers(number, tmp_path):
    survive("docker", number, tmp_path, [docker_of, processes_of])


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.xdist_group("process")
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_beside_a_postgresql(number, tmp_path):
    survive("process", number, tmp_path, [processes_of, servers_of, mounts_of], "hive")


@pytest.mark.docker
@pytest.mark.postgres
@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("number", range(max(1, KILLS // 4)))
def test_killed_beside_a_postgresql_in_a_container(number, tmp_path):
    survive("docker", number, tmp_path, [docker_of, processes_of, mounts_of], "hive")


ZOOKEEPER = pytest.mark.zookeeper
KDC = [pytest.mark.hive, pytest.mark.kdc]


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.xdist_group("process")
@pytest.mark.parametrize("number", range(max(1, KILLS // 4)))
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("hive-zookeeper", marks=ZOOKEEPER),
        pytest.param("apache-hive-kdc", marks=KDC),
    ],
)
def test_killed_beside_where_tokens_are(name, number, tmp_path):
    survive("process", number, tmp_path, [processes_of, servers_of], name)


@pytest.mark.docker
@pytest.mark.postgres
@pytest.mark.nightly
@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("number", range(KILLS))
@pytest.mark.parametrize(
    ("name", "latest_s"),
    [
        pytest.param("hive-zookeeper", 30.0, marks=ZOOKEEPER),
        pytest.param("apache-hive-kdc", 60.0, marks=KDC),
    ],
)
def test_killed_beside_where_tokens_are_in_containers(name, latest_s, number, tmp_path):
    survive("docker", number, tmp_path, [docker_of, processes_of], name, latest_s=latest_s)
