"""Runs a body against deployed metastores, the same in every environment."""

import asyncio
import dataclasses

import msgspec

from harness.env import Address
from harness.ops import OpType
from harness.plugins import Deployment, DeploymentPlan, Request, TargetSettings
from harness.plugins.options import with_defaults
from harness.registry import load_plugin
from harness.vocabularies.hms import MUTATIONS
from targets.hive import HiveTarget
from targets.hive.api import MetastoreError, Reply
from targets.hive.channel import Channel
from targets.hive.client import MetastoreClient
from targets.hive.system import METASTORE_PORT


@dataclasses.dataclass
class Deployed:
    """Running metastores, and the shortest words for what tests do with them."""

    session: object
    system: object
    settings: TargetSettings
    clients: list[MetastoreClient] = dataclasses.field(default_factory=list)
    nonces: int = 0

    @property
    def cluster(self):
        return self.session.cluster

    def new_client(self, **changes) -> MetastoreClient:
        """A client; `changes` of its settings."""
        client = self.system.client(len(self.clients) + 1)
        self.clients.append(client)
        client._settings = dataclasses.replace(client._settings, **changes)
        return client

    async def do(self, client, f, *names, timeout_s=20.0, **value):
        """One operation on tables named `database.name`, with a fresh nonce for changes."""
        if f in MUTATIONS:
            self.nonces += 1
            value.setdefault("nonce", f"n{self.nonces}")
        for prefix, name in zip(("", "new_"), names, strict=False):
            value[f"{prefix}database"], value[f"{prefix}name"] = name.split(".")
        return await client.invoke(Request(f, value), timeout_s=timeout_s)

    async def ok(self, client, f, *names, **value):
        """The same, and it must succeed."""
        completion = await self.do(client, f, *names, **value)
        assert completion.type is OpType.OK, (f, names, completion)
        return completion.value

    async def refused(self, client, f, *names, **value):
        """The same, and it must be refused; by what."""
        completion = await self.do(client, f, *names, **value)
        assert completion.type is OpType.FAIL, (f, names, completion)
        return completion.value["result"]

    async def at(self, node, call):
        """What one metastore answers to a call of its own interface; raises `MetastoreError`."""
        channel = await Channel.open(self.session.env, Address(node, METASTORE_PORT), timeout_s=5.0)
        reply = msgspec.msgpack.decode(await channel.call(call, timeout_s=10.0), type=Reply)
        channel.close()
        if reply.error:
            raise MetastoreError(reply.error, reply.message)
        return reply.result

    async def until_ready(self):
        async with asyncio.timeout(60):
            while not (await self.system.ready()).ok:  # noqa: ASYNC110 - it polls
                await asyncio.sleep(0.05)


def deploy(body, *, environment="sim", profile="strict", bugs=(), seed=1, target=None, **options):
    """Deploy, wait until ready, run `body`, tear down; `options` are the target's."""
    target = target or HiveTarget()
    given = with_defaults("target", target.name, target.options, options)
    settings = TargetSettings(profile=profile, bugs=bugs, options=given, environment=environment)

    async def main(session):
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        deployed = Deployed(session, system, settings)
        await deployed.until_ready()
        try:
            return await body(deployed)
        finally:
            for client in deployed.clients:
                await client.close()

    plan = DeploymentPlan(
        run_id=f"test-{seed}",
        nodes=tuple(target.nodes(settings)),
        seed=seed,
        knobs={},
        folder=None,
    )
    world = load_plugin("environments", environment)
    if hasattr(world, "prepare_nodes"):
        world.prepare_nodes(plan.nodes, print)
    return world.execute(plan, main)
