"""The harness's interface to a running deployment of real Kudu: inspection and changes.

The bundled target's system and clients do most of the work; their calls go over Kudu's own RPCs.
Two things differ. A server draws its uuid at its first start, so the harness must ask for it. A
server's state comes from several RPCs, since no single RPC dumps it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from harness.env import Address, ClientEnv
from harness.errors import UsageError
from harness.plugins import (
    Client,
    Convergence,
    Operation,
    Restart,
    RestartingOperation,
    Roles,
    Said,
    override,
)
from targets.apache_kudu.flags import FLAG_FAULTS, FlagFaults
from targets.apache_kudu.javaclient.client import JavaClients
from targets.apache_kudu.javaclient.program import JavaProgram
from targets.apache_kudu.metastores import RealHms, RealMetastores
from targets.apache_kudu.servers import MASTER_PAGES_PORT
from targets.apache_kudu.snapshots import Ask, dump_master, dump_tserver
from targets.apache_kudu.upgrade import UPGRADE, Upgrade
from targets.apache_kudu.wire import WireRpc
from targets.kudu import messages as m
from targets.kudu.consensus.messages import GetConsensusStateRequest, LeaderStepDownRequest
from targets.kudu.hms.deployment import HmsLayout
from targets.kudu.rpc import RpcError
from targets.kudu.system import KuduSystem, Layout

_ASK_LIMIT_S: Final = 5.0
_ORPHAN_S: Final = 5.0


class ApacheKuduSystem(KuduSystem):
    """Real masters and tablet servers of one deployment."""

    _rpc: WireRpc
    _metastores: RealMetastores | None

    def __init__(
        self, env: ClientEnv, layout: Layout, *, java: tuple[str, str] | None = None
    ) -> None:
        """Observe the servers. With `java` (a path and a class path), use Kudu's Java clients."""
        self._names: dict[str, str] = {}
        """Addresses ("t1:7050") by the uuids of the servers. All RPC clients share this map."""
        self._orphans: dict[str, dict[str, float]] = {}
        """When each misplaced replica (`_may_stay`) was first seen, by server and tablet."""
        super().__init__(env, layout)
        self._upgrade = Upgrade(
            self._rpc, layout.all_masters, layout.tservers, self._is_ready, self._leader
        )
        self._flags = FlagFaults(self._rpc, {**layout.all_masters, **layout.tservers})
        self._java: JavaClients | None = None
        if java is not None:
            self._java = JavaClients(
                env,
                JavaProgram(env, *java),
                self._names,
                masters=layout.masters.values(),
                tservers=layout.tservers.values(),
            )

    @override
    def client(self, process: int) -> Client:
        return super().client(process) if self._java is None else self._java.client(process)

    @override
    def core(self, rng: random.Random) -> Sequence[str]:
        core = super().core(rng)
        return core if self._java is None else self._java.core_of(core, self._layout.all_masters)

    @override
    def _dial(self, *, resolve_once: bool = False) -> WireRpc:
        del resolve_once
        return WireRpc(self._env, self._names, hms=self._layout.hms is not None)

    @override
    def _open_metastores(self, layout: HmsLayout) -> RealMetastores:
        if not isinstance(layout, RealHms):
            raise TypeError(f"real masters need real metastores, not {type(layout).__name__}")
        return RealMetastores(self._env, layout, self._rpc)

    @override
    def operations(self) -> Mapping[str, Operation]:
        flags = {name: partial(self._flags.run, each) for name, each in FLAG_FAULTS.items()}
        return {**super().operations(), **flags}

    @override
    def restarting(self) -> Mapping[str, RestartingOperation]:
        return {UPGRADE: self._upgrade.run}

    @override
    async def restore(self, restart: Restart) -> None:
        await self._flags.restore()
        await self._upgrade.finish(restart)

    async def _is_ready(self) -> bool:
        return (await self.ready()).ok

    async def _leader(self) -> str | None:
        leader = (await self.roles()).leader
        return None if leader is None else self._layout.all_masters[leader]

    @override
    async def tool(self, arguments: Sequence[str]) -> Said:
        del arguments
        raise UsageError("the target 'apache-kudu' has no tool here; use Kudu's own program `kudu`")

    # --- inspection --------------------------------------------------------------------------

    @override
    async def ready(self) -> Convergence:
        state = await super().ready()
        return state if self._java is None else await self._java.ready(state)

    @override
    async def roles(self) -> Roles:
        await self._learn_names(known=self._names.values())
        return await super().roles()

    @override
    async def converged(self) -> Convergence:
        await self._learn_names(known=())  # a wiped server has a new uuid
        convergence = await super().converged()
        if not convergence.ok:
            await self._finish_moves()
        return convergence

    async def _finish_moves(self) -> None:
        """Make leaders step down if their replicas were moved away, as Kudu's own tool does.

        Masters never evict a leader. `kudu tablet change_config move_replica` waits for the new
        replica, and then asks the old one to step down if it leads. The harness's clients do not
        wait, so this method does it.
        """
        for address in self._layout.tservers.values():
            listed = await self._ask(address, m.ListTabletsRequest(), limit_s=_ASK_LIMIT_S)
            if listed is None:
                continue
            for tablet in listed.tablets:
                if tablet.leader_uuid == listed.ts_uuid:
                    await self._give_way(address, listed.ts_uuid, tablet.tablet_id)

    async def _give_way(self, address: str, uuid: str, tablet_id: str) -> None:
        state = await self._ask(address, GetConsensusStateRequest("", tablet_id))
        config = None if state is None else state.committed_config
        voters = [] if config is None else [p for p in config.peers if p.member_type == "VOTER"]
        leaves = any(peer.uuid == uuid and peer.replace for peer in voters)
        # While a move is unfinished, the group has one voter too many, and so an even number.
        if leaves and len(voters) % 2 == 0:
            await self._ask(address, LeaderStepDownRequest(uuid, tablet_id))

    async def _learn_names(self, known: Collection[str]) -> None:
        addresses = {*self._layout.all_masters.values(), *self._layout.tservers.values()}
        await asyncio.gather(*map(self._learn_name, sorted(addresses.difference(known))))

    async def _learn_name(self, address: str) -> None:
        try:
            uuid = await self._rpc.node_uuid(address, timeout_s=_ASK_LIMIT_S)
        except RpcError:
            return  # the server is down
        self._names[uuid] = address

    @override
    def _awaited(
        self, leader: Mapping[str, Any] | None, tservers: dict[str, Any]
    ) -> Mapping[str, Any]:
        """Leave out misplaced replicas that Kudu may never delete.

        Such a replica (`_may_stay`) is left out when `_ORPHAN_S` have passed since it was first
        seen.
        """
        if leader is None:
            return tservers
        now_s = self._env.clock.monotonic_ns() / 1e9
        placed = {tablet["id"] for tablet in leader["tablets"]}
        awaited: dict[str, Any] = {}
        for name, dump in tservers.items():
            if dump is None:
                awaited[name] = None
                continue
            orphans = [
                replica["tablet_id"]
                for replica in dump["tablets"]
                if _may_stay(replica, dump["uuid"], placed)
            ]
            before = self._orphans.get(name, {})
            # Forget replicas that vanished: if one comes back, its time begins again.
            seen = self._orphans[name] = {ident: before.get(ident, now_s) for ident in orphans}
            stay = {ident for ident, since_s in seen.items() if now_s - since_s >= _ORPHAN_S}
            tablets = [each for each in dump["tablets"] if each["tablet_id"] not in stay]
            awaited[name] = {**dump, "tablets": tablets}
        return awaited

    # --- snapshots ---------------------------------------------------------------------------

    @override
    def _limits(self, masters: Mapping[str, Any], tservers: Mapping[str, Any]) -> dict[str, Any]:
        del masters, tservers
        return {}  # checkers assume Kudu's default limits

    @override
    async def _dumps(self, roles: Roles) -> tuple[dict[str, Any], dict[str, Any]]:
        async def dump(name: str) -> dict[str, Any] | None:
            role, page = roles.by_node.get(name), Address(name, MASTER_PAGES_PORT)
            if role is None:
                return None
            return await dump_master(self._env, page, role, ask(self._layout.all_masters[name]))

        def ask(address: str) -> Ask:
            return partial(self._ask, address, limit_s=_ASK_LIMIT_S)

        followed = await self._followed(roles)
        rows_of_all = await asyncio.gather(*map(dump, roles.candidates))
        masters = dict(zip(roles.candidates, rows_of_all, strict=True))
        leads = masters.get(roles.leader or "")
        if followed is not None and leads is not None and leads["ready"]:
            leads |= followed
            leads["hms"]["masters"] = self._voters(leads)
        owners = {
            tablet["id"]: tablet["table_id"]
            for rows in rows_of_all
            for tablet in (() if rows is None else rows["tablets"])
        }
        servers = self._layout.tservers
        held = await asyncio.gather(*(dump_tserver(ask(at), owners) for at in servers.values()))
        return masters, dict(zip(servers, held, strict=True))

    async def _followed(self, roles: Roles) -> dict[str, Any] | None:
        """Return the cluster's id, and the last metastore event that the leader has applied.

        `None` without metastores, or if the leader does not answer.
        """
        if self._metastores is None or roles.leader is None:
            return None
        await self._metastores.learn_names(self._layout.all_masters.values())
        leader = self._layout.all_masters[roles.leader]
        last = await self._metastores.applied(leader)
        says = await self._ask(leader, m.ConnectToMasterRequest())
        if last is None or says is None or says.error is not None:
            return None
        # No RPC and no page shows which writes of a master stored the ids of events.
        return {"cluster_id": says.cluster_id, "hms": {"last_event": last, "events": []}}

    def _voters(self, dump: Mapping[str, Any]) -> list[str]:
        config = dump["raft"]["config"] or {"peers": []}
        voters = [peer["uuid"] for peer in config["peers"] if peer["member_type"] == "VOTER"]
        return [self._names.get(uuid, uuid) for uuid in voters]


def _may_stay(replica: Mapping[str, Any], uuid: str, placed: Collection[str]) -> bool:
    """Whether the permit `orphan-replicas` covers a replica on the server `uuid`.

    It covers a replica of a removed table that never had a leader, and a replica whose own
    committed configuration does not contain the server. `placed` are the tablets in the catalog.
    """
    config = replica["committed_config"]
    if replica["tablet_id"] not in placed and replica["raft"]["leader_uuid"] is None:
        return True
    return config is not None and all(peer["uuid"] != uuid for peer in config["peers"])
