"""Link faults that overlap and heal in parts, against namespaces that live in this process."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cluster import CLIENT, Bite, Link, LinkQuality, NodeSpec, StreamQuality, client_end
from harness.environments.docker.deploy import Place
from harness.environments.docker.engine.engine import ExecResult
from harness.environments.docker.network import rules
from harness.environments.docker.network.links import LinkFaults
from harness.errors import InfrastructureError, UsageError

NODES = ["m1", "m2", "m3"]


PLACES = {
    name: Place(name, name, f"{name}.net", f"10.1.2.{10 + index}")
    for index, name in enumerate(NODES)
}
ONE = client_end(1)
OWN = {CLIENT: "10.1.2.1", ONE: "10.1.2.111"}
ADDRESSES = {name: place.address for name, place in PLACES.items()} | OWN


class FakeBlueprint:
    """The parts of a `Blueprint` that link faults use."""

    def __init__(self):
        self.places = PLACES
        self.clients = tuple(OWN)
        self.addresses = ADDRESSES
        self.specs = {name: NodeSpec(name=name, role="x", ports=(7051, 80)) for name in NODES}


class FakeEngine:
    """Carries out the commands of `rules` on lists, as the kernel would."""

    def __init__(self):
        # Of each namespace: [chain, address, mark, target, packets] in order.
        verbs = ("cut", "shape", "stream")
        self.tables = {(f"{name}.net", verb): [] for name in NODES for verb in verbs}
        self.healed = {key: [] for key in self.tables}
        self.fails = set()
        self.toxics = {f"{name}.net": set() for name in NODES}
        self.proxies = set()  # the nodes that have one
        self.alive = True  # the programs that hold packets and serve streams

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
                self.toxics[keeper] |= {t["name"] for one in proxies for t in one["toxics"]}
                lines = [rule for one in proxies for rule in one["rules"]]
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
        """One packet: how it is shaped, and whether it gets through."""
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
        """The proxy that takes the connection, if one does."""
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


def link_faults(engine):
    told = []
    blueprint, tell = FakeBlueprint(), lambda *words: told.append(words)
    return LinkFaults(blueprint, engine, direct, tell, engine.proxies.add), told


BAD = LinkQuality(delay_ms=5)
SLICED = StreamQuality(slice_bytes=10, reset_after_ms=5)
QUALITIES = {"cut": None, "shape": BAD, "stream": SLICED}


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
        st.tuples(st.just("cut"), SOME_LINKS),
        st.tuples(st.just("shape"), SOME_LINKS),
        st.tuples(st.just("stream"), SOME_LINKS),
        st.tuples(st.just("heal"), st.integers(0, 5)),
        st.tuples(st.just("heal-among"), st.sets(st.sampled_from(NODES), min_size=1)),
        st.tuples(st.just("warden-heals"), st.integers(0, 5)),
        st.tuples(st.just("send"), st.sampled_from(LINKS)),
        st.tuples(st.just("connect"), st.sampled_from([*LINKS[:4], Link("m1", "m3")])),
    ),
    max_size=30,
)


@given(STEPS)
@settings(deadline=None)
def test_faults_hit_what_they_say_and_count_what_they_touched(steps):
    async def run():
        engine = FakeEngine()
        faults, told = link_faults(engine)
        on: dict[str, set[Link]] = {}
        gone: set[str] = set()  # behind the back of the driver, who counts them as on
        touched: dict[str, int] = {}
        for verb, argument in steps:
            name = list(on)[argument] if isinstance(argument, int) and argument < len(on) else None
            if verb in QUALITIES:
                name = faults.plan(argument, QUALITIES[verb])
                await faults.inject(name)
                on[name], touched[name] = set(argument), 0
            elif verb == "heal" and name is not None:
                unit = "connections" if name.startswith("stream") else "packets"
                assert await faults.heal(name) == Bite(touched[name], unit)
                on[name] = set()
            elif verb == "heal-among":
                ends = {*OWN, *argument}
                over = await faults.heal_among(ends)
                inside = {link for link in LINKS if {link.source, link.destination} <= ends}
                assert over == [name for name in on if on[name] and on[name] <= inside]
                on = {name: links - inside for name, links in on.items()}
            elif verb == "warden-heals" and name is not None:
                for node in NODES:
                    patterns = rules.select_fault(name)
                    engine.exec(f"{node}.net", rules.heal_command(patterns, rules.Table.of(name)))
                gone.add(name)
            elif verb == "send":
                holders = [
                    name
                    for name, links in on.items()
                    if argument in links and name not in gone and not name.startswith("stream")
                ]
                cuts = [name for name in holders if name.startswith("cut")]
                assert engine.send(argument) == (len(cuts) < len(holders), not cuts)
                for name in holders:
                    touched[name] += 1
            elif verb == "connect":
                ends = {argument, Link(argument.destination, argument.source)}
                holders = [
                    name
                    for name, links in on.items()
                    if links & ends and name not in gone and name.startswith("stream")
                ]
                for port in (80, 7051):
                    taken = engine.connect(argument.source, argument.destination, port)
                    assert taken == bool(holders)
                for name in holders:
                    touched[name] += 2
            assert faults.active() == [name for name, links in on.items() if links]
        for name in on:
            assert (await faults.heal(name)).count == touched[name]
        assert not any(engine.tables.values())
        assert not any(engine.toxics.values())
        assert told == []

    asyncio.run(run())


async def test_faults_on_one_link_wear_different_bits_as_long_as_there_are_any():
    engine = FakeEngine()
    faults, _ = link_faults(engine)
    for _ in range(2 * len(rules.FAULT_BITS)):  # bits come back
        name = faults.plan([Link("m1", "m2")], BAD)
        await faults.inject(name)
        await faults.heal(name)
    names = [faults.plan([Link("m1", "m2")], BAD) for _ in rules.FAULT_BITS]
    assert len({faults._faults[name].bit for name in names}) == len(rules.FAULT_BITS)
    with pytest.raises(UsageError, match="31 faults of link quality at once"):
        faults.plan([Link("m1", "m2")], BAD)
    for quality in (None, SLICED):  # these need none
        faults.plan([Link("m1", "m2")], quality)
    await faults.heal_among({"m1", "m2"})
    faults.plan([Link("m1", "m2")], BAD)


async def test_a_program_that_died_is_told_of_when_its_fault_is_healed():
    engine = FakeEngine()
    faults, told = link_faults(engine)
    names = [faults.plan([Link("m1", "m2")], quality) for quality in QUALITIES.values()]
    for name in names:
        await faults.inject(name)
    engine.alive = False
    nodes = []
    for name in names:
        told.clear()
        await faults.heal(name)
        nodes.append([(node, kind) for node, _, kind in told])
    shape = [(node, "shape") for node in ("m1", "m2")]
    assert nodes == [[], shape[1:], shape]  # a cut has none


@pytest.mark.parametrize("healer", ["one", "among", "warden"])
@pytest.mark.parametrize("quality", [None, BAD], ids=["cut", "shape"])
async def test_rules_that_somebody_else_deleted_are_told_of(quality, healer):
    engine = FakeEngine()
    faults, told = link_faults(engine)
    kept, lost = (faults.plan([Link("m1", "m2"), Link("m1", "m3")], quality) for _ in range(2))
    await faults.inject(kept)
    if healer == "warden":
        for node in NODES:
            patterns = rules.select_fault(kept)
            engine.exec(f"{node}.net", rules.heal_command(patterns, rules.Table.of(kept)))
    assert not (await faults.heal(kept)).undone
    assert told == []
    await faults.inject(lost)
    verb = "cut" if quality is None else "shape"
    engine.tables["m2.net", verb].clear()  # as `iptables -F` does
    if healer == "among":
        await faults.heal_among({"m1", "m2"})
    assert (await faults.heal(lost)).undone
    assert {(node, kind) for node, _, kind in told} == {("m1", verb), ("m2", verb)}


async def test_overlapping_faults_each_count_every_packet_once():
    engine = FakeEngine()
    faults = link_faults(engine)[0]
    link = Link("m1", "m2")
    first, second = faults.plan([link]), faults.plan([link])
    await faults.inject(first)
    await faults.inject(second)
    engine.send(link)
    assert await faults.heal(first) == Bite(1, "packets")
    engine.send(link)
    assert await faults.heal(second) == Bite(2, "packets")


async def test_a_namespace_that_refuses_is_an_error_that_says_where():
    engine = FakeEngine()
    engine.fails.add("m2.net")
    faults = link_faults(engine)[0]
    with pytest.raises(InfrastructureError, match=r"`cut` failed with code 4 in m2\.net"):
        await faults.inject(faults.plan([Link("m1", "m2"), Link("m1", "m3")]))


@pytest.mark.parametrize(
    "links", [[], [Link("m1", "m9")], [Link("m1", "m1")]], ids=["none", "unknown", "loop"]
)
async def test_links_that_are_none_are_refused(links):
    with pytest.raises(UsageError):
        link_faults(FakeEngine())[0].plan(links)


async def test_a_fault_that_never_was_cannot_be_healed():
    with pytest.raises(UsageError, match="no link fault 'cut-7'"):
        await link_faults(FakeEngine())[0].heal("cut-7")


@pytest.mark.parametrize("link", [Link(ONE, "m1"), Link("m1", ONE)])
def test_connections_of_one_client_are_reset_where_its_node_is(link):
    asked = []

    class Sockets(FakeEngine):
        def exec(self, keeper, command):
            asked.append((keeper, command[4:]))
            return ExecResult(0, "")

    faults, _ = link_faults(Sockets())
    assert asyncio.run(faults.reset([link])) == 0
    assert asked == [("m1.net", [OWN[ONE]])] * 2
