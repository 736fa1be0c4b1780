"""A foreign program in a container, on a disk of ours that is mounted on the engine's host."""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys

import msgspec
import pytest

from harness.cluster import DiskQuality
from harness.environments.docker.engine.labels import RUN_LABEL
from tests.docker.support import plan_of
from tests.faults.door import door
from tests.process.test_faulty_disk import WRITE_BACK, found, mounted, writer
from tests.support.waiting import LIMIT_S, wait_until
from tests.toxiproxy.conftest import REPOSITORY

pytestmark = [pytest.mark.docker, pytest.mark.fuse, pytest.mark.xdist_group("docker")]

CONTROLLER = """
import sys
from harness.environments.docker import DockerEnvironment
from tests.docker.support import plan_of
from tests.process.test_faulty_disk import writer

async def main(session):
    print("up", flush=True)
    await session.interrupted.wait()

DockerEnvironment().execute(plan_of([writer()], run_id=sys.argv[1]), main)
"""


def test_it_loses_what_it_did_not_sync_and_its_disk_is_spoiled(environment, monkeypatch):
    monkeypatch.setattr(WRITE_BACK, 0)  # never by itself, however late the cut comes
    seen = []

    async def main(session):
        cluster = session.cluster
        cluster.subscribe(seen.append)
        assert await cluster.kill("w", lose_unsynced=True)
        await cluster.start("w")
        await cluster.wait_ready("w")
        assert await cluster.worsen_disk("w", DiskQuality(error=1.0)) == 0
        await asyncio.sleep(0.2)
        assert await cluster.worsen_disk("w", DiskQuality(delay_ms=60_000)) > 0
        assert await cluster.kill("w")
        await door(session).heal_all()
        assert await cluster.wipe("w")
        await cluster.start("w")
        await cluster.wait_ready("w")
        return await found(cluster)

    plan = plan_of([msgspec.structs.replace(writer(), user="65532:65532")])
    assert environment.execute(plan, main) == ["made", "kept made", "made"]
    assert [event.data["bytes"] > 0 for event in seen if event.kind == "power-cut"] == [True]
    assert mounted(plan.run_id) == []


def test_no_mount_and_no_container_is_left_by_a_driver_that_is_killed(engine):
    run_id = f"disk-{os.getpid()}-{secrets.token_hex(4)}"
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, run_id],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    with contextlib.closing(process.stdout):
        try:
            assert process.stdout.readline() == "up\n"
            assert len(mounted(run_id)) == 1
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(LIMIT_S)
    wait_until(
        lambda: mounted(run_id) == [] and not engine.containers(f"{RUN_LABEL}={run_id}"),
        2 * LIMIT_S,
    )
