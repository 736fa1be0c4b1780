"""The ledger: the only record of a run's faults, their targets and their effects.

Nemeses only choose targets. Every fault goes through the ledger, so that overlapping faults have
the same effect in all environments. A fault has the same id from the case to the report page. A
fault that stops (or pauses) nodes does not affect a node that is already down (or paused), and only
the fault that stopped the node releases it. The states of links, clocks, processors and disks
follow from all faults that are active on them (`harness.faults.conditions`). A fault that would
destroy the synced data of too many nodes is refused (`harness.faults.budget`).

Every fault has a lease, its maximum duration: if nothing heals the fault earlier, the ledger heals
it when the lease ends (`Controls.call_later`). If the harness is dead or stopped by then, the
environment's warden undoes every fault that would outlive the harness.

A node may exit because of a fault on its disk or clock (`may_end`). The ledger starts the node
again when that fault is healed. If the node exits within `EXCUSED_AFTER_NS` after the heal, the
ledger starts it at once. In both cases another fault may keep the node down.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from harness.case import Damage
from harness.cluster import Bite, ClusterEvent, Controls, NodeState
from harness.env import ClientEnv
from harness.errors import HarnessError, InfrastructureError, UsageError
from harness.faults.budget import DamageBudget
from harness.faults.conditions import Conditions, Links
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
    """The result of an injection. `targets` has the nodes that the fault affected.

    `targets` is empty if the fault missed, for example because no node led, or was `refused`.
    `disks` has the nodes that were already down when their power was cut; they lost their page
    caches.
    """

    targets: tuple[str, ...]
    note: str
    id: str = ""
    what: FaultKind | None = None
    refused: bool = False  # by the damage budget
    disks: tuple[str, ...] = ()


OnHeal = Callable[[Injection, Bite], None]


class _Entry:
    """The ledger's entry for one fault."""

    def __init__(self, injection: Injection, on_heal: OnHeal | None) -> None:
        self.injection = injection
        self.on_heal = on_heal
        self.bite: Bite | None = None  # the fault's effect, once it is known
        self.on = True
        self.active = False  # from the end of the injection to the end of the heal
        self.turn = asyncio.Lock()  # one heal at a time: the lease may end during a heal
        self.relieved: set[str] = set()

    def is_on(self, node: str) -> bool:
        return self.on and node in self.injection.targets and node not in self.relieved


class Ledger:
    """The ledger of all faults of one run on one cluster."""

    def __init__(self, controls: Controls, env: ClientEnv, *, damage: Damage = "minority") -> None:
        """Start without faults. Strobe faults and the ends of leases run as tasks of `env`.

        `damage` says of how many members of a group faults may destroy the synced data.
        """
        self._controls = controls
        self._env = env
        self._links = Links(controls)
        self._conditions = Conditions(controls, env)
        self._budget = DamageBudget(controls.nodes, majority=damage == "majority")
        self._entries: dict[str, _Entry] = {}
        self._numbers = itertools.count(1)
        self._planned: set[str] = set()
        self._excused_until_ns: dict[str, int] = {}
        controls.subscribe(self._on_event)

    def new_id(self) -> str:
        """Return a new id, for a fault that is not in the case's plan."""
        ids = (f"f{number}" for number in self._numbers)
        return next(each for each in ids if each not in self._planned | self._entries.keys())

    def expect(self, planned: Iterable[str]) -> None:
        self._planned |= set(planned)

    @property
    def active(self) -> list[str]:
        """Return the faults that are not healed, in the order in which they took effect."""
        return [fault_id for fault_id, entry in self._entries.items() if entry.active]

    @property
    def injections(self) -> list[Injection]:
        """The injections of the active faults, in the same order."""
        return [entry.injection for entry in self._entries.values() if entry.active]

    async def inject(
        self,
        aim: Aim,
        *,
        lease_s: float,
        groups: Mapping[str, Sequence[str]],
        fault_id: str | None = None,
        on_heal: OnHeal | None = None,
    ) -> Injection:
        """Inject the fault `aim` on its targets, for at most `lease_s`.

        `groups` has the members of each observed replica group, for the damage budget. `on_heal` is
        called once with the measured effect (`Bite`) when the fault is healed, by its lease or
        earlier. A fault that does not take effect is an infrastructure error. So is a fault that
        cannot be undone when its lease ends; this ends the run.
        """
        if not 0 < lease_s <= _LEASE_S_MAX:
            raise UsageError(
                f"lease_s is {lease_s}; it must be above 0 and at most {_LEASE_S_MAX:g}"
            )
        what = aim.what
        if not aim.targets or isinstance(what, Operate):
            return Injection(targets=(), note=aim.note)
        fault_id = fault_id or self.new_id()
        if fault_id in self._entries:
            raise UsageError(f"this run already had a fault {fault_id!r}; use each id only once")
        refusal = self._budget.charge(aim.targets, groups) if what.damages else None
        if refusal is not None:
            return Injection(targets=(), note=refusal, refused=True)
        injection = Injection(targets=aim.targets, note=aim.note, id=fault_id, what=what)
        # From here on the fault keeps its targets down, although going down may take a while.
        entry = self._entries[fault_id] = _Entry(injection, on_heal)
        async with entry.turn:
            try:
                entry.active = await self._apply(aim, entry, lease_s)
            finally:
                entry.on = entry.active
                del self._entries[fault_id]
        if not entry.active:
            note = f"missed: {', '.join(aim.targets)} not running"
            disks = aim.targets if isinstance(what, Kill) and what.power_cut else ()
            return Injection(targets=(), note=note, disks=disks)
        self._entries[fault_id] = entry  # moved to the end, because it took effect last

        def end_lease() -> None:
            if entry.on or entry.turn.locked():  # a heal that is under way may still fail
                self._env.spawn(self.heal(fault_id), name=f"lease-{fault_id}")

        self._controls.call_later(lease_s, end_lease)
        return entry.injection

    async def _apply(self, aim: Aim, entry: _Entry, lease_s: float) -> bool:
        """Inject the fault; returns whether it affected any target."""
        what = aim.what
        match what:
            case Cut() | Shape() | Stream():
                await self._links.lay(entry.injection.id, what, aim.links, lease_s)
            case Reset():
                entry.bite = Bite(await self._controls.reset(aim.links), "connections")
            case Kill() | Restart() | Pause():
                hit = [node for node in aim.targets if await self._down(what, node, lease_s)]
                entry.injection = _described(entry.injection, hit)
                return bool(hit)
            case Clock() | Cpu() | Disk():
                entry.injection = _described(entry.injection, aim.targets)
                ended = [node for node in aim.targets if what.damages and await self._end(node)]
                await self._conditions.lay(entry.injection.id, what, aim.targets)
                for node in ended:
                    await self._start_again(node, ended_by=entry)
        return True

    async def _end(self, node: str) -> bool:
        """Kill a running node, so that it reads its disk again; returns whether it was killed.

        A paused node is not killed: a fault on its disk takes effect at its next restart.
        """
        return self._controls.state(node) is NodeState.RUNNING and await self._controls.kill(node)

    async def _down(self, what: Kill | Restart | Pause, node: str, lease_s: float) -> bool:
        """Stop or pause one node; returns whether this fault did so."""
        match what:
            case Kill():
                return await self._controls.kill(node, lose_unsynced=what.power_cut, torn=what.torn)
            case Restart():
                return await self._controls.stop(node)
            case Pause():
                return await self._controls.pause(node, lease_s=lease_s)

    async def extend(self, fault_id: str, node: str, *, lease_s: float) -> None:
        """Let a fault that stops or pauses nodes affect one more node, if the fault is active."""
        entry = self._entries.get(fault_id)
        if entry is None:
            return
        async with entry.turn:
            what = entry.injection.what
            assert isinstance(what, Kill | Restart | Pause), "other faults keep their targets"
            if entry.on and await self._down(what, node, lease_s):
                hit = dict.fromkeys([*entry.injection.targets, node])
                entry.injection = _described(entry.injection, tuple(hit))

    async def heal(self, fault_id: str) -> Bite:
        """Undo one fault and return its effect. A second call returns the same effect.

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
                    entry.on = True  # the heal is tried again, at the latest when the lease ends
                    raise
                entry.bite = entry.bite or bite
                entry.active = False
                if entry.on_heal is not None:
                    entry.on_heal(entry.injection, entry.bite)
        return entry.bite or Bite(0, "processes")  # without an effect, the fault missed

    async def _undo(self, entry: _Entry) -> Bite:
        targets = entry.injection.targets
        match entry.injection.what:
            case Kill() | Restart():
                for node in targets:
                    await self._controls.start(node)
            case Pause():
                for node in targets:
                    await self._controls.resume(node)
            case Cut() | Shape() | Stream():
                return await self._links.lift(entry.injection.id)
            case Reset() | None:
                pass
            case what:
                if (
                    entry.bite is None
                ):  # an earlier heal may have lifted the fault without starting a node
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
        """Start a node, unless an active fault keeps it down or would make it exit again at once.

        `ended_by` is the fault for which the ledger killed the node, in order to start it under
        this fault.
        """
        held = any(
            entry.is_on(node)
            and entry is not ended_by
            and _keeps_down(entry.injection.what, lived_with_it=ended_by is not None)
            for entry in self._entries.values()
        )
        if self._controls.state(node) is NodeState.DOWN and not held:
            await self._controls.start(node)

    def _on_event(self, event: ClusterEvent) -> None:
        ended = event.kind == "node-exited" and not event.data.get("expected", False)
        until_ns = self._excused_until_ns.get(event.node)
        if ended and until_ns is not None and self._env.clock.monotonic_ns() <= until_ns:
            self._env.spawn(self._start_again(event.node), name=f"start-again-{event.node}")

    async def relieve(self, nodes: Collection[str]) -> None:
        """Make these nodes work normally, although faults are active on them.

        Resumes the nodes, and restores their clocks, processors, disks, and all links among them
        and the clients.
        """
        for node in nodes:
            await self._controls.resume(node)
        await self._conditions.relieve(nodes)
        for entry in self._entries.values():
            if isinstance(entry.injection.what, Condition) and entry.injection.what.may_end:
                self._excuse(node for node in nodes if entry.is_on(node))
                entry.relieved |= set(nodes)
        await self._links.relieve({*nodes, *self._controls.clients})

    async def heal_active(self) -> None:
        """Undo all active faults, in the order in which they took effect.

        A fault that cannot be undone stays active, and the other faults are still undone. One
        `InfrastructureError` at the end names all faults that could not be undone.
        """
        await _try_all(self._heals())

    async def heal_all(self) -> None:
        """Undo every fault, and restore all clocks, processors and disks. Nodes may stay down.

        Raises like `heal_active`.
        """
        await _try_all({**self._heals(), "clocks, processors and disks": self._controls.mend})

    def _heals(self) -> dict[str, Callable[[], Awaitable[object]]]:
        return {f"the fault {each!r}": functools.partial(self.heal, each) for each in self.active}


async def _try_all(heals: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """Call all `heals` in order, even after an error, and raise all errors together."""
    errors: dict[str, Exception] = {}
    for what, heal in heals.items():
        try:
            await heal()
        except Exception as error:  # noqa: BLE001 - raised below
            errors[what] = error
    if not errors:
        return
    group = ExceptionGroup("faults could not be undone", list(errors.values()))
    if not all(isinstance(error, HarnessError | OSError) for error in errors.values()):
        raise group  # the error is a defect of the harness or of a plug-in
    raise InfrastructureError(
        "; ".join(f"{what} could not be undone: {error}" for what, error in errors.items())
    ) from group


def _described(injection: Injection, hit: Sequence[str]) -> Injection:
    assert injection.what is not None
    note = f"{_DID[injection.what.word]} {', '.join(hit)}"
    return msgspec.structs.replace(injection, targets=tuple(hit), note=note)


def _keeps_down(what: FaultKind | None, *, lived_with_it: bool) -> bool:
    """Whether a fault keeps a node down, or would make the node exit again at once.

    A wrong clock does not count if the node ran with it.
    """
    if isinstance(what, Clock) and lived_with_it:
        return False
    return isinstance(what, Kill | Restart) or (isinstance(what, Condition) and what.may_end)
