"""Calls of the harness itself fail: a run ends in a true verdict or a clear error, in no other.

A sample of the points of `tests.survival.fault_sweep`, which has all of them.
"""

import argparse
import re
import sys
from pathlib import Path

import pytest

from tests.support.programs import run_program
from tests.survival.fault_sweep import Point, points_of

ROOT = Path(__file__).parents[2]
COUNTS = {"write": 2700, "read": 1400, "descriptor": 600, "engine": 110, "checker": 4}


def swept(*words):
    """The outcomes by kind, once the sweep has found nothing that breaks its rules."""
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
    """The words for single points."""
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


def test_every_point_is_one_alone_and_one_that_lasts():
    points_found = points_of({**dict.fromkeys(COUNTS, 0), "read": 2}, None)
    assert points_found == [Point("read", n, lasting) for n in (1, 2) for lasting in (False, True)]


@pytest.mark.parametrize("points", [6, 20, 60, 300])
def test_a_sample_is_spread_over_kinds_and_numbers(points):
    points_found = points_of(COUNTS, points)
    least = min(10, points // 5)
    assert len(points_found) <= points
    for kind, count in COUNTS.items():
        numbers = [point.nth for point in points_found if point.kind == kind]
        assert len(numbers) >= min(least, count)
        assert len(set(numbers)) == len(numbers)
        assert all(1 <= n <= count for n in numbers)
    assert {point.lasting for point in points_found if point.kind == "write"} == (
        {False, True} if points > 6 else {False}
    )


def test_a_point_is_written_in_one_word():
    assert Point.of_text("read:600") == Point("read", 600, lasting=False)
    assert Point.of_text("engine:1+") == Point("engine", 1, lasting=True)
    for text in ("read", "read:0", "read:1-", "disk:1", "read:1 "):
        with pytest.raises(argparse.ArgumentTypeError):
            Point.of_text(text)
