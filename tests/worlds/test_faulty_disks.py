"""Foreign programs on a faulty disk, as processes and in containers."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from harness.cluster import DiskQuality
from harness.errors import UsageError
from harness.plugins import DeploymentPlan
from tests.faults.door import door
from tests.process.conftest import processes_of
from tests.process.test_faulty_disk import WRITE_BACK, controlled, found, mounted, writer
from tests.support.waiting import LIMIT_S, wait_until
from tests.worlds.conftest import WORLDS

pytestmark = [pytest.mark.fuse, pytest.mark.parametrize("environment", WORLDS[1:], indirect=True)]


def test_power_cuts_and_faults_reach_its_disk(environment, monkeypatch):
    monkeypatch.setattr(WRITE_BACK, 0)  # no write-back, no matter how late the cut comes
    run_id, events = f"disk-{os.getpid()}-{environment.name}", []

    async def main(session):
        cluster = session.cluster
        cluster.subscribe(events.append)

        async def start():
            await cluster.start("w")
            await cluster.wait_ready("w")

        assert await cluster.kill("w", lose_unsynced=True)
        await start()
        assert await cluster.kill("w")
        await start()
        assert await cluster.worsen_disk("w", DiskQuality(error=1.0)) == 0
        async with asyncio.timeout(LIMIT_S):
            while not await cluster.worsen_disk("w", DiskQuality(error=1.0)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await cluster.worsen_disk("w", DiskQuality(delay_ms=60_000))
        await asyncio.sleep(0.2)
        begin_s = time.monotonic()
        # the kernel alone cannot kill a process that waits for its disk
        assert await cluster.kill("w")
        assert time.monotonic() - begin_s < 30
        assert await cluster.worsen_disk("w", DiskQuality(full=True)) > 0
        await door(session).heal_all()
        with pytest.raises(UsageError, match="must be in 0"):
            await cluster.worsen_disk("w", DiskQuality(error=2.0))
        with pytest.raises(UsageError, match="bit rot cannot reach w"):
            await cluster.worsen_disk("w", DiskQuality(bitrot=0.5))
        assert await cluster.wipe("w")
        await start()
        return await found(cluster)

    node = writer(user="65532:65532" if environment.name == "docker" else None)
    plan = DeploymentPlan(run_id=run_id, nodes=(node,), seed=1, knobs={}, folder=None)
    # A kill loses nothing; the set-up's files are durable, and created again after a wipe.
    lives = ["made", "kept made", "kept lost made", "made"]
    assert environment.execute(plan, main) == lives
    assert [event.data["bytes"] > 0 for event in events if event.kind == "power-cut"] == [True]
    assert mounted(run_id) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_mount_is_left_by_a_driver_that_ends(environment, number):
    run_id = f"disk-{os.getpid()}-{environment.name}-{number}"
    with controlled(run_id, environment.name) as process:
        process.send_signal(number)
        process.wait(LIMIT_S)
        # The warden ends last, when no container is left.
        wait_until(lambda: processes_of(run_id) == [] and mounted(run_id) == [], 2 * LIMIT_S)
        wait_until(lambda: not list(Path("/tmp").glob(f"harness-*-{run_id}-*")))
