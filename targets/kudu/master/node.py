"""The master process: identity, first start, and the wiring of the master's parts.

At its first start a master draws its uuid and asks the other masters for their uuids until all have
answered. Every master then creates the system tablet with the same first configuration: all masters
are voters, in the order of their addresses. Later, a master reads the configuration from disk and
can start alone.

If one of the other masters already has a configuration, a cluster exists. The new master then
starts with that configuration, of which it is not a member, and joins by AddMaster
(`membership.py`).

The settings of a master (`MasterConfig`) are `masters` (the addresses of all masters, this one
included), `address`, `flags` (a mapping of fields of `Flags`), `profile` and `bugs`. `hms` is set
if tables are also in a Hive metastore (`targets.kudu.hms`). With `masters_kept`, the master accepts
an outdated list `masters`: an operator would have updated the list, but the nemesis that restarts
the node can pass only the initial list.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from harness.env import Env
from harness.errors import UsageError
from targets import checked_file
from targets.kudu.bugs import Bug, bugs_of
from targets.kudu.consensus.consensus_service import ConsensusService
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.context import NodeContext
from targets.kudu.flags import Flags
from targets.kudu.hms.client import HmsSettings
from targets.kudu.hms.hms_catalog import HmsDdl
from targets.kudu.hms.master_side import HmsSide
from targets.kudu.lost_names import serve_lost_names
from targets.kudu.master.admin import Admin
from targets.kudu.master.catalog.catalog_manager import Ddl
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.follower_reads import FollowerReads
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.leadership import Leadership
from targets.kudu.master.master_service import MasterService
from targets.kudu.master.membership import (
    Membership,
    ask_registration,
    auto_join,
    check_start_list,
)
from targets.kudu.master.tablets.async_rpc_tasks import Tasks
from targets.kudu.master.tablets.auto_rebalancer import AutoRebalancer
from targets.kudu.master.tablets.background import run_background
from targets.kudu.master.tablets.heartbeats import Heartbeats
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import PeerConfig, RaftConfig
from targets.kudu.pages.master import MasterPages
from targets.kudu.rpc import RpcClient, RpcError, RpcServer, parse_address

_INSTANCE_FILE: Final = "instance"
_INSTANCE_MAGIC: Final = b"KMINST01"
_FIRST_CONFIG_FILE: Final = "first-config"
_FIRST_CONFIG_MAGIC: Final = b"KFIRST01"
_SYSTEM_TABLET_FOLDER: Final = "sys-catalog"
_DISCOVERY_INTERVAL_S: Final = 0.1


class MasterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a master: masters, address, flags, profile, bugs, masters_kept and hms."""

    masters: tuple[str, ...]
    address: str
    flags: Flags = Flags()
    profile: str = "strict"
    bugs: tuple[str, ...] = ()
    masters_kept: bool = False
    hms: HmsSettings | None = None


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run a master until it is cancelled. Raises `UsageError` for a bad `config`."""
    settings = _checked(config)
    uuid = await _instance_uuid(env)
    server = RpcServer(env, parse_address(settings.address).port)
    bugs = bugs_of(settings.profile, settings.bugs)
    client = RpcClient(env, resolve_once=Bug.DNS_ONCE in bugs)
    node = NodeContext(env, uuid, settings.address, settings.flags, bugs, client)
    needs_names = Bug.KUDU_2302 in bugs
    consensus = ConsensusService(
        env, server, client, uuid, settings.flags, leaders_need_names=needs_names
    )
    serve_lost_names(server, client)
    rows = SystemTablet(replies_max=settings.flags.master_replies_max)
    tservers = TServerMap(heartbeat_interval_ms=settings.flags.heartbeat_interval_ms)
    leadership, pages, hms = _wire(node, server, rows, tservers, settings)
    try:
        await pages.serve()
        await server.start()
        first_config = await _first_config(node, settings)
        replica = Replica(
            env,
            consensus=consensus,
            group_id=SYSTEM_TABLET_ID,
            folder=_SYSTEM_TABLET_FOLDER,
            local_uuid=uuid,
            initial_config=first_config,
            flags=settings.flags,
            machine=rows,
            snapshot_every=settings.flags.master_snapshot_every,
            on_role_change=leadership.on_role_change,
            needs_majority=Bug.NO_LEASE not in bugs,
        )
        await replica.start()
        if not settings.masters_kept:
            check_start_list(node, replica.committed_config, settings.masters)
        leadership.on_role_change(replica)
        env.event("master-started", uuid=uuid, address=settings.address)
        if settings.flags.master_auto_join_cluster:
            await auto_join(node, replica, settings.masters)
        await asyncio.get_running_loop().create_future()  # until the node is stopped
    finally:
        leadership.close()
        if hms is not None:
            hms.close()
        server.close()
        client.close()


def _wire(
    node: NodeContext,
    server: RpcServer,
    rows: SystemTablet,
    tservers: TServerMap,
    settings: MasterConfig,
) -> tuple[Leadership, MasterPages, HmsSide | None]:
    """Create and connect the parts of a master, and register its RPC service.

    The service refuses requests until the replica of the system tablet exists.
    """

    def make_tasks(catalog: Catalog) -> Tasks:
        return Tasks(node, tservers, catalog)

    def voters() -> tuple[str, ...]:
        replica = leadership.replica
        peers = () if replica is None else replica.committed_config.peers
        return tuple(peer.address for peer in peers if peer.member_type == "VOTER")

    hms = None
    if settings.hms is not None:
        hms = HmsSide(node, rows, settings.hms, voters=voters, start_list=settings.masters)

    def serve(epoch: Epoch) -> None:
        if hms is not None:
            hms.serve(epoch)
        loop = run_background(node, epoch, tservers)
        epoch.adopt(node.env.spawn(loop, name=f"background-{epoch.term}"))
        if node.flags.auto_rebalancing_enabled:
            rebalance = AutoRebalancer(node, epoch, tservers).run()
            epoch.adopt(node.env.spawn(rebalance, name=f"auto-rebalancer-{epoch.term}"))

    leadership = Leadership(node, rows, make_tasks, serve)
    service = MasterService(
        node,
        rows=rows,
        leadership=leadership,
        tservers=tservers,
        ddl=Ddl(node, tservers) if hms is None else HmsDdl(node, tservers, hms),
        admin=Admin(node, tservers),
        heartbeats=Heartbeats(node, leadership, tservers),
        follower_reads=FollowerReads(node, leadership),
        membership=Membership(node, leadership, settings.masters),
        hms=None if hms is None else hms.dump,
    )
    service.register(server)
    return leadership, MasterPages(node, leadership, service), hms


def _checked(config: dict[str, Any]) -> MasterConfig:
    try:
        settings = msgspec.convert(config, MasterConfig)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"bad configuration of a master: {error}. {MasterConfig.__doc__}"
        ) from error
    if settings.address not in settings.masters:
        raise UsageError(
            f"the master's address {settings.address!r} is not among the masters "
            f"{', '.join(settings.masters)}; add it to `masters`"
        )
    for address in settings.masters:
        try:
            parse_address(address)
        except ValueError as error:
            raise UsageError(f"bad `masters`: {error}") from error
    return settings


async def _instance_uuid(env: Env) -> str:
    try:
        return (await checked_file.read(env.disk, _INSTANCE_FILE, _INSTANCE_MAGIC)).decode()
    except FileNotFoundError:
        uuid = f"{env.random.getrandbits(128):032x}"
        await checked_file.write(env.disk, _INSTANCE_FILE, _INSTANCE_MAGIC, uuid.encode())
        return uuid


async def _first_config(node: NodeContext, settings: MasterConfig) -> RaftConfig:
    """Return the first configuration of this master's replica of the system tablet.

    The configuration is read from disk. At the first start, it comes from an existing cluster, or
    consists of all masters.
    """
    env = node.env
    try:
        stored = await checked_file.read(env.disk, _FIRST_CONFIG_FILE, _FIRST_CONFIG_MAGIC)
    except FileNotFoundError:
        config = await _discover(node, sorted(settings.masters))
        body = msgspec.msgpack.encode(config)
        await checked_file.write(env.disk, _FIRST_CONFIG_FILE, _FIRST_CONFIG_MAGIC, body)
        return config
    return msgspec.msgpack.decode(stored, type=RaftConfig)


async def _discover(node: NodeContext, masters: list[str]) -> RaftConfig:
    """Ask the other masters for their uuids; return the first configuration of the system tablet.

    If another master has a configuration, the result is that configuration. If none has one, the
    cluster is new: all masters must answer, and all must have the same list in their settings. A
    master with a longer list waits until the other masters have formed a cluster.
    """
    uuids = {node.address: node.uuid}
    while True:
        for address in masters:
            if address in uuids:
                continue
            answer = await ask_registration(node, address)
            if isinstance(answer, RpcError):
                node.env.event("master-unreachable", address=address, error=str(answer))
            elif answer.committed_config is not None:
                return answer.committed_config
            elif sorted(answer.told_masters) == masters:
                uuids[address] = answer.meta.master_uuid
            else:
                node.env.event("master-told-otherwise", address=address, of=answer.told_masters)
        if len(uuids) == len(masters):
            peers = tuple(PeerConfig(uuids[address], address) for address in masters)
            return RaftConfig(-1, peers)
        await asyncio.sleep(_DISCOVERY_INTERVAL_S)
