"""A ZooKeeper by itself, and sessions with it."""

import asyncio
import contextlib
import dataclasses

from harness.cluster import NodeSpec
from harness.env import Address
from harness.plugins import DeploymentPlan
from harness.registry import load_plugin
from targets.hive.zookeeper.protocol import ZooKeeperError
from targets.hive.zookeeper.remote import RemoteZooKeeper

PORT = 2181


@dataclasses.dataclass
class ZooKeepers:
    """Running servers, and what opens a session with them."""

    cluster: object
    new_session: object


async def answers(session):
    """Wait until it serves (again)."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ZooKeeperError):
                await session.fence()
                await session.children("/")
                return
            await asyncio.sleep(0.1)


def with_node(body, *, environment="sim", seed=1):
    """Run `body(zookeepers)` against the node of ours."""
    spec = NodeSpec(
        name="zk1",
        role="zk",
        ports=(PORT,),
        entry="targets.hive.zookeeper.node:main",
        config={"port": PORT},
    )
    plan = DeploymentPlan(run_id="zk", nodes=(spec,), seed=seed, knobs={}, folder=None)

    async def main(session):
        def new_session():
            return RemoteZooKeeper(session.env, Address("zk1", PORT))

        await answers(new_session())
        return await body(ZooKeepers(session.cluster, new_session))

    return load_plugin("environments", environment).execute(plan, main)
