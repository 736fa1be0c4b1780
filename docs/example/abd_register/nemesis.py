"""Nemeses of our own, since the built-in ones do not fit a register without a leader.

`kill-leader` would never hit, and `partition-halves` cuts links between nodes that never talk to
each other. (The harness notices: such runs are `unknown`, since nothing was proven.)
"""

import random
from typing import Any

from harness.case import Fault
from harness.cluster import CLIENT, Bite, Capability, Cluster, Link
from harness.plugins import Injection, Roles
from nemesis.base import LinkNemesis, PeriodicNemesis


def drawn_node(cluster: Cluster, fault: Fault) -> str:
    """The node that the schedule chose, whatever nodes there are."""
    return list(cluster.nodes)[fault.args.get("draw", 0) % len(cluster.nodes)]


class KillNode(PeriodicNemesis):
    """Kills any node and starts it again, on the disk it left behind."""

    name = "kill-node"
    doc = "kill any node (SIGKILL), start it again later on its disk"
    requires = frozenset({Capability.KILL, Capability.START})

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        return {"draw": rng.randrange(2**31)}

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        node = drawn_node(cluster, fault)
        if not await cluster.kill(node):
            return Injection(targets=(), note=f"missed: {node} was down")
        return Injection(targets=(node,), note=f"killed {node}")

    async def heal(self, cluster: Cluster, injection: Injection) -> Bite:
        for node in injection.targets:
            await cluster.start(node)
        return Bite(len(injection.targets), "processes")


class CutNode(LinkNemesis):
    """Cuts any node off from the clients; healing it is inherited."""

    name = "cut-node"
    doc = "cut any node off from all clients"

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        return {"draw": rng.randrange(2**31)}

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        node = drawn_node(cluster, fault)
        cut = await cluster.cut(Link.between([CLIENT], [node]), lease_s=lease_s)
        return Injection(targets=(node,), note=f"cut {node} off", fault_ids=(cut,))
