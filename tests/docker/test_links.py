"""Link faults that overlap and are healed in part, in simulated network namespaces."""

import asyncio
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cluster import CLIENT, Link, LinkQuality, NodeSpec, StreamQuality, client_end
from harness.environments.docker.deploy import Place
from harness.environments.docker.engine.engine import ExecResult
from harness.environments.docker.network import rules
from harness.environments.docker.network.links import LinkFaults
from harness.environments.host.cluster import label_of
from harness.errors import InfrastructureError, UsageError
from harness.faults.conditions import Links
from harness.nodes.faults import Cut, Shape, Stream

NODES = ["m1", "m2", "m3"]


PLACES = {
    name: Place(name, name, f"{name}.net", f"10.1.2.{10 + index}")
    for index, name in enumerate(NODES)
}
ONE = client_end(1)
OWN = {CLIENT: "10.1.2.1", ONE: "10.1.2.111"}
ADDRESSES = {name: place.address for name, place in PLACES.items()} | OWN


class FakeBlueprint:
    """A fake `Blueprint` with only the parts that link faults use."""

    def __init__(self):
        self.places = PLACES
        self.clients = tuple(OWN)
        self.addresses = ADDRESSES
        self.specs = {name: NodeSpec(name=name, role="x", ports=(7051, 80)) for name in NODES}


class FakeEngine:
    """A fake engine that applies the commands of `rules` to lists, as the kernel would."""

    def __init__(self):
        # namespace -> its rules in order, each as [chain, address, mark, target, packets]
        verbs = ("cut", "shape", "stream")
        self.tables = {(f"{name}.net", verb): [] for name in NODES for verb in verbs}
        self.healed = {key: [] for key in self.tables}
        self.fails = set()
        self.toxics = {f"{name}.net": set() for name in NODES}
        self.proxies = set()  # the nodes that have a proxy
        self.alive = True  # whether the programs for packets and streams run

    def exec(self, keeper, command):
        if keeper in self.fails:
            return ExecResult(4, "the filter is broken")
        verb = command[3]
        if verb != "heal":
            table = self.tables[keeper, verb]
            lines = command[5 if verb == "cut" else 7 :]
            if verb == "stream":
                proxies = [json.loads(word) for word in command[7:]]
                assert keeper.removesuffix(".net") in self.proxies
                self.toxics[keeper] |= {t["name"] for proxy in proxies for t in proxy["toxics"]}
                lines = [rule for proxy in proxies for rule in proxy["rules"]]
            for line in lines:
                words = line.split()
                target = words[words.index("-j") + 1] if "-j" in words else ""
                rule = [words[1], *self._rest(words), target, 0]
                rule[3] += words[words.index("--dport") + 1] if verb == "stream" else ""
                table.insert(0 if words[0] == "-I" else len(table), rule)
            return ExecResult(0, "")
        verb = {"filter": "cut", "mangle": "shape", "nat": "stream"}[
            command[2].partition("iptables-save -c -t ")[2].partition(")")[0]
        ]
        key = (keeper, verb)
        if verb == "stream":
            kept = {t for t in self.toxics[keeper] if not any(p in f'{t}"' for p in command[4:])}
            self.toxics[keeper] = kept
        table = self.tables[key]
        selected = [rule for rule in table if any(t in f'{rule[2]}"' for t in command[4:])]
        self.tables[key] = [rule for rule in table if rule not in selected]
        counts = [(rule[2], rule[4]) for rule in selected if rule[3] in {"", "80", "7051"}]
        self.healed[key] = [*self.healed[key], *counts]
        output = [f'-A healed --comment "{count}:{mark}"' for mark, count in self.healed[key]]
        if self.alive:
            output += ["queue 4077 1 0 2 20 0 0 0 1", "proxy served"]
        return ExecResult(0, "\n".join(output))

    @staticmethod
    def _rest(words):
        flag = next(index for index, word in enumerate(words) if word in {"-s", "-d"})
        return words[flag + 1], words[words.index("--comment") + 1].strip('"')

    def send(self, link):
        keeper = f"{rules.owners(link, rules.Table.CUT)[0]}.net"
        towards = link.destination in OWN
        chain, end = ("OUTPUT", link.destination) if towards else ("INPUT", link.source)
        queued = False
        for rule in (*self.tables[keeper, "shape"], *self.tables[keeper, "cut"]):
            if rule[:2] != [chain, f"{ADDRESSES[end]}/32"] or (queued and rule[3] == "NFQUEUE"):
                continue
            rule[4] += 1
            queued = queued or rule[3] == "NFQUEUE"
            if rule[3] == "DROP":
                return queued, False
        return queued, True

    def connect(self, opener, peer, port):
        """Return the proxy that accepts the connection, if there is one."""
        where, chain, end = (
            (peer, "PREROUTING", CLIENT) if opener == CLIENT else (opener, "OUTPUT", peer)
        )
        taken = False
        for rule in self.tables[f"{where}.net", "stream"]:
            if rule[:2] == [chain, f"{ADDRESSES[end]}/32"] and rule[3].endswith(str(port)):
                rule[4] += 1
                if rule[3].startswith("REDIRECT"):
                    taken = True
                    break
        return taken


async def direct(call, *arguments):
    return call(*arguments)


class FakeWarden:
    """A record of the undo commands that the warden would run."""

    def __init__(self):
        self.guards = {}

    def guard(self, key, undo, *, deadline_s):
        self.guards[key] = undo

    def release(self, key):
        self.guards.pop(key, None)


class Faults(Links):
    """Link faults that go through the ledger and are applied by Docker's rules."""

    def __init__(self, engine):
        self.told, self.warden = [], FakeWarden()
        self.rules = LinkFaults(
            FakeBlueprint(),
            engine,
            direct,
            self.warden,
            lambda *words: self.told.append(words),
            engine.proxies.add,
        )
        self.names = itertools.count(1)
        super().__init__(self)

    async def set_links(self, wanted, *, lease_s):
        return await self.rules.set_links(wanted, lease_s)

    async def laid(self, what, *links):
        name = f"{what.word}-{next(self.names)}"
        await self.lay(name, what, links, 600.0)
        return name


BAD = Shape(quality=LinkQuality(delay_ms=5))
SLICED = Stream(quality=StreamQuality(slice_bytes=10, reset_after_ms=5))
TABLES = {Cut(): rules.Table.CUT, BAD: rules.Table.SHAPE, SLICED: rules.Table.STREAM}


def heal_behind_the_back(engine, name, what):
    """Heal a fault as the warden does, without the driver's knowledge."""
    for node in NODES:
        command = rules.heal_command(rules.select_fault(name), TABLES[what])
        engine.exec(f"{node}.net", command)


LINKS = [
    Link("m1", "m2"),
    Link("m2", "m1"),
    Link("m3", "m2"),
    Link(CLIENT, "m2"),
    Link("m2", CLIENT),
    Link(ONE, "m2"),
    Link("m2", ONE),
]
SOME_LINKS = st.lists(st.sampled_from(LINKS), min_size=1, max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([*TABLES]), SOME_LINKS),
        st.tuples(st.just("lift"), st.integers(0, 5)),
        st.tuples(st.just("relieve"), st.sets(st.sampled_from(NODES), min_size=1)),
        st.tuples(st.just("warden-heals"), st.integers(0, 5)),
        st.tuples(st.just("send"), st.sampled_from(LINKS)),
        st.tuples(st.just("connect"), st.sampled_from([*LINKS[:4], Link("m1", "m3")])),
    ),
    max_size=30,
)


class Model:
    """A model: the expected faults of each link, and the packets that each fault has affected."""

    def __init__(self):
        self.kinds, self.links, self.touched = {}, {}, {}
        self.gone = set()  # faults healed without the driver, which still counts them as active

    def holders(self, links, *kinds):
        return [
            name
            for name, on in self.links.items()
            if on & links and name not in self.gone and isinstance(self.kinds[name], kinds)
        ]


async def step(engine, faults, model, verb, argument):
    names = list(model.links)
    name = names[argument] if isinstance(argument, int) and argument < len(names) else None
    match verb:
        case Cut() | Shape() | Stream():
            name = await faults.laid(verb, *argument)
            model.kinds[name], model.links[name], model.touched[name] = verb, set(argument), 0
        case "lift" if name is not None:
            assert (await faults.lift(name)).count == model.touched[name]
            del model.links[name]
        case "relieve":
            ends = {*OWN, *argument}
            await faults.relieve(ends)
            for on in model.links.values():
                on -= {link for link in LINKS if {link.source, link.destination} <= ends}
        case "warden-heals" if name is not None:
            heal_behind_the_back(engine, name, model.kinds[name])
            model.gone.add(name)
        case "send":
            holders = model.holders({argument}, Cut, Shape)
            cuts = model.holders({argument}, Cut)
            assert engine.send(argument) == (len(cuts) < len(holders), not cuts)
            for each in holders:
                model.touched[each] += 1
        case "connect":
            holders = model.holders({argument, Link(argument.destination, argument.source)}, Stream)
            for port in (80, 7051):
                taken = engine.connect(argument.source, argument.destination, port)
                assert taken == bool(holders)
            for each in holders:
                model.touched[each] += 2
    on = {f"link:{each}" for each, links in model.links.items() if links}
    assert faults.warden.guards.keys() == on


@given(STEPS)
@settings(deadline=None)
def test_faults_hit_what_they_say_and_count_what_they_touched(steps):
    async def run():
        engine, model = FakeEngine(), Model()
        faults = Faults(engine)
        for verb, argument in steps:
            await step(engine, faults, model, verb, argument)
        for name in model.links:
            assert (await faults.lift(name)).count == model.touched[name]
        assert not any(engine.tables.values())
        assert not any(engine.toxics.values())
        assert faults.told == []

    asyncio.run(run())


async def test_faults_on_one_link_wear_different_bits_as_long_as_there_are_any():
    faults, link = Faults(FakeEngine()), Link("m1", "m2")
    for _ in range(2 * len(rules.FAULT_BITS)):  # more faults than bits, so bits are reused
        await faults.lift(await faults.laid(BAD, link))
    names = [await faults.laid(BAD, link) for _ in rules.FAULT_BITS]
    assert len({faults.rules._faults[name].bit for name in names}) == len(rules.FAULT_BITS)
    with pytest.raises(UsageError, match="31 faults of link quality are in force"):
        await faults.laid(BAD, link)
    for what in (Cut(), SLICED):  # these faults need no bits
        await faults.laid(what, link)
    await faults.relieve({"m1", "m2"})
    await faults.laid(BAD, link)


async def test_a_program_that_died_is_reported_when_its_fault_is_healed():
    engine = FakeEngine()
    faults = Faults(engine)
    names = [await faults.laid(what, Link("m1", "m2")) for what in TABLES]
    engine.alive = False
    nodes = []
    for name in names:
        faults.told.clear()
        await faults.lift(name)
        nodes.append([(node, kind) for node, _, kind in faults.told])
    shape = [(node, "shape") for node in ("m1", "m2")]
    assert nodes == [[], shape[1:], shape]  # a cut needs no program


@pytest.mark.parametrize("healer", ["one", "among", "warden"])
@pytest.mark.parametrize("what", [Cut(), BAD], ids=["cut", "shape"])
async def test_rules_that_another_program_deleted_are_reported(what, healer):
    engine = FakeEngine()
    faults = Faults(engine)
    kept = await faults.laid(what, Link("m1", "m2"), Link("m1", "m3"))
    (guard,) = faults.warden.guards.values()
    assert guard.argv[-5:] == ["heal", TABLES[what].name, kept, "m2.net", "m3.net"]
    if healer == "warden":
        heal_behind_the_back(engine, kept, what)
    assert not (await faults.lift(kept)).undone
    assert faults.told == []
    lost = await faults.laid(what, Link("m1", "m2"), Link("m1", "m3"))
    engine.tables["m2.net", what.word].clear()  # as `iptables -F` does
    if healer == "among":
        await faults.relieve({"m1", "m2"})
    assert (await faults.lift(lost)).undone
    assert {(node, kind) for node, _, kind in faults.told} == {
        ("m1", what.word), ("m2", what.word)
    }  # fmt: skip


async def test_a_namespace_that_refuses_is_an_error_that_names_it():
    engine = FakeEngine()
    engine.fails.add("m2.net")
    with pytest.raises(InfrastructureError, match=r"failed with code 4 in m2\.net"):
        await Faults(engine).laid(Cut(), Link("m1", "m2"), Link("m1", "m3"))


@pytest.mark.parametrize("link", [Link("m1", "m9"), Link("m1", "m1")], ids=["unknown", "loop"])
async def test_links_that_do_not_join_two_ends_are_refused(link):
    with pytest.raises(UsageError):
        await Faults(FakeEngine()).laid(Cut(), link)


@pytest.mark.parametrize("link", [Link(ONE, "m1"), Link("m1", ONE)])
def test_connections_of_one_client_are_reset_where_its_node_is(link):
    asked = []

    class Sockets(FakeEngine):
        def exec(self, keeper, command):
            asked.append((keeper, command[4:]))
            return ExecResult(0, "")

    assert asyncio.run(Faults(Sockets()).rules.reset([link])) == 0
    assert asked == [("m1.net", [OWN[ONE]])] * 2


def test_an_id_of_a_case_becomes_a_label_that_rules_can_hold():
    assert label_of("kill-leader-1") == "kill-leader-1"
    words = "cut leader from members every 10s for 4s"
    labels = [label_of(f"{words}-{number}") for number in range(20)] + [label_of(words)]
    assert len(set(labels)) == len(labels)
    for label in labels:
        assert len(label) <= 40
        # raises an error if the text is not a valid quality
        rules.mark(label, Link("m1", "m2"), "del=200,jit=50")


class KernelEngine:
    """An engine whose kernel has netem; it records commands, and counts 7 packets per rule."""

    def __init__(self):
        self.asked = []
        self.marks = set()
        self.emulates = True

    def exec(self, keeper, command):
        verb = command[3]
        self.asked.append((keeper, verb, command[4:]))
        if verb in {"mark", "shape"}:
            self.marks |= {w for line in command for w in line.split('"') if w.count(":") == 2}
        if verb != "heal":
            return ExecResult(0, "")
        counts = [f'-A healed --comment "7:{mark}"' for mark in self.marks]
        statistics = "qdisc netem 1: parent 4077:1 limit 9\n Sent 0 bytes 7 pkt (dropped 0, x"
        return ExecResult(0, "\n".join([*counts, statistics if self.emulates else ""]))

    def verbs(self):
        asked, self.asked = self.asked, []
        return [(keeper, verb) for keeper, verb, _ in asked], asked


async def test_links_from_nodes_are_shaped_by_a_kernel_that_can():
    engine, lost = KernelEngine(), []
    links = LinkFaults(
        FakeBlueprint(), engine, direct, FakeWarden(), lambda *words: lost.append(words), print
    )
    assert await links.missing() == {}
    assert [verb for _, verb in engine.verbs()[0]][-4:] == ["probe", *["prepare"] * 3]
    link, slow = Link("m1", "m2"), LinkQuality(delay_ms=100)

    await links.set_links({link: {"a": slow}}, 9)
    verbs, asked = engine.verbs()
    assert verbs == [("m1.net", "set"), ("m1.net", "mark")]
    assert "netem limit 65536 delay 100.000ms" in asked[0][2][1]
    await links.set_links({link: {"a": slow, "b": slow}}, 9)
    verbs, asked = engine.verbs()
    assert verbs == [("m1.net", "set"), ("m1.net", "mark")]
    assert "delay 200.000ms" in asked[0][2][1]  # the sum of both delays
    assert "handle 0x3/0x7fffffff fw classid 4077:2" in asked[0][2][2]

    bites = await links.set_links({link: {"b": slow}}, 9)
    verbs, asked = engine.verbs()
    # fault a was cancelled, so only b is left to get a traffic class
    assert verbs == [("m1.net", "set"), ("m1.net", "heal")]
    assert "handle 0x2/0x7fffffff fw classid 4077:3" in asked[0][2][2]
    assert (bites["a"].count, bites["a"].undone, lost) == (7, False, [])
    engine.emulates = False
    await links.set_links({link: {}}, 9)
    assert [node for node, *_ in lost] == ["m1"]


async def test_stalls_and_links_from_clients_are_shaped_where_they_arrive():
    engine = KernelEngine()
    links = LinkFaults(FakeBlueprint(), engine, direct, FakeWarden(), print, print)
    await links.missing()
    engine.verbs()
    slow, stall = LinkQuality(delay_ms=100), LinkQuality(stall=True)
    await links.set_links({Link(CLIENT, "m1"): {"a": slow}, Link("m1", "m2"): {"a": slow}}, 9)
    verbs, asked = engine.verbs()
    assert verbs == [("m1.net", "set"), ("m1.net", "shape")]
    assert [line.split()[1] for line in asked[1][2][3:]] == ["INPUT"] * 3 + ["OUTPUT"] * 2
    await links.set_links({Link("m1", "m2"): {"a": slow, "s": stall}}, 9)
    assert engine.verbs()[0] == [("m2.net", "shape")]
