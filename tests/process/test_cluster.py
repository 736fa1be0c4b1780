"""Nodes as processes are started, killed, paused and cut off, and the effects are measured."""

import asyncio
import errno
import os
import signal
import time

import pytest

from harness.cluster import (
    CLIENT,
    Capability,
    DiskQuality,
    Link,
    LinkQuality,
    NodeSpec,
    NodeState,
)
from harness.env import Address
from harness.environments import procfs
from harness.environments.host.power import SUFFIX
from harness.environments.process import ProcessEnvironment
from harness.errors import InfrastructureError, StartError, UsageError
from tests.faults.door import door
from tests.process.conftest import (
    echo_spec,
    foreign,
    in_turn,
    process_of,
    processes_of,
    shell,
)
from tests.process.nodes import PORT
from tests.support.waiting import LIMIT_S
from tests.toxiproxy.conftest import serving

pytestmark = pytest.mark.process


@pytest.mark.quick
def test_nodes_talk_and_trace(run, only_a):
    async def draws(driver):
        nodes = driver.cluster.nodes
        return {name: (await driver.wait_event("ready", name)).data["draw"] for name in nodes}

    async def body(driver):
        answer = await driver.ask("a", {"echo": "hi"})
        assert answer == {"from": "a", "boot": 0, "peer": CLIENT, "echo": "hi"}
        answer = await driver.ask("a", {"ask": "b", "text": "x", "for_s": LIMIT_S})
        assert (answer["from"], answer["peer"]) == ("b", "a")
        assert (await driver.ask("a", {"ask": "a", "text": "x", "for_s": LIMIT_S}))["peer"] == "a"
        assert [driver.cluster.state(name) for name in "ab"] == [NodeState.RUNNING] * 2
        started = await driver.wait_event("node-started", "a")
        assert started.data == {"boot": 0}
        return await draws(driver)

    drawn = run(body, [*only_a, echo_spec("b")])
    assert drawn["a"] != drawn["b"]
    assert run(draws, only_a) == {"a": drawn["a"]}  # random numbers follow from the seed


async def reset_resets_and_counts(driver):
    conn = await driver.session.env.net.connect(Address("b", PORT))
    assert await driver.cluster.reset([Link("b", CLIENT), Link(CLIENT, "b")]) == 1
    with pytest.raises(ConnectionResetError):
        await conn.recv()
    assert await driver.cluster.reset([Link("a", "b")]) == 0


async def unsupported_faults_name_who_can(driver):
    for what in ("drop", "duplicate", "reorder"):
        with pytest.raises(UsageError, match=rf"'process' cannot do '{what}'; use --env sim"):
            await door(driver).shape([Link("a", "b")], LinkQuality(**{what: 0.1}))
        assert Capability(what) not in driver.cluster.capabilities
    with pytest.raises(UsageError, match="'z'"):
        await door(driver).cut([Link("a", "z")])


@pytest.mark.quick
def test_links_are_cut_and_reset(run, three):
    run(in_turn(reset_resets_and_counts, unsupported_faults_name_who_can), three)


async def a_kill_is_the_nemesiss_and_ends_what_a_node_uses(driver):
    await driver.ask("a", {"remember": "one"})
    assert 1 << 20 < (await driver.cluster.usage("a")).memory_bytes < 1 << 30
    assert await driver.cluster.kill("a")
    down = await driver.cluster.usage("a")
    assert (down.memory_bytes, down.written_bytes) == (None, None)
    assert down.disk_bytes >= len("one")
    with pytest.raises(UsageError):
        await driver.cluster.usage("nobody")
    exited = await driver.wait_event("node-exited", "a")
    assert (exited.data["code"], exited.data["by"]) == (-signal.SIGKILL, "nemesis")
    assert await driver.cluster.wipe("a")


async def a_frozen_node_is_stopped_in_order_and_killed(driver):
    await driver.cluster.pause("a", lease_s=600)
    assert await driver.cluster.stop("a")
    assert (await driver.wait_event("node-exited", "a")).data["code"] == 0
    assert not await driver.cluster.pause("a", lease_s=600)
    await driver.cluster.start("a")
    await driver.cluster.pause("a", lease_s=600)
    assert await driver.cluster.kill("a")
    assert driver.cluster.state("a") is NodeState.DOWN


async def an_unexpected_exit_is_told_with_its_log(driver):
    with pytest.raises((ConnectionError, TimeoutError)):
        await driver.ask("a", {"panic": "the sky is falling"})
    exited = await driver.wait_event("node-exited", "a")
    assert (exited.data["code"], exited.data["expected"]) == (1, False)
    assert exited.data["by"] == "itself"
    assert "the sky is falling" in exited.data["log"][-1]
    assert driver.cluster.state("a") is NodeState.DOWN
    assert "the sky is falling" in (await driver.cluster.logs("a", last_lines=1))[0]


async def a_power_cut_that_the_host_does_not_let_happen_is_not_blamed(driver):
    await driver.cluster.kill("a", lose_unsynced=True, torn=True)
    # a folder in place of the file, which makes reading fail
    (driver.cluster._nodes["a"]._data / f"x{SUFFIX}").mkdir()
    await driver.cluster.start("a")
    exited = await driver.wait_event("node-exited", "a", count=2)
    assert (exited.data["expected"], exited.data["by"]) == (False, "host")
    await driver.cluster.wipe("a")


async def a_signal_from_outside_is_the_hosts_doing(driver):
    # Do not use SIGHUP: under `nohup`, the nodes ignore it as well.
    for count, number in enumerate((signal.SIGKILL, signal.SIGUSR1, signal.SIGXCPU), start=1):
        assert procfs.send(await process_of("node:s"), number)
        exited = await driver.wait_event("node-exited", "s", count)
        assert (exited.data["expected"], exited.data["by"]) == (False, "host")
        assert f"{number.name}, which the harness did not send" in exited.data["log"][-1]
        await driver.cluster.start("s")


async def a_signal_of_a_programs_own_mistakes_is_its_own(driver):
    assert procfs.send(await process_of("node:s"), signal.SIGSEGV)
    exited = await driver.wait_event("node-exited", "s")
    assert (exited.data["expected"], exited.data["by"]) == (False, "itself")


async def what_somebody_else_stops_is_told_until_it_goes_on(driver):
    for role, node in (("node:s", "s"), ("link-proxy", "")):
        assert procfs.send(await process_of(role), signal.SIGSTOP)
        assert (await driver.wait_event("infrastructure", node)).data["lasts"]
        assert procfs.send(await process_of(role), signal.SIGCONT)
        assert (await driver.wait_event("infrastructure", node, 2)).data["over"]


async def a_pause_that_somebody_else_ends_is_told(driver):
    assert await driver.cluster.pause("s", lease_s=60)
    assert procfs.send(await process_of("node:s"), signal.SIGCONT)
    report = await driver.wait_event("infrastructure", "s")
    assert (report.data["undid"], report.data["lasts"]) == ("pause", True)
    assert await driver.cluster.resume("s")
    assert (await driver.wait_event("infrastructure", "s", 2)).data["over"]
    assert {event.node for event in driver.events if event.kind == "infrastructure"} == {"s"}


CONTROL = "harness.environments.host.control._ANSWER_TIMEOUT_S"


async def a_condition_is_not_waited_for_longer_than_the_node_lives(driver):
    """A hanging node is reported; a paused or dead one just keeps its condition."""
    cluster, hour_ns = driver.cluster, 3600 * 10**9
    # the harness did not stop the node: it just hangs
    assert procfs.send(await process_of("node:a"), signal.SIGSTOP)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CONTROL, 0.05)
        with pytest.raises(InfrastructureError, match="a runs, but did not carry out"):
            await cluster.skew("a", offset_ns=hour_ns)
    setting = asyncio.create_task(cluster.worsen_disk("a", DiskQuality(full=True)))
    await asyncio.sleep(0)
    assert await cluster.kill("a")
    assert await setting == 0
    await cluster.start("a")
    await driver.wait_event("ready", "a")
    wall_ns = (await driver.ask("a", {"clock": 1}))["wall_ns"]
    assert wall_ns - time.time_ns() == pytest.approx(hour_ns, abs=LIMIT_S * 1e9)
    assert (await driver.ask("a", {"remember": "x"}))["error"] == "ENOSPC"
    assert await cluster.worsen_disk("a", DiskQuality()) == 1
    assert await driver.ask("a", {"recall": 1}) == []
    assert "control" not in "".join(await cluster.logs("a", last_lines=500))


async def a_node_that_does_not_listen_does_not_hold_up_the_driver(driver):
    assert procfs.send(await process_of("node:a"), signal.SIGSTOP)
    reason = ""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CONTROL, 0.001)
        async with asyncio.timeout(LIMIT_S):
            while "does not read its standard input" not in reason:
                with pytest.raises(InfrastructureError) as error:
                    await driver.cluster.skew("a", offset_ns=1)
                reason = str(error.value)
    assert await driver.cluster.kill("a")


def test_nodes_are_killed_paused_and_end_by_themselves(run, only_a, sleeper, tmp_path, monkeypatch):
    monkeypatch.setattr(CONTROL, LIMIT_S)
    checks = (
        a_frozen_node_is_stopped_in_order_and_killed,
        a_kill_is_the_nemesiss_and_ends_what_a_node_uses,
        a_condition_is_not_waited_for_longer_than_the_node_lives,
        a_node_that_does_not_listen_does_not_hold_up_the_driver,
        a_power_cut_that_the_host_does_not_let_happen_is_not_blamed,
        an_unexpected_exit_is_told_with_its_log,
        a_signal_from_outside_is_the_hosts_doing,
        a_signal_of_a_programs_own_mistakes_is_its_own,
        what_somebody_else_stops_is_told_until_it_goes_on,
        a_pause_that_somebody_else_ends_is_told,
    )
    run(in_turn(*checks), [*only_a, *sleeper])
    assert "the sky is falling" in (tmp_path / "run" / "logs" / "a.log").read_text()


def test_a_node_that_fails_on_a_full_disk_is_not_blamed(run, monkeypatch):
    monkeypatch.setattr("harness.environments.process.node._ROOM_BYTES_MIN", 1 << 62)

    async def body(driver):
        exited = await driver.wait_event("node-exited", "s")
        assert (exited.data["expected"], exited.data["by"]) == (False, "host")
        assert "is full" in exited.data["log"][-1]

    run(body, [shell("s", "exit 1")], wait=False)


@pytest.mark.quick
def test_a_result_outlives_a_failing_teardown(run, sleeper, caplog):
    async def body(driver):
        driver.session.env.disk.close = None  # makes closing the clients' disk fail
        return "verdict"

    assert run(body, sleeper) == "verdict"
    assert "teardown failed" in caplog.text


@pytest.mark.quick
def test_errors_of_main_come_through(run, sleeper):
    async def body(driver):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(body, sleeper)


def test_a_failing_client_task_ends_the_run(run, sleeper):
    async def fail():
        raise LookupError("in a client")

    async def body(driver):
        driver.session.env.spawn(fail(), name="client")
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(LookupError, match="in a client"):
        run(body, sleeper)


@pytest.mark.quick
def test_a_dead_link_proxy_ends_the_run(run, sleeper):
    async def body(driver):
        assert procfs.send(await process_of("link-proxy"), signal.SIGKILL)
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(InfrastructureError, match="link proxy ended with code -9"):
        run(body, sleeper)


@pytest.mark.quick
def test_first_signal_interrupts_and_second_aborts(run, only_a):
    async def body(driver):
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(LIMIT_S):
            await driver.session.interrupted.wait()
        assert await driver.ask("a", {"echo": "still here"})
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(KeyboardInterrupt):
        run(body, only_a)


def test_a_command_that_cannot_be_started_names_its_node(run):
    async def body(driver):
        raise AssertionError

    with pytest.raises(StartError, match=r"cannot start '/.*/program'") as raised:
        run(body, [foreign("x", "{data}/program")], wait=False)
    assert (raised.value.node, raised.value.part) == ("x", "command")


def test_impossible_plans_start_nothing(run):
    image = NodeSpec(name="x", role="r", ports=(1,), image="catalog:1")
    for specs, text in [
        ([image], "use --env docker"),
        ([echo_spec("a"), echo_spec("a")], "unique"),
        ([echo_spec("client")], "client"),
        ([echo_spec("a/b")], "must match"),
    ]:
        with pytest.raises(UsageError, match=text):
            run(lambda driver: None, specs)


@pytest.mark.toxiproxy
def test_with_a_real_toxiproxy(run, three):
    async def body(driver):
        assert await driver.reaches("a", "b") == "ok"
        fault = await door(driver).cut([Link("a", "b")])
        assert await driver.is_cut("a", "b")
        assert await driver.reaches("b", "c") == "ok"
        bite = await door(driver).heal(fault)
        assert bite.count is None or bite.count > 0
        assert await driver.reaches("a", "b") == "ok"
        conn = await driver.session.env.net.connect(Address("b", PORT))
        assert await driver.cluster.reset([Link(CLIENT, "b")]) == 1
        assert await conn.recv() is None
        conn.close()
        return bite

    with serving("real") as server:
        server.request("POST", "/proxies", {"name": "not-ours", "upstream": "127.0.0.1:9"})
        bite = run(body, three, link_proxy=server.url)
        assert bite.count > 0
        assert list(server.request("GET", "/proxies")[1]) == ["not-ours"]


def test_a_link_proxy_that_does_not_answer_is_a_usage_error(run, sleeper):
    with pytest.raises(UsageError, match="no Toxiproxy server answers there"):
        run(lambda driver: None, sleeper, link_proxy="http://127.0.0.1:9")
    with pytest.raises(UsageError, match="on this machine"):
        run(lambda driver: None, sleeper, link_proxy="http://192.0.2.1:8474")


def test_it_is_available_here():
    assert ProcessEnvironment().unavailable() is None
    assert processes_of("no-such-run") == []


def test_a_starved_node_is_reported(run, monkeypatch):
    monkeypatch.setattr("harness.environments.host.starvation._LOOK_S", 0.25)
    specs = [shell(name, "while :; do :; done") for name in "abcd"]

    async def body(driver):
        async def told():
            count = sum(event.kind == "starvation" for event in driver.events)
            return (await driver.wait_event("starvation", "", count + 1)).data

        for name in "abcd":
            os.sched_setaffinity(
                (await process_of(f"node:{name}")).pid, {min(os.sched_getaffinity(0))}
            )
        await driver.wait_event("ready", "e")
        # the report may be about the fifth node's start, which needed a processor
        await told()
        starved = set()
        while starved != set("abcd"):
            data = await told()
            assert data["until_ns"] <= time.monotonic_ns()
            starved |= data["waited_s"].keys() & set("abcde")
        assert await driver.ask("e", {"echo": "still here"})

    run(body, [*specs, echo_spec("e")], wait=False)


def test_a_failing_subscriber_ends_the_run(run, sleeper):
    async def body(driver):
        def full(event):
            raise InfrastructureError(f"no room for {event.kind}")

        driver.cluster.subscribe(full)
        await driver.cluster.kill("s")
        await asyncio.sleep(LIMIT_S)
        return "a verdict on a history that lacks the exit"

    with pytest.raises(InfrastructureError, match="no room for node-exited"):
        run(body, sleeper)


def test_an_exit_is_seen_even_if_the_last_output_cannot_be_read(run, sleeper, monkeypatch):
    def unreadable(descriptor, size):
        raise OSError(errno.EIO, "Input/output error")

    async def body(driver):
        with monkeypatch.context() as patched:
            patched.setattr("harness.environments.process.child.os.read", unreadable)
            assert await driver.cluster.kill("s")
        exited = await driver.wait_event("node-exited", "s")
        assert exited.data["expected"]
        assert "Input/output" in (await driver.wait_event("infrastructure", "s")).data["what"]

    run(body, sleeper)
