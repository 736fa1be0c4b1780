"""A ZooKeeper without metastores, and sessions with it."""

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
"""Long enough for several elections, since a failed one is repeated after ten seconds."""
LEASE_S = 3 * PATIENCE_S
"""A lease longer than any wait, so that no fault ends by itself."""


@dataclasses.dataclass
class ZooKeepers:
    """Running servers, and a function that opens sessions with them."""

    session: object
    new_session: object

    @property
    def cluster(self):
        return self.session.cluster


async def answers(session):
    async def serves():
        await session.fence()
        await session.children("/")

    await answered(serves)


async def answered(call):
    """Return the answer to a repeatable call; on a busy machine, answers may be lost."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(ConnectionLossError, MetastoreError):
                return await call()
            await asyncio.sleep(0.1)


async def written(session, path, number):
    """Write a znode for the `number`th time, exactly once even if the answer is lost."""
    wanted = Znode(b"%d" % number, number)

    async def is_there():
        with contextlib.suppress(BadVersionError):  # an earlier attempt was executed
            await session.set(path, wanted.data, number - 1)
        await session.fence()
        assert await session.get(path) == wanted

    await answered(is_there)


def with_node(body, *, environment="sim", seed=1):
    """Run `body(zookeepers)` against the bundled server."""
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
    """Run `body(zookeepers)` against a real ensemble."""
    names = [f"zk{number}" for number in range(1, count + 1)]
    specs = [msgspec.structs.replace(spec, **changes) for spec in ensemble_nodes(names)]
    servers = [Address(name, PORT) for name in names]

    def connect(env):  # long limits, since the machine may be busy
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
