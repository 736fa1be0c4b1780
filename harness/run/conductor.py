"""The conductor of the fault schedule.

It runs one task per planned fault, and chooses the targets of a fault when the fault begins.
Injections and heals go into the history as ops of the nemesis, under the id of the planned fault.
Faults that are active at the end of the chaos phase stay active until the run heals them in its own
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from harness.case import Damage, Fault, Trigger
from harness.cluster import CLIENT, Bite, ClusterEvent, Controls, Link, is_client
from harness.env import ClientEnv
from harness.errors import TargetError, listed, shown
from harness.faults.ledger import Injection, Ledger
from harness.nodes.faults import Aim, FaultKind, LinkFault, Operate
from harness.ops import NEMESIS, NS_PER_MS, NS_PER_S, OpType
from harness.plugins import Nemesis, NodeRole, Roles, Scene, System
from harness.run.operations import do_operation
from harness.run.recorder import Recorder
from harness.support.interrupts import blaming

LEASE_GRACE_S: Final = 120.0
"""The time from the planned end of a fault to the end of its lease, when the fault is healed in any
case. It is longer than the phases that heal faults in order, and shorter than a user's patience."""

WITHOUT_END_S: Final = 1e8
"""The lease of a fault without a time limit: three years. So in effect such a fault ends only by a
heal, or when the process that injected it dies."""
AIM_TIMEOUT_S: Final = 5.0
"""How long a fault waits for a leader, unless its planned duration is longer."""
AIM_POLL_S: Final = 0.2
_NODES_SHOWN_MAX: Final = 20
OTHER: Final = "other"
"""The kind that is recorded for a fault whose targets were never chosen."""


class FaultConductor:
    """Runs a schedule of faults against a cluster."""

    def __init__(
        self,
        *,
        cluster: Controls,
        env: ClientEnv,
        system: System,
        nemeses: Mapping[str, Nemesis],
        recorder: Recorder,
        observe_roles: Callable[[Roles], None],
        damage: Damage = "minority",
        groups: Callable[[], Coroutine[Any, Any, Mapping[str, Roles]]] | None = None,
    ) -> None:
        """`observe_roles` gets the roles of the nodes whenever they were read for a fault.

        `groups` reads the replica groups; the default is `system.groups`.
        """
        self._cluster = cluster
        self.ledger = Ledger(cluster, env, damage=damage)
        self.lease_grace_s = LEASE_GRACE_S
        """the time from the planned end of a fault to the end of its lease"""
        self._env = env
        self._system = system
        self._nemeses = nemeses
        self._recorder = recorder
        self._observe_roles = observe_roles
        self._groups = system.groups if groups is None else groups
        self._over = asyncio.Event()

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Carry out `faults` at their times, counted from now.

        Returns when all faults have ended or `end` is called. Raises the error of the first
        injection that failed. A fault without a target is no failure.
        """
        self.ledger.expect(fault.id for fault in faults)
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
        """Begin no more faults. Active faults stay active."""
        self._over.set()

    def reopen(self) -> None:
        """Allow injections again after `end`, for faults that a user injects by hand."""
        self._over.clear()

    async def strike(self, fault: Fault, *, aim_s: float = AIM_TIMEOUT_S) -> Injection:
        """Inject `fault` now, regardless of its planned time, and keep it active until `heal`.

        A fault that needs a leader waits up to `aim_s` for one. A result without targets means that
        the fault missed, or that the chaos phase ended while targets were being chosen.
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
        lease_s = fault.duration_ns / NS_PER_S + self.lease_grace_s
        what = f"the nemesis {fault.nemesis!r}: aim()"
        with blaming(what):
            aim = self._nemeses[fault.nemesis].aim(scene, fault)
        self._check_aim(what, aim)
        if isinstance(aim.what, Operate) and aim.targets:
            return await self._operate(fault, aim.what, aim.targets, scene)
        groups = {name: roles.candidates for name, roles in scene.groups.items()}
        injection = await self.ledger.inject(
            aim,
            lease_s=lease_s,
            groups=groups,
            fault_id=fault.id,
            on_heal=partial(self._note_heal, fault),
        )
        data: dict[str, Any] = {"kind": aim.what.word, "leader": scene.roles().leader}
        clients = _clients_of(aim, scene)
        if clients and injection.targets:
            only = all(is_client(link.source) or is_client(link.destination) for link in aim.links)
            data |= {"clients": clients, **({"clients_only": True} if only else {})}
        if event is not None:
            after_ns = self._env.clock.monotonic_ns() - (event.time_ns - event.late_ns)
            data["after_event_ms"] = after_ns / NS_PER_MS
        if injection.what is not None:
            data["what"] = msgspec.to_builtins(injection.what)
            data |= {"may_end": True} if injection.what.may_end else {}
        data |= {"refused": True} if injection.refused else {}
        data |= {"disks": list(injection.disks)} if injection.disks else {}
        self._note(fault, "inject", injection, data)
        return injection

    def _check_aim(self, what: str, aim: object) -> None:
        """Raise `TargetError` unless `aim`, a result of `what`, is an `Aim` on known nodes."""
        if not isinstance(aim, Aim) or not isinstance(aim.what, FaultKind):
            raise TargetError(f"{what} returned {shown(aim)}, which is not an Aim with a fault")
        if not all(isinstance(each, tuple | list) for each in (aim.targets, aim.links)):
            raise TargetError(f"{what} returned {shown(aim)}; targets and links must be tuples")
        if not isinstance(aim.note, str) or not all(isinstance(each, Link) for each in aim.links):
            raise TargetError(f"{what} returned {shown(aim)}; note must be text, links be Links")
        nodes = self._cluster.nodes
        ends = [end for link in aim.links for end in (link.source, link.destination)]
        for name in (*aim.targets, *ends):
            if not isinstance(name, str) or (name not in nodes and not is_client(name)):
                names = listed(list(nodes), limit=_NODES_SHOWN_MAX)
                raise TargetError(
                    f"{what} names {shown(name)}, which is not a node; the nodes are {names}"
                )
        if aim.targets and isinstance(aim.what, LinkFault) and not aim.links:
            raise TargetError(f"{what} returned {shown(aim)}, which hits links but names no link")

    async def _operate(
        self, fault: Fault, what: Operate, nodes: tuple[str, ...], scene: Scene
    ) -> Injection:
        """Carry out an administrator's operation, and record its ops `inject` and `heal`."""
        begun = Injection(targets=nodes, note=f"{what.name} on {', '.join(nodes)}")
        leader = scene.roles().leader
        data = {"kind": what.word, "leader": leader, "what": msgspec.to_builtins(what)}
        self._note(fault, "inject", begun, data)
        done = await do_operation(what, nodes, self._cluster, self._system)
        over = msgspec.structs.replace(begun, note=done or f"{what.name} was not done")
        bite = {"count": int(done is not None), "unit": "operations"}
        self._note(fault, "heal", over, {"bite": bite})
        return over if done is not None else Injection(targets=(), note=over.note)

    async def heal(self, fault_id: str) -> Bite | None:
        """Heal one fault and return its effect; `None` if the fault is not active."""
        return await self.ledger.heal(fault_id) if fault_id in self.ledger.active else None

    def _note_heal(self, fault: Fault, injection: Injection, bite: Bite) -> None:
        data: dict[str, Any] = {"bite": {"count": bite.count, "unit": bite.unit}}
        data |= {"undone": True} if bite.undone else {}
        self._note(fault, "heal", injection, data)

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
        """Inject `fault` at the event that triggers it, or `after_ns` later.

        If the chaos phase ends first, the fault is not injected. When the event occurs, there is no
        time to ask nodes for the leader. So the roles are read when the wait begins, and
        announcements of new leaders update them.
        """
        scene = await self._look(0.0)
        sprung = asyncio.get_running_loop().create_future()
        left = trigger.nth

        async def follow(event: ClusterEvent) -> None:
            nonlocal scene
            scene = _updated_by(event, scene)

        async def spring(event: ClusterEvent) -> None:
            nonlocal left
            left -= trigger.matches(event.kind, event.data)
            if left or sprung.done() or self._over.is_set():
                return
            left = -1  # prevents later events from injecting the fault again
            at_it = msgspec.structs.replace(scene, it=event.node)
            # Not in the trap: the node is stopped while a trap runs, and must not wait for
            # `after_ns`.
            if trigger.after_ns:
                sprung.set_result((at_it, event))
                return
            try:
                sprung.set_result(await self._inject(fault, at_it, event))
            except Exception as error:  # noqa: BLE001 - the waiting task raises the error
                sprung.set_exception(error)

        traps = [self._cluster.trap("leader", follow), self._cluster.trap(trigger.event, spring)]
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({sprung, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            for remove in traps:
                remove()
        if sprung.done() or left < 0:  # an injection may be in progress when the phase ends
            done: Injection | tuple[Scene, ClusterEvent] = await sprung
            if isinstance(done, Injection):
                return done
            scene, event = done
            event = msgspec.structs.replace(event, time_ns=event.time_ns + trigger.after_ns)
            left_ns = event.time_ns - event.late_ns - self._env.clock.monotonic_ns()
            await self._until(self._recorder.now_ns() + left_ns)
            if not self._over.is_set():
                return await self._inject(fault, scene, event)
        missed = Injection(
            targets=(), note=f"missed: no event {trigger.event} occurred as it describes"
        )
        self._note(fault, "inject", missed, {"kind": OTHER, "leader": scene.roles().leader})
        return missed

    async def _look(self, patience_s: float, group: str = "") -> Scene:
        """Read the nodes and their roles; wait up to `patience_s` for a leader."""
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
        """Sleep until `time_ns` of the run, or until the chaos phase ends."""
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
    """Return the event that triggers the fault; `None` if it begins at its planned time."""
    trigger = nemesis.trigger_of(fault)
    if trigger is not None and not isinstance(trigger, Trigger):
        raise TypeError(f"{shown(trigger)} is not a Trigger")
    return trigger


def _clients_of(aim: Aim, scene: Scene) -> list[str]:
    """Return the clients whose links `aim` affects.

    Checkers need to know them: if such a client gets no answer, this does not prove that a node
    failed.
    """
    ends = {end for link in aim.links for end in (link.source, link.destination)}
    return [CLIENT] if CLIENT in ends else [end for end in scene.clients if end in ends]


def _updated_by(event: ClusterEvent, scene: Scene) -> Scene:
    """Return `scene` with a new leader: the node whose `event` says that it leads."""
    term = event.data.get("term", 0)
    roles = scene.roles()
    if event.node not in roles.candidates or not isinstance(term, int):
        return scene
    led = Roles({**roles.by_node, event.node: NodeRole("leader", term)}, roles.candidates)
    return msgspec.structs.replace(scene, groups={**scene.groups, next(iter(scene.groups)): led})


def _needs_leader(nemesis: Nemesis, fault: Fault) -> tuple[bool, str]:
    """Return whether the fault's targets depend on a group's leader, and the group's name.

    An empty name means the first group.
    """
    answer = nemesis.needs_leader(fault)
    return bool(answer), answer if isinstance(answer, str) else ""
