"""Carrying out the fault schedule: one task a planned fault, aimed at the moment it happens.

What was broken and what it did goes into the history as ops of the nemesis. Faults still active
when the chaos phase ends stay so, until the run heals them in its own order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, cast

import msgspec

from harness.case import Damage, Fault, Trigger
from harness.cluster import CLIENT, Bite, Cluster, ClusterEvent, Link, is_client
from harness.env import ClientEnv
from harness.errors import TargetError, listed, shown
from harness.faults.ledger import Injection, Ledger
from harness.nodes.faults import Aim, FaultKind, LinkFault, Operate
from harness.ops import NEMESIS, NS_PER_S, OpType
from harness.plugins import Nemesis, NodeRole, Roles, Scene, System
from harness.run.operations import do_operation
from harness.run.recorder import Recorder
from harness.support.interrupts import blaming

LEASE_GRACE_S: Final = 120.0
"""How long after its planned end a fault may be healed by its lease alone: longer than the phases
that heal it in order, shorter than anyone's patience."""

AIM_TIMEOUT_S: Final = 5.0
"""How long a fault waits for a leader at least; a planned one does until its time is over."""
AIM_POLL_S: Final = 0.2
NS_PER_MS: Final = 1_000_000
_NODES_SHOWN_MAX: Final = 20
OTHER: Final = "other"
"""The kind of a fault that never took aim."""


class _Active(msgspec.Struct, frozen=True):
    fault: Fault
    injection: Injection


class FaultConductor:
    """Runs a schedule against a cluster."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        env: ClientEnv,
        system: System,
        nemeses: Mapping[str, Nemesis],
        recorder: Recorder,
        observe_roles: Callable[[Roles], None],
        damage: Damage = "minority",
        groups: Callable[[], Coroutine[Any, Any, Mapping[str, Roles]]] | None = None,
    ) -> None:
        """Nothing happens before `run`; `observe_roles` gets the roles that each fault saw.

        `groups` asks the system for them, where more than its own method is needed.
        """
        self._cluster = cluster
        self.ledger = Ledger(cluster, env, damage=damage)
        self._env = env
        self._system = system
        self._nemeses = nemeses
        self._recorder = recorder
        self._observe_roles = observe_roles
        self._groups = system.groups if groups is None else groups
        self._over = asyncio.Event()
        self._active: dict[str, _Active] = {}

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Carry out `faults`, times relative to now; returns when all are over or `end` is called.

        Raises what an injection raised: a fault that does not take is an infrastructure error.
        """
        begin_ns = self._recorder.now_ns()
        tasks = [
            self._env.spawn(self._one(fault, begin_ns), name=f"fault-{fault.id}")
            for fault in faults
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def end(self) -> None:
        """Begin no more faults and leave the active ones as they are."""
        self._over.set()

    async def heal_active(self) -> None:
        """Heal what is still broken, in the order it was broken, and record what it did."""
        for fault_id in list(self._active):
            await self.heal(fault_id)

    async def strike(self, fault: Fault, *, aim_s: float = AIM_TIMEOUT_S) -> Injection:
        """Inject `fault` now and leave it so, whatever its times say; `heal` undoes it.

        One that needs a leader waits `aim_s` for one. No targets means that it missed, or that the
        chaos phase ended while it took aim.
        """
        nemesis = self._nemeses[fault.nemesis]
        with blaming(f"the nemesis {fault.nemesis!r}: needs_leader()"):
            needs, group = _needs_leader(nemesis, fault)
        scene = await self._look(aim_s if needs else 0.0, group)
        if self._over.is_set():
            return Injection(targets=(), note="missed: the chaos phase ended")
        return await self._inject(fault, scene)

    async def _inject(
        self, fault: Fault, scene: Scene, event: ClusterEvent | None = None
    ) -> Injection:
        lease_s = fault.duration_ns / NS_PER_S + LEASE_GRACE_S
        what = f"the nemesis {fault.nemesis!r}: aim()"
        with blaming(what):
            aim = self._nemeses[fault.nemesis].aim(scene, fault)
        self._check_aim(what, aim)
        if isinstance(aim.what, Operate) and aim.targets:
            return await self._operate(fault, aim.what, aim.targets, scene)
        groups = {name: roles.candidates for name, roles in scene.groups.items()}
        injection = await self.ledger.inject(aim, lease_s=lease_s, groups=groups)
        data: dict[str, Any] = {"kind": aim.what.word, "leader": scene.roles().leader}
        clients = _clients_of(aim, scene)
        if clients and injection.targets:
            only = all(is_client(link.source) or is_client(link.destination) for link in aim.links)
            data |= {"clients": clients, **({"clients_only": True} if only else {})}
        if event is not None:
            said_ns = event.time_ns - event.late_ns
            data["after_event_ms"] = (self._env.clock.monotonic_ns() - said_ns) / NS_PER_MS
        if injection.what is not None:
            data["what"] = msgspec.to_builtins(injection.what)
            data |= {"may_end": True} if injection.what.may_end else {}
        data |= {"refused": True} if injection.refused else {}
        data |= {"disks": list(injection.disks)} if injection.disks else {}
        self._note(fault, "inject", injection, data)
        if injection.targets:
            self._active[fault.id] = _Active(fault, injection)
        return injection

    def _check_aim(self, what: str, aim: object) -> None:
        """Raise `TargetError` where `what` returned no aim, or one at nodes that are not there."""
        if not isinstance(aim, Aim) or not isinstance(aim.what, FaultKind):
            raise TargetError(f"{what} returned {shown(aim)}, which is not an Aim with a fault")
        if not all(isinstance(each, tuple | list) for each in (aim.targets, aim.links)):
            raise TargetError(f"{what} returned {shown(aim)}; targets and links must be tuples")
        if not isinstance(aim.note, str) or not all(isinstance(each, Link) for each in aim.links):
            raise TargetError(f"{what} returned {shown(aim)}; the note must be text, links Links")
        nodes = self._cluster.nodes
        ends = [end for link in aim.links for end in (link.source, link.destination)]
        for name in (*aim.targets, *ends):
            if not isinstance(name, str) or (name not in nodes and not is_client(name)):
                known = listed(list(nodes), limit=_NODES_SHOWN_MAX)
                raise TargetError(f"{what} names {shown(name)}, which is no node; it has {known}")
        if aim.targets and isinstance(aim.what, LinkFault) and not aim.links:
            raise TargetError(f"{what} returned {shown(aim)}, which hits links and names none")

    async def _operate(
        self, fault: Fault, what: Operate, nodes: tuple[str, ...], scene: Scene
    ) -> Injection:
        """Have an operation done, from its `inject` to its `heal`. Nothing is left to undo."""
        begun = Injection(targets=nodes, note=f"{what.name} on {', '.join(nodes)}")
        leader = scene.roles().leader
        data = {"kind": what.word, "leader": leader, "what": msgspec.to_builtins(what)}
        self._note(fault, "inject", begun, data)
        done = await do_operation(what, nodes, self._cluster, self._system)
        over = msgspec.structs.replace(begun, note=done or f"nobody did {what.name}")
        bite = {"count": int(done is not None), "unit": "operations"}
        self._note(fault, "heal", over, {"bite": bite})
        return over if done is not None else Injection(targets=(), note=over.note)

    async def heal(self, fault_id: str) -> Bite | None:
        """Heal one fault and say what it did; `None` where it is not active (any more)."""
        active = self._active.get(fault_id)
        if active is None:
            return None
        bite = await self.ledger.heal(active.injection.id)
        if self._active.pop(fault_id, None) is None:
            return bite  # another healed it meanwhile, and has noted so
        data: dict[str, Any] = {"bite": {"count": bite.count, "unit": bite.unit}}
        data |= {"undone": True} if bite.undone else {}
        self._note(active.fault, "heal", active.injection, data)
        return bite

    async def _one(self, fault: Fault, begin_ns: int) -> None:
        await self._until(begin_ns + fault.at_ns)
        if self._over.is_set():
            return
        with blaming(f"the nemesis {fault.nemesis!r}: trigger_of()"):
            trigger = trigger_of(self._nemeses[fault.nemesis], fault)
        if trigger is not None:
            injection = await self._ambush(fault, trigger)
        else:
            aim_s = max(AIM_TIMEOUT_S, fault.duration_ns / NS_PER_S)
            injection = await self.strike(fault, aim_s=aim_s)
        if not injection.targets:
            return
        await self._until(self._recorder.now_ns() + fault.duration_ns)
        if not self._over.is_set():
            await self.heal(fault.id)

    async def _ambush(self, fault: Fault, trigger: Trigger) -> Injection:
        """Inject `fault` at the event that it waits for, if that comes before the chaos ends.

        Nobody can be asked who leads at that moment, so what is known when the wait begins is kept
        up to date by the nodes that say so themselves.
        """
        scene = await self._look(0.0)
        sprung = asyncio.get_running_loop().create_future()
        left = trigger.nth

        async def follow(event: ClusterEvent) -> None:
            nonlocal scene
            scene = _told_by(event, scene)

        async def spring(event: ClusterEvent) -> None:
            nonlocal left
            left -= trigger.matches(event.kind, event.data)
            if left or sprung.done() or self._over.is_set():
                return
            left = -1  # no later one
            try:
                at_it = msgspec.structs.replace(scene, it=event.node)
                sprung.set_result(await self._inject(fault, at_it, event))
            except Exception as error:  # noqa: BLE001 - raised where the fault is waited for
                sprung.set_exception(error)

        traps = [self._cluster.trap("leader", follow), self._cluster.trap(trigger.event, spring)]
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({sprung, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            for remove in traps:
                remove()
        if sprung.done() or left < 0:  # it may be at work while the chaos ends
            return cast("Injection", await sprung)
        missed = Injection(
            targets=(), note=f"missed: no event {trigger.event} as it waited for came"
        )
        self._note(fault, "inject", missed, {"kind": OTHER, "leader": scene.roles().leader})
        return missed

    async def _look(self, patience_s: float, group: str = "") -> Scene:
        """What is there now, and who leads; waits so long for somebody to."""
        deadline_ns = self._recorder.now_ns() + int(patience_s * NS_PER_S)
        while True:
            groups = await self._groups()
            scene = Scene(self._cluster.nodes, groups, clients=self._cluster.clients)
            led = scene.roles(group).leader is not None
            if led or self._recorder.now_ns() >= deadline_ns:
                break
            await self._until(self._recorder.now_ns() + int(AIM_POLL_S * NS_PER_S))
            if self._over.is_set():
                break
        self._observe_roles(scene.roles())
        return scene

    async def _until(self, time_ns: int) -> None:
        """Sleep until `time_ns` of the run, or until the chaos phase is over."""
        left_s = (time_ns - self._recorder.now_ns()) / NS_PER_S
        if left_s <= 0:
            return
        try:
            async with asyncio.timeout(left_s):
                await self._over.wait()
        except TimeoutError:
            return

    def _note(self, fault: Fault, action: str, injection: Injection, data: dict[str, Any]) -> None:
        value = {
            "action": action,
            "fault": fault.id,
            "targets": list(injection.targets),
            "note": injection.note,
            **data,
        }
        self._recorder.record(NEMESIS, OpType.INFO, fault.nemesis, value)


def trigger_of(nemesis: Nemesis, fault: Fault) -> Trigger | None:
    """The event of a node that the fault waits for, if it does."""
    trigger = nemesis.trigger_of(fault)
    if trigger is not None and not isinstance(trigger, Trigger):
        raise TypeError(f"{shown(trigger)} is not a Trigger")
    return trigger


def _clients_of(aim: Aim, scene: Scene) -> list[str]:
    """The clients on whose links it is: checkers take no answer of theirs for an answer to all."""
    ends = {end for link in aim.links for end in (link.source, link.destination)}
    found = [end for end in scene.clients if end in ends]
    return [CLIENT] if CLIENT in ends else found


def _told_by(event: ClusterEvent, scene: Scene) -> Scene:
    """The scene after a node has said that it leads, in the group that it is a member of."""
    term = event.data.get("term", 0)
    roles = scene.roles()
    if event.node not in roles.candidates or not isinstance(term, int):
        return scene
    led = Roles({**roles.by_node, event.node: NodeRole("leader", term)}, roles.candidates)
    return msgspec.structs.replace(scene, groups={**scene.groups, next(iter(scene.groups)): led})


def _needs_leader(nemesis: Nemesis, fault: Fault) -> tuple[bool, str]:
    """Whether this fault aims by who leads, and in which group if not in the first."""
    answer = nemesis.needs_leader(fault)
    return bool(answer), answer if isinstance(answer, str) else ""
