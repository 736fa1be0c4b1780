"""Links without faults neither lose nor invent data, and cut links pass none.

Every path between two ends carries the same shapes of connections, with the results of plain TCP.
"""

import asyncio
import secrets
import socket
import sys

import pytest

from harness.cluster import Link, NodeSpec
from harness.env import Address
from harness.plugins import DeploymentPlan
from harness.registry import load_plugin
from tests.faults.door import door
from tests.support.waiting import LIMIT_S, until, wait_until
from tests.toxiproxy.conftest import start_server
from tests.worlds import shapes

PORT, LATER = 8080, 8081
MANY = 200
CUT_S = 0.7
WAYS = ("peer", "address")
WORDS = [f"{{{way}:{node}:{port}}}" for node in "ab" for way in WAYS for port in (PORT, LATER)]
REAL = ("send-and-close", "idle", "server-closes-first")
"""Shapes that work over a real Toxiproxy, where the end of one direction closes both."""


def names_of(tag, count=2):
    return {f"{tag}-{shape}-{n}": shape for shape in shapes.SHAPES for n in range(count)}


def many_of(tag):
    return {f"{tag}-many-{n}": "send-and-close" for n in range(MANY)}


def is_as_expected(names, caller, server):
    wanted = {name: shapes.EXPECTED[shape] for name, shape in names.items()}
    return wanted == {name: (caller[name], server.get(name, "missing")) for name in names}


def came_to_nothing(seen):
    return seen is None or "error" in seen or (seen["bytes"] == 0 and seen["end"] != "fin")


@pytest.fixture(params=["direct", "ours", pytest.param("real", marks=pytest.mark.toxiproxy)])
def road(request):
    """Provide a path: its kind, and the address that a client uses."""
    if request.param == "direct":
        yield request.param, lambda place: place
        return
    server, process = start_server(request.param)

    def lead(place):
        body = {
            "name": f"to{place[1]}",
            "listen": "127.0.0.1:0",
            "upstream": "{}:{}".format(*place),
        }
        status, made, _ = server.request("POST", "/proxies", body)
        assert status == 201
        return shapes.place(made["listen"])

    yield request.param, lead
    process.kill()
    process.wait(LIMIT_S)


def test_a_road_is_as_tcp_itself(road):
    kind, lead = road
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        server = shapes.Server(listener)
        address = lead(listener.getsockname())
        names = {
            name: shape for name, shape in names_of(kind).items() if kind != "real" or shape in REAL
        }
        caller = shapes.dial_all(address, names)
        many = many_of(kind)
        caller |= {name: shapes.dial(address, name, shape) for name, shape in many.items()}
        wait_until(lambda: is_as_expected(names | many, caller, server.seen))
        assert server.began == {*names, *many}


def test_nothing_listens_behind_a_road(road):
    kind, lead = road
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
    address = lead(place)
    seen = shapes.dial(address, "early", "half-close")
    assert came_to_nothing(seen) or kind == "real"
    with socket.create_server(place) as listener:
        shapes.Server(listener)
        seen = shapes.dial(address, "late", "half-close")
        assert seen == shapes.EXPECTED["half-close"][0] or kind == "real"


# --- whole deployments ---------------------------------------------------------------------------


def node(name):
    return NodeSpec(
        name=name,
        role="peer",
        ports=(PORT, LATER),
        command=(
            *(
                sys.executable,
                "{package:tests}/tests/worlds/shapes.py",
                "{host}",
                f"{{port:{PORT}}}",
            ),
            *(f"{{host}}:{{port:{LATER}}}", *WORDS),
        ),
    )


class Peers:
    """Two nodes, and the connections between them."""

    def __init__(self, session):
        self.session = session
        self.cluster = session.cluster
        self._env = session.env
        self.events = []
        self.cluster.subscribe(self.events.append)

    async def ask(self, name, **command):
        where = self._env.endpoint(Address(name, PORT))
        return await asyncio.to_thread(shapes.ask, where, **command)

    async def wait_up(self):
        """Wait until both nodes serve; learn the addresses by which they call each other."""
        self.address = {}
        for name in "ab":
            async with asyncio.timeout(LIMIT_S):
                while True:
                    try:
                        self.own, *found = await self.ask(name, do="words")
                        break
                    except (OSError, ValueError):
                        await asyncio.sleep(0.05)
            places = [(o, way, port) for o in "ab" for way in WAYS for port in (PORT, LATER)]
            self.address |= {(name, *key): word for key, word in zip(places, found, strict=True)}

    async def dial(self, caller, server, way, names, do="dial", port=PORT, wait_s=LIMIT_S):
        where = self.address[caller, server, way, port]
        return await self.ask(caller, do=do, address=where, names=names, wait_s=wait_s)

    async def wait_seen(self, name, holds):
        async with asyncio.timeout(LIMIT_S):
            while not holds(await self.ask(name, do="seen")):  # noqa: ASYNC110 - a poll
                await asyncio.sleep(0.1)

    @property
    def facts(self):
        return [event for event in self.events if event.kind == "infrastructure"]


async def nothing_is_lost(peers, tag, count=2, many=True):
    """Let both call each other concurrently, in all shapes; everything must arrive once."""

    async def one(caller, server, way):
        names = names_of(f"{tag}-{caller}-{way}", count)
        short = many_of(f"{tag}-{caller}-{way}") if many else {}
        seen = await peers.dial(caller, server, way, names)
        seen |= await peers.dial(caller, server, way, short, do="dial-in-turn")
        names |= short
        await peers.wait_seen(server, lambda server_seen: is_as_expected(names, seen, server_seen))
        began = await peers.ask(server, do="began")
        assert {name for name in began if name.startswith(f"{tag}-{caller}-{way}-")} == {*names}

    await asyncio.gather(*(one(*ends, way) for ends in ("ab", "ba") for way in WAYS))


async def nothing_passes_a_cut(peers):
    """Check that neither bytes nor ends of connections pass a cut, in any direction."""
    fault = await door(peers).cut(Link.between(["a"], ["b"]))
    dials = [peers.dial("a", "b", way, names_of(f"cut-{way}", 1), wait_s=CUT_S) for way in WAYS]
    for seen in await asyncio.gather(*dials):
        assert all(map(came_to_nothing, seen.values())), seen
    began = await peers.ask("b", do="began")
    assert not [name for name in began if name.startswith("cut-")]
    await door(peers).heal(fault)


async def nothing_listens(peers):
    for way in WAYS:
        early = await peers.dial("a", "b", way, {"early": "half-close"}, port=LATER)
        assert came_to_nothing(early["early"]), early
    await peers.ask("b", do="listen", address=(await peers.ask("b", do="words"))[0])
    for way in WAYS:
        late = await peers.dial("a", "b", way, {f"late-{way}": "half-close"}, port=LATER)
        assert late == {f"late-{way}": shapes.EXPECTED["half-close"][0]}


def deploy(world, main):
    plan = DeploymentPlan(
        run_id=f"shapes-{secrets.token_hex(4)}",
        nodes=(node("a"), node("b")),
        seed=1,
        knobs={},
        folder=None,
    )

    async def body(session):
        peers = Peers(session)
        await peers.wait_up()
        await main(peers)

    load_plugin("environments", world).execute(plan, body)


@pytest.mark.process
@pytest.mark.xdist_group("process")
def test_links_between_processes():
    async def main(peers):
        await nothing_is_lost(peers, "before")
        await nothing_listens(peers)
        await nothing_passes_a_cut(peers)
        await nothing_is_lost(peers, "after", 1, many=False)
        assert peers.facts == []  # no fact about an unknown caller

    deploy("process", main)


@pytest.mark.docker
@pytest.mark.xdist_group("docker")
def test_links_between_containers():
    async def main(peers):
        await nothing_is_lost(peers, "before")
        await nothing_listens(peers)
        await nothing_passes_a_cut(peers)
        await nothing_is_lost(peers, "after", 1, many=False)

    deploy("docker", main)


@pytest.mark.process
@pytest.mark.xdist_group("process")
def test_where_no_call_can_be_seen_nothing_is_lost_or_passes_either(monkeypatch):
    monkeypatch.setattr("harness.environments.process.calling._listen_to_connects", lambda: None)

    async def main(peers):
        await nothing_is_lost(peers, "before")
        assert peers.facts == []
        fault = await door(peers).cut([Link("a", "b")])
        held = many_of("held")
        await peers.dial("a", "b", "address", held, do="dial-in-turn")
        await until(lambda: [fact.node for fact in peers.facts] == ["b"])
        assert not {*held} & {*await peers.ask("b", do="began")}
        bite = await door(peers).heal(fault)
        await until(lambda: [fact.data.get("over") for fact in peers.facts] == [None, True])

        def all_is_accounted_for(seen):
            lost = {*held} - {*seen}
            return bite.count == sum(shapes.sent_bytes(name, held[name]) for name in lost)

        await peers.wait_seen("b", all_is_accounted_for)
        seen = await peers.ask("b", do="seen")
        wanted = shapes.EXPECTED["send-and-close"][1]
        assert all(seen[name] == wanted for name in held if name in seen)

    deploy("process", main)
