"""If a call of the harness fails, the run ends with a true verdict or a clear error.

The tests run a sample of the points of `tests.survival.fault_sweep`.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.support.programs import run_program

ROOT = Path(__file__).parents[2]


def swept(*words):
    """Run a sweep at these points, which must break no rule; return the outcomes by kind."""
    done = run_program(
        sys.executable, "-m", "tests.survival.fault_sweep", *words, cwd=ROOT, timeout_s=None
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = re.findall(r"^\| (\w+) +\| +(\d+) \| (.*) \|$", done.stdout, re.MULTILINE)
    return {kind: (int(points), outcomes) for kind, points, outcomes in rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    "points", [5, pytest.param(20, marks=pytest.mark.nightly)], ids=["few", "more"]
)
def test_in_the_simulation(points):
    table = swept("--env", "sim", "--points", str(points))
    assert "error 255" in table["write"][1]
    assert min(table[kind][0] for kind in ("write", "read", "descriptor", "checker")) >= points // 5


@pytest.mark.slow
@pytest.mark.nightly
def test_a_violation_in_the_simulation_at_more_points():
    table = swept("--env", "sim", "--points", "10", "--bug")
    assert "error 255" in table["write"][1]
    assert min(table[kind][0] for kind in ("write", "read", "descriptor", "checker")) >= 2


def at(*points):
    return [word for point in points for word in ("--point", point)]


@pytest.mark.slow
def test_a_violation_in_the_simulation():
    table = swept("--env", "sim", "--bug", *at("write:300", "checker:1+"))
    assert table["write"] == (1, "error 255: 1")
    assert table["checker"][0] == 1


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(900)
def test_in_processes():
    table = swept("--env", "process", "--jobs", "2", *at("engine:50", "descriptor:300+"))
    assert (table["engine"][0], table["descriptor"][0]) == (1, 1)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.timeout(900)
def test_in_processes_at_more_points():
    table = swept("--env", "process", "--points", "10", "--jobs", "2")
    assert "error 255" in table["engine"][1]
    assert sum(points for points, _ in table.values()) >= 8


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(900)
def test_in_docker():
    table = swept("--env", "docker", "--jobs", "2", *at("engine:60", "read:300+"))
    assert (table["engine"][0], table["read"][0]) == (1, 1)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.docker
@pytest.mark.timeout(900)
def test_in_docker_at_more_points():
    table = swept("--env", "docker", "--points", "6", "--jobs", "2")
    assert sum(points for points, _ in table.values()) >= 4
