"""Pauses: a process stands still, as under a long collection or a stalled host."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from harness.case import Fault
from harness.cluster import Bite, Capability, Cluster
from harness.plugins import Injection, Roles
from nemesis.base import MISSED, PeriodicNemesis, draw_node, drawn_node

__all__ = ["PauseLeader", "PauseRandom"]


class PauseLeader(PeriodicNemesis):
    """Freezes the leader and thaws it after the others had time to elect another."""

    name: ClassVar[str] = "pause-leader"
    doc: ClassVar[str] = "freeze the leader (SIGSTOP), thaw it later"
    kind: ClassVar[str] = "pause"
    needs_leader: ClassVar[bool] = True
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PAUSE})

    def aim(self, cluster: Cluster, roles: Roles, fault: Fault) -> str | None:
        """The leader, if there is one."""
        del cluster, fault
        return roles.leader

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Freeze the node aimed at."""
        target = self.aim(cluster, roles, fault)
        if target is None:
            return MISSED
        if not await cluster.pause(target, lease_s=lease_s):
            return Injection(targets=(), note=f"missed: {target} was not running")
        return Injection(targets=(target,), note=f"paused {target}")

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        """Thaw it."""
        for target in injection.targets:
            await cluster.resume(target)
        return Bite(len(injection.targets), "processes")


class PauseRandom(PauseLeader):
    """Freezes one random node, of whatever role."""

    name: ClassVar[str] = "pause-random"
    doc: ClassVar[str] = "freeze one random node (SIGSTOP), thaw it later"
    needs_leader: ClassVar[bool] = False

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        """The seed of the draw."""
        return draw_node(rng)

    def aim(self, cluster: Cluster, roles: Roles, fault: Fault) -> str | None:
        """The drawn one of all nodes."""
        del roles
        return drawn_node(list(cluster.nodes), fault)
