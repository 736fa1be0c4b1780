"""The damage budget keeps faults from damaging a majority of any group."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Fault
from harness.cluster import DiskQuality, NodeSpec
from harness.faults.ledger import Ledger
from harness.nodes.faults import Aim, Disk, Kill
from harness.ops import OpType
from tests.support.cluster import FakeCluster, FakeEnv, conductor_of

ROT = Disk(quality=DiskQuality(bitrot=0.25))
POWER_CUT = Kill(power_cut=True, torn=True)
ROLES = {
    "m1": "master", "m2": "master", "m3": "master", "m4": "master", "m5": "master",
    "t1": "tserver", "t2": "tserver", "t3": "tserver", "t4": "tserver",
    "p1": "proxy", "p2": "proxy", "lone": "lone",
}  # fmt: skip
NODES = sorted(ROLES)
GROUPS = st.dictionaries(
    st.sampled_from(["g1", "g2", "g3"]),
    st.lists(st.sampled_from(NODES), min_size=1, max_size=6, unique=True),
    max_size=3,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([ROT, ROT, ROT, POWER_CUT, "heal"]),
        st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True),
    ),
    max_size=12,
)


def ledger_of(**named):
    cluster = FakeCluster()
    cluster.nodes = {name: NodeSpec(name=name, role=ROLES[name], ports=()) for name in NODES}
    return Ledger(cluster, FakeEnv(), **named)


def majorities(groups):
    """Return the majorities of all groups, and of any three nodes of one role."""
    unobserved = set(NODES) - {node for members in groups.values() for node in members}
    whole = list(groups.values())
    for role in set(ROLES.values()):
        alike = [node for node in unobserved if ROLES[node] == role]
        whole += map(list, itertools.combinations(alike, min(3, len(alike))))
    return [
        set(some)
        for members in whole
        if members
        for some in itertools.combinations(members, len(members) // 2 + 1)
    ]


@given(GROUPS, STEPS)
def test_what_is_refused_is_what_would_damage_a_majority(groups, steps):
    async def main():
        ledger, damaged, on = ledger_of(), set(), []
        for what, nodes in steps:
            if what == "heal":
                if on:
                    await ledger.heal(on.pop())
                continue
            aim = Aim(what=what, targets=tuple(nodes))
            injection = await ledger.inject(aim, lease_s=1.0, groups=groups)
            if what is POWER_CUT:
                assert not injection.refused
            else:
                after = damaged | set(nodes)
                too_many = any(some <= after for some in majorities(groups))
                assert injection.refused is too_many
                assert injection.targets == (() if too_many else tuple(nodes))
                damaged = damaged if too_many else after
            on += [injection.id] if injection.targets else []
        assert not any(some <= damaged for some in majorities(groups))

    asyncio.run(main())


async def test_a_case_may_allow_any_damage():
    aim = Aim(what=ROT, targets=tuple(NODES))
    injection = await ledger_of(damage="majority").inject(aim, lease_s=1.0, groups={})
    assert injection.targets == tuple(NODES)


async def test_a_group_that_shrinks_below_its_damage_refuses_only_what_hits_it():
    ledger = ledger_of()

    async def refused(*nodes, groups):
        aim = Aim(what=ROT, targets=nodes)
        return (await ledger.inject(aim, lease_s=1.0, groups=groups)).refused

    five = {"g": ("m1", "m2", "m3", "m4", "m5")}
    assert not await refused("m1", "m2", groups=five)
    three = {"g": ("m1", "m2", "m3")}
    assert not await refused("m1", groups=three)  # m1 is already damaged
    assert not await refused("t1", groups=three)
    assert await refused("m3", groups=three)


@pytest.mark.parametrize("text", ["disk all bitrot=5%", "disk majority bitrot=5%"])
async def test_a_refusal_is_a_fact_of_the_history_and_no_error(text):
    cluster = FakeCluster()
    conductor, recorder = conductor_of(text, cluster)
    fault = Fault("f", text, at_ns=0, duration_ns=1, args={})
    injection = await conductor.strike(fault)
    assert (injection.targets, injection.refused) == ((), True)
    assert cluster.disks == {}
    (op,) = recorder.history()
    assert (op.type, op.value["refused"], op.value["targets"]) == (OpType.INFO, True, [])
    assert "catalog" in op.value["note"] or "role" in op.value["note"]
