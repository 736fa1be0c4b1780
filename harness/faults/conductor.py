"""Carrying out the fault schedule: one task a planned fault, aimed at the moment it happens.

What was broken and what it did goes into the history as ops of the nemesis. Faults still active
when the chaos phase ends stay so, until the run heals them in its own order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from harness.case import NS_PER_S, Fault
from harness.cluster import Bite, Cluster
from harness.env import ClientEnv
from harness.ops import NEMESIS, OpType
from harness.plugins import Injection, Nemesis, Roles, Target, TargetSettings
from harness.recorder import Recorder

__all__ = ["LEASE_GRACE_S", "FaultConductor"]

LEASE_GRACE_S: Final = 120.0
"""How long after its planned end a fault may be healed by its lease alone: longer than the phases
that heal it in order, shorter than anyone's patience."""

AIM_TIMEOUT_S: Final = 5.0
"""How long a fault waits for a leader at least; a planned one does until its time is over."""
AIM_POLL_S: Final = 0.2


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
        target: Target,
        settings: TargetSettings,
        nemeses: Mapping[str, Nemesis],
        recorder: Recorder,
        observe_roles: Callable[[Roles], None],
    ) -> None:
        """Nothing happens before `run`; `observe_roles` gets the roles that each fault saw."""
        self._cluster = cluster
        self._env = env
        self._target = target
        self._settings = settings
        self._nemeses = nemeses
        self._recorder = recorder
        self._observe_roles = observe_roles
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
        for active in list(self._active.values()):
            await self._heal(active)

    async def strike(self, fault: Fault, *, aim_s: float = AIM_TIMEOUT_S) -> Injection:
        """Inject `fault` now and leave it so, whatever its times say; `heal` undoes it.

        One that needs a leader waits `aim_s` for one. No targets means that it missed, or that the
        chaos phase ended while it took aim.
        """
        nemesis = self._nemeses[fault.nemesis]
        roles = await self._aim(aim_s if _needs_leader(nemesis, fault) else 0.0)
        self._observe_roles(roles)
        if self._over.is_set():
            return Injection(targets=(), note="missed: the chaos phase ended")
        lease_s = fault.duration_ns / NS_PER_S + LEASE_GRACE_S
        injection = await nemesis.inject(self._cluster, roles, fault, lease_s=lease_s)
        data = {"kind": getattr(nemesis, "kind", "other"), "leader": roles.leader}
        if injection.what is not None:
            what = msgspec.to_builtins(injection.what)
            data |= {"kind": injection.what.word, "what": what}
        self._note(fault, "inject", injection, data)
        if injection.targets:
            self._active[fault.id] = _Active(fault, injection)
        return injection

    async def heal(self, fault_id: str) -> Bite | None:
        """Heal one fault and say what it did; `None` where it is not active (any more)."""
        active = self._active.get(fault_id)
        return None if active is None else await self._heal(active)

    async def _one(self, fault: Fault, begin_ns: int) -> None:
        await self._until(begin_ns + fault.at_ns)
        if self._over.is_set():
            return
        aim_s = max(AIM_TIMEOUT_S, fault.duration_ns / NS_PER_S)
        injection = await self.strike(fault, aim_s=aim_s)
        if not injection.targets:
            return
        await self._until(self._recorder.now_ns() + fault.duration_ns)
        if not self._over.is_set():
            await self.heal(fault.id)

    async def _aim(self, patience_s: float) -> Roles:
        """Who leads now; waits so long for somebody to."""
        deadline_ns = self._recorder.now_ns() + int(patience_s * NS_PER_S)
        while True:
            roles = await self._target.roles(self._env, self._settings)
            if roles.leader is not None or self._recorder.now_ns() >= deadline_ns:
                return roles
            await self._until(self._recorder.now_ns() + int(AIM_POLL_S * NS_PER_S))
            if self._over.is_set():
                return roles

    async def _heal(self, active: _Active) -> Bite | None:
        if self._active.pop(active.fault.id, None) is None:
            return None
        bite = await self._nemeses[active.fault.nemesis].heal(self._cluster, active.injection)
        data = {"bite": {"count": bite.count, "unit": bite.unit}}
        self._note(active.fault, "heal", active.injection, data)
        return bite

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


def _needs_leader(nemesis: Nemesis, fault: Fault) -> bool:
    asks: Callable[[Fault], bool] | None = getattr(nemesis, "needs_leader_for", None)
    return getattr(nemesis, "needs_leader", True) if asks is None else asks(fault)
