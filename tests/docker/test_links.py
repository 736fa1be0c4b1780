"""Cuts that overlap and heal in parts, against namespaces that live in this process."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cluster import CLIENT, Link
from harness.environments.docker import rules
from harness.environments.docker.deploy import Place
from harness.environments.docker.engine import ExecResult
from harness.environments.docker.links import LinkFaults
from harness.errors import InfrastructureError, UsageError

NODES = ["m1", "m2", "m3"]


PLACES = {
    name: Place(name, name, f"{name}.net", f"10.1.2.{10 + index}")
    for index, name in enumerate(NODES)
}
ADDRESSES = {name: place.address for name, place in PLACES.items()} | {CLIENT: "10.1.2.1"}


class FakeBlueprint:
    """The parts of a `Blueprint` that link faults use."""

    def __init__(self):
        self.places = PLACES
        self.addresses = ADDRESSES


class FakeEngine:
    """Carries out the commands of `rules` on lists, as the kernel would."""

    def __init__(self):
        # Of each namespace: [chain, address, mark, drops, packets] in order.
        self.tables = {f"{name}.net": [] for name in NODES}
        self.healed = {f"{name}.net": {} for name in NODES}
        self.fails = set()

    def exec(self, keeper, command):
        if keeper in self.fails:
            return ExecResult(4, "the filter is broken")
        table = self.tables[keeper]
        if command[3] == "cut":
            for line in command[5:]:
                words = line.split()
                rule = [words[1], *self._rest(words), words[-1] == "DROP", 0]
                table.insert(0 if words[0] == "-I" else len(table), rule)
            return ExecResult(0, "")
        selected = [rule for rule in table if any(t in f'{rule[2]}"' for t in command[4:])]
        self.tables[keeper] = [rule for rule in table if rule not in selected]
        self.healed[keeper] |= {mark: count for _, _, mark, drops, count in selected if not drops}
        output = (
            f'-A healed --comment "{count}:{mark}"' for mark, count in self.healed[keeper].items()
        )
        return ExecResult(0, "\n".join(output))

    @staticmethod
    def _rest(words):
        flag = next(index for index, word in enumerate(words) if word in {"-s", "-d"})
        return words[flag + 1], words[words.index("--comment") + 1].strip('"')

    def send(self, link):
        """One packet; whether it got through."""
        table = self.tables[f"{rules.owner(link)}.net"]
        chain, end = ("OUTPUT", CLIENT) if link.destination == CLIENT else ("INPUT", link.source)
        for rule in table:
            if rule[:2] == [chain, f"{ADDRESSES[end]}/32"]:
                rule[4] += 1
                if rule[3]:
                    return False
        return True


async def direct(call, *arguments):
    return call(*arguments)


LINKS = [
    Link("m1", "m2"),
    Link("m2", "m1"),
    Link("m3", "m2"),
    Link(CLIENT, "m2"),
    Link("m2", CLIENT),
]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("cut"), st.lists(st.sampled_from(LINKS), min_size=1, max_size=4)),
        st.tuples(st.just("heal"), st.integers(0, 5)),
        st.tuples(st.just("heal-among"), st.sets(st.sampled_from(NODES), min_size=1)),
        st.tuples(st.just("warden-heals"), st.integers(0, 5)),
        st.tuples(st.just("send"), st.sampled_from(LINKS)),
    ),
    max_size=30,
)


@given(STEPS)
@settings(deadline=None)
def test_faults_cut_what_they_say_and_count_what_they_dropped(steps):
    async def run():
        engine = FakeEngine()
        faults = LinkFaults(FakeBlueprint(), engine, direct)
        cut: dict[str, set[Link]] = {}
        gone: set[str] = set()  # behind the back of the driver, who counts them as cut
        dropped: dict[str, int] = {}
        for verb, argument in steps:
            if verb == "cut":
                name = faults.plan(argument)
                await faults.cut(name)
                cut[name], dropped[name] = set(argument), 0
            elif verb == "heal" and f"cut-{argument}" in cut:
                assert await faults.heal(f"cut-{argument}") == dropped[f"cut-{argument}"]
                cut[f"cut-{argument}"] = set()
            elif verb == "heal-among":
                ends = {CLIENT, *argument}
                over = await faults.heal_among(ends)
                inside = {link for link in LINKS if {link.source, link.destination} <= ends}
                assert over == [name for name in cut if cut[name] and cut[name] <= inside]
                cut = {name: links - inside for name, links in cut.items()}
            elif verb == "warden-heals":
                for node in NODES:
                    command = rules.heal_command(rules.select_fault(f"cut-{argument}"))
                    engine.exec(f"{node}.net", command)
                gone |= {f"cut-{argument}"} & cut.keys()
            elif verb == "send":
                holders = [
                    name for name, links in cut.items() if argument in links and name not in gone
                ]
                assert engine.send(argument) is not bool(holders)
                for name in holders:
                    dropped[name] += 1
            assert faults.active() == [name for name, links in cut.items() if links]
        for name in cut:
            assert await faults.heal(name) == dropped[name]
        assert not any(engine.tables.values())

    asyncio.run(run())


def test_overlapping_faults_each_count_every_packet_once():
    async def run():
        engine = FakeEngine()
        faults = LinkFaults(FakeBlueprint(), engine, direct)
        link = Link("m1", "m2")
        first, second = faults.plan([link]), faults.plan([link])
        await faults.cut(first)
        await faults.cut(second)
        engine.send(link)
        assert await faults.heal(first) == 1
        engine.send(link)
        assert await faults.heal(second) == 2

    asyncio.run(run())


def test_a_namespace_that_refuses_is_an_error_that_says_where():
    async def run():
        engine = FakeEngine()
        engine.fails.add("m2.net")
        faults = LinkFaults(FakeBlueprint(), engine, direct)
        with pytest.raises(InfrastructureError, match=r"`cut` failed with code 4 in m2\.net"):
            await faults.cut(faults.plan([Link("m1", "m2"), Link("m1", "m3")]))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([], "no link was given"),
        ([Link("m1", "m9")], "ends at 'm9'; there are: m1, m2, m3, client"),
        ([Link("m1", "m1")], "its ends must differ"),
    ],
)
def test_links_that_are_none_are_refused(links, message):
    async def run():
        with pytest.raises(UsageError, match=message):
            LinkFaults(FakeBlueprint(), FakeEngine(), direct).plan(links)

    asyncio.run(run())


def test_a_fault_that_never_was_cannot_be_healed():
    async def run():
        with pytest.raises(UsageError, match="no link fault 'cut-7'"):
            await LinkFaults(FakeBlueprint(), FakeEngine(), direct).heal("cut-7")

    asyncio.run(run())
