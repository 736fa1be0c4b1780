"""The one book of a run's faults: what is broken now, by which fault, and what each of them did.

Nemeses only take aim; whatever is broken is broken through here, so that faults which overlap mean
the same everywhere. A node that is down or frozen is hit by no other fault that would do the same
to it, and only the one that did it lets it go. Links do as the environment says: a link is cut
while any fault cuts it. Of the rest, see `harness.faults.conditions`. What would destroy the synced
data of too many is refused (`harness.faults.budget`).

Every fault is a lease: one that nobody has healed when its time is over is healed then
(`Cluster.call_later`). Should the harness be dead or frozen by then, the environment's warden
undoes what would outlive it.

A node may end over what a fault did to its disk or its clock (`may_end`). It is started again when
that fault is healed, or as soon as it ends within `EXCUSED_AFTER_NS` of that, unless another fault
holds it down.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from harness.case import Damage
from harness.cluster import Bite, Cluster, ClusterEvent, NodeState
from harness.env import ClientEnv
from harness.errors import UsageError
from harness.faults.budget import DamageBudget
from harness.faults.conditions import Conditions
from harness.nodes.faults import (
    Aim,
    Clock,
    Condition,
    Cpu,
    Cut,
    Disk,
    FaultKind,
    Kill,
    Operate,
    Pause,
    Reset,
    Restart,
    Shape,
    Stream,
)
from harness.timeline import EXCUSED_AFTER_NS

_LEASE_S_MAX: Final = 1e9
_DID: Final = {
    "kill": "killed",
    "power-cut": "cut the power of",
    "restart": "stopped",
    "pause": "paused",
    "clock": "changed the clock of",
    "cpu": "slowed down",
    "disk": "spoiled the disk of",
}


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault really hit; no targets means that it missed (nobody led, say), or `refused`.

    `disks`: the power was cut of these, which were down already; their page caches are gone.
    """

    targets: tuple[str, ...]
    note: str
    id: str = ""
    what: FaultKind | None = None
    refused: bool = False  # by the damage budget
    disks: tuple[str, ...] = ()


class _Entry:
    """One fault that is on, or was."""

    def __init__(
        self, injection: Injection, link_fault: str = "", bite: Bite | None = None
    ) -> None:
        self.injection = injection
        self.link_fault = link_fault
        self.bite = bite  # what it did, once that is known
        self.on = True
        self.turn = asyncio.Lock()  # its lease may end while somebody heals it
        self.relieved: set[str] = set()

    def is_on(self, node: str) -> bool:
        """Whether it is on this node."""
        return self.on and node in self.injection.targets and node not in self.relieved


class Ledger:
    """All faults of one run on one cluster."""

    def __init__(self, cluster: Cluster, env: ClientEnv, *, damage: Damage = "minority") -> None:
        """Nothing is broken; what goes on by itself while a fault is on are tasks of `env`.

        `damage`: of how many in a group what was synced may be destroyed.
        """
        self._cluster = cluster
        self._env = env
        self._conditions = Conditions(cluster, env)
        self._budget = DamageBudget(cluster.nodes, majority=damage == "majority")
        self._entries: dict[str, _Entry] = {}
        self._numbers = itertools.count(1)
        self._excused_until_ns: dict[str, int] = {}
        cluster.subscribe(self._on_event)

    async def inject(
        self, aim: Aim, *, lease_s: float, groups: Mapping[str, Sequence[str]]
    ) -> Injection:
        """Break what `aim` means, for `lease_s` at most; says what it hit.

        `groups`: the members of each group of replicas that is observed, for the damage budget.
        Raises what the environment raises: a fault that does not take is an infrastructure error.
        One that cannot be undone when its lease ends is one as well, and ends the run.
        """
        if not 0 < lease_s <= _LEASE_S_MAX:
            raise UsageError(
                f"lease_s is {lease_s}; it must be above 0 and at most {_LEASE_S_MAX:g}"
            )
        what = aim.what
        if not aim.targets or isinstance(what, Operate):
            return Injection(targets=(), note=aim.note)
        refusal = self._budget.charge(aim.targets, groups) if what.damages else None
        if refusal is not None:
            return Injection(targets=(), note=refusal, refused=True)
        fault_id = f"fault-{next(self._numbers)}"  # another may come while this one is awaited
        injection = Injection(targets=aim.targets, note=aim.note, id=fault_id, what=what)
        # From here on it keeps its targets down, though it may take a while to have them there.
        entry = self._entries[fault_id] = _Entry(injection)
        try:
            hit = await self._apply(aim, entry, lease_s)
        except BaseException:
            del self._entries[fault_id]
            raise
        if not hit:
            del self._entries[fault_id]
            note = f"missed: {', '.join(aim.targets)} not running"
            disks = aim.targets if isinstance(what, Kill) and what.power_cut else ()
            return Injection(targets=(), note=note, disks=disks)

        def end_lease() -> None:
            if entry.on or entry.turn.locked():  # who heals it now may fail
                self._env.spawn(self.heal(fault_id), name=f"lease-{fault_id}")

        self._cluster.call_later(lease_s, end_lease)
        return entry.injection

    async def _apply(self, aim: Aim, entry: _Entry, lease_s: float) -> bool:
        """Break what it means; whether that hit anybody."""
        what = aim.what
        match what:
            case Cut():
                entry.link_fault = await self._cluster.cut(aim.links, lease_s=lease_s)
            case Shape() | Stream():
                entry.link_fault = await self._cluster.shape(
                    aim.links, what.quality, lease_s=lease_s
                )
            case Reset():
                entry.bite = Bite(await self._cluster.reset(aim.links), "connections")
            case Kill() | Restart() | Pause():
                hit = [node for node in aim.targets if await self._down(what, node, lease_s)]
                entry.injection = _told(entry.injection, hit)
                return bool(hit)
            case Clock() | Cpu() | Disk():
                entry.injection = _told(entry.injection, aim.targets)
                ended = [node for node in aim.targets if what.damages and await self._end(node)]
                await self._conditions.lay(entry.injection.id, what, aim.targets)
                for node in ended:
                    await self._start_again(node, ended_by=entry)
        return True

    async def _end(self, node: str) -> bool:
        """Kill a node that runs; one that is paused stays so, and reads its disk later if ever."""
        return self._cluster.state(node) is NodeState.RUNNING and await self._cluster.kill(node)

    async def _down(self, what: Kill | Restart | Pause, node: str, lease_s: float) -> bool:
        """Whether this fault is what took the node down, or froze it."""
        match what:
            case Kill():
                return await self._cluster.kill(node, lose_unsynced=what.power_cut, torn=what.torn)
            case Restart():
                return await self._cluster.stop(node)
            case Pause():
                return await self._cluster.pause(node, lease_s=lease_s)

    async def heal(self, fault_id: str) -> Bite:
        """Undo one fault and say what it did; a second call returns the same.

        Raises `UsageError` for a fault that was never injected.
        """
        entry = self._entries.get(fault_id)
        if entry is None:
            raise UsageError(f"there was no fault {fault_id!r} in this run")
        async with entry.turn:
            if entry.on:
                entry.on = False
                try:
                    bite = await self._undo(entry)
                except BaseException:
                    entry.on = True  # to be tried again, by its lease if by nobody else
                    raise
                entry.bite = entry.bite or bite
        assert entry.bite is not None
        return entry.bite

    async def _undo(self, entry: _Entry) -> Bite:
        targets = entry.injection.targets
        match entry.injection.what:
            case Kill() | Restart():
                for node in targets:
                    await self._cluster.start(node)
            case Pause():
                for node in targets:
                    await self._cluster.resume(node)
            case Cut() | Shape() | Stream():
                return await self._cluster.heal(entry.link_fault)
            case Reset() | None:
                pass
            case what:
                if entry.bite is None:  # else it was lifted before, and a start failed
                    entry.bite = await self._conditions.lift(entry.injection.id)
                if what.may_end:
                    self._excuse(targets)
                    for node in targets:
                        await self._start_again(node)
                return entry.bite
        return Bite(len(targets), "processes")

    def _excuse(self, nodes: Iterable[str]) -> None:
        until_ns = self._env.clock.monotonic_ns() + EXCUSED_AFTER_NS
        self._excused_until_ns |= dict.fromkeys(nodes, until_ns)

    async def _start_again(self, node: str, *, ended_by: _Entry | None = None) -> None:
        """Unless a fault that is on keeps it down, or would end it again at once.

        `ended_by` is the one for which it was ended, to be started on it.
        """
        held = any(
            entry.is_on(node)
            and entry is not ended_by
            and _keeps_down(entry.injection.what, lived_with_it=ended_by is not None)
            for entry in self._entries.values()
        )
        if self._cluster.state(node) is NodeState.DOWN and not held:
            await self._cluster.start(node)

    def _on_event(self, event: ClusterEvent) -> None:
        ended = event.kind == "node-exited" and not event.data.get("expected", False)
        until_ns = self._excused_until_ns.get(event.node)
        if ended and until_ns is not None and self._env.clock.monotonic_ns() <= until_ns:
            self._env.spawn(self._start_again(event.node), name=f"start-again-{event.node}")

    async def relieve(self, nodes: Collection[str]) -> None:
        """Let these nodes have good clocks, processors and disks, whatever fault is on them."""
        await self._conditions.relieve(nodes)
        for entry in self._entries.values():
            if isinstance(entry.injection.what, Condition) and entry.injection.what.may_end:
                self._excuse(node for node in nodes if entry.is_on(node))
                entry.relieved |= set(nodes)


def _told(injection: Injection, hit: Sequence[str]) -> Injection:
    assert injection.what is not None
    note = f"{_DID[injection.what.word]} {', '.join(hit)}"
    return msgspec.structs.replace(injection, targets=tuple(hit), note=note)


def _keeps_down(what: FaultKind | None, *, lived_with_it: bool) -> bool:
    """A wrong clock does not keep down a node that had lived with it."""
    if isinstance(what, Clock) and lived_with_it:
        return False
    return isinstance(what, Kill | Restart) or (isinstance(what, Condition) and what.may_end)
