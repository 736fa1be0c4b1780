"""Foreign programs on a disk of ours: what reaches them there, and that no mount is ever left."""

import asyncio
import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

from harness.cluster import DiskQuality, NodeSpec, ReadyLog
from harness.environments.fuse import available
from harness.environments.fuse.mounts import SOURCE, mounts
from harness.environments.process import ProcessEnvironment
from harness.errors import InfrastructureError, UsageError
from tests.faults.door import door
from tests.process.conftest import controller, in_turn, processes_of, roles_of
from tests.support.cleaning import kill_at_once, only_cleaner
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.process
fuse = pytest.mark.fuse
WRITE_BACK = "harness.environments.fuse.disk._WRITE_BACK_MS"

# It shows what it finds, writes a file that it syncs and one that it does not, and then reads.
PROGRAM = """
echo "found: $(echo *)"
echo a > kept; sync kept
echo b > lost
echo up
while true; do cat kept > /dev/null; sleep 0.02; done
"""


def writer(**named) -> NodeSpec:
    return NodeSpec(
        name="w",
        role="writer",
        ports=(1,),
        setup=(("sh", "-c", "echo x > made"),),
        command=("sh", "-c", PROGRAM),
        ready=ReadyLog("up"),
        **{"faulty_disk": True, **named},
    )


def mounted(run_id: str) -> list[Path]:
    return [path for path, source in mounts() if source.startswith(SOURCE) and run_id in str(path)]


async def found(cluster) -> list[str]:
    lines = await cluster.logs("w")
    return [line.partition("found: ")[2] for line in lines if "found: " in line]


async def a_power_cut_takes_what_was_not_synced(driver):
    cluster = driver.cluster
    assert await cluster.kill("w", lose_unsynced=True)
    lost = await driver.wait_event("power-cut", "w")
    await cluster.start("w")
    await cluster.wait_ready("w")
    assert await cluster.kill("w")
    await cluster.start("w")
    await cluster.wait_ready("w")
    assert await cluster.kill("w")
    assert await cluster.wipe("w")
    await cluster.start("w")
    await cluster.wait_ready("w")
    # A kill takes nothing; the set-up's work is durable, and done again after a wipe.
    assert await found(cluster) == ["made", "kept made", "kept lost made", "made"]
    assert lost.data["bytes"] > 0


async def it_is_spoiled_and_the_bites_are_counted(driver):
    cluster = driver.cluster
    assert await cluster.worsen_disk("w", DiskQuality(error=1.0)) == 0
    await asyncio.sleep(0.2)
    assert await cluster.worsen_disk("w", DiskQuality(delay_ms=60_000)) > 0
    await asyncio.sleep(0.2)
    begin_s = time.monotonic()
    assert await cluster.kill("w")  # a process that waits for a disk cannot be killed
    assert time.monotonic() - begin_s < 30
    assert await cluster.worsen_disk("w", DiskQuality(full=True)) > 0
    await door(driver).heal_all()
    with pytest.raises(UsageError, match="must be in 0"):
        await cluster.worsen_disk("w", DiskQuality(error=2.0))
    with pytest.raises(UsageError, match="bit rot cannot reach w"):
        await cluster.worsen_disk("w", DiskQuality(bitrot=0.5))


@fuse
def test_power_cuts_and_faults_reach_its_disk(run, monkeypatch):
    monkeypatch.setattr(WRITE_BACK, 0)  # never by itself, however late the cut comes
    checks = (a_power_cut_takes_what_was_not_synced, it_is_spoiled_and_the_bites_are_counted)
    run(in_turn(*checks), [writer()], wait=False)


@fuse
def test_a_disk_that_dies_ends_the_run_and_convicts_nobody(run):
    async def body(driver):
        node = driver.cluster._nodes["w"]
        node.disk._child.signal(signal.SIGKILL)
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(InfrastructureError, match=r"the disk of w .* ended with code -9"):
        run(body, [writer()], wait=False)


@fuse
def test_a_disk_that_somebody_stops_is_told_until_it_goes_on(run):
    async def body(driver):
        disk = driver.cluster._nodes["w"].disk._child
        disk.signal(signal.SIGSTOP)
        report = await driver.wait_event("infrastructure", "w")
        assert (report.data["lasts"], "the disk of w" in report.data["what"]) == (True, True)
        disk.signal(signal.SIGCONT)
        assert (await driver.wait_event("infrastructure", "w", 2)).data["over"]

    run(body, [writer()], wait=False)


def test_without_what_it_takes_it_is_the_machines_own_disk(run, monkeypatch):
    monkeypatch.setenv("HARNESS_FUSEDISK", "/nonexistent")
    assert "make native" in ProcessEnvironment().why_no_faulty_disks()

    async def body(driver):
        with pytest.raises(UsageError, match="a power cut cannot reach w: a foreign program"):
            await driver.cluster.kill("w", lose_unsynced=True)
        with pytest.raises(UsageError, match="a disk fault cannot reach w: a foreign program"):
            await driver.cluster.worsen_disk("w", DiskQuality(full=True))

    run(body, [writer()], wait=False)


@pytest.mark.parametrize(
    ("capabilities", "program", "configuration", "lack"),
    [
        ("0000000000200000", None, "", None),
        ("0000000000000000", None, "", "apt-get install fuse3"),
        ("0000000000000000", "/bin/fusermount3", "#user_allow_other\n", "write user_allow_other"),
        ("0000000000000000", "/bin/fusermount3", "user_allow_other\n", None),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch, tmp_path, capabilities, program, configuration, lack
):
    texts = {"/proc/self/status": f"CapEff:\t{capabilities}\n", "/etc/fuse.conf": configuration}
    monkeypatch.setattr(available, "find_binary", lambda: "/bin/true")
    monkeypatch.setattr(available, "_DEVICE", tmp_path)
    monkeypatch.setattr(available.shutil, "which", lambda _: program)
    monkeypatch.setattr(available, "_read", lambda path: texts[str(path)])
    why = available.why_missing()
    assert why is None if lack is None else lack in why

    monkeypatch.setattr(available, "_DEVICE", tmp_path / "none")
    assert "modprobe" in available.why_missing()


# --- the driver's death -------------------------------------------------------------------------

CONTROLLER = """
import asyncio, sys
from harness.environments.process import ProcessEnvironment
from harness.plugins import DeploymentPlan
from tests.process.test_faulty_disk import writer

async def main(session):
    print("up", flush=True)
    await session.interrupted.wait()

ProcessEnvironment().execute(
    DeploymentPlan(run_id=sys.argv[1], nodes=(writer(),), seed=1, knobs={}, folder=None), main
)
"""


@contextlib.contextmanager
def controlled(run_id: str):
    try:
        with controller(run_id, "-c", CONTROLLER, run_id) as (process, line):
            assert line == "up\n"
            assert len(mounted(run_id)) == 1
            yield process
    finally:
        assert mounted(run_id) == []


@fuse
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_mount_is_left_by_a_driver_that_ends(number):
    run_id = f"disk-{os.getpid()}-{number}"
    with controlled(run_id) as process:
        process.send_signal(number)
        process.wait(LIMIT_S)
        wait_until(lambda: processes_of(run_id) == [] and mounted(run_id) == [])
        wait_until(lambda: not list(Path("/tmp").glob(f"harness-process-{run_id}-*")))


@fuse
def test_clean_unmounts_what_all_who_would_have_left():
    run_id = f"disk-{os.getpid()}-clean"
    with only_cleaner(), controlled(run_id) as process:
        roles = roles_of(run_id)
        kill_at_once(process.pid, roles["warden"], roles["disk:w"], roles["node:w"])
        process.wait(LIMIT_S)
        assert len(mounted(run_id)) == 1

        lines = ProcessEnvironment().clean()
        assert re.search(rf"unmounted \S+ of run {run_id}", "\n".join(lines))
        assert mounted(run_id) == []
