"""If the engine disappears, for a moment or for good, no node ends and none is blamed."""

import asyncio
import contextlib
import functools
import gc
import os
import secrets
import socket
import threading
import time
import weakref
from pathlib import Path

import pytest

from harness.cluster import DiskQuality, Link, NodeState
from harness.environments.docker import DockerEnvironment
from harness.environments.docker.engine import engine as engine_module
from harness.environments.docker.engine.labels import container_name
from harness.errors import InfrastructureError
from tests.docker.support import ask, echo_nodes, in_turn, plan_of, silence, wait_answering
from tests.faults.door import door as faults_of
from tests.support.waiting import LIMIT_S, until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    # The SDK leaves sockets of broken connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
BLIP_S = 0.5


class Door:
    """A Unix socket in front of the engine's socket; shutting it breaks all connections."""

    def __init__(self, path):
        self.path = path
        self._open = []
        self._lock = threading.Lock()
        self.unlock()

    def unlock(self):
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(64)
        threading.Thread(target=self._serve, args=(self._server,), daemon=True).start()

    def _serve(self, server):
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client):
        with client, socket.socket(socket.AF_UNIX) as engine, contextlib.suppress(OSError):
            engine.connect(ENGINE)
            with self._lock:
                self._open += [client, engine]
            back = threading.Thread(target=self._pump, args=(engine, client), daemon=True)
            back.start()
            self._pump(client, engine)
            back.join()

    @staticmethod
    def _pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def shut(self):
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        Path(self.path).unlink()
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
            self._open = []

    def blip(self):
        self.shut()
        threading.Timer(BLIP_S, self.unlock).start()


@pytest.fixture
def door(engine, tmp_path, monkeypatch):
    del engine
    before = set(threading.enumerate())
    # Keep references, not ids: a new broken socket may reuse the id of a collected one.
    earlier = weakref.WeakSet(each for each in gc.get_objects() if type(each) is socket.socket)
    made = Door(f"/tmp/door-{secrets.token_hex(4)}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{made.path}")
    yield made
    with contextlib.suppress(OSError):
        made.shut()
    for thread in set(threading.enumerate()) - before:
        thread.join(10.0)
    # The SDK never closes sockets of broken connections, and a later test would be blamed.
    for left in [each for each in gc.get_objects() if type(each) is socket.socket]:
        if left.fileno() != -1 and left.family == socket.AF_UNIX and left not in earlier:
            os.close(left.detach())


def heard(session):
    events = []
    session.cluster.subscribe(events.append)
    return events


def of_kind(events, kind):
    return [event for event in events if event.kind == kind]


async def a_blip_ends_no_node_and_is_told(door, session):
    events = heard(session)
    door.blip()
    await until(lambda: len(of_kind(events, "infrastructure")) == 2)
    assert [session.cluster.state(node) for node in ("n1", "n2")] == [NodeState.RUNNING] * 2
    assert of_kind(events, "node-exited") == []
    assert {event.node for event in of_kind(events, "infrastructure")} == {"n1", "n2"}
    await session.cluster.kill("n1")  # the harness still notices that a node ends
    assert of_kind(events, "node-exited")[-1].data["by"] == "nemesis"


async def a_blip_within_faults_is_survived(door, session):
    cluster, events = session.cluster, heard(session)
    door.blip()
    fault = await faults_of(session).cut(Link.between(["n1"], ["n2"]))
    before = await silence(session, "n1", "n2")
    door.blip()
    bite = await faults_of(session).heal(fault)
    assert await ask(session, "n1", "ask", "n2", LIMIT_S) != before
    assert bite.count > 0
    door.blip()
    assert await cluster.pause("n1", lease_s=60.0)
    door.blip()
    assert await cluster.resume("n1")
    door.blip()
    assert await cluster.kill("n1")
    door.blip()
    assert await cluster.start("n1")
    await wait_answering(session, "n1")
    assert [event.data["by"] for event in of_kind(events, "node-exited")] == ["nemesis"]


async def a_blip_does_not_keep_a_node_from_being_steered(door, session):
    cluster, hour_ns = session.cluster, 3600 * 10**9
    door.blip()
    await cluster.skew("n1", offset_ns=hour_ns)
    ahead_ns = await ask(session, "n1", "wall") - time.time_ns()
    assert ahead_ns == pytest.approx(hour_ns, abs=LIMIT_S * 1e9)
    door.blip()
    await cluster.worsen_disk("n1", DiskQuality(full=True))
    assert await ask(session, "n1", "append", "x") == "ENOSPC"
    door.blip()
    assert await cluster.worsen_disk("n1", DiskQuality()) == 1
    await ask(session, "n1", "append", "y")
    assert await ask(session, "n1", "read") == "y"


def test_blips_end_no_node_and_no_fault(door):
    checks = (
        a_blip_ends_no_node_and_is_told,
        a_blip_within_faults_is_survived,
        a_blip_does_not_keep_a_node_from_being_steered,
    )
    main = in_turn(*(functools.partial(check, door) for check in checks))
    DockerEnvironment().execute(plan_of(echo_nodes(2)), main)


def test_an_engine_that_stays_away_ends_the_run_without_a_verdict(door, engine, monkeypatch):
    monkeypatch.setattr(engine_module, "REPEAT_S", 1.0)
    run_id = f"test-{secrets.token_hex(4)}"
    shut_s = []

    async def main(session):
        await wait_answering(session, "n1", "n2")
        shut_s.append(time.monotonic())
        door.shut()
        await asyncio.sleep(200.0)  # in a run that continues, the engine is away for less than this
        return "a verdict"

    try:
        with pytest.raises(InfrastructureError, match="harness clean"):
            DockerEnvironment().execute(plan_of(echo_nodes(2), run_id=run_id), main)
        assert time.monotonic() - shut_s[0] < 150
    finally:
        for node in ("n1", "n2"):
            for name in (container_name(run_id, node), f"{container_name(run_id, node)}.net"):
                engine.remove(name)
        for volume in engine.volumes(f"harness.run={run_id}"):
            engine.remove_volume(volume.name)
        for network in engine.networks(f"harness.run={run_id}"):
            engine.remove_network(network.id)
