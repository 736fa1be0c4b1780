"""Kills: processes end at once and are started again on the disks they left behind.

Composed kills overlap. Each starts again only what it ended itself: a node that another fault
holds down stays down until that fault heals.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Sequence
from typing import Any, ClassVar

from harness.case import Fault
from harness.cluster import Bite, Capability, Cluster
from harness.plugins import Injection, Roles
from nemesis.base import MISSED, PeriodicNemesis, draw_node, drawn_node

__all__ = [
    "KillAll",
    "KillLeader",
    "KillRandom",
    "KillTserver",
    "PowerCutAll",
    "PowerCutLeader",
]

KILL: frozenset[Capability] = frozenset({Capability.KILL, Capability.START})
POWER_CUT = KILL | {Capability.LOSE_UNSYNCED, Capability.TORN_WRITE}


class _Kill(PeriodicNemesis, abc.ABC):
    """SIGKILLs what `aim` chooses; what it had written, even un-synced, stays in the page cache."""

    kind: ClassVar[str] = "kill"
    requires: ClassVar[frozenset[Capability]] = KILL

    @abc.abstractmethod
    def aim(self, cluster: Cluster, roles: Roles, fault: Fault) -> Sequence[str]:
        """The nodes to kill."""

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Kill them, one right after the other."""
        del lease_s  # a dead node needs no lease: there is nothing left running
        aimed = self.aim(cluster, roles, fault)
        if not aimed:
            return MISSED
        lose = self.kind == "power-cut"
        killed = [node for node in aimed if await cluster.kill(node, lose_unsynced=lose, torn=lose)]
        if not killed:
            return Injection(targets=(), note=f"missed: {', '.join(aimed)} already down")
        what = "cut the power of" if lose else "killed"
        return Injection(targets=tuple(killed), note=f"{what} {', '.join(killed)}")

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        """Start them again."""
        for target in injection.targets:
            await cluster.start(target)
        return Bite(len(injection.targets), "processes")


class KillLeader(_Kill):
    """Kills the node that leads now."""

    name: ClassVar[str] = "kill-leader"
    doc: ClassVar[str] = "kill the leader (SIGKILL), start it again later on its disk"
    needs_leader: ClassVar[bool] = True

    def aim(self, cluster: Cluster, roles: Roles, fault: Fault) -> Sequence[str]:
        """The leader, if there is one."""
        del cluster, fault
        return () if roles.leader is None else (roles.leader,)


class KillRandom(_Kill):
    """Kills one random node, of whatever role."""

    name: ClassVar[str] = "kill-random"
    doc: ClassVar[str] = "kill one random node (SIGKILL), start it again later on its disk"

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        """The seed of the draw."""
        return draw_node(rng)

    def aim(self, cluster: Cluster, roles: Roles, fault: Fault) -> Sequence[str]:
        """The drawn one of all nodes."""
        del roles
        return (drawn_node(list(cluster.nodes), fault),)


class KillTserver(KillRandom):
    """Kills one random node of those that cannot lead: of Kudu, a tablet server."""

    name: ClassVar[str] = "kill-tserver"
    doc: ClassVar[str] = "kill one random tablet server (or other node that never leads)"
    suits_all: ClassVar[bool] = False

    def aim(self, cluster: Cluster, roles: Roles, fault: Fault) -> Sequence[str]:
        """The drawn one; nobody where every node can lead."""
        others = [name for name in cluster.nodes if name not in roles.candidates]
        return (drawn_node(others, fault),) if others else ()


class KillAll(_Kill):
    """Kills every node of every role: all that is left is what they wrote."""

    name: ClassVar[str] = "kill-all"
    doc: ClassVar[str] = "kill every node (SIGKILL) at once, start all again later"

    def aim(self, cluster: Cluster, roles: Roles, fault: Fault) -> Sequence[str]:
        """All nodes."""
        del roles, fault
        return tuple(cluster.nodes)


class PowerCutLeader(KillLeader):
    """Kills the leader as a power cut would: what it never synced may be gone or torn.

    Only a target that syncs before it answers can be blamed for what is lost; Kudu's defaults
    (`log_force_fsync_all=false`) promise nothing here.
    """

    name: ClassVar[str] = "power-cut-leader"
    doc: ClassVar[str] = "kill the leader and lose what it had not synced, start it again later"
    kind: ClassVar[str] = "power-cut"
    requires: ClassVar[frozenset[Capability]] = POWER_CUT


class PowerCutAll(KillAll):
    """Cuts the power of every node at once: only what was synced somewhere is sure to be left."""

    name: ClassVar[str] = "power-cut-all"
    doc: ClassVar[str] = "kill every node at once and lose what was not synced, start all later"
    kind: ClassVar[str] = "power-cut"
    requires: ClassVar[frozenset[Capability]] = POWER_CUT
