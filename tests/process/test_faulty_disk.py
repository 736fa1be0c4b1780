"""Foreign programs on a disk that the harness controls, with disk faults."""

import asyncio
import contextlib
import os
import re
import signal
from pathlib import Path

import pytest

from harness.cluster import DiskQuality, NodeSpec, ReadyLog
from harness.environments.fuse import available
from harness.environments.fuse.mounts import SOURCE, mounts
from harness.environments.process import ProcessEnvironment
from harness.errors import InfrastructureError, UsageError
from tests.process.conftest import controller, roles_of
from tests.support.cleaning import kill_at_once, only_cleaner
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.process
fuse = pytest.mark.fuse
WRITE_BACK = "harness.environments.fuse.disk._WRITE_BACK_MS"

# The program prints the existing files, writes a synced and an unsynced file, and then reads.
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


@fuse
def test_a_dead_disk_ends_the_run_without_a_verdict(run):
    async def body(driver):
        node = driver.cluster._nodes["w"]
        node.disk._child.signal(signal.SIGKILL)
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(InfrastructureError, match=r"the disk of w .* ended with code -9"):
        run(body, [writer()], wait=False)


@fuse
def test_a_stopped_disk_is_reported_until_it_continues(run):
    async def body(driver):
        disk = driver.cluster._nodes["w"].disk._child
        disk.signal(signal.SIGSTOP)
        report = await driver.wait_event("infrastructure", "w")
        assert (report.data["lasts"], "the disk of w" in report.data["what"]) == (True, True)
        disk.signal(signal.SIGCONT)
        assert (await driver.wait_event("infrastructure", "w", 2)).data["over"]

    run(body, [writer()], wait=False)


def test_without_fuse_a_node_uses_the_plain_disk(run, monkeypatch):
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
        ("0000000000000000", "/bin/fusermount3", "#user_allow_other\n", "add user_allow_other"),
        ("0000000000000000", "/bin/fusermount3", "user_allow_other\n", None),
    ],
)
def test_missing_tools_are_named(monkeypatch, tmp_path, capabilities, program, configuration, lack):
    texts = {"/proc/self/status": f"CapEff:\t{capabilities}\n", "/etc/fuse.conf": configuration}
    monkeypatch.setattr(available, "find_binary", lambda: "/bin/true")
    monkeypatch.setattr(available, "_DEVICE", tmp_path)
    monkeypatch.setattr(available.shutil, "which", lambda _: program)
    monkeypatch.setattr(available, "_read", lambda path: texts[str(path)])
    why = available.why_missing()
    assert why is None if lack is None else lack in why

    monkeypatch.setattr(available, "_DEVICE", tmp_path / "none")
    assert "modprobe" in available.why_missing()


CONTROLLER = """
import sys
from harness.plugins import DeploymentPlan
from harness.registry import load_plugin
from tests.process.test_faulty_disk import writer

async def main(session):
    print("up", flush=True)
    await session.interrupted.wait()

plan = DeploymentPlan(run_id=sys.argv[2], nodes=(writer(),), seed=1, knobs={}, folder=None)
load_plugin("environments", sys.argv[1]).execute(plan, main)
"""


@contextlib.contextmanager
def controlled(run_id: str, world: str = "process"):
    """Start a driver in a separate process; its node runs on a faulty disk."""
    try:
        with controller(run_id, "-c", CONTROLLER, world, run_id) as (process, line):
            assert line == "up\n"
            assert len(mounted(run_id)) == 1
            yield process
    finally:
        assert mounted(run_id) == []


@fuse
def test_clean_unmounts_disks_of_dead_runs():
    run_id = f"disk-{os.getpid()}-clean"
    with only_cleaner(), controlled(run_id) as process:
        roles = roles_of(run_id)
        kill_at_once(process.pid, roles["warden"], roles["disk:w"], roles["node:w"])
        process.wait(LIMIT_S)
        assert len(mounted(run_id)) == 1

        lines = ProcessEnvironment().clean()
        assert re.search(rf"unmounted \S+ of run {run_id}", "\n".join(lines))
        assert mounted(run_id) == []
