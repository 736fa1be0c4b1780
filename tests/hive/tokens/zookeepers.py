"""A ZooKeeper by itself, and sessions with it."""

import asyncio
import contextlib
import dataclasses

import msgspec

from harness.cluster import NodeSpec
from harness.env import Address
from harness.plugins import DeploymentPlan
from harness.registry import load_plugin
from targets.hive.api import MetastoreError
from targets.hive.zookeeper.ensemble import ensemble_nodes
from targets.hive.zookeeper.kazoo import KazooZooKeeper
from targets.hive.zookeeper.protocol import BadVersionError, ConnectionLossError, Znode
from targets.hive.zookeeper.remote import RemoteZooKeeper

PORT = 2181
PATIENCE_S = 300.0
"""An election that fails is begun again ten seconds later, and on a crowded machine some do."""
LEASE_S = 3 * PATIENCE_S
"""No fault heals by itself while somebody waits."""


@dataclasses.dataclass
class ZooKeepers:
    """Running servers, and what opens a session with them."""

    session: object
    new_session: object

    @property
    def cluster(self):
        return self.session.cluster


async def answers(session):
    """Wait until it serves (again)."""

    async def serves():
        await session.fence()
        await session.children("/")

    await answered(serves)


async def answered(call):
    """What a call says that may be done twice: any answer may be lost on a crowded machine."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(ConnectionLossError, MetastoreError):
                return await call()
            await asyncio.sleep(0.1)


async def written(session, path, number):
    """Set a znode for the `number`th time, and once, whether the answer comes or not."""
    wanted = Znode(b"%d" % number, number)

    async def is_there():
        with contextlib.suppress(BadVersionError):  # it was done
            await session.set(path, wanted.data, number - 1)
        await session.fence()
        assert await session.get(path) == wanted

    await answered(is_there)


def with_node(body, *, environment="sim", seed=1):
    """Run `body(zookeepers)` against the node of ours."""
    spec = NodeSpec(
        name="zk1",
        role="zk",
        ports=(PORT,),
        entry="targets.hive.zookeeper.node:main",
        config={"port": PORT},
    )
    return _with_servers(
        body, [spec], lambda env: RemoteZooKeeper(env, Address("zk1", PORT)), environment, seed
    )


def with_ensemble(body, *, environment="process", count=3, **changes):
    """The same against a real ensemble."""
    names = [f"zk{number}" for number in range(1, count + 1)]
    specs = [msgspec.structs.replace(spec, **changes) for spec in ensemble_nodes(names)]
    servers = [Address(name, PORT) for name in names]

    def connect(env):  # on a machine that may be crowded
        return KazooZooKeeper(env, servers, answer_s=30.0, session_s=10.0)

    return _with_servers(body, specs, connect, environment, 1)


def _with_servers(body, specs, connect, environment, seed):
    plan = DeploymentPlan(run_id="zk", nodes=tuple(specs), seed=seed, knobs={}, folder=None)

    async def main(session):
        opened = []

        def new_session():
            opened.append(connect(session.env))
            return opened[-1]

        await answers(new_session())
        try:
            return await body(ZooKeepers(session, new_session))
        finally:
            for one in opened:
                one.close()

    return load_plugin("environments", environment).execute(plan, main)
