"""The repeated stops that slow down a processor, in a simulated loop and on real processes."""

import asyncio
import itertools
import os
import signal

import pytest

from harness.cluster import NodeState
from harness.environments import procfs
from harness.environments.process.processor import (
    PERIOD_S,
    STOP_S_MAX,
    STOP_S_MIN,
    SlowProcessor,
)
from harness.errors import UsageError
from tests.faults.door import door
from tests.process.conftest import shell
from tests.support.waiting import until


class Timer:
    def __init__(self, due_s, callback):
        self.due_s, self.callback = due_s, callback

    def cancel(self):
        self.callback = None


class World:
    """A simulated loop, and a node that computes during `share` of the time that it runs."""

    def __init__(self, factor, share=1.0, late_s=()):
        """Create the world; the values in `late_s` are the delays of its timers, in turn."""
        self.now_s, self.used_s, self.share = 0.0, 0.0, share
        self.stopped, self.stops_s, self.alive = False, [], True
        self._timer = None
        self._late_s = itertools.cycle(late_s or (0.0,))
        self.processor = SlowProcessor(
            self, used_s=lambda: self.used_s, stop=self.stop, go_on=self.go_on
        )
        self.processor.factor = factor

    def time(self):
        return self.now_s

    def call_later(self, delay_s, callback):
        assert self._timer is None or self._timer.callback is None, "one timer at a time"
        self._timer = Timer(self.now_s + delay_s + next(self._late_s), callback)
        return self._timer

    def stop(self, for_s):
        assert not self.stopped
        self.stops_s.append(for_s)
        self.stopped = self.alive
        return self.alive

    def go_on(self):
        assert self.stopped
        self.stopped = False

    def be_late(self, by_s):
        self._timer.due_s += by_s

    def pass_time(self, time_s):
        """Advance the time; return how long the node has computed."""
        end_s, before_s = self.now_s + time_s, self.used_s
        while self._timer is not None and self._timer.callback and self._timer.due_s <= end_s:
            timer, self._timer = self._timer, None
            self._elapse(timer.due_s)
            timer.callback()
        self._elapse(end_s)
        return self.used_s - before_s

    def _elapse(self, until_s):
        self.used_s += 0.0 if self.stopped else self.share * (until_s - self.now_s)
        self.now_s = until_s


@pytest.mark.parametrize("factor", [1.1, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("late_s", [(0.0,), (0.0, 0.006), (0.002, 0.0, 0.001)])
def test_a_slowed_node_computes_longer_by_the_factor(factor, late_s):
    world = World(factor, late_s=late_s)
    world.processor.begin()
    assert world.pass_time(100.0) == pytest.approx(100.0 / factor, rel=0.02)


def test_a_node_that_computes_is_stopped_in_each_period():
    world = World(10.0)
    world.processor.begin()
    world.pass_time(10 * PERIOD_S)
    assert world.stops_s == [pytest.approx(0.9 * PERIOD_S)] * 10


def test_waiting_takes_no_longer():
    world = World(10.0, share=0.05)
    world.processor.begin()
    used_s = world.pass_time(100.0)
    waited_s = used_s / 0.05 * 0.95
    assert 10 * used_s + waited_s == pytest.approx(100.0, rel=0.02)
    assert STOP_S_MIN <= min(world.stops_s) <= max(world.stops_s) < 2 * STOP_S_MIN

    idle = World(10.0, share=0.0)
    idle.processor.begin()
    idle.pass_time(100.0)
    assert idle.stops_s == []


def test_each_of_several_threads_is_slow():
    world = World(10.0, share=2.0)
    world.processor.begin()
    assert world.pass_time(100.0) == pytest.approx(2 * 10.0, rel=0.02)


def test_a_late_harness_leaves_no_node_frozen():
    world = World(10.0)
    world.processor.begin()
    world.be_late(60.0)
    world.pass_time(60.1)
    assert world.stops_s == [STOP_S_MAX]


def test_a_node_stopped_too_long_is_not_released_later():
    world = World(10.0)
    world.processor.begin()
    world.pass_time(PERIOD_S / 2)
    assert world.stopped
    world.be_late(60.0)
    world.pass_time(60.1)
    assert world.pass_time(10 * PERIOD_S) < 2 * PERIOD_S


def test_a_node_that_is_let_go_runs_until_it_is_slow_again():
    world = World(10.0)
    world.processor.begin()
    world.pass_time(PERIOD_S / 2)
    assert world.stopped
    world.processor.end()
    assert not world.stopped
    world.processor.end()
    assert world.pass_time(10.0) == 10.0
    world.processor.factor = 100.0
    world.processor.begin()
    world.pass_time(PERIOD_S / 2)
    assert world.stopped
    world.processor.factor = 1.0
    world.processor.begin()
    assert world.pass_time(10.0) == 10.0


def test_no_process_is_left_to_stop():
    world = World(10.0)
    world.processor.begin()
    world.alive = False
    world.pass_time(10.0)
    assert len(world.stops_s) == 1
    world.processor.end()


def test_a_child_that_takes_its_time_with_it_is_no_credit():
    world = World(10.0)
    world.processor.begin()
    world.pass_time(PERIOD_S)
    world.used_s -= 1.0
    assert world.pass_time(10.0) == pytest.approx(1.0, abs=0.02)


# --- real processes --------------------------------------------------------------------------

SPIN = "while :; do :; done"


async def stopped_for_a_moment(driver, *pids):
    """Wait until the processes were seen stopped and running, while the node is not paused."""
    for states in (procfs.STOPPED, {"R"}):
        await until(lambda states=states: all(state_of(pid) in states for pid in pids))
        assert driver.cluster.state("s") is NodeState.RUNNING


def state_of(pid):
    return procfs.state(procfs.identify(pid))


def used_s(pid):
    return procfs.computed_s(procfs.family(pid))


async def takes_s(driver, computed_s):
    """Return how long the node takes for this amount of computing."""
    pid = driver.cluster._nodes["s"].pid
    clock, begin_s = driver.session.env.clock, used_s(pid)
    begin_ns = clock.monotonic_ns()
    await until(lambda: used_s(pid) - begin_s >= computed_s)
    return (clock.monotonic_ns() - begin_ns) / 1e9


@pytest.mark.process
def test_a_slow_node_is_paused_killed_restarted_and_healed(run):
    async def body(driver):
        cluster = driver.cluster
        for factor in (0.5, 101.0):
            with pytest.raises(UsageError, match=f"factor is {factor}"):
                await cluster.slow("s", factor=factor)
        await cluster.slow("s", factor=20.0)
        assert await takes_s(driver, 0.05) > 0.5

        await cluster.pause("s", lease_s=600)
        node = cluster._nodes["s"]
        paused_s = used_s(node.pid)
        await asyncio.sleep(3 * PERIOD_S)
        assert state_of(node.pid) in procfs.STOPPED
        await cluster.slow("s", factor=50.0)
        assert used_s(node.pid) == paused_s
        await cluster.resume("s")
        await stopped_for_a_moment(driver, node.pid)

        assert await cluster.kill("s")
        assert await cluster.start("s")
        await stopped_for_a_moment(driver, node.pid)
        assert await cluster.stop("s")
        await cluster.slow("s", factor=20.0)
        assert await cluster.start("s")
        assert await takes_s(driver, 0.05) > 0.5

        await door(driver).heal_all()
        assert state_of(node.pid) not in procfs.STOPPED
        reports = [e for e in driver.events if e.kind == "infrastructure"]
        assert reports == []

    run(body, [shell("s", SPIN)])


@pytest.mark.process
def test_a_slow_node_stopped_by_others_is_reported(run):
    async def body(driver):
        await driver.cluster.slow("s", factor=2.0)
        pid = driver.cluster._nodes["s"].pid

        def told():
            os.kill(pid, signal.SIGSTOP)  # the harness may send SIGCONT right after this
            return any(e.kind == "infrastructure" and e.data.get("lasts") for e in driver.events)

        await until(told)
        os.kill(pid, signal.SIGCONT)
        await stopped_for_a_moment(driver, pid)

    run(body, [shell("s", SPIN)])


@pytest.mark.process
def test_whatever_a_slow_program_has_started_is_slow(run):
    async def body(driver):
        await driver.cluster.slow("s", factor=20.0)
        pid = driver.cluster._nodes["s"].pid
        await until(lambda: len(procfs.family(pid)) == 3)
        await stopped_for_a_moment(driver, *procfs.family(pid)[1:])
        await driver.cluster.slow("s", factor=1.0)
        assert procfs.STOPPED.isdisjoint(map(state_of, procfs.family(pid)))

    run(body, [shell("s", f"(setsid sh -c '{SPIN}' & {SPIN}) & wait")])
