"""The tablet server process: identity, RPC services, tablets and heartbeats put together.

`config` is `{"masters": [address...], "address": "t1:7050", "flags": {...}, "profile": name,
"bugs": [switch...]}`. Its uuid is drawn at the first boot and kept in the file `instance`; a wiped
server is a new one. All replicas are open before the server listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec

from harness.env import Env
from harness.errors import TargetError, UsageError
from targets.kudu import messages as m
from targets.kudu.behaviour import behaviour_of
from targets.kudu.flags import Flags
from targets.kudu.raft.replica import ConsensusService
from targets.kudu.rpc import RpcClient, RpcServer, parse_address
from targets.kudu.tserver._heartbeater import Heartbeater
from targets.kudu.tserver._manager import TabletManager

__all__ = ["TServerConfig", "main"]

_INSTANCE: Final = "instance"


class TServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node's configuration."""

    masters: tuple[str, ...]
    address: str
    flags: Flags
    profile: str
    bugs: tuple[str, ...] = ()


class _Instance(msgspec.Struct, frozen=True):
    uuid: str


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run a tablet server until cancelled. Raises `UsageError` for a bad configuration."""
    try:
        settings = msgspec.convert(config, type=TServerConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"bad tablet server configuration: {error}") from error
    behaviour_of(settings.profile, settings.bugs)  # refuses unknown names
    uuid = await _load_uuid(env)
    client = RpcClient(env)
    server = RpcServer(env, parse_address(settings.address).port)
    consensus = ConsensusService(env, server, client, uuid, settings.flags)
    heartbeater = Heartbeater(
        env,
        client,
        settings.masters,
        uuid=uuid,
        address=settings.address,
        flags=settings.flags,
    )
    manager = TabletManager(
        env,
        uuid=uuid,
        consensus=consensus,
        flags=settings.flags,
        on_dirty=heartbeater.mark_dirty,
    )
    _register(server, manager)
    await manager.open_all()
    await server.start()
    env.event("tserver-started", uuid=uuid)
    await asyncio.gather(*heartbeater.start(manager))  # they never end by themselves


async def _load_uuid(env: Env) -> str:
    """This server's identity; made durable before anybody hears of it."""
    try:
        stored = await env.disk.read(_INSTANCE)
    except FileNotFoundError:
        instance = _Instance(f"{env.random.getrandbits(128):032x}")
        await env.disk.replace(_INSTANCE, msgspec.json.encode(instance))
        return instance.uuid
    try:
        return msgspec.json.decode(stored, type=_Instance).uuid
    except msgspec.DecodeError as error:
        raise TargetError(f"the file {_INSTANCE!r} is corrupt: {error}") from error


def _register(server: RpcServer, manager: TabletManager) -> None:
    def admin(
        operation: Callable[[Any], Coroutine[Any, Any, m.TabletError | None]],
    ) -> Callable[[Any, str], Awaitable[m.TabletServerResponse]]:
        async def handle(request: Any, peer: str) -> m.TabletServerResponse:
            del peer
            return m.TabletServerResponse(await operation(request))

        return handle

    def dump(request: m.DumpTabletsRequest, peer: str) -> m.DumpResponse:
        del request, peer
        return m.DumpResponse(manager.dump())

    service = "TabletServerAdminService"
    server.register(f"{service}.CreateTablet", admin(manager.create_tablet), m.CreateTabletRequest)
    server.register(f"{service}.DeleteTablet", admin(manager.delete_tablet), m.DeleteTabletRequest)
    server.register(f"{service}.AlterSchema", admin(manager.alter_schema), m.AlterSchemaRequest)
    server.register("TabletServerService.DumpTablets", dump, m.DumpTabletsRequest)
