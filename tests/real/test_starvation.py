"""Who waits for a processor, as the kernel counts it."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from harness.environments import procfs
from harness.environments.real import starvation
from harness.environments.real.starvation import Waits

SPIN = "while True: pass"


class Host:
    """A clock and the delays of threads, set by hand."""

    def __init__(self, monkeypatch):
        self.now_s, self.delays = 100.0, {}
        monkeypatch.setattr(
            starvation.procfs, "run_delays_ns", lambda root, *, descendants: self.delays[root]
        )
        self.waits = Waits(lambda: self.now_s)

    def look(self, after_s, **delays_ms):
        """What a look sees when the threads of each name have waited so long in all."""
        self.now_s += after_s
        self.delays = {
            root: {(root, thread): ms * 1_000_000 for thread, ms in threads.items()}
            for root, threads in enumerate(delays_ms.values(), start=10**8)
        }
        return self.waits.look({name: root for root, name in enumerate(delays_ms, start=10**8)})


def test_what_was_before_the_first_look_does_not_count(monkeypatch):
    host = Host(monkeypatch)
    assert host.look(0, a={1: 9_000}) == (0.0, {})
    assert host.look(1, a={1: 9_250}) == (1.0, {"a": 0.25})


def test_the_thread_that_waited_longest_speaks_for_its_node(monkeypatch):
    host = Host(monkeypatch)
    host.look(0, a={1: 0, 2: 500}, b={1: 0})
    _, waited_s = host.look(1, a={1: 300, 2: 900}, b={1: 10})
    assert waited_s == {"a": 0.4, "b": 0.01}


def test_a_node_that_was_started_meanwhile_waited_since_then(monkeypatch):
    host = Host(monkeypatch)
    host.look(0, a={1: 5_000}, b={})
    _, waited_s = host.look(1, a={1: 700}, b={})  # another process of the same number
    assert waited_s == {"a": 0.7}
    assert host.look(1, a={1: 700}, b={7: 600})[1] == {"a": 0.0, "b": 0.6}


def test_nobody_waits_longer_than_there_was_time(monkeypatch):
    host = Host(monkeypatch)
    host.look(0, a={1: 0})
    assert host.look(0.5, a={1: 3_000}) == (0.5, {"a": 0.5})


@pytest.fixture
def crowd():
    """Four processes that want the same processor."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN])) for _ in range(4)
        ]
        for process in processes:
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        yield [process.pid for process in processes]


def waited_ns(pid):
    return sum(procfs.run_delays_ns(pid, descendants=True).values())


def test_the_kernel_counts_who_waits(crowd):
    deadline_s = time.monotonic() + 30
    while min(map(waited_ns, crowd)) < 200_000_000:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_children_belong_to_their_process():
    script = "import subprocess,sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as parent:
        deadline_s = time.monotonic() + 30
        while len({pid for pid, _ in procfs.run_delays_ns(parent.pid, descendants=True)}) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        assert {pid for pid, _ in procfs.run_delays_ns(parent.pid, descendants=False)} == {
            parent.pid
        }
        parent.communicate(b"\n")
    assert procfs.run_delays_ns(parent.pid, descendants=True) == {}
