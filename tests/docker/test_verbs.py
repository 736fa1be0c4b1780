"""Operations of `Cluster` on a real engine.

Many checks share one cluster, because starting containers costs more than the checks.
"""

import asyncio
import contextlib
import secrets
import statistics
import time

import msgspec
import pytest

import docker
from harness.cluster import CLIENT, Bite, Link, LinkQuality, NodeState, StreamQuality
from harness.env import Address
from harness.environments.docker.engine.labels import Part, container_name
from harness.errors import UsageError
from tests.docker.echo import PORT
from tests.docker.support import ask, echo_nodes, in_turn, plan_of, silence, wait_answering
from tests.faults.door import door
from tests.support.waiting import LIMIT_S, until

pytestmark = [pytest.mark.docker, pytest.mark.slow]

LONG_S = 120.0


async def clients_have_slow_links_too_and_a_stall_ends_with_what_it_held(session):
    for link in (Link("n1", CLIENT), Link(CLIENT, "n1")):
        fault = await door(session).shape([link], LinkQuality(delay_ms=400))
        for node in ("n1", "n2"):
            started_s = time.monotonic()
            await ask(session, node, "who")
            # Connecting and asking each send one packet in this direction, which is delayed.
            assert (time.monotonic() - started_s >= 0.4) == (node == "n1"), link
        await door(session).heal(fault)
    fault = await door(session).shape([Link("n1", CLIENT)], LinkQuality(stall=True))
    asking = asyncio.create_task(ask(session, "n1", "who", timeout_s=LIMIT_S))
    answered_in_a_stall, _ = await asyncio.wait([asking], timeout=1.0)
    await door(session).heal_all()
    assert not answered_in_a_stall
    assert (await asking)["name"] == "n1"
    assert (await door(session).heal(fault)).count > 0


async def copies_of_packets_are_not_copied_again_either_way(session):
    for link in (Link("n1", CLIENT), Link(CLIENT, "n1")):
        fault = await door(session).shape([link], LinkQuality(duplicate=1.0))
        for _ in range(10):
            assert (await ask(session, "n1", "who"))["name"] == "n1"
        bite = await door(session).heal(fault)
        assert 10 <= bite.count <= 1000, link  # a few packets per answer


async def an_open_connection_is_reset_for_a_bad_stream_and_outlives_it(session):
    passes_by = await session.env.net.connect(Address("n1", PORT))
    fault = await door(session).shape([Link("n1", CLIENT)], StreamQuality(slice_bytes=8))
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionResetError):
            assert await passes_by.recv() is None
    passes_by.close()
    conn = await session.env.net.connect(Address("n1", PORT))
    for _ in range(2):
        await conn.send(msgspec.json.encode(["who"]))
        async with asyncio.timeout(LIMIT_S):
            assert msgspec.json.decode(await conn.recv())["name"] == "n1"
        assert await door(session).heal(fault) == Bite(1, "connections")
    conn.close()


async def what_the_engine_loses_of_an_answer_is_asked_for_again(session):
    """A busy engine may lose the output of a command that succeeded."""
    whole = docker.APIClient.exec_start
    lost = []

    def losing(api, *arguments, **named):
        output = whole(api, *arguments, **named)
        lost.append(output)
        return output if len(lost) % 2 == 0 else output[: len(output) // 2]

    cluster = session.cluster
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(docker.APIClient, "exec_start", losing)
        fault = await door(session).cut([Link("n1", "n2")])
        assert await silence(session, "n1", "n2") == "TimeoutError"
        assert (await door(session).heal(fault)).count > 0
        conn = await session.env.net.connect(Address("n1", PORT))
        await conn.send(msgspec.json.encode(["who"]))
        await conn.recv()  # the connection has reached the node, not only a proxy
        assert await cluster.reset([Link(CLIENT, "n1")]) >= 1
        conn.close()
    assert len(lost) >= 8


async def a_cut_holds_across_a_restart(session):
    cluster = session.cluster
    lasting = await door(session).cut([Link("n1", "n2")])
    await cluster.kill("n2")
    await cluster.start("n2")
    await wait_answering(session, "n2")
    assert await silence(session, "n1", "n2") == "TimeoutError"
    assert (await door(session).heal(lasting)).count > 0


async def a_cut_whose_rules_somebody_deletes_is_undone(session, engine, keeper):
    reports = []
    session.cluster.subscribe(lambda e: e.kind == "infrastructure" and reports.append(e.node))
    fault = await door(session).cut([Link("n1", "n2")])
    flushed = await asyncio.to_thread(engine.exec, keeper, ["iptables", "-F"])
    assert flushed.code == 0
    assert (await door(session).heal(fault)).undone
    assert "n2" in reports


async def events_of_nodes_arrive_within_a_tenth_of_a_second(session):
    arrived = asyncio.Event()
    session.cluster.subscribe(lambda event: event.kind == "leader" and arrived.set())
    asks_s, waits_s = [], []
    for number in range(105):
        arrived.clear()
        asked_s = time.monotonic()
        await ask(session, "n1", "event", "leader")
        answered_s = time.monotonic()
        async with asyncio.timeout(LIMIT_S):
            await arrived.wait()
        asks_s.append(answered_s - asked_s)
        waits_s.append(time.monotonic() - answered_s)
        # Allow for a busy machine: the median of the latest requests shows how slow it is now.
        last = statistics.median(asks_s[-21:]), statistics.median(waits_s[-21:])
        if number >= 20 and last[1] < 0.1 + last[0]:
            return
    raise AssertionError(last)


async def a_node_that_gets_no_processor_is_told(session):
    starved = set()
    session.cluster.subscribe(
        lambda e: e.kind == "starvation" and starved.update(e.data["waited_s"])
    )
    nodes = set(session.cluster.nodes)
    assert session.cluster.pids().keys() == nodes
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("harness.environments.host.starvation._LOOK_S", 0.2)
        async with asyncio.timeout(LONG_S):
            while not nodes <= starved:
                spins = (ask(session, node, "spin", 1, timeout_s=LONG_S) for node in nodes)
                await asyncio.gather(*spins)
    await session.cluster.kill("n1")
    assert nodes - session.cluster.pids().keys() == {"n1"}


def test_links_of_nodes_and_clients(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"

    async def flushed(session):
        keeper = container_name(run_id, "n2", Part.KEEPER)
        await a_cut_whose_rules_somebody_deletes_is_undone(session, engine, keeper)

    checks = (
        clients_have_slow_links_too_and_a_stall_ends_with_what_it_held,
        copies_of_packets_are_not_copied_again_either_way,
        an_open_connection_is_reset_for_a_bad_stream_and_outlives_it,
        what_the_engine_loses_of_an_answer_is_asked_for_again,
        events_of_nodes_arrive_within_a_tenth_of_a_second,
        a_cut_holds_across_a_restart,
        a_node_that_gets_no_processor_is_told,
        flushed,
    )
    environment.execute(plan_of(echo_nodes(3), run_id=run_id), in_turn(*checks))


async def a_kill_ends_what_a_node_uses_and_exits_have_their_codes(session):
    cluster, exits = session.cluster, []
    cluster.subscribe(lambda event: event.kind == "node-exited" and exits.append(event.data))
    assert 1 << 20 < (await cluster.usage("n1")).memory_bytes < 1 << 30
    await cluster.kill("n1")
    assert not (await cluster.usage("n1")).memory_bytes
    with pytest.raises(ConnectionRefusedError):
        await ask(session, "n1", "who")
    await cluster.start("n1")
    await wait_answering(session, "n1")
    await cluster.stop("n1")
    assert [(data["code"], data["expected"]) for data in exits] == [(137, True), (0, True)]


async def a_frozen_node_can_be_cut_off_and_killed(session):
    cluster = session.cluster
    await cluster.pause("n1", lease_s=LONG_S)
    fault = await door(session).cut([Link("n2", "n1")])
    await door(session).heal(fault)
    assert await cluster.kill("n1")
    assert cluster.state("n1") is NodeState.DOWN


async def exit_of(session, node, end):
    """End a node by `end`, and return the report of its exit."""
    reports = []
    session.cluster.subscribe(
        lambda e: (e.kind, e.node) == ("node-exited", node) and reports.append(e.data)
    )
    await end()
    await until(lambda: reports)
    return reports[0]


async def an_exit_nobody_asked_for_is_noticed(session):
    async def end():
        with pytest.raises(OSError, match="n1"):
            await ask(session, "n1", "exit", 3)

    data = await exit_of(session, "n1", end)
    assert (data["code"], data["expected"], data["by"]) == (3, False, "itself")
    assert any("listening" in line for line in data["log"])


async def a_slowed_node_gets_its_part_of_a_processor(session, engine):
    """A CPU limit survives a wipe and a restart, is not starvation, and ends with a heal."""
    cluster = session.cluster
    container = cluster._nodes["n1"].container

    def quota():
        return engine._api.inspect_container(container)["HostConfig"]["CpuQuota"]

    starved = set()
    cluster.subscribe(lambda e: e.kind == "starvation" and starved.update(e.data["waited_s"]))
    await cluster.slow("n1", factor=10.0)
    # A node may use its share of the first 0.1 s at once.
    assert await ask(session, "n1", "work", 0.5, timeout_s=LONG_S) > 3.5
    assert cluster.pids().keys() == {"n2"}
    await cluster.kill("n1")
    await cluster.wipe("n1")
    await cluster.start("n1")
    await wait_answering(session, "n1")
    assert await ask(session, "n1", "work", 0.3, timeout_s=LONG_S) > 1.8
    assert await asyncio.to_thread(quota) == 10_000
    for factor in (0.5, 101.0):
        with pytest.raises(UsageError, match=f"factor is {factor}"):
            await cluster.slow("n1", factor=factor)
    await door(session).heal_all()
    assert await asyncio.to_thread(quota) == -1
    assert "n1" not in starved


async def a_signal_from_outside_is_not_the_targets_doing(session, engine, container):
    for number, by, note in (("SIGKILL", "host", "memory limit"), ("SIGHUP", "unknown", "")):

        async def end(number=number):
            await asyncio.to_thread(engine._api.kill, container, signal=number)

        data = await exit_of(session, "n1", end)
        assert (data["expected"], data["by"]) == (False, by)
        assert note in data["log"][-1]
        await session.cluster.start("n1")
        await wait_answering(session, "n1")


async def what_somebody_else_freezes_or_thaws_is_told(session, engine, container):
    reports = []
    session.cluster.subscribe(lambda e: e.kind == "infrastructure" and reports.append(e.data))
    engine.pause(container)
    await until(lambda: len(reports) == 1)
    engine.unpause(container)
    await until(lambda: len(reports) == 2)
    assert await session.cluster.pause("n1", lease_s=LONG_S)
    engine.unpause(container)
    await until(lambda: len(reports) == 3)
    assert [(data.get("lasts"), data.get("over"), data.get("undid")) for data in reports] == [
        (True, None, None),
        (None, True, None),
        (True, None, "pause"),
    ]


def test_nodes_are_killed_paused_slowed_and_end_by_themselves(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    container = container_name(run_id, "n1")

    async def slowed(session):
        await a_slowed_node_gets_its_part_of_a_processor(session, engine)

    async def signalled(session):
        await a_signal_from_outside_is_not_the_targets_doing(session, engine, container)

    async def frozen(session):
        await what_somebody_else_freezes_or_thaws_is_told(session, engine, container)

    checks = (
        a_kill_ends_what_a_node_uses_and_exits_have_their_codes,
        a_frozen_node_can_be_cut_off_and_killed,
        an_exit_nobody_asked_for_is_noticed,
        slowed,
        signalled,
        frozen,
    )
    environment.execute(plan_of(echo_nodes(2), run_id=run_id), in_turn(*checks))
