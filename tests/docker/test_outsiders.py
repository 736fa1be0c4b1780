"""Interference with a run's containers or network is reported, and convicts no node."""

import asyncio
import json
import secrets
import struct
import threading
from types import SimpleNamespace

import pytest

from harness.cluster import CLIENT, Link, LinkQuality, NodeState, StreamQuality, client_end
from harness.environments.docker.deploy import Place
from harness.environments.docker.engine.answers import Found, plain
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.network import netwatch, outsiders
from harness.environments.docker.network import rules as rules_module
from harness.environments.docker.network.outsiders import NamespaceWatch, Outsiders, Watched
from harness.errors import InfrastructureError
from tests.docker.support import echo_nodes, plan_of, wait_answering
from tests.docker.ways import WAYS, Victim
from tests.faults.door import door
from tests.support.waiting import until, wait_until

BY_NAME = dict(WAYS)


# --- the namespace watcher and its input ---------------------------------------------------------


def test_relevant_fields_of_links_addresses_and_routes():
    links = (
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT\n"
        "9: eth0@if10: <BROADCAST,MULTICAST> mtu 1500 qdisc tbf state DOWN mode DEFAULT\n"
    )
    assert set(netwatch.links_of(links)) == {
        "link lo UP",
        "link lo LOWER_UP",
        "link lo mtu 65536 qdisc noqueue",
        "link eth0 mtu 1500 qdisc tbf",
    }
    address = (
        "9: eth0    inet 10.2.1.10/24 brd 10.2.1.255 scope global eth0\\       valid_lft forever"
    )
    assert list(netwatch.addresses_of(address)) == ["address 10.2.1.10/24 of eth0"]
    assert list(netwatch.routes_of("default via 10.2.1.1 dev eth0 \n\n")) == [
        "route default via 10.2.1.1 dev eth0"
    ]


def saved(table, *lines):
    return "\n".join([f"*{table}", ":INPUT ACCEPT [0:0]", ":healed - [0:0]", *lines, "COMMIT", ""])


LINK = Link("a", "b")
ADDRESSES = {"a": "10.2.1.10", "b": "10.2.1.11", CLIENT: "10.2.1.1"}


def laid_lines(command):
    """Return the rules that the harness's command creates, in the kernel's text form."""
    lines = "\n".join(word for word in command if word.startswith("-")).splitlines()
    return [
        line.replace("-I INPUT 1", "-A INPUT").replace("-I OUTPUT 1", "-A OUTPUT")
        for line in lines
        if not line.startswith("-F")
    ]


def test_rules_of_ours_and_of_docker_are_no_change():
    cut = laid_lines(rules_module.cut_command("cut-1", [LINK, Link("b", CLIENT)], ADDRESSES))
    quality = LinkQuality(delay_ms=5, duplicate=0.5)
    shape = laid_lines(rules_module.shape_command("shape-2", [LINK], quality, 4, ADDRESSES))
    ours = [
        *cut,
        *shape,
        '-A healed -m comment --comment "17:harness:cut-1:a>b"',
        "-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT",
        "-A DOCKER_OUTPUT -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:34295",
    ]
    assert len(ours) > 6
    assert list(netwatch.rules_of(saved("filter", *ours))) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-A INPUT -p tcp -j DROP", "rule filter -A INPUT -p tcp -j DROP"),
        ('-A INPUT -m comment --comment "mine" -j DROP', "rule filter"),
        (":OUTPUT DROP [3:180]", "policy filter OUTPUT DROP"),
        ("# Table `filter' is incompatible, use 'nft' tool.", "note Table"),
        ("# Warning: iptables-legacy tables present", "note Warning"),
    ],
)
def test_rules_of_others_are_a_change(line, told):
    (rule,) = netwatch.rules_of(saved("filter", line))
    assert rule.startswith(told)


def new_table(family, name):
    value = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(value), 1) + value + bytes(-len(value) % 4)
    body = struct.pack("=BBH", family, 0, 0) + attribute
    return struct.pack("=IHHII", 16 + len(body), 10 << 8, 2, 1, 0) + body


def test_tables_of_iptables_are_no_change_and_others_are():
    done = struct.pack("=IHHII", 20, 3, 2, 1, 0) + bytes(4)
    answer = new_table(2, "filter") + new_table(1, "mine") + new_table(10, "filter") + done
    assert list(netwatch.tables_of(answer)) == [
        "table mine of family 1",
        "table filter of family 10",
    ]
    assert list(netwatch.tables_of(answer[:15])) == []


class FakeEngine:
    """An engine in which each watch prints scripted lines, or fails."""

    def __init__(self, *outputs):
        self.outputs = list(outputs)
        self.commands = []
        self.more = threading.Event()

    def watch(self, container, command):
        self.commands.append(command)
        if not self.outputs:
            self.more.wait()
            raise InfrastructureError("closed")
        output = self.outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return FakeAttachment(output)


class FakeAttachment:
    def __init__(self, said):
        self._said = said

    def lines(self):
        return (
            line if isinstance(line, bytes) else json.dumps(line).encode() for line in self._said
        )

    def close(self):
        pass


FIRST = {"state": ["link eth0 UP", "namespace 1"]}
SAME = {"gone": [], "new": []}


def test_an_interrupted_watch_compares_with_the_first_state(monkeypatch):
    monkeypatch.setattr(outsiders, "_AGAIN_S", 0.0)
    moved = {"gone": ["namespace 1"], "new": ["namespace 2"]}
    engine = FakeEngine([FIRST, SAME], InfrastructureError("the engine is away"), [moved])
    watch = NamespaceWatch(engine, "k")
    wait_until(lambda: watch.moved)
    watch.close()
    engine.more.set()
    watch.join(10.0)
    assert [command[5:] for command in engine.commands[:3]] == [
        [],
        *[[json.dumps(FIRST["state"], separators=(",", ":"))]] * 2,
    ]


def test_an_unwatched_namespace_is_reported(monkeypatch):
    monkeypatch.setattr(outsiders, "_AGAIN_S", 0.0)
    monkeypatch.setattr(outsiders, "_ATTEMPTS_MAX", 2)
    watch = NamespaceWatch(FakeEngine([FIRST, SAME], [b"Traceback ..."]), "k")
    watch.join(10.0)
    assert watch.changed is not None
    assert "Traceback" in watch.changed


def test_a_change_is_reported_until_it_is_undone():
    engine = FakeEngine()
    watch = NamespaceWatch(engine, "k")
    lines = []
    for change in (SAME, {"gone": ["link eth0 UP"], "new": []}, SAME):
        assert watch._take(json.dumps(change).encode()) is None
        lines.append(watch.changed)
    watch.close()
    engine.more.set()
    assert [text is None for text in lines] == [True, False, True]
    assert "link eth0 UP" in lines[1]


# --- checks of the list of containers ------------------------------------------------------------

NAMES = {"node": "harness-r-n1", "keeper": "harness-r-n1.net", "proxy": "harness-r-n1.proxy"}
RELAY = "harness-r-client"


def row(name, state="running", address="10.2.1.10", port=40_000):
    addresses = {"harness-r": address} if address else {}
    return Found(f"id-{name}", name, {}, state, addresses, {7051: port})


class ListingEngine(FakeEngine):
    """An engine that lists these containers, whose processes run on another machine."""

    def __init__(self):
        super().__init__([FIRST, SAME])
        self.rows = {name: row(name) for name in (*NAMES.values(), RELAY)}

    def containers(self, label):
        return list(self.rows.values())

    def state(self, container):
        return None

    def stopped(self, container):
        return None


def looked(change, wanted=NodeState.RUNNING):
    """Return the result of a check after this change to the list of containers."""
    engine = ListingEngine()
    keeper, relay = (
        Place("", "", NAMES["keeper"], "10.2.1.10"),
        Place("client", RELAY, "", "10.2.1.2"),
    )
    blueprint = SimpleNamespace(places={"n1": keeper}, relay=relay)
    outsiders = Outsiders(engine, blueprint, "r", RELAY)
    outsiders._watches = {
        name: SimpleNamespace(moved=False, changed=None) for name in outsiders._helpers
    }
    outsiders._first = dict(engine.rows)
    change(engine.rows)
    return outsiders.look([Watched("n1", NAMES["node"], wanted, None)])


def changed(name, **fields):
    return lambda rows: rows.update({name: row(name, **fields)})


@pytest.mark.parametrize(
    ("change", "node", "ended"),
    [
        (changed(NAMES["keeper"], state="exited"), "n1", True),
        (lambda rows: rows.pop(NAMES["keeper"]), "n1", True),
        (changed(NAMES["keeper"], state="paused"), "n1", False),
        (changed(NAMES["keeper"], address=None), "n1", False),
        (changed(NAMES["keeper"], address="10.2.1.99"), "n1", False),
        (changed(NAMES["keeper"], port=40_001), "n1", False),
        (changed(NAMES["proxy"], state="exited"), "n1", False),
        (changed(RELAY, state="restarting"), "", True),
        (lambda rows: rows.pop(RELAY), "", True),
        (changed(RELAY, address=None), "", False),
    ],
)
def test_a_changed_helper_is_reported_for_each_node_that_needs_it(change, node, ended):
    look = looked(change)
    assert look.helpers.keys() == {node}
    assert (look.ended is not None) == ended
    assert look.nodes == {"n1": None}


@pytest.mark.parametrize(
    ("state", "wanted", "undid"),
    [
        ("running", NodeState.RUNNING, "nothing"),
        ("exited", NodeState.DOWN, "nothing"),
        ("paused", NodeState.PAUSED, "nothing"),
        ("paused", NodeState.RUNNING, None),
        ("running", NodeState.PAUSED, "pause"),
        ("running", NodeState.DOWN, "kill"),
    ],
)
def test_a_node_in_an_unwanted_state_is_reported(state, wanted, undid):
    look = looked(changed(NAMES["node"], state=state), wanted)
    interference = look.nodes["n1"]
    assert (interference is None, look.helpers) == (undid == "nothing", {})
    assert interference is None or interference.undid == undid


# --- the output of an image build ----------------------------------------------------------------


def test_a_build_is_shown_in_lines_without_colours():
    pieces = [*(f"\x1b[91m{letter}\x1b[0m" for letter in "E: no\n"), "Step 2/3\n", "\x1b]0;x\x07"]
    stream = [*({"stream": piece} for piece in pieces), {"error": "code: \x1b[1m100"}]
    clauses = []
    with pytest.raises(InfrastructureError, match=r"code: 100.*\n  E: no\n  Step 2/3\n") as caught:
        Engine._checked(iter(stream), clauses.append)
    assert clauses == ["E: no", "Step 2/3", r"\x1b]0;x\x07"]
    assert "\x1b" not in str(caught.value)
    assert plain("a\r\nb\rc\x00") == "a\nb\nc\\x00"


# --- with an engine ------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch):
    """Look for interference at short intervals."""
    monkeypatch.setattr("harness.environments.docker.environment._WATCH_INTERVAL_S", 0.1)


UNDONE = {  # the interference, and the command that undoes it
    "docker pause of a node": lambda v: v.engine.unpause(v.container),
    "SIGSTOP to a node's processes": lambda v: v.signal_all("CONT"),
    "a foreign rule that drops": lambda v: v.in_namespace("iptables -D INPUT -j DROP"),
    "a policy that drops": lambda v: v.in_namespace("iptables -P OUTPUT ACCEPT"),
    "docker pause of a keeper": lambda v: v.engine.unpause(v.keeper),
    "docker pause of the relay": lambda v: v.engine.unpause(v.relay),
    "ip link set eth0 down": lambda v: v.in_namespace("ip link set eth0 up"),
    "docker network disconnect": None,  # reconnecting publishes new ports, so this cannot be undone
}
ENDS = (CLIENT, client_end(0))
FLUSH = "for table in filter mangle nat; do iptables -t $table -F; done"


@pytest.mark.docker
@pytest.mark.slow
def test_interference_is_reported_with_its_begin_and_end(environment, engine, hasty):
    victim = Victim(engine, f"test-{secrets.token_hex(4)}", "n1")
    seen = {}

    async def main(session):
        reports = []
        session.cluster.subscribe(lambda e: e.kind == "infrastructure" and reports.append(e))
        await wait_answering(session, "n1")
        gateway = (await asyncio.to_thread(victim.default_route)).strip()
        for name, undo in UNDONE.items():
            reports.clear()
            await asyncio.to_thread(BY_NAME[name], victim)
            await until(lambda: reports)
            if undo is not None:
                await asyncio.to_thread(undo, victim)
                # `ip link down` removes the routes, and `up` does not restore all of them
                if name == "ip link set eth0 down":
                    await asyncio.to_thread(victim.in_namespace, f"ip route add {gateway}")
                await until(lambda: len(reports) == 2)
                assert reports[1].data["over"] is True
            seen[name] = reports[0]
        assert session.cluster.state("n1").value == "running"

    environment.execute(plan_of(echo_nodes(1), run_id=victim.run_id, ends=ENDS), main)

    assert seen.keys() == UNDONE.keys()
    assert {name for name, event in seen.items() if event.node == ""} == {
        "docker pause of the relay"
    }
    assert all(event.data["lasts"] for event in seen.values())


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "docker restart of a keeper",
        pytest.param("docker stop of the relay", marks=pytest.mark.nightly),
    ],
)
def test_a_helper_that_ended_ends_the_run_by_its_name(environment, engine, hasty, name):
    victim = Victim(engine, f"test-{secrets.token_hex(4)}", "n1")
    reports = []

    async def main(session):
        session.cluster.subscribe(lambda e: e.kind == "infrastructure" and reports.append(e))
        await wait_answering(session, "n1")
        await asyncio.to_thread(BY_NAME[name], victim)
        await asyncio.Event().wait()

    kind = "calls for clients" if "relay" in name else "keeps the network namespace of n1"
    with pytest.raises(InfrastructureError, match=f"which {kind}, was .*not by the harness"):
        environment.execute(plan_of(echo_nodes(1), run_id=victim.run_id, ends=ENDS), main)
    node = "" if "relay" in name else "n1"
    # on a busy engine, there may be other facts, which began and ended
    assert (node, True) in [(event.node, event.data.get("lasts")) for event in reports]
    assert engine.containers(f"harness.run={victim.run_id}") == []


@pytest.mark.docker
@pytest.mark.slow
def test_rules_removed_by_others_end_the_fault(environment, engine, hasty):
    victim = Victim(engine, f"test-{secrets.token_hex(4)}", "n1")
    reports, links = [], [Link("n2", "n1")]

    async def main(session):
        session.cluster.subscribe(lambda e: e.kind == "infrastructure" and reports.append(e))
        await wait_answering(session, "n1", "n2")
        qualities = (LinkQuality(delay_ms=1), StreamQuality(slice_bytes=10))
        for flushed in (False, True):
            ids = [
                await door(session).cut(links),
                *[await door(session).shape(links, quality) for quality in qualities],
            ]
            for node in ("n1", "n2") if flushed else ():
                await asyncio.to_thread(victim._replace(node=node).in_namespace, FLUSH)
            for fault in ids:
                await door(session).heal(fault)
            assert flushed or reports == []

    environment.execute(plan_of(echo_nodes(2), run_id=victim.run_id), main)

    undid = {(event.node, event.data["undid"]) for event in reports if "undid" in event.data}
    assert undid == {(node, kind) for node in ("n1", "n2") for kind in ("cut", "shape")}


@pytest.mark.docker
@pytest.mark.slow
def test_a_remote_engine_is_asked_for_stopped_containers(environment, engine, hasty, monkeypatch):
    victim = Victim(engine, f"test-{secrets.token_hex(4)}", "n1")
    monkeypatch.setattr("harness.environments.procfs.is_of_container", lambda pid, container: False)

    async def main(session):
        reports = []
        session.cluster.subscribe(lambda e: e.kind == "infrastructure" and reports.append(e.data))
        await wait_answering(session, "n1")
        assert session.cluster.pids() == {}
        await asyncio.to_thread(victim.signal_all, "STOP")
        await until(lambda: reports)
        await asyncio.to_thread(victim.signal_all, "CONT")
        await until(lambda: len(reports) == 2)
        return [(data.get("lasts"), data.get("over")) for data in reports]

    plan = plan_of(echo_nodes(1), run_id=victim.run_id)
    assert environment.execute(plan, main) == [(True, None), (None, True)]
