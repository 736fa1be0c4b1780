"""The docker environment against a real engine."""

import asyncio
import http.client
import os
import secrets
import signal
import statistics
import subprocess
import sys
import time

import msgspec
import pytest

import docker
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
from harness.environments.docker.labels import RUN_LABEL, container_name, keeper_name
from harness.environments.docker.volumes import volumes
from harness.errors import InfrastructureError, UsageError
from tests.cleaning import only_cleaner
from tests.docker.echo import PORT
from tests.docker.support import ask, echo_nodes, plan_of, silence, wait_answering
from tests.process.conftest import processes_of
from tests.waiting import LIMIT_S, until, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.slow]

LONG_S = 120.0


def execute(environment, main, *, nodes=3, **plan):
    """Run `main(session)` on that many echo nodes which answer."""

    async def ready(session):
        await wait_answering(session, *session.cluster.nodes)
        return await main(session)

    return environment.execute(plan_of(echo_nodes(nodes), **plan), ready)


def found(engine, run_id):
    label = f"{RUN_LABEL}={run_id}"
    kinds = (engine.containers(label), engine.networks(label), volumes(engine, label))
    return sorted(item.name for kind in kinds for item in kind)


def test_nodes_come_up_unprivileged_and_the_run_leaves_nothing(environment, engine, tmp_path):
    run_id = f"test-{secrets.token_hex(4)}"

    async def main(session):
        who = [await ask(session, node, "who") for node in session.cluster.nodes]
        api = engine._api
        settings = {}
        for node in session.cluster.nodes:
            for name in (container_name(run_id, node), keeper_name(run_id, node)):
                settings[name] = api.inspect_container(name)
        return who, settings

    who, settings = execute(environment, main, folder=tmp_path, run_id=run_id)

    expected = [
        {"name": f"n{index}", "boot": 0, "uid": 65532, "caps": "0" * 16} for index in (1, 2, 3)
    ]
    assert who == expected
    for name, found_settings in settings.items():
        host = found_settings["HostConfig"]
        assert host["CapDrop"] == ["ALL"]
        added = [capability.removeprefix("CAP_") for capability in host["CapAdd"] or ()]
        assert added == (["NET_ADMIN"] if name.endswith(".net") else [])
        assert host["PidsLimit"] > 0
        assert host["Memory"] > 0
        bindings = found_settings["NetworkSettings"]["Ports"]
        addresses = {item["HostIp"] for items in bindings.values() for item in items or ()}
        assert addresses == ({"127.0.0.1"} if name.endswith(".net") else set())
    assert found(engine, run_id) == []
    assert '"event":"listening"' in (tmp_path / "logs" / "n1.log").read_text()


def test_a_one_way_cut_is_one_way_counted_and_healed_once(environment):
    async def main(session):
        cluster = session.cluster
        before = await ask(session, "n1", "ask", "n2", LIMIT_S)
        fault = await cluster.cut([Link("n1", "n2")], lease_s=LONG_S)
        during = [
            await silence(session, "n1", "n2"),
            await ask(session, "n1", "ask", "n3", LIMIT_S),
            await ask(session, "n3", "ask", "n2", LIMIT_S),
        ]
        bite = await cluster.heal(fault)
        again = await cluster.heal(fault)
        after = await ask(session, "n1", "ask", "n2", LIMIT_S)
        return before, during, bite, again, after

    before, during, bite, again, after = execute(environment, main)

    assert (before, after) == ("n2", "n2")
    assert during == ["TimeoutError", "n3", "n2"]
    assert bite.unit == "packets"
    assert bite.count > 0
    assert again == bite


def test_an_established_connection_stalls_and_goes_on_when_healed(environment):
    async def main(session):
        conn = await session.env.net.connect(Address("n1", PORT))
        await conn.send(msgspec.json.encode(["who"]))
        before = await conn.recv()
        fault = await session.cluster.cut([Link(CLIENT, "n1")], lease_s=LONG_S)
        await conn.send(msgspec.json.encode(["who"]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await conn.recv()
        await session.cluster.heal(fault)
        async with asyncio.timeout(LIMIT_S):
            after = await conn.recv()
        conn.close()
        return before, after

    before, after = execute(environment, main, nodes=1)

    assert before == after


def test_partitions_overlap_and_heal_in_parts(environment):
    async def main(session):
        cluster = session.cluster
        first = await cluster.cut(Link.between(["n1"], ["n2", "n3"]), lease_s=LONG_S)
        second = await cluster.cut(Link.between(["n1"], ["n2"]), lease_s=LONG_S)
        await silence(session, "n1", "n2")
        bite_of_second = await cluster.heal(second)
        still_cut = await silence(session, "n1", "n2")
        await cluster.heal_among(["n1", "n2"])
        healed = await ask(session, "n1", "ask", "n2", LIMIT_S)
        outside = await silence(session, "n1", "n3")
        await cluster.heal_all()
        whole = await ask(session, "n1", "ask", "n3", LIMIT_S)
        return bite_of_second, still_cut, healed, outside, whole, await cluster.heal(first)

    second, still_cut, healed, outside, whole, first = execute(environment, main)

    assert second.count > 0
    assert (still_cut, healed, outside, whole) == ("TimeoutError", "n2", "TimeoutError", "n3")
    assert first.count > second.count


def test_clients_can_be_cut_in_either_direction(environment):
    async def main(session):
        outcomes = []
        for link in (Link(CLIENT, "n1"), Link("n1", CLIENT)):
            fault = await session.cluster.cut([link], lease_s=LONG_S)
            for _ in range(3):  # a proxy hands it on, in its own time
                with pytest.raises(TimeoutError):
                    await ask(session, "n1", "who", timeout_s=2)
            peers = await ask(session, "n2", "ask", "n1", LIMIT_S)
            bite = await session.cluster.heal(fault)
            outcomes.append((peers, bite.count > 0))
            await ask(session, "n1", "who")
        return outcomes

    assert execute(environment, main, nodes=2) == [("n1", True), ("n1", True)]


def test_what_the_engine_loses_of_an_answer_is_asked_for_again(environment, monkeypatch):
    """A busy engine does so by itself: the command succeeded, and what it said does not come."""
    whole = docker.APIClient.exec_start
    lost = []

    def losing(api, *arguments, **named):
        said = whole(api, *arguments, **named)
        lost.append(said)
        return said if len(lost) % 2 == 0 else said[: len(said) // 2]

    monkeypatch.setattr(docker.APIClient, "exec_start", losing)

    async def main(session):
        cluster = session.cluster
        fault = await cluster.cut([Link("n1", "n2")], lease_s=LONG_S)
        heard = await silence(session, "n1", "n2")
        bite = await cluster.heal(fault)
        conn = await session.env.net.connect(Address("n1", PORT))
        await conn.send(msgspec.json.encode(["who"]))
        await conn.recv()  # it is through to the node, and no proxy's alone
        aborted = await cluster.reset([Link(CLIENT, "n1")])
        conn.close()
        return heard, bite.count, aborted

    heard, dropped, aborted = execute(environment, main, nodes=2)

    assert heard == "TimeoutError"
    assert dropped > 0
    assert aborted >= 1
    assert len(lost) >= 8


def test_a_cut_holds_across_a_restart_and_its_lease_ends_it(environment):
    async def main(session):
        cluster = session.cluster
        lasting = await cluster.cut([Link("n1", "n2")], lease_s=600.0)
        await cluster.kill("n2")
        await cluster.start("n2")
        await wait_answering(session, "n2")
        during = await silence(session, "n1", "n2")
        bite = await cluster.heal(lasting)
        started = time.monotonic()
        await cluster.cut([Link("n1", "n2")], lease_s=2.0)
        while await ask(session, "n1", "ask", "n2", 5.0) != "n2":
            assert time.monotonic() - started < 2 * LIMIT_S
        return during, bite, time.monotonic() - started

    during, bite, healed_after_s = execute(environment, main)

    assert during == "TimeoutError"
    assert bite.count > 0
    assert healed_after_s >= 1.9


def test_kill_keeps_the_disk_wipe_empties_it_and_boots_are_counted(environment):
    async def main(session):
        cluster = session.cluster
        events = []
        cluster.subscribe(lambda event: events.append((event.node, event.kind, event.data)))
        await ask(session, "n1", "append", "kept")
        assert 1 << 20 < await cluster.memory_bytes("n1") < 1 << 30
        killed = [await cluster.kill("n1"), await cluster.kill("n1"), cluster.state("n1")]
        assert not await cluster.memory_bytes("n1")
        with pytest.raises(ConnectionRefusedError):
            await ask(session, "n1", "who")
        assert [await cluster.start("n1"), await cluster.start("n1")] == [True, False]
        await wait_answering(session, "n1")
        kept = await ask(session, "n1", "read")
        boot = (await ask(session, "n1", "who"))["boot"]
        with pytest.raises(UsageError, match="kill or stop it first"):
            await cluster.wipe("n1")
        await cluster.stop("n1")
        await cluster.wipe("n1")
        await cluster.start("n1")
        await wait_answering(session, "n1")
        await ask(session, "n1", "append", "fresh")
        return killed, kept, boot, await ask(session, "n1", "read"), events

    killed, kept, boot, fresh, events = execute(environment, main, nodes=1)

    assert killed == [True, False, NodeState.DOWN]
    assert (kept, boot, fresh) == ("kept", 1, "fresh")
    exits = [(data["code"], data["expected"]) for _, kind, data in events if kind == "node-exited"]
    assert exits[:2] == [(137, True), (0, True)]
    boots = [data["boot"] for _, kind, data in events if kind == "node-started"]
    assert boots[-2:] == [1, 2]


def test_a_pause_freezes_and_its_lease_thaws(environment):
    async def main(session):
        cluster = session.cluster
        paused = [await cluster.pause("n1", lease_s=10), await cluster.pause("n1", lease_s=LONG_S)]
        frozen_state = cluster.state("n1")
        with pytest.raises(TimeoutError):
            await ask(session, "n1", "who", timeout_s=0.5)
        await until(lambda: cluster.state("n1") is NodeState.RUNNING)
        answer = await ask(session, "n1", "who")
        assert not await cluster.resume("n1")
        # Cuts on a frozen node work, and a frozen node can be killed.
        await cluster.pause("n1", lease_s=LONG_S)
        fault = await cluster.cut([Link("n2", "n1")], lease_s=LONG_S)
        await cluster.heal(fault)
        killed = await cluster.kill("n1")
        return paused, frozen_state, answer["name"], killed, cluster.state("n1")

    result = execute(environment, main, nodes=2)

    assert result == ([True, False], NodeState.PAUSED, "n1", True, NodeState.DOWN)


def test_an_exit_nobody_asked_for_is_noticed(environment):
    async def main(session):
        events = []
        session.cluster.subscribe(events.append)
        with pytest.raises(OSError, match="n1"):
            await ask(session, "n1", "exit", 3)
        await until(lambda: any(e.kind == "node-exited" for e in events))
        (event,) = [e for e in events if e.kind == "node-exited"]
        return event.node, event.data

    node, data = execute(environment, main, nodes=2)

    assert (node, data["code"], data["expected"], data["by"]) == ("n1", 3, False, "itself")
    assert any("listening" in line for line in data["log"])


@pytest.mark.parametrize(("number", "by"), [("SIGKILL", "host"), ("SIGHUP", "unknown")])
def test_a_signal_from_outside_is_not_the_targets_doing(environment, engine, number, by):
    run_id = f"test-{secrets.token_hex(4)}"

    async def main(session):
        events = []
        session.cluster.subscribe(events.append)
        engine._api.kill(container_name(run_id, "n1"), signal=number)
        await until(lambda: any(e.kind == "node-exited" for e in events))
        return next(e.data["by"] for e in events if e.kind == "node-exited")

    assert execute(environment, main, nodes=1, run_id=run_id) == by


def test_what_somebody_else_freezes_or_thaws_is_told(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    container = container_name(run_id, "n1")

    async def main(session):
        told = []
        session.cluster.subscribe(lambda e: e.kind == "infrastructure" and told.append(e.data))
        engine.pause(container)
        await until(lambda: len(told) == 1)
        engine.unpause(container)
        await until(lambda: len(told) == 2)
        assert await session.cluster.pause("n1", lease_s=LONG_S)
        engine.unpause(container)
        await until(lambda: len(told) == 3)
        return [(data.get("lasts"), data.get("over"), data.get("undid")) for data in told]

    assert execute(environment, main, nodes=1, run_id=run_id) == [
        (True, None, None),
        (None, True, None),
        (True, None, "pause"),
    ]


def test_a_node_that_gets_no_processor_is_told(environment):
    """The engine runs here, so its containers' processes are seen."""

    async def main(session):
        starved = set()
        session.cluster.subscribe(
            lambda e: e.kind == "starvation" and starved.update(e.data["waited_s"])
        )
        nodes = set(session.cluster.nodes)
        assert session.cluster.pids().keys() == nodes
        async with asyncio.timeout(LONG_S):
            while not nodes <= starved:
                spins = (ask(session, node, "spin", 2, timeout_s=LONG_S) for node in nodes)
                await asyncio.gather(*spins)
        await session.cluster.kill("n1")
        return nodes - session.cluster.pids().keys()

    assert execute(environment, main, nodes=3) == {"n1"}


def test_a_slowed_node_gets_its_part_of_a_processor(environment, engine):
    """Also after a wipe and a restart; nobody is told that the host starves it; a heal ends it."""

    async def main(session):
        cluster = session.cluster
        container = cluster._nodes["n1"].container

        def quota():
            return engine._api.inspect_container(container)["HostConfig"]["CpuQuota"]

        starved = set()
        cluster.subscribe(lambda e: e.kind == "starvation" and starved.update(e.data["waited_s"]))
        await cluster.slow("n1", factor=10.0)
        took_s = await ask(session, "n1", "work", 0.5, timeout_s=LONG_S)
        assert cluster.pids().keys() == {"n2"}
        await cluster.kill("n1")
        await cluster.wipe("n1")
        await cluster.start("n1")
        await wait_answering(session, "n1")
        again_s = await ask(session, "n1", "work", 0.3, timeout_s=LONG_S)
        assert await asyncio.to_thread(quota) == 10_000
        for factor in (0.5, 101.0):
            with pytest.raises(UsageError, match=f"factor is {factor}"):
                await cluster.slow("n1", factor=factor)
        await cluster.heal_all()
        assert await asyncio.to_thread(quota) == -1
        return took_s, again_s, starved

    took_s, again_s, starved = execute(environment, main, nodes=2)
    assert took_s > 3.5  # the first part of a tenth is given at once
    assert again_s > 1.8
    assert "n1" not in starved


def test_events_of_nodes_arrive_within_a_tenth_of_a_second(environment):
    async def main(session):
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
            # How busy the machine is, the calls tell.
            last = statistics.median(asks_s[-21:]), statistics.median(waits_s[-21:])
            if number >= 20 and last[1] < 0.1 + last[0]:
                return last
        raise AssertionError(last)

    execute(environment, main, nodes=1)


def test_reset_aborts_open_connections(environment):
    async def main(session):
        conn = await session.env.net.connect(Address("n1", PORT))
        count = await session.cluster.reset([Link(CLIENT, "n1"), Link("n1", CLIENT)])
        async with asyncio.timeout(LIMIT_S):
            try:
                frame = await conn.recv()
            except ConnectionResetError:
                frame = None
        conn.close()
        return count, frame

    assert execute(environment, main, nodes=1) == (1, None)


def test_what_it_cannot_do_it_refuses_and_names_who_can(environment):
    async def main(session):
        cluster = session.cluster
        assert Capability.DUPLICATE not in cluster.capabilities
        for quality, why in (
            (LinkQuality(duplicate=0.1), r"'duplicate'.*--env sim"),
            (LinkQuality(), "leaves the links as they are"),
            (LinkQuality(drop=1.1), r"drop is 1\.1; it must be in 0 \.\. 1"),
        ):
            with pytest.raises(UsageError, match=why):
                await cluster.shape([Link("n1", CLIENT)], quality, lease_s=1)
        with pytest.raises(UsageError, match="there is no node 'n9'"):
            await cluster.kill("n9")
        with pytest.raises(UsageError, match="ends at 'n9'"):
            await cluster.cut([Link("n1", "n9")], lease_s=1)

    execute(environment, main, nodes=1)


SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = " ".join([*sys.argv[1:], os.environ["PEER"], os.getcwd()]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


def test_a_foreign_program_runs_by_its_command_line(environment, engine, monkeypatch):
    monkeypatch.setattr("harness.environments.docker.cluster._STOP_GRACE_S", 60)
    words = (
        "{host}",
        "{port:80}",
        "{peer:b:80}",
        "{data}",
        "{name}",
        "{package:tests.docker.echo}",
    )
    nodes = [
        NodeSpec(
            name=name,
            role="web",
            ports=(80,),
            command=(sys.executable, "-c", SERVER, *words),
            environment={"PEER": "http://{peer:b:80}"},
        )
        for name in ("a", "b")
    ]

    async def main(session):
        host, port = session.env.endpoint(Address("a", 80))
        deadline = time.monotonic() + LIMIT_S

        def get():
            while True:
                connection = http.client.HTTPConnection(host, port, timeout=2)
                try:
                    connection.request("GET", "/")
                    return connection.getresponse().read().decode()
                except (OSError, http.client.HTTPException):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
                finally:
                    connection.close()

        text = await asyncio.to_thread(get)
        ends = []
        session.cluster.subscribe(
            lambda e: (e.kind, e.node) == ("node-exited", "a") and ends.append(e.data["code"])
        )
        with pytest.raises(UsageError, match="a clock fault cannot reach a: a foreign program"):
            await session.cluster.skew("a", offset_ns=1)
        with pytest.raises(UsageError, match="a disk fault cannot reach a: a foreign program"):
            await session.cluster.worsen_disk("a", DiskQuality(full=True))
        await session.cluster.stop("a")
        await until(lambda: ends)
        return host, text, ends

    host, text, ends = environment.execute(plan_of(nodes), main)

    assert host == "127.0.0.1"
    assert text == "0.0.0.0 80 b:80 /data a /harness/app/tests/docker http://b:80 /data"
    assert ends == [128 + signal.SIGTERM]  # it does not handle it; init does, and no kill follows


def test_an_image_that_is_not_to_be_had_is_an_error_and_nothing_stays(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    image = "harness-no-such-image:1"
    node = NodeSpec(name="a", role="x", ports=(), image=image, command=("sleep", "1"))

    with pytest.raises(InfrastructureError, match=f"cannot pull {image}"):
        environment.execute(plan_of([node], run_id=run_id), lambda session: asyncio.sleep(0))

    assert found(engine, run_id) == []


def test_what_main_raises_comes_out_and_nothing_stays(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"

    async def main(session):
        raise RuntimeError("main failed")

    with pytest.raises(RuntimeError, match="main failed"):
        execute(environment, main, nodes=1, run_id=run_id)

    assert found(engine, run_id) == []


def start_driver(run_id):
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.docker.driver", run_id], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout.readline() == "broken\n"
    return driver


def kill_driver(driver):
    driver.send_signal(signal.SIGKILL)
    driver.wait(LIMIT_S)
    driver.stdout.close()


def test_a_killed_driver_leaves_nothing(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    driver = start_driver(run_id)
    assert len(found(engine, run_id)) == 7
    kill_driver(driver)

    wait_until(lambda: found(engine, run_id) == [])


@pytest.mark.parametrize("delay_s", [0.6, 1.0])
def test_a_driver_killed_while_it_deploys_leaves_nothing(engine, delay_s):
    run_id = f"test-{secrets.token_hex(4)}"
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.docker.driver", run_id], stdout=subprocess.PIPE, text=True
    )
    time.sleep(delay_s)
    kill_driver(driver)

    # The warden, which goes on looking for a second after it has seen nothing, ends as the last.
    wait_until(lambda: processes_of(run_id) == [] and found(engine, run_id) == [])
    time.sleep(2.0)  # what the engine was told to make may still come, and nobody would remove it
    assert found(engine, run_id) == []


def test_clean_removes_dead_runs_and_leaves_live_ones(environment, engine):
    run_id = f"test-{secrets.token_hex(4)}"
    with only_cleaner():
        driver = start_driver(run_id)
        everything = found(engine, run_id)
        assert not [line for line in environment.clean() if run_id in line]
        assert found(engine, run_id) == everything
        children = subprocess.run(
            ["pgrep", "-P", str(driver.pid), "-f", "harness.environments.warden"],
            capture_output=True,
            text=True,
            check=True,
        )
        os.kill(int(children.stdout), signal.SIGKILL)  # the warden of this one run
        kill_driver(driver)
        lines = [line for line in environment.clean() if run_id in line]

    assert len(lines) == len(everything) == 7
    assert found(engine, run_id) == []
