"""Masters as simulated nodes start for the first time, restart, and read their configuration."""

import asyncio

import pytest

from harness.errors import UsageError
from targets.kudu import messages as m
from targets.kudu.master.node import main
from targets.kudu.rpc import RpcClient
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy
from tests.master.fakes import master_env
from tests.support.virtual import run


async def dump(cluster: Deployed, node: str) -> dict:
    client = RpcClient(cluster.env)
    answer = await client.call(f"{node}:7051", m.DumpEntitiesRequest(), timeout_s=1)
    client.close()
    return answer.data


@on(deploy)
async def test_identity_and_rows_survive_restarts_and_no_other_master_is_needed_for_them(cluster):
    world = cluster.session.cluster
    client = cluster.new_client()
    await cluster.ok(client, "create", name="t")
    await cluster.until_converged()
    before = await dump(cluster, "m1")
    for node in ("m1", "m2", "m3"):
        await world.kill(node)
    await world.start("m1")
    await asyncio.sleep(1)
    alone = await dump(cluster, "m1")
    assert before["uuid"] == alone["uuid"]
    assert before["raft"]["config"] == alone["raft"]["config"]
    assert not alone["ready"]
    await world.start("m2")
    await cluster.until_ready()
    after = await dump(cluster, "m1")
    assert (before["tables"], before["cluster_id"]) == (after["tables"], after["cluster_id"])


@on(deploy)
async def test_no_master_begins_before_it_knows_all_others(cluster):
    world = cluster.session.cluster
    for node in ("m1", "m2", "m3"):
        await world.kill(node)
        await world.wipe(node)
    await world.start("m1")
    await world.start("m2")
    await asyncio.sleep(3)
    assert (await dump(cluster, "m1"))["role"] == "NOT_INITIALIZED"
    await world.start("m3")
    await cluster.until_ready()
    configs = [(await dump(cluster, node))["raft"]["config"] for node in ("m1", "m2", "m3")]
    assert configs[0] == configs[1] == configs[2]
    assert [p["address"] for p in configs[0]["peers"]] == ["m1:7051", "m2:7051", "m3:7051"]


BAD = {
    "no masters": ({"address": "m1:7051"}, "masters"),
    "not one of them": ({"masters": ["m2:7051"], "address": "m1:7051"}, "not among"),
    "bad address": ({"masters": ["m1"], "address": "m1"}, "NODE:PORT"),
    "unknown field": ({"masters": ["m1:1"], "address": "m1:1", "port": 3}, "port"),
    "unknown flag": ({"masters": ["m1:1"], "address": "m1:1", "flags": {"x": 1}}, "x"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_configuration_is_refused(case):
    config, words = BAD[case]
    with pytest.raises(UsageError, match=words):
        run(main(master_env(), config))
