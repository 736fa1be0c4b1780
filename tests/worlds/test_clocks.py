"""The wall clock of a foreign program, as a process and in a container."""

import itertools
import os
import time

import msgspec
import pytest

from harness.environments.host import foreignclock
from tests.faults.door import door
from tests.process.test_clocks import (
    CLOCK,
    NAME,
    PAUSE_S,
    WALL,
    S,
    left_in_memory,
    near,
    new_lines,
    plan_of,
    shift_s,
)
from tests.support.waiting import LIMIT_S
from tests.worlds.conftest import WORLDS


@pytest.mark.faketime
@pytest.mark.parametrize("environment", WORLDS[1:], indirect=True)
def test_the_wall_clock_goes_wrong_and_monotonic_time_stays_true(environment, monkeypatch):
    monkeypatch.setattr(foreignclock, "_FELT_WITHIN_S", LIMIT_S)

    async def main(session):
        cluster = session.cluster

        async def shift():
            return shift_s((await new_lines(cluster, 2))[-1])

        assert "setup preload=" in await cluster.logs(
            NAME, last_lines=10_000
        )  # the node runs without libfaketime
        assert near(await shift(), 0)

        assert await cluster.skew(NAME, offset_ns=-3 * S) == 3000
        lines = await new_lines(cluster, 4)
        assert all(near(shift_s(line), -3) for line in lines)
        pauses = [float(b.split()[2]) - float(a.split()[2]) for a, b in itertools.pairwise(lines)]
        assert all(PAUSE_S <= pause < LIMIT_S for pause in pauses)

        await cluster.pause(NAME, lease_s=600)
        assert await cluster.skew(NAME, offset_ns=2 * S) == 0
        await cluster.resume(NAME)
        assert near(await shift(), 2)
        await cluster.kill(NAME)  # faults of a machine outlast its nodes
        await cluster.wipe(NAME)
        await cluster.start(NAME)
        assert near(await shift(), 2)
        # skewed by 5 s while it was stopped, now by 2 s
        assert await cluster.skew(NAME, offset_ns=0) == 7000
        assert near(await shift(), 0)

        began_s = time.monotonic()
        await cluster.skew(NAME, offset_ns=0, drift_ppm=2_000_000)
        line = (await new_lines(cluster, 10))[-1]
        drifted_s = 2 * (float(line.split()[2]) - began_s)
        assert near(shift_s(line), drifted_s)
        felt_ms = await cluster.skew(NAME, offset_ns=S, drift_ppm=0)
        assert felt_ms >= 1000 * drifted_s - 1250
        await door(session).heal_all()
        assert near(await shift(), 0)

    spec = CLOCK
    if environment.name == "docker":
        spec = msgspec.structs.replace(CLOCK, command=("python3", WALL, str(PAUSE_S)))
    environment.execute(plan_of(spec, f"clock-{os.getpid()}-1"), main)
    assert left_in_memory() == []
