"""Programs that ignore libfaketime are refused, and no clock remains wrong after a run."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cluster import NodeSpec, ReadyLog
from harness.environments.host import foreignclock
from harness.environments.process import ProcessEnvironment
from harness.environments.process import clocks as clocks_module
from harness.errors import UsageError
from harness.plugins import DeploymentPlan
from tests.process.conftest import processes_of, roles_of
from tests.support.cleaning import kill_at_once, only_cleaner
from tests.support.waiting import LIMIT_S, wait_until
from tests.toxiproxy.conftest import REPOSITORY

pytestmark = [pytest.mark.process, pytest.mark.faketime]

MEMORY = Path("/dev/shm")
S = 1_000_000_000
PAUSE_S = 0.05
# Count only this process, because others on this machine may run the same tests.
NAME = os.environ.get("CLOCK_NODE", f"x{os.getpid()}")


def program(*command, **more):
    return NodeSpec(name=NAME, role="r", ports=(), command=command, **more)


WALL = "{package:tests}/tests/process/wallclock.py"
CLOCK = NodeSpec(
    name=NAME,
    role="r",
    ports=(),
    command=(sys.executable, WALL, str(PAUSE_S)),
    setup=(("sh", "-c", 'echo "setup preload=$LD_PRELOAD"'),),
    ready=ReadyLog("ready"),
)


def plan_of(spec, run_id):
    return DeploymentPlan(
        run_id=run_id, nodes=(spec,), seed=1, knobs={}, folder=None, clocks=frozenset({NAME})
    )


def left_in_memory():
    return [file.name for file in MEMORY.glob(f"*harness-*-{NAME}.*")]


def shift_s(line):
    """Return the shift of the node's wall clock, relative to the shared monotonic clock."""
    _, wall, monotonic = line.split()
    return float(wall) - float(monotonic) - (time.time() - time.monotonic())


async def new_lines(cluster, count, name=NAME):
    """Wait for `count` new lines about the time, and return them."""
    before = len(await cluster.logs(name, last_lines=10_000))
    lines = []

    def enough():
        return len(lines) >= count

    async with asyncio.timeout(LIMIT_S):
        while not enough():
            await asyncio.sleep(PAUSE_S)
            all_lines = await cluster.logs(name, last_lines=10_000)
            lines = [line for line in all_lines[before:] if line.startswith("time ")]
    return lines


def near(found_s, wanted_s, within_s=0.25):
    return abs(found_s - wanted_s) <= within_s


ECHO = "echo up; exec sleep 1000"


async def never(session):
    raise AssertionError("the run began")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("{data}/go", "1000"), r"/go is a Go program, whose runtime asks the kernel"),
        (
            ("env", "-u", "LD_PRELOAD", "sh", "-c", ECHO),
            "/(sleep|dash|bash) did not load libfaketime",
        ),
        (("sleep", "1000"), "it did not ask for the time within"),
    ],
    ids=["Go", "not loaded", "idle"],
)
def test_a_program_that_does_not_hear_it_is_refused_before_the_run(monkeypatch, command, words):
    monkeypatch.setattr(foreignclock, "_ASKS_WITHIN_S", 0.1)
    # after its first line, the process is the shell and no longer `env`
    ready = ReadyLog("up") if ECHO in command else None
    # With the marks of Go's linker, any program looks like a Go program.
    make = ("sh", "-c", "cp $(command -v sleep) go && printf '\\377 Go buildinf:' >>go")
    with pytest.raises(UsageError, match=f"a clock fault cannot reach {NAME}: .*{words}"):
        ProcessEnvironment().execute(
            plan_of(program(*command, setup=(make,), ready=ready), f"clock-{os.getpid()}-2"), never
        )
    assert left_in_memory() == []


def test_without_libfaketime_it_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(clocks_module, "find_library", lambda: None)
    with pytest.raises(UsageError, match="need libfaketime, which is not installed; install it"):
        ProcessEnvironment().execute(plan_of(CLOCK, "clock-none"), never)


DRIVER = """
import asyncio, sys
from tests.process.test_clocks import *
async def main(session):
    await session.cluster.skew(NAME, offset_ns=5 * S)
    print("skewed", flush=True)
    await asyncio.Event().wait()
ProcessEnvironment().execute(plan_of(CLOCK, sys.argv[1]), main)
"""


@pytest.mark.parametrize("warden_too", [False, True])
def test_nothing_is_left_of_a_killed_driver(warden_too):
    run_id = f"clock-{os.getpid()}-{3 + warden_too}"
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, run_id],
        cwd=REPOSITORY,
        env=os.environ | {"CLOCK_NODE": NAME},
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout.readline() == "skewed\n"
        assert len(left_in_memory()) == 3
        with only_cleaner() if warden_too else contextlib.nullcontext():
            warden = [roles_of(run_id)["warden"]] if warden_too else []
            kill_at_once(driver.pid, *warden)
            driver.wait(LIMIT_S)
            if warden_too:
                assert any("harness-" in line for line in ProcessEnvironment().clean())
            wait_until(lambda: processes_of(run_id) == [])
            wait_until(lambda: left_in_memory() == [])
