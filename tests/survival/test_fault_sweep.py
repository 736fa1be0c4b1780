"""Calls of the harness itself fail: a run ends in a true verdict or a clear error, in no other.

A sample of the points of `bench.fault_sweep`, which has all of them.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.fault_sweep import Point, points_of

ROOT = Path(__file__).parents[2]
COUNTS = {"write": 2700, "read": 1400, "descriptor": 600, "engine": 110, "checker": 4}


def swept(*words):
    """The outcomes by kind, once the sweep has found nothing that breaks its rules."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.fault_sweep", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = re.findall(r"^\| (\w+) +\| +(\d+) \| (.*) \|$", done.stdout, re.MULTILINE)
    return {kind: (int(points), outcomes) for kind, points, outcomes in rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "words"), [(20, ()), (10, ("--bug",))], ids=["valid", "invalid"]
)
def test_in_the_simulation(points, words):
    table = swept("--env", "sim", "--points", str(points), *words)
    assert "error 255" in table["write"][1]
    assert min(table[kind][0] for kind in ("write", "read", "descriptor", "checker")) >= points // 5


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(900)
def test_in_processes():
    table = swept("--env", "process", "--points", "10", "--jobs", "2")
    assert "error 255" in table["engine"][1]
    assert sum(points for points, _ in table.values()) >= 8


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("node_image")
def test_in_docker():
    table = swept("--env", "docker", "--points", "6", "--jobs", "2")
    assert sum(points for points, _ in table.values()) >= 4


@pytest.fixture
def node_image():
    from harness.environments.docker import DockerEnvironment

    reason = DockerEnvironment().unavailable()
    if reason is not None:
        pytest.skip(reason)


def test_every_point_is_one_alone_and_one_that_lasts():
    found = points_of({**dict.fromkeys(COUNTS, 0), "read": 2}, None)
    assert found == [Point("read", n, lasting) for n in (1, 2) for lasting in (False, True)]


@pytest.mark.parametrize("points", [6, 20, 60, 300])
def test_a_sample_is_spread_over_kinds_and_numbers(points):
    found = points_of(COUNTS, points)
    least = min(10, points // 5)
    assert len(found) <= points
    for kind, count in COUNTS.items():
        numbers = [point.nth for point in found if point.kind == kind]
        assert len(numbers) >= min(least, count)
        assert len(set(numbers)) == len(numbers)
        assert all(1 <= n <= count for n in numbers)
    assert {point.lasting for point in found if point.kind == "write"} == (
        {False, True} if points > 6 else {False}
    )
