"""Tablets work while a single master is down (`examples/cases/single-master-*.json`)."""

import pytest

from harness.ops import OpType
from tests.async_tests import on
from tests.kudu.deploy import deploy


@on(deploy, masters=1)
async def test_tablets_are_led_by_others_and_servers_restart_without_a_master(cluster):
    client, world = cluster.new_client(), cluster.session.cluster
    await cluster.ok(client, "create", name="t", partitions=3)
    await cluster.until_done(client, "is-create-done", "t")
    keys = [f"k{number:02}" for number in range(20)]

    async def write(value: str, *, tries: int = 1) -> None:
        rows = [["upsert", key, {"a": value}] for key in keys]
        for number in range(tries):
            nonce = f"{value} {number}"
            done = await cluster.do(client, "write", table="t", nonce=nonce, rows=rows)
            if done.type is OpType.OK:
                return
        pytest.fail(f"not written: {done}")

    await write("first")
    await world.kill("m1")
    for node in ("t1", "t2", "t3"):
        await world.kill(node)
        # the first attempt may find its connection to the node closed
        await write(f"without {node}", tries=2)
        await world.start(node)
        scan = await cluster.ok(client, "scan", table="t")
        found = {key: cells["a"] for part in scan["parts"] for key, cells in part["rows"]}
        assert found == dict.fromkeys(keys, f"without {node}")
