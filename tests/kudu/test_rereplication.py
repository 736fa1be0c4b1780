"""Re-replication in simulated clusters whose lost servers return late or never."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from harness.ops import OpType
from harness.plugins import Convergence
from targets.kudu import messages as m
from targets.kudu.consensus.messages import ChangeConfigRequest, ChangeType, PeerChange
from targets.kudu.rpc import RpcClient
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy

SOON = "follower_unavailable_considered_failed_sec=3,tserver_unresponsive_timeout_ms=10000"


async def of_leader(cluster: Deployed) -> Mapping[str, Any]:
    leader = await cluster.leader()
    dump = (await cluster.system.snapshot())["masters"][leader]
    assert dump is not None
    return dump


async def uuid_of(cluster: Deployed, node: str) -> str:
    servers = (await of_leader(cluster))["tservers"]
    return next(s["uuid"] for s in servers if s["address"] == f"{node}:7050")


async def members(cluster: Deployed) -> dict[str, list[str]]:
    """Map each tablet whose replicas are all voters to the voters' uuids."""
    return {
        tablet["id"]: sorted(peer["uuid"] for peer in tablet["consensus"]["peers"])
        for tablet in (await of_leader(cluster))["tablets"]
        if tablet["state"] == "RUNNING"
        and all(peer["member_type"] == "VOTER" for peer in tablet["consensus"]["peers"])
    }


async def until_whole(cluster: Deployed, tablets: int, replicas: int, *without: str) -> None:
    """Wait until every tablet has all its voters, none of them on servers with these uuids."""

    async def check() -> Convergence:
        found = await members(cluster)
        ok = len(found) == tablets and all(
            len(uuids) == replicas and not set(uuids) & set(without) for uuids in found.values()
        )
        return Convergence(ok=ok, pending=(str(found),))

    await cluster.until("whole", check, limit_s=90)


async def held_by(cluster: Deployed, node: str) -> dict[str, str]:
    dump = (await cluster.system.snapshot())["tservers"][node]
    return {tablet["tablet_id"]: tablet["data_state"] for tablet in dump["tablets"]}


async def call_leader(cluster: Deployed, request: Any) -> Any:
    client = RpcClient(cluster.env)
    answer = await client.call(f"{await cluster.leader()}:7051", request, timeout_s=5)
    client.close()
    return answer


async def with_table(cluster: Deployed, partitions: int) -> Any:
    client = cluster.new_client()
    await cluster.ok(client, "create", name="t", partitions=partitions)
    await cluster.until_converged()
    return client


@on(deploy, tservers=5, flags=SOON)
async def test_replicas_of_a_server_that_never_returns_are_made_elsewhere(cluster):
    client, world = cluster.new_client(), cluster.session.cluster
    for name in ("t", "u", "v"):
        await cluster.ok(client, "create", name=name, partitions=2)
    await cluster.ok(client, "alter", name="t", steps=[["add", "c"]])
    await cluster.until_converged()
    lost = await uuid_of(cluster, "t1")
    before = await members(cluster)
    held = [tablet for tablet, uuids in before.items() if lost in uuids]
    assert held, "t1 had nothing to lose"
    await world.kill("t1")
    await until_whole(cluster, 6, 3, lost)
    after = await members(cluster)
    for tablet, uuids in before.items():
        assert (sorted(uuids) == after[tablet]) is (tablet not in held)
        assert len(set(uuids) - set(after[tablet])) <= 1
    await cluster.ok(client, "alter", name="t", steps=[["add", "d"]])
    await cluster.until_done(client, "is-alter-done", "t")

    await world.start("t1")
    await cluster.until_converged()
    assert {"TOMBSTONED"} == set((await held_by(cluster, "t1")).values())
    assert after == await members(cluster)


@on(deploy, flags=SOON)
async def test_nothing_is_added_where_no_server_is_left_for_it(cluster):
    await with_table(cluster, 4)
    world = cluster.session.cluster
    before = await of_leader(cluster)
    await world.kill("t1")
    await asyncio.sleep(30)
    dump = await of_leader(cluster)
    assert [t["consensus"]["opid_index"] for t in dump["tablets"]] == [-1] * 4
    assert dump["revision"] - before["revision"] < 10, "only new leaders of tablets are stored"
    await world.start("t1")
    await cluster.until_converged()
    assert {"READY"} == set((await held_by(cluster, "t1")).values())


@pytest.mark.slow
@on(deploy, tservers=5, flags=SOON)
async def test_tombstones_are_woken_when_their_server_is_needed_again(cluster):
    client, world = await with_table(cluster, 6), cluster.session.cluster
    first = await uuid_of(cluster, "t1")
    await world.kill("t1")
    await until_whole(cluster, 6, 3, first)
    await cluster.ok(client, "alter", name="t", steps=[["add", "c"]])
    await world.start("t1")
    await cluster.until_converged()
    assert await held_by(cluster, "t1")
    second, third = await uuid_of(cluster, "t2"), await uuid_of(cluster, "t3")
    await world.kill("t2")
    await until_whole(cluster, 6, 3, second)
    await world.kill("t3")
    await until_whole(cluster, 6, 3, second, third)
    await cluster.ok(client, "alter", name="t", steps=[["add", "d"]])
    await cluster.until_done(client, "is-alter-done", "t")
    await asyncio.sleep(2)  # copies are checked periodically, and heartbeats report commits
    assert {"READY"} == set((await held_by(cluster, "t1")).values())
    await world.start("t2")
    await world.start("t3")
    await cluster.until_converged()


@on(deploy, tservers=5, flags=SOON)
async def test_replicas_follow_a_new_number(cluster):
    client = await with_table(cluster, 2)
    identifier = m.TableIdentifier(table_name="t")
    for number, replicas in enumerate((5, 3, 1, 3)):
        request = m.AlterTableRequest(
            identifier, m.RequestId("me", number, "n"), num_replicas=replicas
        )
        answer = await call_leader(cluster, request)
        assert answer.error is None
        await until_whole(cluster, 2, replicas)
        await cluster.until_done(client, "is-alter-done", "t")
        await cluster.until_converged()
    for bad in (2, 7, 9):
        request = m.AlterTableRequest(identifier, m.RequestId("b", bad, "n"), num_replicas=bad)
        assert (await call_leader(cluster, request)).error is not None


REBALANCED = f"{SOON},auto_rebalancing_enabled=true,auto_rebalancing_interval_seconds=2"


@on(deploy, tservers=4, flags=REBALANCED)
async def test_the_auto_rebalancer_gives_a_server_that_returns_its_share(cluster):
    await with_table(cluster, 4)
    world = cluster.session.cluster
    await world.kill("t1")
    await until_whole(cluster, 4, 3, await uuid_of(cluster, "t1"))
    await world.start("t1")

    async def check() -> Convergence:
        found = Counter(uuid for uuids in (await members(cluster)).values() for uuid in uuids)
        return Convergence(ok=sorted(found.values()) == [3, 3, 3, 3], pending=(str(found),))

    await cluster.until("balanced", check, limit_s=60)
    await cluster.until_converged()
    dump = await of_leader(cluster)
    assert not any(p["replace"] for t in dump["tablets"] for p in t["consensus"]["peers"])


@on(deploy, tservers=4, flags=SOON)
async def test_a_server_in_maintenance_is_not_missed(cluster):
    client, world = await with_table(cluster, 4), cluster.session.cluster
    uuid = await uuid_of(cluster, "t1")
    enter = m.ChangeTServerStateRequest(uuid, m.TServerStateChange.ENTER_MAINTENANCE_MODE)
    leave = m.ChangeTServerStateRequest(uuid, m.TServerStateChange.EXIT_MAINTENANCE_MODE)
    assert (await call_leader(cluster, enter)).error is None
    await world.kill("t1")
    await asyncio.sleep(20)
    dump = await of_leader(cluster)
    assert {-1} == {t["consensus"]["opid_index"] for t in dump["tablets"]}
    created = await cluster.do(client, "create", name="u", partitions=2)
    assert created.type is OpType.OK
    await cluster.until_done(client, "is-create-done", "u")
    leader = await cluster.leader()
    await world.kill(leader)
    await cluster.until_led_by_another(leader)
    assert (await call_leader(cluster, leave)).error is None
    await until_whole(cluster, 6, 3, uuid)
    await world.start(leader)
    await world.start("t1")
    await cluster.until_converged()


@on(deploy, flags=SOON)
async def test_a_tablet_that_lost_its_majority_is_replaced_on_request(cluster):
    await with_table(cluster, 1)
    world = cluster.session.cluster
    (old,) = await members(cluster)
    for node in ("t1", "t2"):
        await world.kill(node)
        await world.wipe(node)
        await world.start(node)
    await cluster.until_ready()
    answer = await call_leader(cluster, m.ReplaceTabletRequest(old))
    assert answer.error is None
    await cluster.until_converged(limit_s=150)
    assert [answer.replacement_tablet_id] == list(await members(cluster))
    assert (await call_leader(cluster, m.ReplaceTabletRequest(old))).error


@pytest.mark.slow
@on(deploy, tservers=5, flags=SOON + ",tablet_snapshot_every=4")
async def test_rows_move_with_their_replicas(cluster):
    client, world = cluster.new_client(), cluster.session.cluster
    await cluster.ok(client, "create", name="t", columns=["a"], partitions=2)
    await cluster.until_converged()
    expected = {}
    for round_ in range(5):
        for batch in range(3):
            rows = [["insert", f"k{round_}.{batch}.{n}", {"a": f"v{n}"}] for n in range(20)]
            await cluster.ok(client, "write", table="t", nonce=f"w{round_}.{batch}", rows=rows)
            expected |= {key: cells for _, key, cells in rows}
        node = f"t{round_ + 1}"
        lost = await uuid_of(cluster, node)
        await world.kill(node)
        await until_whole(cluster, 2, 3, lost)
        await world.start(node)
        await cluster.until_converged()
    scanned = await cluster.ok(client, "scan", table="t", mode="latest", replica="leader")
    found = {key: cells for part in scanned["parts"] for key, cells in part["rows"]}
    assert expected == found
    digests: dict[str, set[str]] = {}
    for dump in (await cluster.system.snapshot())["tservers"].values():
        for tablet in dump["tablets"]:
            if tablet["data_state"] == "READY":
                digests.setdefault(tablet["tablet_id"], set()).add(tablet["rows"]["digest"])
    assert [len(found) for found in digests.values()] == [1, 1]


@on(deploy, tservers=5, flags=SOON + ",raft_prepare_replacement_before_eviction=false")
async def test_the_old_scheme_replaces_replicas_as_well(cluster):
    await with_table(cluster, 4)
    world = cluster.session.cluster
    lost = await uuid_of(cluster, "t1")
    await world.kill("t1")
    await until_whole(cluster, 4, 3, lost)
    await world.start("t1")
    await cluster.until_converged()
    assert {"TOMBSTONED"} == set((await held_by(cluster, "t1")).values())


@on(deploy, tservers=4, flags=SOON)
async def test_a_replica_moves_only_where_none_is_on_its_way(cluster):
    client, world = await with_table(cluster, 1), cluster.session.cluster
    (found,) = (await of_leader(cluster))["tablets"]
    held = [peer["address"].partition(":")[0] for peer in found["consensus"]["peers"]]
    (free,) = (node for node in ("t1", "t2", "t3", "t4") if node not in held)
    await world.kill(free)
    first = await cluster.ok(client, "move-replica", table="t")
    assert first["target"] == free
    await asyncio.sleep(20)  # time to give up the new replica; no other server is free
    assert len((await members(cluster))[found["id"]]) == 3
    second = await cluster.do(client, "move-replica", table="t")
    assert (second.type, second.error.partition(":")[0]) == (OpType.FAIL, "NOT_WELL")
    await world.start(free)
    await until_whole(cluster, 1, 3, await uuid_of(cluster, first["source"]))
    await cluster.until_converged()


@on(deploy, tservers=4)
async def test_replicas_that_are_to_be_replaced_move_away_a_leader_too(cluster):
    await with_table(cluster, 1)
    rpc = RpcClient(cluster.env)
    for role in ("follower", "leader"):
        (tablet,) = (await of_leader(cluster))["tablets"]
        peers, leader = tablet["consensus"]["peers"], tablet["consensus"]["leader_uuid"]
        leads = next(peer for peer in peers if peer["uuid"] == leader)
        moved = leads if role == "leader" else next(p for p in peers if p["uuid"] != leader)
        change = PeerChange(
            ChangeType.MODIFY_PEER, m.PeerConfig(moved["uuid"], moved["address"], replace=True)
        )
        request = ChangeConfigRequest(leader, tablet["id"], change)
        answer = await rpc.call(leads["address"], request, timeout_s=5)
        assert answer.error is None
        await until_whole(cluster, 1, 3, moved["uuid"])
        await cluster.until_converged()
    rpc.close()
