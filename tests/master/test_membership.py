"""Masters join by themselves or on request, and are removed."""

import asyncio
from typing import Any

import pytest

from harness.cluster import NodeSpec
from harness.plugins import Session
from targets.kudu import messages as m
from targets.kudu.rpc import RpcClient
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy
from tests.sim.toy import run

BY_HAND = "master_auto_join_cluster=false"


async def ask(cluster: Deployed | Session, node: str, method: str, *request: Any) -> Any:
    request_type = getattr(m, f"{method}Request")
    rpc = RpcClient(cluster.env)
    try:
        return await rpc.call(f"{node}:7051", request_type(*request), timeout_s=15)
    finally:
        rpc.close()


async def members(cluster: Deployed, node: str) -> dict[str, str]:
    """Map each address to the member type and role that one master lists."""
    listed = await ask(cluster, node, "ListMasters")
    return {
        entry.address.partition(":")[0]: f"{entry.member_type} {entry.role}"
        for entry in listed.masters
    }


async def wait_for_voters(cluster: Deployed, *names: str) -> None:
    async with asyncio.timeout(60):
        while True:
            found = await members(cluster, await cluster.leader())
            voters = {name for name, said in found.items() if said.startswith("VOTER")}
            if voters == set(names):
                return
            await asyncio.sleep(0.2)


async def tables(cluster: Deployed, node: str) -> list[str]:
    dump = (await ask(cluster, node, "DumpEntities")).data
    return sorted(table["name"] for table in dump["tables"])


@pytest.mark.parametrize("snapshot_every", [60, 2])
def test_a_new_master_joins_by_itself_and_has_everything(snapshot_every):
    async def body(cluster: Deployed) -> None:
        client = cluster.new_client()
        for name in ("a", "b", "c"):
            await cluster.ok(client, "create", name=name)
        await wait_for_voters(cluster, "m1", "m2", "m3", "m4")
        await cluster.ok(client, "create", name="d")
        await asyncio.sleep(2)
        assert await tables(cluster, "m4") == ["a", "b", "c", "d"]
        views = [await members(cluster, node) for node in ("m1", "m2", "m3", "m4")]
        assert views[0] == views[1] == views[2] == views[3]
        assert sorted(views[0].values()) == ["VOTER FOLLOWER"] * 3 + ["VOTER LEADER"]

    deploy(body, joining=1, flags=f"master_snapshot_every={snapshot_every}")


@on(deploy, joining=1, flags=BY_HAND)
async def test_a_master_is_added_when_asked_and_another_one_removed(cluster):
    client = cluster.new_client()
    await cluster.ok(client, "create", name="a")
    await asyncio.sleep(8)
    assert await members(cluster, "m1") == {
        name: said for name, said in (await members(cluster, "m2")).items() if name != "m4"
    }
    leader = await cluster.leader()
    for name in ("m1", "m2", "m3"):
        listed = await ask(cluster, name, "ListMasters")
        assert (listed.meta.revision >= 0) == (name == leader)
    assert (await ask(cluster, leader, "AddMaster", "m4:7051")).error is None
    again = (await ask(cluster, leader, "AddMaster", "m4:7051")).error
    assert again.code is m.MasterErrorCode.MASTER_ALREADY_PRESENT
    await wait_for_voters(cluster, "m1", "m2", "m3", "m4")
    gone = next(name for name in ("m1", "m2", "m3") if name != leader)

    assert (await ask(cluster, leader, "RemoveMaster", f"{gone}:7051")).error is None

    await wait_for_voters(cluster, *({"m1", "m2", "m3", "m4"} - {gone}))
    await cluster.session.cluster.kill(gone)
    await cluster.ok(client, "create", name="b")
    assert await tables(cluster, "m4") == ["a", "b"]


@on(deploy, flags=BY_HAND)
async def test_what_is_refused(cluster):
    leader = await cluster.leader()
    other = next(name for name in ("m1", "m2", "m3") if name != leader)
    code, status = m.MasterErrorCode, m.AppStatus

    async def refused(method: str, *request: Any, node: str = leader) -> tuple[Any, Any]:
        error = (await ask(cluster, node, method, *request)).error
        return error.code, error.status

    unknown = code.UNKNOWN_ERROR
    assert await refused("RemoveMaster", "m9:7051") == (unknown, status.NOT_FOUND)
    assert await refused("RemoveMaster", f"{leader}:7051") == (unknown, status.INVALID_ARGUMENT)
    wrong = await refused("RemoveMaster", f"{other}:7051", "f" * 32)
    assert wrong == (unknown, status.INVALID_ARGUMENT)
    for nowhere in ("t1:7051", "nobody:7051"):
        assert await refused("AddMaster", nowhere) == (unknown, status.NETWORK_ERROR)
    for address in ("m9", "m9:", ":7051", "m9:x", ""):  # the leader survives each request
        assert await refused("AddMaster", address) == (unknown, status.INVALID_ARGUMENT)
    for method in ("AddMaster", "RemoveMaster"):
        found = await refused(method, "m9:7051", node=other)
        assert found == (code.NOT_THE_LEADER, status.ILLEGAL_STATE)


@on(deploy, masters=1, tservers=1, flags=BY_HAND)
async def test_the_last_master_stays(cluster):
    error = (await ask(cluster, "m1", "RemoveMaster", "m1:7051")).error

    assert (error.code, error.status) == (
        m.MasterErrorCode.UNKNOWN_ERROR,
        m.AppStatus.INVALID_ARGUMENT,
    )


@on(deploy, joining=1, flags=BY_HAND)
async def test_a_dead_master_is_listed_with_its_error_and_replaced(cluster):
    client = cluster.new_client()
    await cluster.ok(client, "create", name="a")
    leader = await cluster.leader()
    dead = next(name for name in ("m1", "m2", "m3") if name != leader)
    await cluster.session.cluster.kill(dead)
    assert (await members(cluster, leader))[dead] == "VOTER UNKNOWN_ROLE"

    assert (await ask(cluster, leader, "AddMaster", "m4:7051")).error is None
    await wait_for_voters(cluster, "m1", "m2", "m3", "m4")
    assert (await ask(cluster, leader, "RemoveMaster", f"{dead}:7051")).error is None

    await cluster.ok(client, "create", name="b")
    await asyncio.sleep(2)
    assert await tables(cluster, "m4") == ["a", "b"]


@on(deploy, flags=BY_HAND)
async def test_a_wiped_master_is_no_member(cluster):
    world = cluster.session.cluster
    leader = await cluster.leader()
    wiped = next(name for name in ("m1", "m2", "m3") if name != leader)
    await world.kill(wiped)
    await world.wipe(wiped)
    await world.start(wiped)
    await asyncio.sleep(10)

    found = await ask(cluster, wiped, "GetMasterRegistration")

    assert (found.role, found.member_type) == ("NON_PARTICIPANT", "NON_PARTICIPANT")
    assert (await members(cluster, leader))[wiped] == "VOTER UNKNOWN_ROLE"


def master_of(*cluster: str, name: str, joins: bool = False) -> NodeSpec:
    """Build a master with the list `cluster`; if `joins`, it joins these masters by itself."""
    masters = [f"{each}:7051" for each in cluster]
    flags = {"master_auto_join_cluster": joins}
    config = {"masters": masters, "address": f"{name}:7051", "flags": flags}
    entry = "targets.kudu.master.node:main"
    return NodeSpec(name=name, role="master", ports=(7051,), pages=8051, entry=entry, config=config)


def test_a_master_that_was_started_for_another_cluster_is_not_added():
    """The first configuration of such a master may be newer than this cluster's, which then would
    not replace it. The master would vote without knowing that it is a member.
    """

    async def body(session: Session) -> None:
        await asyncio.sleep(5)
        for other in ("b", "c"):  # b is a member of that cluster, c would be a member later
            refused = (await ask(session, "a", "AddMaster", f"{other}:7051")).error
            assert (refused.code, refused.status) == (
                m.MasterErrorCode.UNKNOWN_ERROR,
                m.AppStatus.INVALID_ARGUMENT,
            )
        assert (await ask(session, "b", "AddMaster", "c:7051")).error is None

    two = (master_of("a", name="a"), master_of("b", name="b"), master_of("b", "c", name="c"))
    run(body, two)


@pytest.mark.parametrize(("told", "joins"), [(("a", "b", "c", "d"), True), (("a", "d"), False)])
def test_a_master_joins_by_itself_only_with_a_full_list(told, *, joins):
    async def body(session: Session) -> None:
        await asyncio.sleep(20)
        listed = await ask(session, "a", "ListMasters")
        assert ("d:7051" in {entry.address for entry in listed.masters}) is joins

    three = [master_of("a", "b", "c", name=name) for name in ("a", "b", "c")]
    run(body, (*three, master_of(*told, name="d", joins=True)))
