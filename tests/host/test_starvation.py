"""The time that threads wait for a processor, as the kernel counts it."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from harness.environments import procfs
from harness.environments.host import starvation
from harness.environments.host.starvation import Waits
from harness.environments.procfs import Scheduled, ThreadId
from tests.support.waiting import wait_until

SPIN = ("sh", "-c", "while :; do :; done")
TICKS = os.sysconf("SC_CLK_TCK")


class Host:
    """A fake host with clocks that agree, and with given threads."""

    def __init__(self, monkeypatch):
        self.now_s, self.roots = 100.0, {}
        monkeypatch.setattr(
            starvation.procfs, "threads", lambda root, *, descendants: self.roots[root]
        )
        self.waits = Waits(lambda: self.now_s, lambda: self.now_s)

    def look(self, after_s, **nodes):
        self.now_s += after_s
        self.roots = {
            root: dict(thread(root, *each) for each in threads)
            for root, threads in enumerate(nodes.values(), start=10**8)
        }
        return self.waits.look({name: root for root, name in enumerate(nodes, start=10**8)})


def thread(root, number, waited_s, state="S", began_s=50.0):
    scheduled = Scheduled(state, int(waited_s * 1e9) // 7, int(waited_s * 1e9))
    return ThreadId(root, number, int(began_s * TICKS)), scheduled


def test_waits_before_the_first_look_do_not_count(monkeypatch):
    host = Host(monkeypatch)
    assert host.look(0, a=[(1, 9.0)]) == (100.0, 0.0, {})
    assert host.look(1, a=[(1, 9.25)]) == (101.0, 1.0, {"a": 0.25})


def test_the_thread_that_waited_longest_speaks_for_its_node(monkeypatch):
    host = Host(monkeypatch)
    host.look(0, a=[(1, 0), (2, 0.5)], b=[(1, 0)])
    look = host.look(1, a=[(1, 0.25), (2, 1.125)], b=[(1, 0.125)])
    assert look.waited_s == {"a": 0.625, "b": 0.125}
    assert look.starved == {"a": 0.625}


def test_only_a_thread_that_began_since_then_counts_whole(monkeypatch):
    host = Host(monkeypatch)
    host.look(0, a=[], b=[(1, 5.0)])
    look = host.look(1, a=[(7, 0.5, "S", 100.5), (8, 0.75, "S", 99.0)], b=[(1, 0.5, "S", 100.25)])
    assert look.waited_s == {"a": 0.5, "b": 0.5}


def test_a_wait_counts_when_it_is_over_and_is_as_long_as_it_was(monkeypatch):
    host = Host(monkeypatch)
    host.look(0, a=[(1, 1.0)])
    host.look(1, a=[(1, 1.0)])
    look = host.look(1, a=[(1, 3.0)])
    assert (look.took_s, look.starved) == (1.0, {"a": 2.0})


def test_a_ready_thread_that_does_not_run_is_waiting(monkeypatch):
    host = Host(monkeypatch)
    host.look(0, a=[(1, 1.0, "R")])
    assert host.look(1, a=[(1, 1.0, "R")]).starved == {}  # a running thread may just have woken up
    assert host.look(1, a=[(1, 1.0, "R")]).starved == {"a": 1.0}
    assert host.look(1, a=[(1, 1.0, "R")]).starved == {"a": 2.0}
    assert host.look(1, a=[(1, 1.0, "S")]).starved == {}
    assert host.look(1, a=[(1, 1.0, "T")]).starved == {}


@pytest.fixture
def crowd():
    """Start four processes that compete for one processor."""
    with ExitStack() as stack:
        pids = []
        for _ in range(4):
            process = stack.enter_context(subprocess.Popen(SPIN))
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
            pids.append(process.pid)
        yield pids


def waited_ns(pid):
    return sum(each.waited_ns for each in procfs.threads(pid, descendants=True).values())


def test_the_kernel_counts_who_waits(crowd):
    wait_until(lambda: min(map(waited_ns, crowd)) >= 50_000_000)


def test_children_belong_to_their_process():
    def processes(*, descendants):
        return {thread.process for thread in procfs.threads(parent.pid, descendants=descendants)}

    script = "import subprocess,sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as parent:
        wait_until(lambda: len(processes(descendants=True)) >= 2)
        assert processes(descendants=False) == {parent.pid}
        parent.communicate(b"\n")
    assert processes(descendants=True) == set()


def test_a_process_is_of_the_container_that_its_control_group_names():
    group = procfs.Path("/proc/self/cgroup").read_text(encoding="utf-8").strip()
    assert procfs.is_of_container(os.getpid(), group[-5:])
    assert not procfs.is_of_container(os.getpid(), "c" * 64)
    assert not procfs.is_of_container(0, "")
