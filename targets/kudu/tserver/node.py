"""The tablet server process, which combines identity, RPC services, tablets and heartbeats.

The argument `config` of `main` is `{"masters": [address...], "address": "t1:7050", "flags": {...},
"profile": name, "bugs": [id...]}`.

The file `instance` stores the uuid, the number of the last start, and the cluster's id. The uuid is
drawn at the first start, so a wiped server is a new server. The number of a start is the wall clock
in ns, as in Kudu, but it always grows. Otherwise, after the clock was set back, masters could take
the running server for its predecessor. The server listens only after all replicas are open.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.env import Env
from harness.errors import UsageError
from targets import checked_file
from targets.kudu.bugs import Bug, bugs_of
from targets.kudu.consensus.consensus_service import ConsensusService
from targets.kudu.context import NodeContext
from targets.kudu.flags import Flags
from targets.kudu.lost_names import serve_lost_names
from targets.kudu.pages.tserver import TServerPages
from targets.kudu.rpc import RpcClient, RpcServer, parse_address
from targets.kudu.tserver.heartbeater import Heartbeater
from targets.kudu.tserver.tablet_service import TabletService
from targets.kudu.tserver.ts_tablet_manager import TabletManager

_INSTANCE: Final = "instance"
_MAGIC: Final = b"KTSINST1"


class TServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a tablet server."""

    masters: tuple[str, ...]
    address: str
    flags: Flags
    profile: str
    bugs: tuple[str, ...] = ()


class _Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uuid: str
    seqno: int
    cluster_id: str = ""


class _Membership:
    """The `ClusterMembership` of a tablet server, stored in the file `instance`."""

    def __init__(self, env: Env, instance: _Instance) -> None:
        self.cluster_id = instance.cluster_id
        self._env = env
        self._instance = instance

    async def join(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        await _write_instance(
            self._env, msgspec.structs.replace(self._instance, cluster_id=cluster_id)
        )


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run a tablet server until cancelled. Raises `UsageError` for a bad configuration."""
    try:
        settings = msgspec.convert(config, type=TServerConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"bad tablet server configuration: {error}") from error
    bugs = bugs_of(settings.profile, settings.bugs)
    instance = await _start_instance(env)
    uuid = instance.uuid
    client = RpcClient(env, resolve_once=Bug.DNS_ONCE in bugs)
    server = RpcServer(env, parse_address(settings.address).port)
    node = NodeContext(env, uuid, settings.address, settings.flags, bugs, client)
    needs_names = Bug.KUDU_2302 in bugs
    consensus = ConsensusService(
        env, server, client, uuid, settings.flags, leaders_need_names=needs_names
    )
    serve_lost_names(server, client)
    membership = _Membership(env, instance)
    heartbeater = Heartbeater(node, settings.masters, membership, seqno=instance.seqno)
    manager = TabletManager(node, consensus=consensus, on_dirty=heartbeater.mark_dirty)
    consensus.on_missing_group = manager.start_copy
    TabletService(server, manager, env.disk)
    await TServerPages(
        node,
        masters=lambda: heartbeater.masters,
        start_ns=instance.seqno,
        tablets=manager.status,
        server=server,
    ).serve()
    await manager.open_all()
    await server.start()
    env.event("tserver-started", uuid=uuid)
    await heartbeater.run(manager)


async def _start_instance(env: Env) -> _Instance:
    now_ns = env.clock.wall_ns()
    try:
        body = await checked_file.read(env.disk, _INSTANCE, _MAGIC)
    except FileNotFoundError:
        instance = _Instance(f"{env.random.getrandbits(128):032x}", now_ns)
    else:
        stored = msgspec.json.decode(body, type=_Instance)
        instance = msgspec.structs.replace(stored, seqno=max(now_ns, stored.seqno + 1))
    await _write_instance(env, instance)
    return instance


async def _write_instance(env: Env, instance: _Instance) -> None:
    await checked_file.write(env.disk, _INSTANCE, _MAGIC, msgspec.json.encode(instance))
