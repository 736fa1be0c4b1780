"""The bundled Kudu as the harness looks at it while it runs.

All questions go over RPC from the client's door with a limit each, so they work in every
environment and a node that does not answer is simply left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from harness.env import ClientEnv
from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import (
    Client,
    Convergence,
    NodeRole,
    Operation,
    Request,
    Roles,
    Said,
    System,
    TargetSettings,
    override,
)
from harness.vocabularies.members import AddMaster, RemoveMaster
from targets.kudu import messages as m
from targets.kudu.bounds import describe_accepted, describe_bounds
from targets.kudu.bugs import FLAGS, PROFILES, Bug, bugs_of
from targets.kudu.client import KuduClient, RetryPolicy, TwoSidedClient
from targets.kudu.consensus.messages import LeaderStepDownRequest, LeaderStepDownResponse
from targets.kudu.convergence import MasterView, find_pending
from targets.kudu.flags import Flags, parse_flags
from targets.kudu.hms.deployment import Beside, HmsLayout
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.rpc import RpcClient, RpcError
from targets.kudu.tools.tool import use_tool

MASTER_PORT: Final = 7051
TSERVER_PORT: Final = 7050
CATALOG: Final = "catalog"
"""The masters, as one group of replicas."""
STEP_DOWN: Final = "step-down"
AS: Final = "as"
"""`as-m1`: the variant of spare masters that have the name of the first one, which is lost."""
CHANGED: Final = "changed"
"""The variant of nodes with other flags, or told of other masters."""
RELEARN_S: Final = 2.0
_ASK_LIMIT_S: Final = 1.0
_DUMP_LIMIT_S: Final = 5.0
_CHANGE_LIMIT_S: Final = 15.0
_ADMIN: Final = -1  # the number of the administrator's own client
RESENDING: Final = RetryPolicy(
    resend=True, repeat=True, late_percent=30, mutation_attempt_timeout_s=0.5
)
SPREAD: Final = 37
"""Spreads resending clients over the numbers of processes: it has no factor in common with 100."""
R = TypeVar("R", bound=msgspec.Struct)


class Layout:
    """The nodes that the settings ask for."""

    def __init__(self, settings: TargetSettings) -> None:
        options = settings.options
        masters, tservers = options["masters"], options["tservers"]
        if masters not in {1, 3, 5, 7}:
            raise UsageError(
                f"--masters is {masters}; it must be 1, 3, 5 or 7: an even number tolerates no "
                "more failures than the odd one below it"
            )
        self.bugs = bugs_of(settings.profile, settings.bugs)
        # To send a mutation again is sound only where it is promised to happen exactly once.
        once = Bug.KUDU_1537 not in PROFILES[settings.profile]
        self.hms = HmsLayout(settings) if options.get("hms") else None
        """The metastores beside the masters. A drop or rename that goes by them has no request id
        in Kudu: what carries it out is the metastore's event.
        """
        self.resend_percent: int = options["resend"] if once and self.hms is None else 0
        usual = FLAGS[settings.profile]
        self.flags: Flags = parse_flags(options["kudu_flag"], usual)
        changed = options.get("changed_flag", "")
        both = ",".join(filter(None, [options["kudu_flag"], changed]))
        self.changed: Flags | None = parse_flags(both, usual) if changed else None
        """Those of the variant `changed`."""
        spares = options.get("spare_masters", 0)
        every = {
            f"m{number}": f"m{number}:{MASTER_PORT}" for number in range(1, masters + spares + 1)
        }
        self.masters = dict(itertools.islice(every.items(), masters))
        """Those that are members at first."""
        self.all_masters = every
        """Those that may become members, too."""
        self.changed_told = self._among("changed-masters", options.get("changed_masters", ""))
        """The addresses that nodes of the variant `changed` start with; none: as all others."""
        told = options.get("told_spares", True)
        self.told = tuple((every if told else self.masters).values())
        """The addresses that tablet servers and clients start with."""
        self.learns_masters = self.flags.heartbeat_names_masters
        knows_all = len(self.told) == len(every)
        if not (knows_all or self.learns_masters or self.changed_told):
            raise UsageError(
                "--no-told-spares, and with heartbeat_names_masters=false nobody learns of a spare "
                "master later: none could lead; tell of them, or in the end by --changed-masters"
            )
        self.relearn_s = RELEARN_S if self.learns_masters and not knows_all else None
        """How often clients ask whether there are others."""
        self.tservers = {
            f"t{number}": f"t{number}:{TSERVER_PORT}" for number in range(1, tservers + 1)
        }

    def _among(self, option: str, names: str) -> tuple[str, ...]:
        """Addresses of masters that were named; raises `UsageError` for one that there is not."""
        named = [name.strip() for name in names.split(",") if name.strip()]
        for name in named:
            if name not in self.all_masters:
                raise UsageError(
                    f"--{option} is {names!r}, where {name!r} is no master; there are "
                    f"{', '.join(self.all_masters)}: --masters and --spare-masters say how many"
                )
        return tuple(self.all_masters[name] for name in named)


class KuduSystem(System):
    """Masters and tablet servers of one deployment."""

    def __init__(self, env: ClientEnv, layout: Layout) -> None:
        """Nothing is asked yet."""
        self._env = env
        self._layout = layout
        self._rpc = RpcClient(env)
        self._beside = None if layout.hms is None else Beside(env, layout.hms)
        self._members = tuple(layout.masters)
        """The masters that vote, by the newest configuration that was heard of."""
        self._changing: tuple[str, ...] = ()
        """Those that may vote besides, while it is not the same everywhere."""
        self._admin: KuduClient | None = None

    def client(self, process: int) -> Client:
        """A client with connections of its own, like a process of its own.

        Some send mutations again, with the same request id: what is promised to happen exactly once
        must do so however often it is asked for.
        """
        resends = process * SPREAD % 100 < self._layout.resend_percent
        policy = RESENDING if resends else RetryPolicy()
        policy = dataclasses.replace(
            policy,
            relearn_s=self._layout.relearn_s,
            learns_masters=self._layout.learns_masters,
        )
        if Bug.LEADER_PICK in self._layout.bugs:
            policy = dataclasses.replace(policy, first_leader_wins=True)
        client = KuduClient(
            self._env,
            RpcClient(self._env, resolve_once=Bug.DNS_ONCE in self._layout.bugs),
            masters=self._layout.told,
            process=process,
            policy=policy,
        )
        if self._beside is None:
            return client
        return TwoSidedClient(client, self._beside.client(process))

    def core(self, rng: random.Random) -> Sequence[str]:
        """A random majority of the masters, and all tablet servers.

        Existing tablets need a majority of their replicas only, but a new table needs as many live
        tablet servers as it has replicas, and no operation may be left out of the liveness probe.
        """
        masters = list(self._members)
        core = rng.sample(masters, len(masters) // 2 + 1)
        if self._changing:  # which of them are a majority is not known
            masters = [n for n in self._layout.all_masters if n in {*masters, *self._changing}]
            core = masters
        beside = [] if self._beside is None else self._beside.core(rng)
        return [name for name in masters if name in core] + list(self._layout.tservers) + beside

    @override
    def operations(self) -> Mapping[str, Operation]:
        return {
            STEP_DOWN: self.step_down,
            AddMaster.f: partial(self._change_masters, AddMaster.f),
            RemoveMaster.f: partial(self._change_masters, RemoveMaster.f),
        }

    # --- inspection --------------------------------------------------------------------------

    async def ready(self) -> Convergence:
        """Whether a master leads, is ready, and has heard of every tablet server."""
        roles = await self.roles()
        leader = roles.leader
        if leader is None or not roles.by_node[leader].ready:
            return Convergence(ok=False, pending=("no master leads and is ready",))
        listed = await self._ask(
            self._layout.all_masters[leader],
            "MasterService.ListTabletServers",
            m.ListTabletServersRequest(),
            m.ListTabletServersResponse,
        )
        limit_ms = self._layout.flags.tserver_unresponsive_timeout_ms
        servers = () if listed is None else listed.servers
        known = {s.address for s in servers if s.millis_since_heartbeat <= limit_ms}
        missing = [name for name, address in self._layout.tservers.items() if address not in known]
        pending = tuple(f"{name} was not heard by {leader}" for name in missing)
        if self._beside is not None:
            pending += await self._beside.pending()
        return Convergence(ok=not pending, pending=pending)

    async def groups(self) -> Mapping[str, Roles]:
        """The masters are one group; those of tablets are not observed."""
        return {CATALOG: await self.roles()}

    async def roles(self) -> Roles:
        """The raw Raft role of every master that answers, and whether a leader serves yet."""
        answers = await asyncio.gather(
            *(self._role(address) for address in self._layout.all_masters.values())
        )
        by_node = {
            name: answer[0]
            for name, answer in zip(self._layout.all_masters, answers, strict=True)
            if answer is not None
        }
        self._note_members([answer[1] for answer in answers if answer is not None])
        members = {name: role for name, role in by_node.items() if name in self._members}
        return Roles(members, self._members)

    def _note_members(self, heard: Sequence[m.GetMasterRegistrationResponse]) -> None:
        """Who votes now, by the configurations of all masters that answered."""
        configs = [one.committed_config for one in heard if one.committed_config is not None]
        if not configs:
            return
        newest = max(configs, key=lambda config: config.opid_index)
        addresses = [peer.address for peer in newest.peers if peer.member_type == "VOTER"]
        everybody = {peer.address for config in configs for peer in config.peers}
        nodes = self._layout.all_masters
        self._members = tuple(name for name in nodes if nodes[name] in addresses)
        # By address: a master that has taken the name of another is asked under both.
        members = {one.address: one for one in heard if one.address in addresses}
        same = len(members) == len(addresses) == len(newest.peers) and all(
            one.committed_config == newest and one.active_index == newest.opid_index
            for one in members.values()
        )
        self._changing = () if same else tuple(n for n in nodes if nodes[n] in everybody)

    async def _role(self, address: str) -> tuple[NodeRole, m.GetMasterRegistrationResponse] | None:
        """The role of a master, and what it said of itself."""
        raft = await self._registration(address)
        if raft is None or raft.error is not None:
            return None
        if raft.role != "LEADER":
            return NodeRole(raft.role.lower(), raft.meta.term), raft
        catalog = await self._ask(
            address,
            "MasterService.ConnectToMaster",
            m.ConnectToMasterRequest(),
            m.ConnectToMasterResponse,
        )
        serves = catalog is not None and catalog.error is None and catalog.role == "LEADER"
        return NodeRole("leader", raft.meta.term, ready=serves), raft

    async def _registration(self, address: str) -> m.GetMasterRegistrationResponse | None:
        return await self._ask(
            address,
            "MasterService.GetMasterRegistration",
            m.GetMasterRegistrationRequest(),
            m.GetMasterRegistrationResponse,
        )

    async def converged(self) -> Convergence:
        """Whether masters, tablets and tablet servers agree and nothing is under way."""
        found = await self.snapshot()
        pending = tuple(found["pending"])
        return Convergence(ok=not pending, pending=pending, at=found["at"])

    async def snapshot(self) -> dict[str, Any]:
        """Every node's own dump, `None` for those that did not answer, and whether they rest."""

        async def dump(address: str, method: str, request: msgspec.Struct) -> Any:
            answer = await self._ask(
                address, method, request, m.DumpResponse, limit_s=_DUMP_LIMIT_S
            )
            return None if answer is None else answer.data

        roles = await self.roles()
        dumps = await asyncio.gather(
            *(
                dump(
                    self._layout.all_masters[name],
                    "MasterService.DumpEntities",
                    m.DumpEntitiesRequest(),
                )
                for name in roles.candidates
            ),
            *(
                dump(address, "TabletServerService.DumpTablets", m.DumpTabletsRequest())
                for address in self._layout.tservers.values()
            ),
        )
        count = len(roles.candidates)
        masters = dict(zip(roles.candidates, dumps[:count], strict=True))
        tservers = dict(zip(self._layout.tservers, dumps[count:], strict=True))
        views = {n: MasterView(dump=d, role=roles.by_node.get(n)) for n, d in masters.items()}
        leader = masters.get(roles.leader or "")
        pending = list(find_pending(views, tservers))
        hms: dict[str, Any] = {}
        if self._beside is not None:
            hms = {"hms": await self._beside.snapshot()}
            pending += self._beside.open_work(masters, leader, hms["hms"])
        return {
            "masters": masters,
            "tservers": tservers,
            "bounds": describe_bounds(masters, tservers, self._layout.flags, self._layout.changed),
            **describe_accepted(len(tservers), self._layout.flags),
            "pending": pending,
            "at": leader and {name: leader[name] for name in ("term", "revision")},
            **hms,
        }

    # --- operations --------------------------------------------------------------------------

    async def step_down(self, nodes: Sequence[str]) -> str | None:
        """Masters among these give up their role, as `kudu tablet leader_step_down` has it."""
        done = []
        for name in nodes:
            address = self._layout.all_masters.get(name)
            if address is not None and await self._step_down(address):
                done.append(name)
        return f"{', '.join(done)} stepped down" if done else None

    async def _change_masters(self, f: str, nodes: Sequence[str]) -> str | None:
        """Masters among these are added, or removed, one after the other."""
        if self._admin is None:
            rpc = RpcClient(self._env)
            self._admin = KuduClient(
                self._env,
                rpc,
                masters=self._layout.told,
                process=_ADMIN,
                policy=RetryPolicy(relearn_s=self._layout.relearn_s),
            )
        done = []
        for name in nodes:
            if name in self._layout.all_masters:
                change = Request(f, {"node": name})
                ended = await self._admin.invoke(change, timeout_s=_CHANGE_LIMIT_S)
                if ended.type is OpType.OK:
                    done.append(name)
        return f"{f}: {', '.join(done)}" if done else None

    async def _step_down(self, address: str) -> bool:
        state = await self._registration(address)
        if state is None or state.role != "LEADER":
            return False
        request = LeaderStepDownRequest(state.meta.master_uuid, SYSTEM_TABLET_ID)
        answer = await self._ask(
            address, "ConsensusService.LeaderStepDown", request, LeaderStepDownResponse
        )
        return answer is not None and answer.error is None

    # --- tools -------------------------------------------------------------------------------

    @override
    async def tool(self, arguments: Sequence[str]) -> Said:
        """`harness kudu`; raises `UsageError` for arguments that it does not have."""
        await self.roles()  # masters come and go
        members = tuple(self._layout.all_masters[name] for name in self._members)
        beside = self._beside
        metastore = None if beside is None else partial(beside.metastore, members)
        return await use_tool(self._rpc, members, arguments, metastore, announce=self._env.event)

    # --- RPC ---------------------------------------------------------------------------------

    async def _ask(
        self,
        address: str,
        method: str,
        request: msgspec.Struct,
        response_type: type[R],
        *,
        limit_s: float = _ASK_LIMIT_S,
    ) -> R | None:
        """One call; `None` where no answer came, which is an observation here, not an error."""
        try:
            return await self._rpc.call(address, method, request, response_type, timeout_s=limit_s)
        except RpcError:
            return None
