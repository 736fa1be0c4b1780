"""The simulated world: its virtual time, the lives of its nodes, and its guards."""

import asyncio
import gc
import os
import random
import signal
import threading
import time
import uuid
import weakref
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import DRIFT_PPM_MAX, DRIFT_PPM_MIN, NodeSpec, NodeState
from harness.env import Address, Env
from harness.environments.sim import SimEnvironment
from harness.environments.sim.clock import SimClock
from harness.environments.sim.world import LOG_LINES_MAX, World
from harness.errors import InfrastructureError, InternalError, TargetError, UsageError
from harness.plugins import DeploymentPlan
from tests.async_tests import on
from tests.faults.door import door
from tests.sim.toy import LEASE_S, call, connect, forever, run, specs, within


def record(session, *kinds):
    events = []
    session.cluster.subscribe(lambda e: events.append(e) if e.kind in kinds else None)
    return events


# --- asyncio on a node loop --------------------------------------------------------------------


@on(run)
async def test_asyncio_primitives_work_in_virtual_time(s):
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue(1)
    lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()

    async def produce():
        for i in range(3):
            await asyncio.sleep(10)
            await queue.put(i)
        event.set()
        await asyncio.sleep(1)
        async with condition:
            condition.notify_all()

    task = loop.create_task(produce())
    assert task.get_name() == "task-1"
    async with lock, asyncio.timeout(100):
        assert [await queue.get() for _ in range(3)] == [0, 1, 2]
        async with condition:
            await condition.wait()
    await asyncio.gather(task, event.wait(), asyncio.shield(asyncio.sleep(5)))
    assert await asyncio.wait_for(asyncio.sleep(1, "x"), 2) == "x"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await forever()
    assert loop.time() == 31 + 5 + 1 + 3


@on(run)
async def test_time_is_exact_and_costs_nothing(s):
    loop = asyncio.get_running_loop()
    start = time.monotonic()
    await asyncio.sleep(0.1)
    await asyncio.sleep(86_400)
    async with asyncio.timeout(1):
        await asyncio.gather(*(asyncio.sleep(0.5, i) for i in range(3)))
    assert time.monotonic() - start < 3_600
    assert (loop.time(), s.env.clock.monotonic_ns()) == (86_400.6, 86_400_600_000_000)


@on(run)
async def test_equal_times_are_first_in_first_out(s):
    loop = asyncio.get_running_loop()
    order: list[int] = []
    for i in range(20):
        loop.call_at(1.0, order.append, i)
    cancelled = loop.call_later(0.5, order.append, 99)
    cancelled.cancel()
    cancelled.cancel()
    loop.call_soon(order.append, 98).cancel()
    await asyncio.sleep(1)
    assert order == list(range(20))


@on(run)
async def test_cancelled_timers_do_not_pile_up(s):
    loop = asyncio.get_running_loop()
    for _ in range(20_000):
        async with asyncio.timeout(1000):
            await asyncio.sleep(0)
    assert len(loop.world.heap) < 10_000


async def busy(env: Env, config: dict[str, Any]) -> None:
    """Run a node that counts its turns during one second of its own clock."""
    loop = asyncio.get_running_loop()
    while True:
        count, end = 0, loop.time() + 1
        while loop.time() < end:
            await asyncio.sleep(0)
            count += 1
        env.event("counted", count=count)


@on(run, specs("a", entry="tests.sim.test_world:busy"), cpu_us=100.0)
async def test_callbacks_cost_virtual_time_and_a_slow_processor_more(s):
    events = record(s, "counted")
    await asyncio.sleep(1.5)
    await s.cluster.slow("a", factor=10)
    await asyncio.sleep(3)
    await door(s).heal_all()
    await asyncio.sleep(2)
    counts = [e.data["count"] for e in events]
    assert counts[0] == 10_000
    assert counts[2] == 1000
    assert counts[-1] == 10_000


@on(run, specs("a"))
async def test_a_slow_processor_answers_late_even_when_idle(s):
    await s.cluster.slow("a", factor=50_000)  # one second per callback
    assert await within(1, call(s.env, "a", b"x")) == "timeout"


# --- lives of nodes ------------------------------------------------------------------------------


@on(run, specs("a", entry="ticker"))
async def test_pause_parks_timers_and_resume_runs_them_in_a_burst(s):
    ticks = record(s, "tick")
    await asyncio.sleep(2.5)
    await s.cluster.pause("a", lease_s=LEASE_S)
    assert s.cluster.state("a") is NodeState.PAUSED
    await asyncio.sleep(10)
    before = len(ticks)
    await s.cluster.resume("a")
    await asyncio.sleep(0.001)
    burst = len(ticks) - before
    await asyncio.sleep(5)
    assert (before, burst, len(ticks)) == (2, 1, 8)


@on(run, specs("a", entry="stubborn"))
async def test_a_stubborn_node_is_killed_after_a_bound(s):
    events = record(s, "refused-to-stop", "node-exited")
    await asyncio.sleep(1)
    await s.cluster.stop("a")
    assert s.env.clock.monotonic_ns() == 11_000_000_000
    await asyncio.sleep(0)
    kinds, data = [e.kind for e in events], events[-1].data
    assert kinds == ["refused-to-stop", "node-exited"]
    assert (data["code"], data["expected"]) == (-9, True)


async def tidy(env: Env, config: dict[str, Any]) -> None:
    """Run a node whose clean-up must not run on a kill."""
    env.event("up", boot=env.boot, draw=env.random.randrange(1_000_000))
    try:
        await forever()
    finally:
        env.event("tidied")
        await env.disk.replace("tidied", b"")
        await env.net.connect(Address("b", 7000))


def test_a_killed_node_runs_nothing_any_more():
    async def main(s):
        events = record(s, "up", "tidied")
        await asyncio.sleep(0.001)
        await s.cluster.kill("a")
        gc.collect()
        await s.cluster.start("a")
        await asyncio.sleep(1)
        assert not s.cluster._machines["a"].disk.files
        return [(e.kind, e.data) for e in events]

    nodes = (*specs("a", entry="tests.sim.test_world:tidy"), *specs("b"))
    (up, first), (again, second) = run(main, nodes)
    assert (up, again) == ("up", "up")
    assert (first["boot"], second["boot"]) == (0, 1)
    assert first["draw"] != second["draw"]


@on(run, specs("a", "b"))
async def test_a_dead_env_reaches_nothing(s):
    await call(s.env, "a", b"up?")
    machine = s.cluster._machines["a"]
    env = machine.incarnation.env
    conn = await connect(s.env, "a")
    (end,) = machine.incarnation.ends.values()
    file = await asyncio.wait_for(_borrow(env), 1)
    events = record(s, "ghost")
    await s.cluster.kill("a")
    await s.cluster.start("a")
    digest = s.trace_digest()
    env.event("ghost")
    for ghost in [
        env.net.connect(Address("b", 7000)),
        env.net.listen(7000, forever),
        env.disk.replace("f", b"ghost"),
        env.disk.open("g"),
        file.append(b"ghost"),
        file.sync(),
        end.send(b"ghost"),
    ]:
        with pytest.raises(asyncio.CancelledError):
            await ghost
    with pytest.raises(asyncio.CancelledError):
        env.spawn(forever(), name="ghost")
    end.close()
    assert s.trace_digest() == digest
    await asyncio.sleep(1)
    assert not events
    with pytest.raises(ConnectionResetError):
        await conn.recv()


async def _borrow(env):
    """Open a file on a node's disk from outside the node's loop."""
    from harness.environments.sim.disk import SimFile, _Inode

    inode = env.disk._disk._store.files["f"] = _Inode()
    return SimFile(env.disk._disk._store, env.disk._disk._loop, "f", inode)


async def failing(env: Env, config: dict[str, Any]) -> None:
    """Run a node that fails in the requested way."""

    async def fail() -> None:
        raise LookupError(f"no cheese at {object()!r}")

    how = config["how"]
    if how == "main":
        await fail()
    if how == "spawn":
        env.spawn(fail(), name="mouse")
    if how == "callback":
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
    if how == "exit":
        raise SystemExit(3)
    if how == "return":
        return
    if how == "cancel":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
    await forever()


async def spoiler(env: Env, config: dict[str, Any]) -> None:
    """Run a node that changes its own configuration."""
    env.event("configured", peers=list(config["peers"]))
    config["peers"].append("spoiled")
    await forever()


@on(run, specs("a", entry="tests.sim.test_world:spoiler"))
async def test_nodes_share_no_configuration(s):
    events = record(s, "configured")
    await asyncio.sleep(1)
    await s.cluster.kill("a")
    await s.cluster.start("a")
    await asyncio.sleep(1)
    assert [e.data["peers"] for e in events] == [["a"], ["a"]]


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("main", 1, "no cheese at <object object at 0x...>"),
        ("spawn", 1, "the task 'mouse' failed"),
        ("callback", 1, "ZeroDivisionError"),
        ("exit", 1, "SystemExit: 3"),
        ("return", 0, "main returned"),
        ("cancel", 1, "without a request to stop"),
    ],
)
def test_a_node_that_ends_by_itself_is_reported(how, code, text):
    async def main(s):
        events = record(s, "node-exited")
        await asyncio.sleep(1)
        assert s.cluster.state("a") is NodeState.DOWN
        (event,) = events
        return event.data

    data = run(main, specs("a", entry="tests.sim.test_world:failing", how=how))
    assert (data["code"], data["expected"]) == (code, False)
    assert text in "\n".join(data["log"])
    # paths differ between machines, so the trace has none
    assert 'File "/' not in "\n".join(data["log"])


# --- clocks --------------------------------------------------------------------------------------


@on(run, specs("a", entry="ticker"))
async def test_skew_moves_the_wall_clock_and_drift_moves_timers(s):
    ticks = record(s, "tick")
    await asyncio.sleep(2.5)
    await s.cluster.skew("a", offset_ns=7_000_000_000, drift_ppm=1_000_000)
    await asyncio.sleep(2)
    await door(s).heal_all()
    await asyncio.sleep(2)
    ticks = [(round(e.time_ns / 1e9, 2), e.data["wall"], e.data["loop"]) for e in ticks]
    # At double rate, the remaining half second takes 0.25 s, and then each second 0.5 s.
    assert [t for t, _, _ in ticks] == [1.0, 2.0, 2.75, 3.25, 3.75, 4.25, 5.0, 6.0]
    walls = [(wall - ticks[0][1]) / 1e9 - (t - 1.0) for t, wall, _ in ticks]
    assert walls == pytest.approx([0, 0, 7.25, 7.75, 8.25, 8.75, 0, 0], abs=0.01)
    steps = [later[2] - earlier[2] for earlier, later in pairwise(ticks)]
    assert all(0.99e9 < step < 1.01e9 for step in steps)


def test_wall_clocks_differ_by_less_than_they_admit():
    async def main(s):
        clocks = [m.clock for m in (*s.cluster._machines.values(), s.cluster._driver)]
        walls = [clock.wall_ns() for clock in clocks]
        return max(walls) - min(walls), clocks[0].max_error_ns(), walls[0]

    spread, admitted, wall = run(main, specs("a", "b", "c"), clock_error_ms=5.0)
    assert 0 < spread <= admitted == 5_000_000
    assert wall != run(main, specs("a", "b", "c"), clock_error_ms=5.0, seed=2)[2]


@given(st.integers(DRIFT_PPM_MIN, DRIFT_PPM_MAX), st.integers(0, 10**15), st.integers(0, 10**15))
def test_a_timer_is_due_at_the_first_instant_that_its_clock_shows(ppm, now_ns, wait_ns):
    world = World(events_max=1, virtual_ns_max=10**18)
    clock = SimClock(world, wall_base_ns=0, max_error_ns=0)
    world.now_ns = now_ns
    clock.adjust(skew_ns=0, drift_ppm=ppm)
    due_ns = clock.monotonic_ns() + wait_ns
    world.now_ns = clock.world_ns(due_ns)
    assert clock.monotonic_ns() >= due_ns
    world.now_ns -= 1
    assert clock.monotonic_ns() < due_ns or wait_ns == 0


# --- guards against endless worlds and broken rules ----------------------------------------------


def test_a_deadlock_names_the_waiting_tasks():
    async def main(s):
        await asyncio.get_running_loop().create_future()

    with pytest.raises(InternalError, match=r"deadlock.*client/driver at main:\d+.*a/main"):
        run(main, specs("a"))


async def spinning(env: Env, config: dict[str, Any]) -> None:
    """Run a node that yields to the loop forever."""
    while True:  # noqa: ASYNC110 (it is what must not be done)
        await asyncio.sleep(0)


def test_guards_end_a_world_that_does_not():
    async def main(s):
        await forever()

    nodes = specs("a", entry="tests.sim.test_world:spinning")
    with pytest.raises(TargetError, match=r"livelock.*a/main"):
        run(main, nodes, cpu_us=0.0)
    with pytest.raises(InfrastructureError, match="events_max"):
        run(main, nodes, events_max=1000)
    with pytest.raises(InfrastructureError, match=r"1 s of virtual time.*virtual_s_max.*a/main"):
        run(main, nodes, virtual_s_max=1.0)


CHEATS = {
    "time": time.time,
    "monotonic": time.monotonic,
    "sleep": lambda: time.sleep(0),
    "random": random.random,
    "shuffle": lambda: random.shuffle([1, 2]),
    "urandom": lambda: os.urandom(1),
    "uuid": uuid.uuid4,
    "thread": lambda: threading.Thread(target=print).start(),
    "system": lambda: random.SystemRandom().random(),
}


async def cheater(env: Env, config: dict[str, Any]) -> None:
    """Run a node that bypasses `Env` in a way that the lint cannot see."""
    # finds the function at run time, as target code would
    names = {"time": "time.time", "monotonic": "time.monotonic", "random": "random.random"}
    try:
        if config["how"] in names:
            module, name = names[config["how"]].split(".")
            getattr({"time": time, "random": random}[module], name)()
        else:
            CHEATS[config["how"]]()
    except BaseException:  # noqa: BLE001
        env.event("hidden")
    await forever()


@pytest.mark.parametrize("how", sorted(CHEATS))
def test_tripwires_catch_nodes_and_let_the_driver_pass(how):
    async def main(s):
        CHEATS[how if how != "thread" else "time"]()
        await asyncio.sleep(1)

    before = (time.time, random.random, os.urandom, threading.Thread.start)
    with pytest.raises(TargetError, match=r"node code called .*; use (env|asyncio)"):
        run(main, specs("a", entry="tests.sim.test_world:cheater", how=how))
    assert (time.time, random.random, os.urandom, threading.Thread.start) == before
    run(main, specs("a"))


# --- the driver ----------------------------------------------------------------------------------


def test_results_and_errors_of_the_driver_come_out():
    async def failing_task(s):
        s.env.spawn(_fail(), name="x")
        await forever()

    async def failing_subscriber(s):
        s.cluster.subscribe(lambda e: 1 // 0)
        s.env.event("x")
        await forever()

    assert run(lambda s: asyncio.sleep(1, "result")) == "result"
    with pytest.raises(LookupError, match="cheese"):
        run(lambda s: _fail())
    with pytest.raises(LookupError, match="cheese"):
        run(failing_task)
    with pytest.raises(ZeroDivisionError):
        run(failing_subscriber)


async def _fail():
    raise LookupError("cheese")


def test_an_unobserved_failure_of_a_driver_task_is_logged(caplog):
    async def main(s):
        tasks = [asyncio.create_task(_fail(), name="lonely")]
        await asyncio.sleep(1)
        tasks.clear()

    run(main)
    assert "client/lonely: LookupError('cheese')" in caplog.text


def test_ctrl_c_sets_the_event_first_and_cancels_then():
    async def main(s):
        signal.raise_signal(signal.SIGINT)
        async with asyncio.timeout(1):
            await s.interrupted.wait()
        return "interrupted"

    async def stubborn_main(s):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    assert run(main) == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        run(stubborn_main)
    assert signal.getsignal(signal.SIGINT) is before


@on(run, specs("a"))
async def test_endpoint_is_a_usage_error(s):
    with pytest.raises(UsageError, match="--env process or --env docker"):
        s.env.endpoint(Address("a", 7000))


def test_bad_plans_are_usage_errors():
    def spec(**given: Any) -> tuple[NodeSpec, ...]:
        return (NodeSpec(**{"name": "a", "role": "r", "ports": (1,), **given}),)

    for nodes, knobs, message in [
        (spec(command=("x",)), {}, "--env process or --env docker"),
        (spec(entry="tests.sim.toy:absent"), {}, "is not a function"),
        (spec(entry="tests.sim.absent:x"), {}, "does not load"),
        (spec(entry="tests.sim.toy:PORT"), {}, "function"),
        (spec(entry="tests.sim.toy:echo", name="client"), {}, "node names"),
        (specs("a", "a"), {}, "node names"),
        ((), {"latencies": 1}, r"no knob 'latencies'; its knobs are latency, "),
        ((), {"latency": "slow"}, "latency"),
        ((), {"latency_ms_min": 2.0, "latency_ms_max": 1.0}, "min <= max"),
        ((), {"retransmit": 2.0}, "must be from 0 to 1"),
        ((), {"cpu_us": -1.0}, "cpu_us is -1.0"),
    ]:
        plan = DeploymentPlan(run_id="x", nodes=nodes, seed=1, knobs=knobs, folder=None)
        with pytest.raises(UsageError, match=message):
            SimEnvironment().execute(plan, lambda s: asyncio.sleep(0))


@on(run, specs("a"))
async def test_a_node_may_only_use_declared_ports_and_one_listener_each(s):
    with pytest.raises(ValueError, match="declares the ports"):
        await s.env.net.listen(1, forever)
    with pytest.raises(ConnectionRefusedError, match="no node is named"):
        await connect(s.env, "nobody")
    env = s.cluster._machines["a"].incarnation.env
    await asyncio.sleep(1)
    with pytest.raises(OSError, match="already listens"):
        await env.net.listen(7000, forever)


def test_logs_are_kept_bounded_and_written(tmp_path):
    async def main(s):
        for i in range(LOG_LINES_MAX + 5):
            s._world.log("a", f"line {i}")
        return await s.cluster.logs("a", last_lines=1)

    (last,) = run(main, specs("a"), folder=tmp_path / "nodes")
    assert last.endswith(f"line {LOG_LINES_MAX + 4}")
    lines = (tmp_path / "nodes" / "logs" / "a.log").read_text().splitlines()
    assert len(lines) == LOG_LINES_MAX + 1
    assert lines[0] == "... 6 earlier lines were dropped"


def test_worlds_leave_nothing_behind():
    worlds: list[weakref.ref[World]] = []

    async def main(s):
        worlds.append(weakref.ref(s._world))
        assert asyncio.get_running_loop().is_running()
        assert not gc.isenabled()  # the garbage collector runs at fixed events instead
        task = asyncio.create_task(call(s.env, "a", b"x"))
        await s.cluster.kill("b")
        await asyncio.sleep(0.01)
        await connect(s.env, "a")
        return task.get_name(), s.trace_digest(), s.env.random.random()

    enabled = gc.isenabled()
    results = {run(main, specs("a", "b")) for _ in range(5)}
    gc.collect()
    assert len(results) == 1
    assert [w() for w in worlds] == [None] * 5
    assert gc.isenabled() == enabled
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_tripwire_keeps_no_world_alive():
    held: list[Any] = []
    worlds: list[weakref.ref[World]] = []
    inside, leave = threading.Event(), threading.Event()

    class Slow:
        def __index__(self) -> int:
            inside.set()
            assert leave.wait(60)
            return 1

    async def main(s):
        worlds.append(weakref.ref(s._world))
        held.append(time.monotonic)
        thread = threading.Thread(target=random.randrange, args=(Slow(),))
        held.append(thread)
        thread.start()
        assert inside.wait(60)

    try:
        run(main)
        gc.collect()
        assert [world() for world in worlds] == [None]
        assert held[0]() <= time.monotonic()
        assert held[0] is not time.monotonic
    finally:
        leave.set()
        held[1].join()


def test_runs_nest_in_a_running_loop():
    async def outer():
        inner = run(lambda s: asyncio.sleep(1, "inner"))
        await asyncio.sleep(0)
        return inner

    assert asyncio.run(outer()) == "inner"


async def awaits_in_finally(env: Env, config: dict[str, Any]) -> None:
    async def worker() -> None:
        try:
            await forever()
        finally:
            for _ in range(3):
                await asyncio.sleep(1)

    env.spawn(worker(), name="worker")
    await forever()


def test_teardown_closes_tasks_that_await_in_finally():
    run(lambda s: asyncio.sleep(1), specs("a", entry="tests.sim.test_world:awaits_in_finally"))
    gc.collect()
