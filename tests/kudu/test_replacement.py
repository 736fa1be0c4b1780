"""Replacement of a master that is lost for good, and masters whose lists of masters differ."""

import asyncio
import random

import pytest

from harness.cluster import ClusterEvent, NodeState
from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import Convergence
from targets.kudu import messages as m
from targets.kudu.bugs import Bug
from targets.kudu.master.membership import LISTS_DIFFER, check_start_list
from targets.kudu.system import AS, CHANGED
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy
from tests.pages.samples import get

LOST, SPARE = "m1", "m4"
ONCE = {"spare_masters": 1, "bugs": ("DNS-ONCE",), "more": {"told_spares": False}}


async def lose(cluster: Deployed) -> None:
    """Lose a master with its disk, and remove it."""
    await cluster.cluster.kill(LOST)
    await cluster.cluster.wipe(LOST)
    await members(cluster, "remove-master", LOST, "m2", "m3")


async def members(cluster: Deployed, change: str, node: str, *voters: str) -> None:
    """Repeat a change of the members until these masters are the voters."""

    async def so() -> Convergence:
        roles = await cluster.system.roles()
        ok = set(roles.candidates) == set(voters)
        if not ok and roles.leader is not None:
            await cluster.system.operations()[change]([node])
        return Convergence(ok=ok, pending=(str(roles),))

    await cluster.until(f"voters {voters}", so)


async def take_its_name(cluster: Deployed) -> None:
    """Give the lost master's name to a node with an empty disk, which then joins."""
    for act in (cluster.cluster.kill, cluster.cluster.wipe):
        await act(SPARE)
    await cluster.cluster.alias(LOST, SPARE)
    await cluster.cluster.start(SPARE, f"{AS}-{LOST}")


async def lead(cluster: Deployed, node: str) -> None:
    """Make other masters step down until this one leads and is ready."""

    async def leads() -> Convergence:
        roles = await cluster.system.roles()
        if node in roles.candidates and roles.leader not in {None, node}:
            await cluster.system.step_down([roles.leader])
        ok = roles.leader == node and roles.by_node[node].ready
        return Convergence(ok=ok, pending=(str(roles),))

    await cluster.until(f"{node} leads", leads)


async def restart(cluster: Deployed, *nodes: str) -> None:
    for node in nodes:
        await cluster.system.step_down([node])
        await cluster.cluster.stop(node)
        await cluster.cluster.start(node)


async def works(cluster: Deployed, client, name: str) -> None:
    await cluster.ok(client, "create", name=name)
    await cluster.until_done(client, "is-create-done", name)


@on(deploy, spare_masters=1)
async def test_a_new_machine_under_the_old_name_does_the_work_of_a_lost_master(cluster):
    old = cluster.new_client()
    await works(cluster, old, "before")
    await lose(cluster)
    await take_its_name(cluster)
    await lead(cluster, LOST)
    await works(cluster, old, "after")
    # the new master has replaced the lost one, so another master may be down
    await cluster.cluster.kill("m2")
    await works(cluster, old, "one-down")
    tables = (await cluster.ok(old, "list"))["tables"]
    assert [name for name, *_ in tables] == ["after", "before", "one-down"]
    core = cluster.system.core(random.Random(1))  # a master that has two names counts once
    assert sum(name.startswith("m") for name in core) == 2


@on(deploy, **ONCE)
async def test_processes_that_resolved_a_name_must_restart(cluster):
    old = cluster.new_client()
    await cluster.ok(old, "list")
    await lose(cluster)
    await take_its_name(cluster)
    await asyncio.sleep(15)  # a master that wants to join tries every 5 s
    assert LOST not in (await cluster.system.roles()).candidates
    await restart(cluster, "m2", "m3")
    await lead(cluster, LOST)
    with pytest.raises(AssertionError, match="no heartbeat from t1 has reached m1"):
        await cluster.until_ready(limit_s=15.0)
    assert (await cluster.do(old, "list", timeout_s=3.0)).type is OpType.FAIL
    await restart(cluster, "t1", "t2", "t3")
    await cluster.until_ready()
    await works(cluster, cluster.new_client(), "after")


@on(
    deploy,
    spare_masters=1,
    flags="heartbeat_names_masters=false",
    more={"told_spares": False, "changed_masters": "m2,m3,m4"},
)
async def test_without_an_alias_nodes_that_know_flags_only_must_restart(cluster):
    await lose(cluster)
    await members(cluster, "add-master", SPARE, "m2", "m3", SPARE)
    await lead(cluster, SPARE)
    with pytest.raises(AssertionError, match="no heartbeat from t1 has reached m4"):
        await cluster.until_ready(limit_s=15.0)
    for node in ("t1", "t2", "t3"):
        await cluster.cluster.stop(node)
        await cluster.cluster.start(node, CHANGED)
    await cluster.until_ready()


@on(deploy)
async def test_pages_are_where_a_name_leads(cluster):
    await cluster.session.cluster.alias("m1", "m2")
    listed = (await get(cluster.env, "m3", "/masters.json"))["masters"]
    assert {m["address"]: m["page"] for m in listed}["m1:7051"] == "http://m2:8051"


# --- lists of masters --------------------------------------------------------------------------


class Node:
    """The part of a node that knows the list of masters."""

    address = "m1:7051"

    def __init__(self, *bugs):
        self.env, self.bugs, self.events = self, frozenset(bugs), []

    def event(self, kind, **data):
        self.events.append((kind, data))


@pytest.mark.parametrize(
    ("stored", "told", "may_start"),
    [
        ("123", "123", True),
        ("123", "321", True),
        ("12", "123", True),  # m3 was removed
        ("23", "123", True),  # this master is about to join
        ("234", "1234", True),
        ("1", "123", False),
        ("123", "12", False),
        ("1234", "123", False),
        ("234", "123", False),  # another address replaced one of them
        ("2", "1", False),
    ],
)
def test_lists_may_differ_by_one_that_is_not_stored(stored, told, may_start):
    peers = tuple(m.PeerConfig(f"uuid-{name}", f"m{name}:7051") for name in stored)
    config = m.RaftConfig(7, peers)
    addresses = [f"m{name}:7051" for name in told]
    strict, checking = Node(), Node(Bug.STORED_LIST)
    check_start_list(strict, config, addresses)
    if may_start:
        check_start_list(checking, config, addresses)
    else:
        with pytest.raises(UsageError, match=LISTS_DIFFER):
            check_start_list(checking, config, addresses)
    differ = sorted(f"m{name}:7051" for name in set(stored) ^ set(told))
    told_of = [] if differ in ([], ["m1:7051"]) else [differ]
    for node in (strict, checking):
        assert [data["differ"] for _, data in node.events] == told_of


async def _killed_in_the_middle(cluster: Deployed) -> list[ClusterEvent]:
    """Kill a follower after an AddMaster, and restart it with the old list."""
    events: list[ClusterEvent] = []
    world = cluster.session.cluster
    world.subscribe(events.append)
    assert await cluster.system.operations()["add-master"](["m4"])
    leader = await cluster.leader()
    victim = next(name for name in ("m1", "m2") if name != leader)
    await asyncio.sleep(3)
    await world.kill(victim)
    await world.start(victim)
    await asyncio.sleep(5)
    events = [event for event in events if event.node == victim]
    assert (world.state(victim) is NodeState.RUNNING) == (events[-1].kind != "node-exited")
    return events


def kinds(events: list[ClusterEvent]) -> list[str]:
    return [one.kind for one in events if one.kind in {"masters-differ", "node-exited"}]


@on(deploy, spare_masters=1)
async def test_a_master_with_an_old_list_follows_what_it_has_stored_and_says_so(cluster):
    assert kinds(await _killed_in_the_middle(cluster)) == ["node-exited", "masters-differ"]
    await cluster.until_converged()
    pages = [await get(cluster.env, name, "/masters.json") for name in ("m1", "m2", "m3", "m4")]
    assert pages == pages[:1] * 4
    assert len(pages[0]["masters"]) == 4
    old = [f"m{number}:7051" for number in (1, 2, 3)]
    assert pages[0]["told_otherwise"] == [{"address": one, "told": old} for one in old]
    text = (await get(cluster.env, "m1", "/masters")).decode()
    assert "m2:7051 was started with another list" in text
    assert "m4:7051 was started" not in text


@on(deploy, spare_masters=1, bugs=("STORED-LIST",))
async def test_with_the_switch_it_exits(cluster):
    events = await _killed_in_the_middle(cluster)
    assert kinds(events) == ["node-exited", "masters-differ", "node-exited"]
    assert any(LISTS_DIFFER in line for line in events[-1].data["log"])


@on(deploy, spare_masters=1, bugs=("STORED-LIST",))
async def test_who_is_to_join_must_be_the_only_one_that_is_missing(cluster):
    world = cluster.session.cluster
    leader = await cluster.leader()
    other = next(name for name in ("m2", "m3") if name != leader)
    await cluster.system.operations()["remove-master"]([other])
    await world.kill("m4")
    await world.wipe("m4")
    await world.start("m4")
    await asyncio.sleep(2)
    assert world.state("m4") is NodeState.DOWN


@on(deploy, spare_masters=1, profile="modern")
async def test_in_a_profile_every_restart_keeps_the_list(cluster):
    assert kinds(await _killed_in_the_middle(cluster)) == ["node-exited"]
    await cluster.until_converged()


@on(deploy, profile="modern", more={"changed_masters": "m1"})
async def test_but_not_against_an_operator_who_writes_another_list(cluster):
    world = cluster.session.cluster
    await world.kill("m2")
    await world.start("m2", "changed")
    await asyncio.sleep(2)
    assert world.state("m2") is NodeState.DOWN


# --- commands that a profile lacks ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "refused"),
    [
        ("strict", set()),
        ("modern", {"get-stale"}),
        ("legacy", {"get-stale", "add-master", "remove-master"}),
    ],
)
def test_operations_that_a_profile_lacks_are_refused_without_effect(profile, refused):
    async def body(cluster: Deployed) -> None:
        client = cluster.new_client()
        await cluster.ok(client, "create", name="t")
        leader = await cluster.leader()
        other = next(name for name in ("m1", "m2", "m3") if name != leader)
        asked = {
            "add-master": {"node": "m4"},
            "remove-master": {"node": other},
            "get-stale": {"name": "t", "max_staleness_ms": 60_000},
        }
        for f, value in asked.items():
            done = await cluster.do(client, f, timeout_s=3.0, **value)
            if f in refused:
                assert done.type is OpType.FAIL, done
                assert "NOT_SUPPORTED" in done.error
            else:
                assert done.type is OpType.OK, done
        found = (await cluster.ok(client, "list-masters"))["masters"]
        members = {name for name, *_ in found}
        assert members == {"m1", "m2", "m3"} ^ (set() if profile == "legacy" else {"m4", other})

    deploy(body, profile=profile, spare_masters=1)
