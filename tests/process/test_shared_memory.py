"""System V shared memory is removed with the process that created it, and not with any other."""

import ctypes
import os
import subprocess
import sys

import pytest

from harness.cluster import NodeSpec, ReadyLog
from harness.environments.procfs import _SEGMENTS, ProcessId, identify, remove_shared_memory
from harness.environments.warden import Kill, _perform

pytestmark = pytest.mark.process

MAKES_ONE = """
import ctypes, time
print("segment", ctypes.CDLL(None).shmget(0, 4096, 0o1600), flush=True)
time.sleep(600)
"""


def segments():
    return {int(line.split()[1]) for line in _SEGMENTS.read_text().splitlines()[1:]}


@pytest.fixture
def maker():
    """Start a process that creates a segment; return the process and the segment."""
    command = [sys.executable, "-c", MAKES_ONE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        made = int(process.stdout.readline().split()[1])
        yield process, made
        process.kill()
    remove_shared_memory_by_id(made)


def remove_shared_memory_by_id(ident):
    ctypes.CDLL(None).shmctl(ident, 0, None)


def test_only_segments_of_the_process_are_removed(maker):
    process, made = maker
    identity = identify(process.pid)
    assert made in segments()
    assert remove_shared_memory(identify(os.getpid())) == 0
    later = ProcessId(identity.pid, identity.start_ticks + 100 * os.sysconf("SC_CLK_TCK"))
    # a process with the creator's pid that started after the segment was created
    assert remove_shared_memory(later) == 0
    assert made in segments()
    assert remove_shared_memory(identity) == 1
    assert made not in segments()


def test_the_warden_removes_it_with_the_process(maker):
    process, made = maker
    _perform(Kill(*identify(process.pid)))
    process.wait()
    assert made not in segments()


def test_a_node_that_is_killed_leaves_none(run):
    async def body(driver):
        lines = await driver.cluster.logs("n")
        (made,) = (int(line.split()[-1]) for line in lines if "segment" in line)
        assert made in segments()
        await driver.cluster.kill("n")
        assert made not in segments()

    command = (sys.executable, "-c", MAKES_ONE)
    ready = ReadyLog("segment")
    run(body, [NodeSpec(name="n", role="r", ports=(1,), command=command, ready=ready)])
