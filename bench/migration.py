"""Masters 1 -> 3 -> 5 -> 3 under load, in any world, and then every process restarted in turn.

    python -m bench.migration --env sim|process|docker [--faults] [--seeds N] [--at SEED]

Clients and tablet servers are told of the first master only. Masters are added, and removed, one at
a time or both of a step at once; the masters that go are the middle ones, so that in the end two of
three are new. Then each process is restarted with the new list of masters, a leader after it gave
up its role. `--faults` does it all twice more: in the middle of each step one of the nodes that the
step is about is killed and started again, or cut off from all others.

A row a step: its time, the longest gaps in service, the members after it; whether `/masters` is the
same on all of them and ksck is content; then what was acknowledged and is not there. Ends with 1 if
that does not hold, or if without faults a gap is longer than 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from bench.measure import machine
from bench.migration_load import Load
from harness.cluster import ClusterEvent, Link
from harness.env import Address
from harness.faults.door import Door
from harness.faults.ledger import Ledger
from harness.nodes.faults import Cut
from harness.ops import OpType
from harness.plugins import Deployment, DeploymentPlan, Request, Session, TargetSettings
from harness.registry import load_plugin
from targets.kudu import KuduTarget
from targets.kudu.pages import MASTER_PAGES_PORT
from targets.kudu.system import CHANGED, KuduSystem

FAULTS: Final = ("none", "kill", "partition")
GAP_S_MAX: Final = 5.0  # without faults
DOWN_S: Final = 3.0
CUT_S: Final = 6.0
AFTER_S: Final = 2.0  # of each step that load goes on
STEP_LIMIT_S: Final = 180.0
ADMIN: Final = 98
POLL_S: Final = 0.2
END: Final = ("m1", "m4", "m5")
FLAGS: Final = "tserver_unresponsive_timeout_ms=10000"


@dataclasses.dataclass(frozen=True)
class Way:
    """How the masters are changed."""

    together: bool  # both of a step at once
    fault: str  # of `FAULTS`
    seed: int = 1

    def __str__(self) -> str:
        """For a line."""
        how = "both at once" if self.together else "one at a time"
        return f"{how}, {'no fault' if self.fault == 'none' else self.fault}, seed {self.seed}"


@dataclasses.dataclass
class Row:
    """What came of one step."""

    step: str
    took_s: float
    gaps_s: dict[str, float]
    members: tuple[str, ...]
    hit: str
    bad: list[str]

    def __str__(self) -> str:
        """A line of the table."""
        gaps = "".join(f"{self.gaps_s[kind]:8.2f}" for kind in ("rows", "DDL"))
        verdict = "holds" if not self.bad else "; ".join(self.bad)
        members = " ".join(self.members)
        return f"{self.step:10}{self.took_s:8.1f}{gaps}  {members:16}{self.hit:16}{verdict}"


class Migration:
    """One run of all steps."""

    def __init__(self, session: Session, system: KuduSystem, way: Way) -> None:
        """Clients of `system` know what they were told."""
        self._cluster = session.cluster
        self._door = Door(session.cluster, Ledger(session.cluster, session.env))
        self._env = session.env
        self._system = system
        self._way = way
        self._admin = system.client(ADMIN)
        self._load = Load(session, system)
        self._random = random.Random(way.seed)
        self._broken = way.seed  # whose turn it is
        self._middle = asyncio.Event()
        self._members: tuple[str, ...] = ("m1",)
        self._crashes: list[str] = []
        session.cluster.subscribe(self._hear)
        self._pages: list[Any] = []  # `/masters` as it was seen last

    async def run(self) -> list[Row]:
        """All steps; a row each, and one of what is missing in the end."""
        await self._until("the cluster is ready", self._ready)
        await self._load.start()
        await asyncio.sleep(AFTER_S)
        rows = [
            await self._step("1 -> 3", ["m2", "m3"], self._grow),
            await self._step("3 -> 5", ["m4", "m5"], self._grow),
            await self._step("5 -> 3", ["m2", "m3"], self._shrink),
            await self._step("restarts", [], self._restart_all),
        ]
        await self._load.stop()
        lost = await self._load.missing()
        counts = " ".join(f"{self._load.acknowledged(k)} {k}" for k in ("rows", "DDL"))
        rows[-1].bad += [f"{len(lost)} of {counts} missing: {lost[:5]}"] if lost else []
        return rows

    def told(self) -> str:
        """What was acknowledged."""
        return " and ".join(f"{self._load.acknowledged(k)} {k}" for k in ("rows", "DDL"))

    # --- steps -------------------------------------------------------------------------------

    async def _step(
        self, name: str, masters: Sequence[str], do: Callable[[Sequence[str]], Awaitable[None]]
    ) -> Row:
        self._middle.clear()
        start_ns = self._env.clock.monotonic_ns()
        fault = asyncio.create_task(self._break(masters))
        bad = []
        try:
            async with asyncio.timeout(STEP_LIMIT_S):
                await do(masters)
                hit = await fault
                await asyncio.sleep(AFTER_S)
                await self._until("all are heard", self._ready)
        except (TimeoutError, AssertionError) as error:
            fault.cancel()
            hit, bad = "", [f"not done: {str(error) or 'no end'}"]
        took_s = (self._env.clock.monotonic_ns() - start_ns) / 1e9
        bad += await self._settled() + self._crashes
        self._crashes.clear()
        end_ns = self._env.clock.monotonic_ns()  # a gap does not end with its step
        gaps_s = {k: self._load.longest_gap_s(k, start_ns, end_ns) for k in ("rows", "DDL")}
        if self._way.fault == "none":
            bad += [f"no {k} for {s:.1f} s" for k, s in gaps_s.items() if s > GAP_S_MAX]
        return Row(name, took_s, gaps_s, self._members, hit, bad)

    async def _grow(self, masters: Sequence[str]) -> None:
        for some in self._grouped(masters):
            await asyncio.gather(*(self._change("add-master", master) for master in some))
            await self._voting((*self._members, *some))

    async def _shrink(self, masters: Sequence[str]) -> None:
        for some in self._grouped(masters):
            await asyncio.gather(*(self._change("remove-master", master) for master in some))
            await self._voting([one for one in self._members if one not in some])
            for master in some:  # its work is done
                await self._cluster.stop(master)

    def _grouped(self, masters: Sequence[str]) -> list[list[str]]:
        return [[*masters]] if self._way.together else [[master] for master in masters]

    async def _change(self, f: str, master: str) -> None:
        """Until it is so: an answer that was lost is found out by the next one."""
        done = {"add-master": "ALREADY_PRESENT", "remove-master": "NOT_FOUND"}[f]
        while True:
            if f == "remove-master":
                await self._step_down(master)
            asked = await self._admin.invoke(Request(f, {"node": master}), timeout_s=10.0)
            self._middle.set()
            if asked.type is OpType.OK or done in (asked.error or ""):
                return
            await asyncio.sleep(POLL_S)

    async def _step_down(self, node: str) -> None:
        """The leader may not be removed, and is not stopped."""
        if (await self._system.roles()).leader == node:
            await self._system.step_down([node])
            await asyncio.sleep(POLL_S)

    async def _voting(self, masters: Sequence[str]) -> None:
        wanted = {(master, "VOTER") for master in masters}

        async def so() -> bool:
            listed = await self._admin.invoke(Request("list-masters", {}), timeout_s=5.0)
            if listed.type is not OpType.OK:
                return False
            return {(node, kind) for node, _, kind in listed.value["masters"]} == wanted

        await self._until(f"{', '.join(masters)} vote", so)
        self._members = tuple(sorted(masters))

    async def _restart_all(self, _: Sequence[str]) -> None:
        """Every process, with the new list; the next once ksck is content with the last."""
        tservers = [n for n, spec in self._cluster.nodes.items() if spec.role == "tserver"]
        for number, node in enumerate((*self._members, *tservers)):
            await self._step_down(node)
            await self._cluster.stop(node)
            await self._cluster.start(node, CHANGED)
            if number == 1:
                self._middle.set()
            await self._until(f"{node} is back", self._content)

    # --- faults ------------------------------------------------------------------------------

    async def _break(self, masters: Sequence[str]) -> str:
        """In the middle of a step, one of its masters or of the members."""
        await self._middle.wait()
        if self._way.fault == "none":
            return "-"
        victim = await self._victim(masters)
        if self._way.fault == "kill":
            await self._cluster.kill(victim)
            await asyncio.sleep(DOWN_S)
            await self._cluster.start(victim)
        else:
            others = [*self._cluster.nodes, *self._cluster.clients]
            links = Link.between([victim], others)
            cut = await self._door.inject(Cut(), links, lease_s=10 * CUT_S)
            await asyncio.sleep(CUT_S)
            await self._door.heal(cut)
        return f"{self._way.fault} {victim}"

    async def _victim(self, masters: Sequence[str]) -> str:
        """The leader, one that comes or goes, or another member, step by step."""
        leader = (await self._system.roles()).leader
        others = [node for node in self._members if node != leader and node not in masters]
        kinds = [[leader] if leader else [], [*masters], others]
        self._broken += 1
        for number in range(len(kinds)):
            nodes = kinds[(self._broken + number) % len(kinds)]
            if nodes:
                return nodes[self._random.randrange(len(nodes))]
        raise AssertionError("no member but the leader, and no leader")

    def _hear(self, event: ClusterEvent) -> None:
        if event.kind == "node-exited" and not event.data["expected"]:
            self._crashes.append(f"{event.node} ended: {event.data['log']}")

    # --- looks -------------------------------------------------------------------------------

    async def _ready(self) -> bool:
        return (await self._system.ready()).ok

    async def _content(self) -> bool:
        await self._system.roles()  # who the members are
        return (await self._system.tool(["ksck"])).exit_code == 0

    async def _settled(self) -> list[str]:
        """What is not as it must be, at rest; each has some time."""
        bad = []
        looks = {"/masters differ": self._same_pages, "ksck is not OK": self._content}
        for wrong, look in looks.items():
            try:
                async with asyncio.timeout(STEP_LIMIT_S / 3):
                    await self._until(wrong, look)
            except TimeoutError:
                said = await self._system.tool(["ksck", "--format=json_compact"])
                why = json.loads(said.text)["errors"] if look == self._content else self._pages
                bad.append(f"{wrong}: {why}")
        return bad

    async def _same_pages(self) -> bool:
        """`/masters` of every member is the same, with all of them, one a leader."""
        pages = self._pages = []
        for master in self._members:
            try:
                async with asyncio.timeout(5.0):
                    door = Address(master, MASTER_PAGES_PORT)
                    page = await self._env.get_page(door, "/masters.json")
            except (ConnectionError, TimeoutError):
                return False
            pages.append(json.loads(page.body) if page.status == 200 else None)
        first = pages[0]
        if first is None or any(page != first for page in pages):
            return False
        listed = [one["address"].partition(":")[0] for one in first["masters"]]
        leaders = sum(one["role"] == "LEADER" for one in first["masters"])
        return listed == [*self._members] and leaders == 1 and not first["errors"]

    async def _until(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        try:
            while not await look():  # noqa: ASYNC110 - a remote fact
                await asyncio.sleep(POLL_S)
        except asyncio.CancelledError as error:
            error.add_note(f"while waiting that {what}")
            raise


def run(
    environment: str, way: Way, *, flags: str = FLAGS, show: Callable[[str], None] = print
) -> list[Row]:
    """Deploy, migrate, tear down; a row a step."""
    target = KuduTarget()
    options: dict[str, Any] = {o.name.replace("-", "_"): o.default for o in target.options}
    options |= {"masters": 1, "spare_masters": 4, "told_spares": False, "resend": 0}
    options |= {"changed_masters": ",".join(END), "kudu_flag": flags}
    settings = TargetSettings(profile="strict", bugs=(), options=options)
    plan = DeploymentPlan(
        run_id=f"migration-{way.seed}",
        nodes=tuple(target.nodes(settings)),
        seed=way.seed,
        knobs={},
        folder=None,
    )

    async def body(session: Session) -> list[Row]:
        system = target.open(Deployment(session.env, settings, session.cluster.nodes))
        migration = Migration(session, system, way)
        rows = await migration.run()
        show(f"\n{way}: {migration.told()} acknowledged")
        gaps = f"{'rows, s':>8}{'DDL, s':>8}"
        show(f"{'step':10}{'s':>8}{gaps}  {'members':16}{'fault':16}verdict")
        for row in rows:
            show(str(row))
        return rows

    rows: list[Row] = load_plugin("environments", environment).execute(plan, body)
    return rows


def main() -> int:
    """Every way; 1 if one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="sim", choices=["sim", "process", "docker"])
    parser.add_argument("--faults", action="store_true", help="with faults as well")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--at", type=int, default=1, help="the first seed")
    parser.add_argument("--fault", choices=FAULTS, help="this alone")
    parser.add_argument("--kudu-flag", default=FLAGS, help="flags of all nodes")
    given = parser.parse_args()
    faults = FAULTS if given.faults else (given.fault or FAULTS[0],)
    failed = 0
    for seed in range(given.at, given.at + given.seeds):
        for fault in faults:
            for together in (False, True):
                rows = run(given.env, Way(together, fault, seed), flags=given.kudu_flag)
                failed += any(row.bad for row in rows)
    print(f"\n{failed} did not hold; {given.env}, {machine()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
