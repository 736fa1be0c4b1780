"""The harness's interface to a running deployment of the bundled Kudu: inspection and changes.

All queries are RPCs with a time limit, so they work in every environment. A node that does not
answer is missing in results, or appears as `None`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

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
from targets.kudu.bounds import describe_accepted, describe_bounds, keeps_voters
from targets.kudu.bugs import FLAGS, PROFILES, Bug, bugs_of
from targets.kudu.client import KuduClient, RetryPolicy, TwoSidedClient
from targets.kudu.consensus.messages import LeaderStepDownRequest
from targets.kudu.convergence import MasterView, find_pending
from targets.kudu.flags import Flags, parse_flags
from targets.kudu.hms.deployment import HmsLayout, Metastores
from targets.kudu.lost_names import lose_names
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.rpc import Call, Caller, R_co, RpcClient, RpcError
from targets.kudu.tools.tool import use_tool

MASTER_PORT: Final = 7051
TSERVER_PORT: Final = 7050
CATALOG: Final = "catalog"
"""The name of the masters' Raft group."""
STEP_DOWN: Final = "step-down"
LOSE_NAME: Final = "lose-name"
AS: Final = "as"
"""Prefix of a variant's name: in the variant `as-m1`, a spare takes the name of a lost `m1`."""
CHANGED: Final = "changed"
"""The variant in which nodes run with `--changed-flag` and `--changed-masters`."""
RELEARN_S: Final = 2.0
_ASK_LIMIT_S: Final = 1.0
_DUMP_LIMIT_S: Final = 5.0
_CHANGE_LIMIT_S: Final = 15.0
_ADMIN: Final = -1
RESENDING: Final = RetryPolicy(
    resend=True, repeat=True, late_percent=30, mutation_attempt_timeout_s=0.5
)
SPREAD: Final = 37
"""A factor, coprime with 100, that spreads the resending clients evenly over all processes."""


class Layout:
    """The nodes, flags and addresses of a deployment, derived from its settings."""

    def __init__(self, settings: TargetSettings) -> None:
        options = settings.options
        masters, tservers = options["masters"], options["tservers"]
        if masters not in {1, 3, 5, 7}:
            raise UsageError(
                f"--masters is {masters}; it must be 1, 3, 5 or 7: an even number tolerates no "
                "more failures than the odd number below it"
            )
        self.bugs = bugs_of(settings.profile, settings.bugs)
        # Resending a mutation is sound only if the profile executes it exactly once.
        once = Bug.KUDU_1537 not in PROFILES[settings.profile]
        self.hms = HmsLayout(settings) if options.get("hms") else None
        """The metastores, or `None`.

        With metastores, clients do not resend requests. In Kudu, a drop or a rename through the
        metastore has no request id, because the metastore's event carries out the change.
        """
        self.resend_percent: int = options["resend"] if once and self.hms is None else 0
        usual = FLAGS[settings.profile]
        self.flags: Flags = parse_flags(options["kudu_flag"], usual)
        changed = options.get("changed_flag", "")
        both = ",".join(filter(None, [options["kudu_flag"], changed]))
        self.changed: Flags | None = parse_flags(both, usual) if changed else None
        """The flags of the variant `changed`."""
        spares = options.get("spare_masters", 0)
        every = {
            f"m{number}": f"m{number}:{MASTER_PORT}" for number in range(1, masters + spares + 1)
        }
        self.masters = dict(itertools.islice(every.items(), masters))
        """The addresses of the initial masters, by name."""
        self.all_masters = every
        """The addresses of the initial masters and of the spare masters, by name."""
        self.changed_list = self._among("changed-masters", options.get("changed_masters", ""))
        """If not empty, the masters that nodes in the variant `changed` get at their start."""
        names_spares = options.get("told_spares", True)
        self.start_list = tuple((every if names_spares else self.masters).values())
        """The masters that tablet servers and clients get at their start."""
        self.named_twice = self._among("named-twice", options.get("named_twice", ""))
        """The masters that appear twice in the tablet servers' lists."""
        if not {*self.named_twice} <= {*self.start_list}:
            raise UsageError(
                f"--named-twice is {options['named_twice']!r}, but with --no-told-spares tablet "
                f"servers start with these masters only: {', '.join(self.start_list)}"
            )
        smallest = min(
            self.flags.master_replies_max, (self.changed or self.flags).master_replies_max
        )
        self.late_revisions_max = smallest // 2
        """The number of changes after which clients no longer send a late copy of a request."""
        self.learns_masters = self.flags.heartbeat_names_masters
        knows_all = len(self.start_list) == len(every)
        if not (knows_all or self.learns_masters or self.changed_list):
            raise UsageError(
                "--no-told-spares with heartbeat_names_masters=false: clients and tablet servers "
                "would never learn of a spare master, so no spare could lead; drop "
                "--no-told-spares, or name the spares in --changed-masters"
            )
        self.relearn_s = RELEARN_S if self.learns_masters and not knows_all else None
        """The interval at which clients ask for the current masters; `None` means never."""
        self.tservers = {
            f"t{number}": f"t{number}:{TSERVER_PORT}" for number in range(1, tservers + 1)
        }

    def _among(self, option: str, names: str) -> tuple[str, ...]:
        named = [name.strip() for name in names.split(",") if name.strip()]
        for name in named:
            if name not in self.all_masters:
                raise UsageError(
                    f"--{option} is {names!r}, but {name!r} is not a master; the masters are "
                    f"{', '.join(self.all_masters)} (--masters and --spare-masters set how many)"
                )
        return tuple(self.all_masters[name] for name in named)


class KuduSystem(System):
    """Masters and tablet servers of one deployment."""

    def __init__(self, env: ClientEnv, layout: Layout) -> None:
        self._env = env
        self._layout = layout
        self._rpc = self._dial()
        self._metastores = None if layout.hms is None else self._open_metastores(layout.hms)
        self._members = tuple(layout.masters)
        """The names of the voting masters in the newest known configuration."""
        self._changing: tuple[str, ...] = ()
        """The names of all masters that may vote while the masters' configurations differ."""
        self._admin: KuduClient | None = None

    def client(self, process: int) -> Client:
        """Create a client with its own connections, like a separate process.

        Some clients resend mutations with the same request id, to test exactly-once execution.
        """
        resends = process * SPREAD % 100 < self._layout.resend_percent
        policy = RESENDING if resends else RetryPolicy()
        policy = dataclasses.replace(
            policy,
            relearn_s=self._layout.relearn_s,
            learns_masters=self._layout.learns_masters,
            late_revisions_max=min(policy.late_revisions_max, self._layout.late_revisions_max),
        )
        if Bug.LEADER_PICK in self._layout.bugs:
            policy = dataclasses.replace(policy, first_leader_wins=True)
        client = KuduClient(
            self._env,
            self._dial(resolve_once=Bug.DNS_ONCE in self._layout.bugs),
            masters=self._layout.start_list,
            process=process,
            policy=policy,
        )
        if self._metastores is None:
            return client
        return TwoSidedClient(client, self._metastores.client(process))

    def _dial(self, *, resolve_once: bool = False) -> Caller:
        return RpcClient(self._env, resolve_once=resolve_once)

    def _open_metastores(self, layout: HmsLayout) -> Metastores:
        return Metastores(self._env, layout)

    def core(self, rng: random.Random) -> Sequence[str]:
        """Draw enough nodes to serve: a majority of the masters, and all tablet servers.

        A majority of its replicas would suffice for an existing tablet. But the liveness probe also
        creates tables, and a new table needs as many live tablet servers as it has replicas.
        """
        masters = list(self._members)
        core = rng.sample(masters, len(masters) // 2 + 1)
        if self._changing:  # the masters' configurations differ
            masters = [n for n in self._layout.all_masters if n in {*masters, *self._changing}]
            core = masters
        hms = [] if self._metastores is None else self._metastores.core(rng)
        return [name for name in masters if name in core] + list(self._layout.tservers) + hms

    @override
    def operations(self) -> Mapping[str, Operation]:
        return {
            STEP_DOWN: self.step_down,
            LOSE_NAME: self.lose_names,
            AddMaster.f: partial(self._change_masters, AddMaster.f),
            RemoveMaster.f: partial(self._change_masters, RemoveMaster.f),
        }

    # --- inspection --------------------------------------------------------------------------

    async def ready(self) -> Convergence:
        """Report whether a master leads, is ready, and knows every tablet server."""
        roles = await self.roles()
        leader = roles.leader
        if leader is None or not roles.by_node[leader].ready:
            return Convergence(ok=False, pending=("no master leads and is ready",))
        listed = await self._ask(self._layout.all_masters[leader], m.ListTabletServersRequest())
        limit_ms = self._layout.flags.tserver_unresponsive_timeout_ms
        servers = () if listed is None else listed.servers
        heard = {s.address for s in servers if s.millis_since_heartbeat <= limit_ms}
        missing = [name for name, address in self._layout.tservers.items() if address not in heard]
        pending = tuple(f"no heartbeat from {name} has reached {leader}" for name in missing)
        if self._metastores is not None:
            pending += await self._metastores.pending()
        return Convergence(ok=not pending, pending=pending)

    async def groups(self) -> Mapping[str, Roles]:
        return {CATALOG: await self.roles()}

    async def roles(self) -> Roles:
        """Return each answering master's Raft role, and whether a leader serves requests."""
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
        configs = [answer.committed_config for answer in heard if answer.committed_config]
        if not configs:
            return
        newest = max(configs, key=lambda config: config.opid_index)
        addresses = [peer.address for peer in newest.peers if peer.member_type == "VOTER"]
        all_addresses = {peer.address for config in configs for peer in config.peers}
        nodes = self._layout.all_masters
        self._members = tuple(name for name in nodes if nodes[name] in addresses)
        # Use addresses as keys: a spare that took over a lost master's name answers under both
        # names.
        members = {answer.address: answer for answer in heard if answer.address in addresses}
        same = len(members) == len(addresses) == len(newest.peers) and all(
            answer.committed_config == newest and answer.active_index == newest.opid_index
            for answer in members.values()
        )
        self._changing = () if same else tuple(n for n in nodes if nodes[n] in all_addresses)

    async def _role(self, address: str) -> tuple[NodeRole, m.GetMasterRegistrationResponse] | None:
        raft = await self._ask(address, m.GetMasterRegistrationRequest())
        if raft is None or raft.error is not None:
            return None
        if raft.role != "LEADER":
            return NodeRole(raft.role.lower(), raft.meta.term), raft
        catalog = await self._ask(address, m.ConnectToMasterRequest())
        serves = catalog is not None and catalog.error is None and catalog.role == "LEADER"
        return NodeRole("leader", raft.meta.term, ready=serves), raft

    async def converged(self) -> Convergence:
        snapshot = await self.snapshot()
        pending = tuple(snapshot["pending"])
        return Convergence(ok=not pending, pending=pending, at=snapshot["at"])

    async def snapshot(self) -> dict[str, Any]:
        roles = await self.roles()
        masters, tservers = await self._dumps(roles)
        views = {n: MasterView(dump=d, role=roles.by_node.get(n)) for n, d in masters.items()}
        leader = masters.get(roles.leader or "")
        pending = list(find_pending(views, self._awaited(leader, tservers)))
        hms: dict[str, Any] = {}
        if self._metastores is not None:
            hms = {"hms": await self._metastores.snapshot()}
            pending += self._metastores.open_work(masters, leader, hms["hms"])
        return {
            "masters": masters,
            "tservers": tservers,
            **self._limits(masters, tservers),
            "pending": pending,
            "at": leader and {name: leader[name] for name in ("term", "revision")},
            **hms,
        }

    async def _dumps(self, roles: Roles) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the dumps of the masters and the dumps of the tablet servers, each by name.

        The dump of a node that does not answer is `None`.
        """

        async def dump(address: str, request: Call[m.DumpResponse]) -> Any:
            answer = await self._ask(address, request, limit_s=_DUMP_LIMIT_S)
            return None if answer is None else answer.data

        addresses, servers = self._layout.all_masters, self._layout.tservers
        dumps = await asyncio.gather(
            *(dump(addresses[name], m.DumpEntitiesRequest()) for name in roles.candidates),
            *(dump(address, m.DumpTabletsRequest()) for address in servers.values()),
        )
        count = len(roles.candidates)
        masters = dict(zip(roles.candidates, dumps[:count], strict=True))
        return masters, dict(zip(servers, dumps[count:], strict=True))

    def _awaited(
        self, leader: Mapping[str, Any] | None, tservers: dict[str, Any]
    ) -> Mapping[str, Any]:
        """Return the dumps of tablet servers that must agree with the leader at rest."""
        del leader
        return tservers

    def _limits(self, masters: Mapping[str, Any], tservers: Mapping[str, Any]) -> dict[str, Any]:
        layout = self._layout
        names = 1 if layout.all_masters == layout.masters else 2
        flags, changed = layout.flags, layout.changed
        return {
            "bounds": describe_bounds(masters, tservers, flags, changed, names=names),
            **describe_accepted(len(tservers), self._layout.flags),
            "keeps_voters": keeps_voters(self._layout.flags, self._layout.changed),
        }

    # --- operations --------------------------------------------------------------------------

    async def step_down(self, nodes: Sequence[str]) -> str | None:
        """Make each leading master among `nodes` step down (`kudu tablet leader_step_down`)."""
        done = []
        for name in nodes:
            address = self._layout.all_masters.get(name)
            if address is not None and await self._step_down(address):
                done.append(name)
        return f"{', '.join(done)} stepped down" if done else None

    async def lose_names(self, nodes: Sequence[str]) -> str | None:
        """Make all other nodes fail to resolve the names in `nodes` for a while."""
        every = {**self._layout.all_masters, **self._layout.tservers}
        return await lose_names(self._rpc, nodes, every)

    async def _change_masters(self, f: str, nodes: Sequence[str]) -> str | None:
        if self._admin is None:
            self._admin = KuduClient(
                self._env,
                self._dial(),
                masters=self._layout.start_list,
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
        state = await self._ask(address, m.GetMasterRegistrationRequest())
        if state is None or state.role != "LEADER":
            return False
        request = LeaderStepDownRequest(state.meta.master_uuid, SYSTEM_TABLET_ID)
        answer = await self._ask(address, request)
        return answer is not None and answer.error is None

    # --- tools -------------------------------------------------------------------------------

    @override
    async def tool(self, arguments: Sequence[str]) -> Said:
        """Run an action of `harness kudu`. Raises `UsageError` for unknown arguments."""
        await self.roles()  # masters join and leave, so ask for the current members first
        members = tuple(self._layout.all_masters[name] for name in self._members)
        metastores = self._metastores
        metastore = None if metastores is None else partial(metastores.metastore, members)
        return await use_tool(self._env, self._rpc, members, arguments, metastore)

    # --- RPC ---------------------------------------------------------------------------------

    async def _ask(
        self, address: str, request: Call[R_co], *, limit_s: float = _ASK_LIMIT_S
    ) -> R_co | None:
        try:
            return await self._rpc.call(address, request, timeout_s=limit_s)
        except RpcError:
            return None
