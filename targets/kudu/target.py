"""The target plug-in of the bundled Kudu: its nodes, its client, and how to look into it.

Masters are `m1`..`mN` on port 7051, tablet servers `t1`..`tN` on 7050 (Kudu's own ports). All
questions asked here go over RPC from the client's door with a limit each, so they work in every
environment and a node that does not answer is simply left out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from harness.cluster import NodeSpec
from harness.env import ClientEnv
from harness.errors import UsageError
from harness.plugins import (
    API_VERSION,
    Client,
    Convergence,
    NodeRole,
    Option,
    Roles,
    TargetSettings,
)
from targets.kudu import messages as m
from targets.kudu.behaviour import BUGS, PROFILES, behaviour_of
from targets.kudu.bounds import describe_accepted, describe_bounds
from targets.kudu.client import KuduClient, RetryPolicy
from targets.kudu.convergence import MasterView, find_pending
from targets.kudu.flags import Flags, draw_flags, parse_flags
from targets.kudu.rpc import RpcClient, RpcError

__all__ = ["KuduTarget"]

MASTER_PORT: Final = 7051
TSERVER_PORT: Final = 7050
_ASK_LIMIT_S: Final = 1.0
_DUMP_LIMIT_S: Final = 5.0
TSERVERS_MAX: Final = 99
RESENDING: Final = RetryPolicy(
    resend=True, repeat=True, late_percent=30, mutation_attempt_timeout_s=0.5
)
SIZES: Final[Mapping[str, Sequence[int]]] = {"masters": (3, 3, 3, 3, 5), "tservers": (3, 3, 3, 4)}
"""Drawn in soaks. A fourth tablet server lets tablets be made anew where one is down."""
SPREAD: Final = 37
"""Spreads resending clients over the numbers of processes: it has no factor in common with 100."""
R = TypeVar("R", bound=msgspec.Struct)


class _Layout:
    """The nodes that the settings ask for."""

    def __init__(self, settings: TargetSettings) -> None:
        options = settings.options
        masters, tservers = options["masters"], options["tservers"]
        if masters not in {1, 3, 5, 7}:
            raise UsageError(
                f"--masters is {masters}; it must be 1, 3, 5 or 7: an even number tolerates no "
                "more failures than the odd one below it"
            )
        self.resend_percent: int = options["resend"]
        behaviour_of(settings.profile, settings.bugs)
        self.flags: Flags = parse_flags(options["kudu_flag"])
        self.masters = {
            f"m{number}": f"m{number}:{MASTER_PORT}" for number in range(1, masters + 1)
        }
        self.tservers = {
            f"t{number}": f"t{number}:{TSERVER_PORT}" for number in range(1, tservers + 1)
        }


class KuduTarget:
    """Masters with a replicated catalog, and tablet servers with replicated tablets."""

    api_version: ClassVar[int] = API_VERSION
    name: ClassVar[str] = "kudu"
    doc: ClassVar[str] = "the bundled re-creation of Apache Kudu's masters and tablet servers"
    vocabularies: ClassVar[frozenset[str]] = frozenset({"ddl", "append"})
    profiles: ClassVar[tuple[str, ...]] = PROFILES
    bugs: ClassVar[Mapping[str, str]] = BUGS
    nemeses: ClassVar[tuple[str, ...]] = (
        "partition-leader",
        "partition-halves",
        "partition-random-node",
        "kill-leader",
        "kill-tserver",
        "kill-random",
        "kill-all",
        "pause-leader",
        "pause-random",
        "power-cut-leader",
        "power-cut-all",
    )
    checkers: ClassVar[tuple[str, ...]] = ("bounds",)
    options: ClassVar[tuple[Option, ...]] = (
        Option("masters", 3, "number of masters: 1, 3, 5 or 7"),
        Option("tservers", 3, "number of tablet servers", within=(1, TSERVERS_MAX)),
        Option(
            "resend",
            30,
            "this share of the clients sends mutations again, in percent",
            within=(0, 100),
        ),
        Option("kudu-flag", "", "Kudu flags as NAME=VALUE,NAME=VALUE (targets/kudu/flags.py)"),
    )

    def __init__(self) -> None:
        self._connected: tuple[ClientEnv, RpcClient] | None = None

    # --- declaration -------------------------------------------------------------------------

    def nodes(self, settings: TargetSettings) -> Sequence[NodeSpec]:
        """Declare masters, then tablet servers; raises `UsageError` for impossible settings."""
        layout = _Layout(settings)

        def spec(name: str, address: str, role: str, port: int) -> NodeSpec:
            config = {
                "masters": list(layout.masters.values()),
                "address": address,
                "flags": msgspec.to_builtins(layout.flags),
                "profile": settings.profile,
                "bugs": list(settings.bugs),
            }
            entry = f"targets.kudu.{role}.node:main"
            return NodeSpec(name=name, role=role, ports=(port,), entry=entry, config=config)

        return [
            *(spec(n, a, "master", MASTER_PORT) for n, a in layout.masters.items()),
            *(spec(n, a, "tserver", TSERVER_PORT) for n, a in layout.tservers.items()),
        ]

    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a seed of a soak runs with: what is `given`, and drawn sizes and flags beside it."""
        drawn = {name: choices[rng.randrange(len(choices))] for name, choices in SIZES.items()}
        flags = draw_flags(rng, str(given.get("kudu_flag", "")))
        return {**drawn, **given, "kudu_flag": flags}

    def client(self, env: ClientEnv, settings: TargetSettings, process: int) -> Client:
        """A client with connections of its own, like a process of its own.

        Some send mutations again, with the same request id: what is promised to happen exactly once
        must do so however often it is asked for.
        """
        layout = _Layout(settings)
        masters = tuple(layout.masters.values())
        policy = RESENDING if process * SPREAD % 100 < layout.resend_percent else None
        return KuduClient(env, RpcClient(env), masters=masters, process=process, policy=policy)

    def quorum_core(self, settings: TargetSettings, rng: random.Random) -> Sequence[str]:
        """A random majority of the masters, and all tablet servers.

        Existing tablets need a majority of their replicas only, but a new table needs as many live
        tablet servers as it has replicas, and no operation may be left out of the liveness probe.
        """
        layout = _Layout(settings)
        masters = list(layout.masters)
        core = rng.sample(masters, len(masters) // 2 + 1)
        return [name for name in masters if name in core] + list(layout.tservers)

    # --- inspection --------------------------------------------------------------------------

    async def ready(self, env: ClientEnv, settings: TargetSettings) -> Convergence:
        """Whether a master leads, is ready, and has heard of every tablet server."""
        layout = _Layout(settings)
        roles = await self.roles(env, settings)
        leader = roles.leader
        if leader is None or not roles.by_node[leader].ready:
            return Convergence(ok=False, pending=("no master leads and is ready",))
        listed = await self._ask(
            env,
            layout.masters[leader],
            "MasterService.ListTabletServers",
            m.ListTabletServersRequest(),
            m.ListTabletServersResponse,
        )
        known = set() if listed is None else {server.address for server in listed.servers}
        missing = [name for name, address in layout.tservers.items() if address not in known]
        pending = tuple(f"{name} has not registered with {leader}" for name in missing)
        return Convergence(ok=not pending, pending=pending)

    async def roles(self, env: ClientEnv, settings: TargetSettings) -> Roles:
        """The raw Raft role of every master that answers, and whether a leader serves yet."""
        layout = _Layout(settings)
        answers = await asyncio.gather(
            *(self._role(env, address) for address in layout.masters.values())
        )
        by_node = {
            name: role
            for name, role in zip(layout.masters, answers, strict=True)
            if role is not None
        }
        return Roles(by_node, tuple(layout.masters))

    async def _role(self, env: ClientEnv, address: str) -> NodeRole | None:
        raft = await self._ask(
            env,
            address,
            "MasterService.GetMasterRegistration",
            m.GetMasterRegistrationRequest(),
            m.GetMasterRegistrationResponse,
        )
        if raft is None or raft.error is not None:
            return None
        if raft.role != "LEADER":
            return NodeRole(raft.role.lower(), raft.meta.term)
        catalog = await self._ask(
            env,
            address,
            "MasterService.ConnectToMaster",
            m.ConnectToMasterRequest(),
            m.ConnectToMasterResponse,
        )
        serves = catalog is not None and catalog.error is None and catalog.role == "LEADER"
        return NodeRole("leader", raft.meta.term, ready=serves)

    async def converged(self, env: ClientEnv, settings: TargetSettings) -> Convergence:
        """Whether masters, tablets and tablet servers agree and nothing is under way."""
        found = await self.snapshot(env, settings)
        pending = tuple(found["pending"])
        return Convergence(ok=not pending, pending=pending, at=found["at"])

    async def snapshot(self, env: ClientEnv, settings: TargetSettings) -> dict[str, Any]:
        """Every node's own dump, `None` for those that did not answer, and whether they rest."""
        layout = _Layout(settings)

        async def dump(address: str, method: str, request: msgspec.Struct) -> Any:
            answer = await self._ask(
                env, address, method, request, m.DumpResponse, limit_s=_DUMP_LIMIT_S
            )
            return None if answer is None else answer.data

        roles, *dumps = await asyncio.gather(
            self.roles(env, settings),
            *(
                dump(address, "MasterService.DumpEntities", m.DumpEntitiesRequest())
                for address in layout.masters.values()
            ),
            *(
                dump(address, "TabletServerService.DumpTablets", m.DumpTabletsRequest())
                for address in layout.tservers.values()
            ),
        )
        count = len(layout.masters)
        masters = dict(zip(layout.masters, dumps[:count], strict=True))
        tservers = dict(zip(layout.tservers, dumps[count:], strict=True))
        views = {n: MasterView(dump=d, role=roles.by_node.get(n)) for n, d in masters.items()}
        leader = masters.get(roles.leader or "")
        return {
            "masters": masters,
            "tservers": tservers,
            "bounds": describe_bounds(masters, tservers, layout.flags),
            **describe_accepted(len(tservers), layout.flags),
            "pending": list(find_pending(views, tservers)),
            "at": leader and {name: leader[name] for name in ("term", "revision")},
        }

    # --- RPC ---------------------------------------------------------------------------------

    async def _ask(
        self,
        env: ClientEnv,
        address: str,
        method: str,
        request: msgspec.Struct,
        response_type: type[R],
        *,
        limit_s: float = _ASK_LIMIT_S,
    ) -> R | None:
        """One call; `None` where no answer came, which is an observation here, not an error."""
        try:
            return await self._rpc(env).call(
                address, method, request, response_type, timeout_s=limit_s
            )
        except RpcError:
            return None

    def _rpc(self, env: ClientEnv) -> RpcClient:
        """Connections are kept as long as the deployment lasts."""
        if self._connected is None or self._connected[0] is not env:
            self._connected = (env, RpcClient(env))
        return self._connected[1]
