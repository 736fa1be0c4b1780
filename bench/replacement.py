"""A master is lost for good, and another one does its work: with a DNS alias, and without.

| way                 | what an operator does                             | then restarts |
|---------------------|---------------------------------------------------|---------------|
| alias               | removes the dead uuid, moves its name to a new    | nothing       |
|                     | machine and starts a master there                 |               |
| alias, resolved once| the same; names are looked up once a process (P20)| everything    |
| no alias            | removes the dead master, adds one of another name;| everything    |
|                     | addresses come from flags alone, as in Kudu       |               |
| no alias, learning  | the same; tablet servers and clients learn from   | nothing       |
|                     | answers who the masters are, as in `strict`       |               |

The new machine has an empty disk, so it is a new replica: what comes back under the old uuid
without its votes could elect two leaders (KUDU-1556). Whether it does the work is looked at while
it *leads*, by clients that were there before. Part of `python -m bench.tolerance`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bench.claims import Claim
from bench.tolerance_world import UNRESPONSIVE_S, Group, World, all_succeed, none_acknowledged
from harness.cluster import ClusterEvent
from harness.ops import OpType
from harness.plugins import Convergence
from harness.vocabularies.members import AddMaster, ListMasters, RemoveMaster
from targets.kudu.client import KuduClient, RetryPolicy
from targets.kudu.rpc import RpcClient
from targets.kudu.system import AS, CHANGED
from tests.kudu.deploy import Deployed, deploy
from tests.pages.samples import get

LOST: Final = "m1"
SPARE: Final = "m4"
IN_VAIN_S: Final = 15.0
"""So long something is watched that is not to happen: a master tries to join every 5 s."""
_NEW_CLIENT: Final = 900


@dataclass(frozen=True)
class Way:
    """How it is replaced, and whom that must restart."""

    title: str
    alias: bool
    restarts: bool
    bugs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


_TOLD_ONLY: Final = "heartbeat_names_masters=false"
WAYS: Final = (
    Way("lost, alias", alias=True, restarts=False),
    Way("lost, alias, resolved once", alias=True, restarts=True, bugs=("DNS-ONCE",)),
    Way("lost, no alias", alias=False, restarts=True, flags=(_TOLD_ONLY,)),
    Way("lost, no alias, learning", alias=False, restarts=False),
)


@dataclass
class Replacement:
    """One cluster that loses a master."""

    cluster: Deployed
    way: Way
    started: list[str] = field(default_factory=list)
    """Nodes, in the order of their starts."""

    def __post_init__(self) -> None:
        self.world = World(self.cluster, Group(masters=3))
        self.nodes = self.cluster.session.cluster
        self.name = LOST if self.way.alias else SPARE
        """By which others find the new master."""
        self.others = [name for name in self.nodes.nodes if name not in {LOST, SPARE}]
        self.nodes.subscribe(self._hear)

    def _hear(self, event: ClusterEvent) -> None:
        if event.kind == "node-started":
            self.started.append(event.node)

    async def measure(self) -> list[Claim]:
        """All of it, a claim each."""
        title, cluster = self.way.title, self.cluster
        await self.world.fill()
        clients = await self.world.knowing()
        begun = await self._start_times()
        self.started.clear()
        await self._lose()
        add = self._take_its_name if self.way.alias else self._add_another
        begin_ns = cluster.env.clock.monotonic_ns()
        await add()
        claims = []
        if self.way.alias and self.way.restarts:
            await asyncio.sleep(IN_VAIN_S)
            voters = await self._voters()
            found = f"voters: {', '.join(sorted(voters))}"
            claims.append(
                Claim(title, "before restarts: it is not found", found, LOST not in voters)
            )
        elif self.way.restarts:
            await self._until_votes()
            await self._lead()
            ended = await self.world.every_write(clients)
            claims.append(none_acknowledged(title, "before restarts: it leads in vain", ended))
        if self.way.restarts:
            await self._restart_others()
            clients = [self._new_client()]
        await self._until_votes()
        took_s = (cluster.env.clock.monotonic_ns() - begin_ns) / 1e9
        await self._lead()
        await cluster.until_ready()
        ended = await self.world.every_kind("replaced", clients[0])
        claims.append(all_succeed(title, "it leads: every kind succeeds", ended))
        claims.append(await self._restarted(begun, took_s))
        # It is as good as the lost one: another may be down now.
        await self.world.kill(next(one for one in self.others if one.startswith("m")))
        ended = await self.world.every_kind("one-down", clients[0])
        claims.append(all_succeed(title, "another is down: every kind succeeds", ended))
        await self.world.restore()
        wrong = await self.world.differences(clients[0])
        claims.append(Claim(title, "nothing is lost", f"wrong: {wrong or 'none'}", not wrong))
        return claims

    # --- what an operator does ---------------------------------------------------------------

    async def _lose(self) -> None:
        """The machine is gone, and its disk with it."""
        await self.nodes.kill(LOST)
        await self.nodes.wipe(LOST)
        await self.world.until_led()
        await self._until_done(RemoveMaster.f, LOST)

    async def _take_its_name(self) -> None:
        """A new machine gets the name and joins by itself."""
        await self.nodes.kill(SPARE)
        await self.nodes.wipe(SPARE)
        await self.nodes.alias(LOST, SPARE)
        await self.nodes.start(SPARE, f"{AS}-{LOST}")

    async def _add_another(self) -> None:
        await self._until_done(AddMaster.f, SPARE)

    async def _until_done(self, change: str, node: str) -> None:
        """Until it is so: what was not answered is found out by the next list."""
        wanted = change == AddMaster.f

        async def done() -> Convergence:
            members = await self._members()
            if members and (node in members) != wanted:
                await self.cluster.system.operations[change]([node])
            return Convergence(ok=bool(members) and (node in members) == wanted)

        await self.cluster.until(f"{change} of {node}", done)

    async def _restart_others(self) -> None:
        """Every other process, with the new list where there is one; a leader steps down first."""
        for name in self.others:
            await self.cluster.system.step_down([name])
            await self.nodes.stop(name)
            await self.nodes.start(name, None if self.way.alias else CHANGED)
            await self.world.until_led()

    def _new_client(self) -> Any:
        """A client that was started with the masters of now."""
        if self.way.alias:
            return self.cluster.new_client()
        masters = [f"{name}:7051" for name in ("m2", "m3", SPARE)]
        policy = RetryPolicy(learns_masters=False)
        env = self.cluster.env
        return KuduClient(env, RpcClient(env), masters=masters, process=_NEW_CLIENT, policy=policy)

    # --- looks -------------------------------------------------------------------------------

    async def _members(self) -> dict[str, str]:
        """Name -> member type, as the leader has it; none where nobody says."""
        client = self.cluster.new_client()
        told = await self.cluster.do(client, ListMasters.f, timeout_s=5.0)
        await client.close()
        masters = told.value["masters"] if told.type is OpType.OK else []
        return {name: kind for name, _, kind in masters}

    async def _voters(self) -> list[str]:
        return [name for name, kind in (await self._members()).items() if kind == "VOTER"]

    async def _until_votes(self) -> None:
        async def votes() -> Convergence:
            roles = await self.cluster.system.roles()
            ok = self.name in roles.candidates and len(roles.candidates) == 3
            return Convergence(ok=ok, pending=(str(roles),))

        await self.cluster.until(f"{self.name} votes", votes)

    async def _lead(self) -> None:
        """Others step down until the new master leads and is ready."""

        async def leads() -> Convergence:
            roles = await self.cluster.system.roles()
            if roles.leader not in {None, self.name}:
                await self.cluster.system.step_down([str(roles.leader)])
            ok = roles.leader == self.name and roles.by_node[self.name].ready
            return Convergence(ok=ok, pending=(str(roles),))

        await self.cluster.until(f"{self.name} leads", leads)

    async def _start_times(self) -> dict[str, int]:
        """When each of the others started, as itself says on its pages."""
        found = {}
        for name in self.others:
            if name.startswith("m"):
                listed = (await get(self.cluster.env, name, "/masters.json"))["masters"]
                own = [m["start_ns"] for m in listed if m["address"] == f"{name}:7051"]
                (found[name],) = own
            else:
                page = await get(self.cluster.env, name, "/", accept="application/json")
                found[name] = page["start_ns"]
        return found

    async def _restarted(self, begun: dict[str, int], took_s: float) -> Claim:
        """Whether those are the others that must, or nobody."""
        times = await self._start_times()
        again = [name for name in self.others if times[name] != begun[name]]
        seen = [name for name in self.others if name in self.started]
        wanted = self.others if self.way.restarts else []
        what = "all others were restarted" if wanted else "start times of all others are unchanged"
        found = f"{len(again)} of {len(begun)} restarted, after {took_s:.1f} s"
        return Claim(self.way.title, what, found, again == seen == wanted)


async def _measure(cluster: Deployed, way: Way) -> list[Claim]:
    return await Replacement(cluster, way).measure()


def run(environment: str, ways: tuple[Way, ...] = WAYS, *, seed: int = 1) -> Iterator[Claim]:
    """All ways, each in a cluster of its own."""
    for number, way in enumerate(ways):
        more: dict[str, Any] = {"told_spares": False}
        if not way.alias:
            more["changed_masters"] = f"m2,m3,{SPARE}"
        flags = (f"tserver_unresponsive_timeout_ms={UNRESPONSIVE_S * 1000:.0f}", *way.flags)
        yield from deploy(
            functools.partial(_measure, way=way),
            environment=environment,
            masters=3,
            spare_masters=1,
            tservers=3,
            seed=seed + number,
            bugs=way.bugs,
            flags=",".join(flags),
            more=more,
        )
