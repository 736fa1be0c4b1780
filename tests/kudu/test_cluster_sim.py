"""Masters, tablet servers and clients of the bundled target together, in the simulation."""

import pytest

from harness.cluster import Link
from harness.ops import OpType
from tests.async_tests import on
from tests.faults.door import door
from tests.kudu.deploy import Deployed, deploy


async def every_operation(cluster: Deployed) -> None:
    client = cluster.new_client()
    created = await cluster.ok(client, "create", name="t", nonce="n-create")
    table_id = created["table_id"]
    assert created["schema_version"] == 0
    await cluster.until_done(client, "is-create-done", "t")

    located = await cluster.ok(client, "locate", name="t")
    assert located["table_id"] == table_id
    assert [(t["start"] == "", t["end"] == "") for t in located["tablets"]] == [
        (True, False),
        (False, True),
    ]
    assert located["tablets"][0]["end"] == located["tablets"][1]["start"]
    for tablet in located["tablets"]:
        assert len(set(tablet["replicas"])) == 3
        assert tablet["leader"] in tablet["replicas"]

    altered = await cluster.ok(
        client, "alter", name="t", steps=[["add", "c"], ["rename", "a", "z"], ["drop", "b"]]
    )
    assert (altered["table_id"], altered["schema_version"]) == (table_id, 1)
    await cluster.until_done(client, "is-alter-done", "t")
    got = await cluster.ok(client, "get", name="t")
    assert got["columns"] == ["z", "c"]
    assert (got["schema_version"], got["applied_schema_version"]) == (1, 1)
    assert (got["comment"], got["table_id"]) == ("n-create", table_id)

    renamed = await cluster.ok(client, "rename", name="t", new_name="u")
    assert (renamed["table_id"], renamed["schema_version"]) == (table_id, 2)
    assert (await cluster.ok(client, "get", name="t"))["result"] == "not-found"
    other = await cluster.ok(client, "create", name="t", partitions=1)
    listed = await cluster.ok(client, "list")
    assert listed["tables"] == [["t", other["table_id"], 0], ["u", table_id, 2]]

    taken = await cluster.do(client, "create", name="u")
    assert (taken.type, taken.value["result"]) == (OpType.FAIL, "exists")
    taken = await cluster.do(client, "rename", name="t", new_name="u")
    assert (taken.type, taken.value["result"]) == (OpType.FAIL, "exists")
    bad = await cluster.do(client, "alter", name="u", steps=[["drop", "none"]])
    assert (bad.type, bad.value["result"]) == (OpType.FAIL, "invalid")
    missing = await cluster.do(client, "delete", name="w")
    assert (missing.type, missing.value["result"]) == (OpType.FAIL, "not-found")

    deleted = await cluster.ok(client, "delete", name="u")
    assert (deleted["table_id"], deleted["schema_version"]) == (table_id, 2)
    assert (await cluster.ok(client, "locate", name="u"))["result"] == "not-found"
    await cluster.until_converged()
    dumps = await cluster.system.snapshot()
    for dump in dumps["tservers"].values():
        assert {t["table_id"] for t in dump["tablets"]} <= {other["table_id"]}
        assert all(t["data_state"] == "READY" for t in dump["tablets"])


@pytest.mark.parametrize("masters", [1, 3, 5])
def test_every_operation_works_and_the_cluster_comes_to_rest(masters):
    deploy(every_operation, masters=masters)


@pytest.mark.parametrize("seed", range(2, 6))
def test_under_other_seeds(seed):
    deploy(every_operation, seed=seed)


@on(deploy)
async def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(cluster):
    client = cluster.new_client()
    table = await cluster.ok(client, "create", name="t")
    for round_ in range(3):
        leader = await cluster.leader()
        await cluster.session.cluster.kill(leader)
        await cluster.until_led_by_another(leader)
        altered = await cluster.ok(client, "alter", name="t", steps=[["add", f"c{round_}"]])
        assert altered["schema_version"] == round_ + 1
        await cluster.session.cluster.start(leader)
        await cluster.until_converged()
    got = await cluster.ok(client, "get", name="t")
    assert got["table_id"] == table["table_id"]
    assert got["columns"] == ["a", "b", "c0", "c1", "c2"]


@on(deploy)
async def test_everything_restarted_at_once_comes_back(cluster):
    nodes = list(cluster.session.cluster.nodes)
    client = cluster.new_client()
    table = await cluster.ok(client, "create", name="t")
    await cluster.ok(client, "alter", name="t", steps=[["add", "c"]])
    await cluster.until_converged()
    for _ in range(2):
        for node in nodes:
            await cluster.session.cluster.kill(node, lose_unsynced=True)
        for node in nodes:
            await cluster.session.cluster.start(node)
        await cluster.until_ready()
        got = await cluster.ok(client, "get", name="t")
        assert (got["table_id"], got["columns"]) == (table["table_id"], ["a", "b", "c"])
        await cluster.until_converged()
    await cluster.ok(client, "delete", name="t")
    await cluster.until_converged()


@on(deploy)
async def test_a_killed_tablet_server_catches_up_with_alters_and_deletes(cluster):
    client = cluster.new_client()
    await cluster.ok(client, "create", name="t")
    await cluster.ok(client, "create", name="gone")
    await cluster.until_converged()
    await cluster.session.cluster.kill("t1")
    await cluster.ok(client, "alter", name="t", steps=[["add", "c"]])
    await cluster.until_done(client, "is-alter-done", "t")
    await cluster.ok(client, "delete", name="gone")
    await cluster.session.cluster.start("t1")
    await cluster.until_converged()


@on(deploy)
async def test_a_partitioned_leader_does_not_answer_reads(cluster):
    client, late = cluster.new_client(), cluster.new_client()
    await cluster.ok(client, "create", name="t")
    await cluster.ok(late, "get", name="t")  # the client's first read makes it remember the leader
    leader = await cluster.leader()
    world = cluster.session.cluster
    others = [n for n in world.nodes if n != leader]
    fault = await door(cluster).cut(Link.between([leader], others))
    await cluster.until_led_by_another(leader)
    await cluster.ok(cluster.new_client(), "delete", name="t")
    read = await cluster.do(late, "get", name="t")
    assert read.type is OpType.OK
    assert read.value["result"] == "not-found"
    assert read.node != leader
    await door(cluster).heal(fault)
    await cluster.until_converged()


@on(deploy, bugs=("NO-LEASE",))
async def test_switch_no_lease_shows_to_clients_that_remember_the_old_leader(cluster):
    client, late = cluster.new_client(), cluster.new_client()
    await cluster.ok(client, "create", name="t")
    await cluster.ok(late, "get", name="t")
    leader = await cluster.leader()
    world = cluster.session.cluster
    others = [n for n in world.nodes if n != leader]
    await door(cluster).cut(Link.between([leader], others))
    await cluster.until_led_by_another(leader)
    await cluster.ok(cluster.new_client(), "delete", name="t")
    stale = await cluster.ok(late, "get", name="t")
    assert stale["result"] == "ok"


def test_one_seed_is_one_run():
    async def body(cluster: Deployed) -> str:
        await every_operation(cluster)
        return cluster.session.trace_digest()

    first, again, other = (deploy(body, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other
