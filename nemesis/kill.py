"""Kills: the leader's process ends at once and is started again on the disk it left behind."""

from __future__ import annotations

from typing import ClassVar

from harness.case import Fault
from harness.cluster import Bite, Capability, Cluster
from harness.plugins import Injection, Roles
from nemesis.base import MISSED, PeriodicNemesis

__all__ = ["KillLeader", "PowerCutLeader"]


class KillLeader(PeriodicNemesis):
    """SIGKILLs the leader; what it had written, even un-synced, survives in the page cache."""

    name: ClassVar[str] = "kill-leader"
    doc: ClassVar[str] = "kill the leader (SIGKILL), start it again later on its disk"
    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.KILL, Capability.START})
    lose_unsynced: ClassVar[bool] = False

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Kill the node that leads now."""
        del fault, lease_s  # a dead node needs no lease: there is nothing left running
        leader = roles.leader
        if leader is None:
            return MISSED
        killed = await cluster.kill(
            leader, lose_unsynced=self.lose_unsynced, torn=self.lose_unsynced
        )
        if not killed:
            return Injection(targets=(), note=f"missed: {leader} was already down")
        return Injection(targets=(leader,), note=f"killed leader {leader}")

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        """Start it again."""
        for target in injection.targets:
            await cluster.start(target)
        return Bite(len(injection.targets), "processes")


class PowerCutLeader(KillLeader):
    """Kills the leader as a power cut would: what it never synced may be gone or torn.

    Only a target that syncs before it answers can be blamed for what is lost; Kudu's defaults
    (`log_force_fsync_all=false`) promise nothing here.
    """

    name: ClassVar[str] = "power-cut-leader"
    doc: ClassVar[str] = "kill the leader and lose what it had not synced, start it again later"
    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.KILL, Capability.START, Capability.LOSE_UNSYNCED, Capability.TORN_WRITE}
    )
    lose_unsynced: ClassVar[bool] = True
