"""Interference of other programs with nodes is reported as such and never convicts the target.

Whole runs with a verdict, one per kind of interference, run nightly.
"""

import asyncio
import contextlib
import itertools
import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from harness.cluster import NodeState
from harness.environments import procfs
from harness.environments.process.addresses import LOOPBACK
from harness.errors import TargetError
from harness.registry import load_plugin
from tests.process.conftest import Driver, echo_spec, foreign, shell
from tests.process.ways import WAYS, outcome_of
from tests.support.waiting import LIMIT_S, until

pytestmark = pytest.mark.process

PORT = 7000
SLEEP = ("sleep", "1000")
SUPERVISOR = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
SERVER = "import http.server as h, sys; h.test(bind=sys.argv[1], port=int(sys.argv[2]))"
SAID = {"ts_ns": 1, "level": "event", "event": "node-exited", "node": "w", "data": {"code": 0}}


NODES = [
    echo_spec("env"),
    echo_spec("stumbling", stumbles=True),
    shell("wrapped", '"$@"\nexit $?', *SLEEP),
    foreign("supervised", sys.executable, "-c", SUPERVISOR, *SLEEP),
    shell("polite", 'trap "exit 0" TERM; sleep 1000 & wait'),
    shell("jvm", 'trap "exit 143" TERM; sleep 1000 & wait'),
]
ON_ENV = {"env", "stumbling"}


def first_of(driver, node):
    return procfs.identify(driver.cluster._nodes[node].pid)


async def child_of(driver, node):
    """Wait for the `sleep` among a node's processes.

    Before the exec, the child is a copy of its parent, which may handle a signal itself.
    """
    first = first_of(driver, node)

    def asleep():
        pid = procfs.family(first.pid)[-1]
        with contextlib.suppress(OSError):
            return pid != first.pid and Path(f"/proc/{pid}/comm").read_text() == "sleep\n"

    await until(asleep)
    return procfs.identify(procfs.family(first.pid)[-1])


WAYS_TO_END = [
    ("env", signal.SIGTERM, False, (0, "host")),
    ("stumbling", signal.SIGTERM, False, (0, "host")),
    ("wrapped", signal.SIGKILL, True, (137, "host")),
    ("wrapped", signal.SIGTERM, True, (143, "host")),
    ("wrapped", signal.SIGINT, True, (130, "unknown")),
    ("wrapped", signal.SIGSEGV, True, (139, "itself")),
    ("supervised", signal.SIGKILL, True, (247, "unknown")),
    ("polite", signal.SIGTERM, False, (0, "unknown")),
    ("jvm", signal.SIGTERM, False, (143, "host")),
]


def test_the_cause_of_an_exit_follows_from_its_code(run):
    async def body(driver):
        times = dict.fromkeys((spec.name for spec in NODES), 0)
        for node, number, to_child, told in WAYS_TO_END:
            # a node that has started its child has already set its signal handlers
            child = None if node in ON_ENV else await child_of(driver, node)
            assert procfs.send(child if to_child else first_of(driver, node), number)
            times[node] += 1
            exited = await driver.wait_event("node-exited", node, times[node])
            assert (exited.data["code"], exited.data["by"]) == told, (node, number)
            await driver.cluster.start(node)

    run(body, NODES)


def test_an_exit_beside_which_the_oom_killer_acted_is_not_known_to_be_its_own(run, monkeypatch):
    monkeypatch.setattr(procfs, "oom_kills", itertools.count().__next__)

    async def body(driver):
        exited = await driver.wait_event("node-exited", "s")
        assert (exited.data["code"], exited.data["by"]) == (1, "unknown")

    run(body, [shell("s", "exit 1")], wait=False)


async def a_stopped_child_is_told_until_it_goes_on(driver):
    child = await child_of(driver, "wrapped")
    assert procfs.send(child, signal.SIGSTOP)
    assert (await driver.wait_event("infrastructure", "wrapped")).data["lasts"]
    assert procfs.send(child, signal.SIGCONT)
    assert (await driver.wait_event("infrastructure", "wrapped", 2)).data["over"]


async def a_child_that_is_let_go_on_ends_a_pause(driver):
    child = await child_of(driver, "wrapped")
    assert await driver.cluster.pause("wrapped", lease_s=60)
    assert procfs.state(child) in procfs.STOPPED
    assert procfs.send(child, signal.SIGCONT)
    assert (await driver.wait_event("infrastructure", "wrapped")).data["undid"] == "pause"
    assert await driver.cluster.resume("wrapped")
    assert (await driver.wait_event("infrastructure", "wrapped", 2)).data["over"]


async def a_node_that_starts_others_all_the_time_can_be_paused(driver):
    for _ in range(5):
        assert await driver.cluster.pause("forks", lease_s=60)
        assert procfs.all_stopped(first_of(driver, "forks").pid)
        assert await driver.cluster.resume("forks")
    assert not [event for event in driver.events if event.node == "forks"]


async def a_port_that_somebody_takes_is_told(driver):
    node = driver.cluster._nodes["server"]
    ((_, port),) = node._listen.values()
    await driver.cluster.kill("server")
    with contextlib.closing(socket.socket()) as polite, pytest.raises(OSError, match="in use"):
        polite.bind((LOOPBACK, port))  # the harness keeps this port
    with contextlib.closing(socket.socket()) as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind((LOOPBACK, port))
        squatter.listen()
        report = await driver.wait_event("infrastructure", "server")
        assert (report.data["lasts"], str(port) in report.data["what"]) == (True, True)
        await driver.cluster.start("server")
        exited = await driver.wait_event("node-exited", "server", 2)
        assert (exited.data["code"], exited.data["by"]) == (1, "host")
        assert driver.cluster.state("server") is NodeState.DOWN
    assert (await driver.wait_event("infrastructure", "server", 2)).data["over"]
    await driver.cluster.start("server")
    await until(lambda: node._port_watch._own and node.interference() is None)


def test_stopped_processes_and_taken_ports_are_facts_of_the_host(run):
    server = foreign("server", sys.executable, "-c", SERVER, "{host}", f"{{port:{PORT}}}")

    async def body(driver):
        for check in (
            a_stopped_child_is_told_until_it_goes_on,
            a_child_that_is_let_go_on_ends_a_pause,
            a_node_that_starts_others_all_the_time_can_be_paused,
            a_port_that_somebody_takes_is_told,
        ):
            await check(Driver(driver.session))

    forks = shell("forks", "while :; do setsid sleep 0.01 & wait; done")
    run(body, [NODES[2], server, forks])


def test_output_of_a_foreign_program_is_not_an_event(run):
    async def body(driver):
        async with asyncio.timeout(LIMIT_S):
            while not await driver.cluster.logs("prints"):  # noqa: ASYNC110 - a poll
                await asyncio.sleep(0.01)
        assert [event.kind for event in driver.events] == ["node-started"]

    run(body, [shell("prints", f"echo '{json.dumps(SAID)}'; sleep 1000")], wait=False)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [("node-exited", {"code": 0}, "'node-exited'"), ("leader", {"term": "third"}, "term='third'")],
)
def test_a_node_that_announces_events_of_the_driver_ends_the_run(run, only_a, kind, data, said):
    async def body(driver):
        await driver.ask("a", {"announce": kind, "data": data})
        await driver.wait_event("never", "a")

    with pytest.raises(TargetError, match=f"node 'a' announced the event .*{said}"):
        run(body, only_a)


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_interference_of_others_never_convicts(way):
    outcome = outcome_of(way, load_plugin("environments", "process"))
    assert not outcome.startswith("invalid"), outcome
    assert ("announced the event" in outcome) == way.refused, outcome
