"""Forced configurations of tablets and masters that have lost their majority for good."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from harness.ops import OpType
from harness.plugins import Convergence
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy

SOON = "follower_unavailable_considered_failed_sec=3,tserver_unresponsive_timeout_ms=10000"
UNSAFE = "remote_replica unsafe_change_config"


async def _kudu(cluster: Deployed, line: str) -> Any:
    return await cluster.system.tool(line.split())


async def _put(cluster: Deployed, client: Any, key: str, timeout_s: float = 10.0) -> Any:
    rows = [["upsert", key, {"a": f"of {key}"}]]
    value = {"table": "metrics", "rows": rows, "nonce": f"w-{key}"}
    return await cluster.do(client, "write", timeout_s=timeout_s, **value)


async def _replicas(cluster: Deployed) -> tuple[str, list[dict[str, str]]]:
    output = await _kudu(cluster, "table list --tablets --format json")
    (table,) = json.loads(output.text)["tables"]
    (tablet,) = table["tablets"]
    return tablet["tablet_id"], sorted(tablet["replicas"], key=lambda r: r["role"] != "LEADER")


async def _until_whole(cluster: Deployed) -> None:
    async def check() -> Convergence:
        """Check the cluster, but ignore servers that have new uuids after losing their disks."""
        content = json.loads((await _kudu(cluster, "ksck --checksum --format json_compact")).text)
        tables = [(table["name"], table["health"]) for table in content["table_summaries"]]
        (sums,) = content["checksum_results"]["tables"].values()
        equal = all(len({r["checksum"] for r in one["replica_checksums"]}) == 1 for one in sums)
        return Convergence(ok=tables == [("metrics", "HEALTHY")] and equal, pending=(str(content),))

    await cluster.until("whole", check, limit_s=120)


async def _rows(cluster: Deployed) -> set[str]:
    output = await _kudu(cluster, "table scan metrics")
    assert output.exit_code == 0, output
    return {line.split('"')[1] for line in output.text.splitlines() if line.startswith("(")}


async def _lose_two(cluster: Deployed) -> tuple[str, list[dict[str, str]], Any]:
    """Return a tablet, its replicas (only the last is up), and a client that has written k1."""
    client = cluster.new_client()
    await cluster.ok(client, "create", name="metrics", partitions=1)
    await cluster.until_done(client, "is-create-done", "metrics")
    assert (await _put(cluster, client, "k1")).type is OpType.OK
    await cluster.until_converged()
    tablet, replicas = await _replicas(cluster)
    for lost in replicas[:2]:
        await cluster.session.cluster.kill(lost["ts_address"].partition(":")[0])
    assert (await _put(cluster, client, "k2", 5.0)).type is OpType.INFO
    return tablet, replicas, client


@on(deploy, tservers=5, flags=SOON)
async def test_a_lone_survivor_becomes_a_whole_tablet_again(cluster):
    tablet, (first, second, survivor), client = await _lose_two(cluster)
    world = cluster.session.cluster
    for lost in (first, second):
        await world.wipe(lost["ts_address"].partition(":")[0])
    at, uuid = survivor["ts_address"], survivor["ts_uuid"]
    for line, why in (
        (f"{at} {tablet} {uuid} {'f' * 32}", "INVALID_CONFIG: not in the committed conf"),
        (f"{at} {tablet} {first['ts_uuid']}", "INVALID_CONFIG: this replica, "),
        (f"{at} {'e' * 32} {uuid}", "TABLET_NOT_FOUND"),
        (f"t9:7050 {tablet} {uuid}", "Not found: the masters know no tablet server at t9:7050"),
        (f"{first['ts_address']} {tablet} {uuid}", "Network error"),
    ):
        output = await _kudu(cluster, f"{UNSAFE} {line}")
        assert (output.exit_code, output.text) == (1, "")
        assert output.error.startswith(why), output
    events: list[Any] = []
    world.subscribe(
        lambda event: events.append(event) if event.kind == "config-overruled" else None
    )
    output = await _kudu(cluster, f"{UNSAFE} {at} {tablet} {uuid}")
    assert (output.exit_code, output.text, output.error) == (0, "", "")
    for lost in (first, second):
        await world.start(lost["ts_address"].partition(":")[0])
    await _until_whole(cluster)
    _, replicas = await _replicas(cluster)
    assert len(replicas) == 3
    assert uuid in {replica["ts_uuid"] for replica in replicas}
    assert not {first["ts_uuid"], second["ts_uuid"]} & {r["ts_uuid"] for r in replicas}
    assert (await _put(cluster, client, "k3")).type is OpType.OK
    assert await _rows(cluster) >= {"k1", "k3"}
    (event,) = events
    assert event.node == at.partition(":")[0]
    assert (event.data["group"], event.data["kept"]) == (tablet, [at])
    assert set(event.data["left_out"]) == {first["ts_address"], second["ts_address"]}


@on(deploy, tservers=5, flags=SOON)
async def test_those_that_were_left_out_may_return_and_harm_nobody(cluster):
    tablet, (first, second, survivor), client = await _lose_two(cluster)
    at = survivor["ts_address"]
    exits: list[Any] = []
    cluster.session.cluster.subscribe(
        lambda event: (
            exits.append(event)
            if event.kind == "node-exited" and not event.data.get("expected")
            else None
        )
    )
    output = await _kudu(cluster, f"{UNSAFE} {at} {tablet} {survivor['ts_uuid']}")
    assert output.exit_code == 0, output
    assert (await _put(cluster, client, "k3")).type is OpType.OK
    for lost in (first, second):
        await cluster.session.cluster.start(lost["ts_address"].partition(":")[0])
    for number in range(10):
        assert (await _put(cluster, client, f"n{number}")).type is OpType.OK
        await asyncio.sleep(0.5)
    await _until_whole(cluster)
    await cluster.until_converged()
    assert exits == []
    assert await _rows(cluster) >= {"k1", "k3", *(f"n{number}" for number in range(10))}


@on(deploy, masters=3)
async def test_a_lone_master_serves_again(cluster):
    client = cluster.new_client()
    await cluster.ok(client, "create", name="metrics")
    await cluster.until_converged()
    listed = json.loads((await _kudu(cluster, "master list --format json")).text)
    survivor = next(row for row in listed if row["role"] == "FOLLOWER")
    for row in listed:
        if row is not survivor:
            await cluster.session.cluster.kill(row["rpc-addresses"].partition(":")[0])
    refused = await cluster.do(client, "create", name="more", timeout_s=3.0)
    assert refused.type is not OpType.OK
    at, uuid = survivor["rpc-addresses"], survivor["uuid"]
    output = await _kudu(cluster, f"{UNSAFE} {at} {SYSTEM_TABLET_ID} {uuid}")
    assert (output.exit_code, output.error) == (0, "")
    await cluster.until_ready()
    await cluster.ok(client, "create", name="after")
    assert (await _kudu(cluster, "table list")).text.split() == ["after", "metrics"]
