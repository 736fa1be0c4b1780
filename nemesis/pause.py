"""Pauses: the leader's process stands still, as under a long collection or a stalled host."""

from __future__ import annotations

from typing import ClassVar

from harness.case import Fault
from harness.cluster import Bite, Capability, Cluster
from harness.plugins import Injection, Roles
from nemesis.base import MISSED, PeriodicNemesis

__all__ = ["PauseLeader"]


class PauseLeader(PeriodicNemesis):
    """Freezes the leader and thaws it after the others had time to elect another."""

    name: ClassVar[str] = "pause-leader"
    doc: ClassVar[str] = "freeze the leader (SIGSTOP), thaw it later"
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PAUSE})

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Freeze the node that leads now."""
        del fault
        leader = roles.leader
        if leader is None:
            return MISSED
        if not await cluster.pause(leader, lease_s=lease_s):
            return Injection(targets=(), note=f"missed: {leader} was not running")
        return Injection(targets=(leader,), note=f"paused leader {leader}")

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        """Thaw it."""
        for target in injection.targets:
            await cluster.resume(target)
        return Bite(len(injection.targets), "processes")
