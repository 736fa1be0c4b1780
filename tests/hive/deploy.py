"""Helpers that run a test's body against deployed metastores, in any environment."""

import dataclasses

import msgspec

from harness.env import Address
from harness.plugins import TargetSettings
from harness.plugins.options import with_defaults
from harness.vocabularies.hms import MUTATIONS
from targets.hive import HiveTarget
from targets.hive.api import MetastoreError, Reply
from targets.hive.channel import Channel
from targets.hive.client import MetastoreClient
from targets.hive.system import METASTORE_PORT
from tests.support import deployed


class Deployed(deployed.Deployed):
    def new_client(self, **changes) -> MetastoreClient:
        client = super().new_client()
        client._settings = dataclasses.replace(client._settings, **changes)
        return client

    async def do(self, client, f, *names, timeout_s=20.0, **value):
        """Run one operation on tables named `database.name`; each change gets a new nonce."""
        if f in MUTATIONS:
            value.setdefault("nonce", self.next_nonce())
        for prefix, name in zip(("", "new_"), names, strict=False):
            value[f"{prefix}database"], value[f"{prefix}name"] = name.split(".")
        return await self.invoke(client, f, value, timeout_s=timeout_s)

    async def at(self, node, call):
        """Return one metastore's answer to a call of its interface. Raises `MetastoreError`."""
        channel = await Channel.open(self.session.env, Address(node, METASTORE_PORT), timeout_s=5.0)
        reply = msgspec.msgpack.decode(await channel.call(call, timeout_s=10.0), type=Reply)
        channel.close()
        if reply.error:
            raise MetastoreError(reply.error, reply.message)
        return reply.result


def deploy(body, *, environment="sim", profile="strict", bugs=(), seed=1, target=None, **options):
    """Deploy the target with `options`, wait until it is ready, run `body`, and tear it down."""
    target = target or HiveTarget()
    values = with_defaults("target", target.name, target.options, options)
    settings = TargetSettings(profile=profile, bugs=bugs, options=values, environment=environment)
    return deployed.deploy(
        target, settings, body, make=Deployed, environment=environment, seed=seed
    )
