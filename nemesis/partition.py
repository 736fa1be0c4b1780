"""Partitions: cut nodes from each other while clients still reach both sides.

Clients on both sides matter: it is they who can be told a stale story by a leader that does not
know yet that it was deposed. Small families of partitions chosen by role already suffice to find
most partition bugs (Majumdar and Niksic, POPL 2018, doi 10.1145/3158134).
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

from harness.case import Fault
from harness.cluster import Cluster, Link
from harness.plugins import Injection, Roles
from nemesis.base import MISSED, LinkNemesis, draw_node, drawn_node

__all__ = ["PartitionHalves", "PartitionLeader", "PartitionRandomNode"]


class PartitionLeader(LinkNemesis):
    """Cuts the leader off from all other nodes that can lead, half of the time from all others."""

    name: ClassVar[str] = "partition-leader"
    doc: ClassVar[str] = "cut the leader off from its peers; clients still reach both sides"
    needs_leader: ClassVar[bool] = True

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        """Whether nodes that cannot lead are on the leader's side (`true`) or the other."""
        return {"keep_others": rng.randrange(2) == 0}

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Cut the node that leads now, in both directions."""
        leader = roles.leader
        if leader is None:
            return MISSED
        peers = [name for name in roles.candidates if name != leader]
        others = [name for name in cluster.nodes if name not in roles.candidates]
        cut_from = peers if fault.args.get("keep_others") else peers + others
        if not cut_from:
            return Injection(targets=(), note=f"missed: {leader} has no peer to be cut from")
        fault_id = await cluster.cut(Link.between([leader], cut_from), lease_s=lease_s)
        return Injection(
            targets=(leader,),
            note=f"cut leader {leader} off from {', '.join(cut_from)}",
            fault_ids=(fault_id,),
        )


class PartitionHalves(LinkNemesis):
    """Cuts the nodes into two random halves; of the nodes that can lead one side has a majority."""

    name: ClassVar[str] = "partition-halves"
    doc: ClassVar[str] = "cut the cluster into a majority and a minority half, drawn at random"

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        """The seed of the draw."""
        return draw_node(rng)

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Split candidates and other nodes, each about in half, and cut across."""
        rng = random.Random(int(fault.args.get("draw", 0)))
        left: list[str] = []
        right: list[str] = []
        candidates = [name for name in cluster.nodes if name in roles.candidates]
        others = [name for name in cluster.nodes if name not in roles.candidates]
        for group in (candidates, others):
            order = _shuffled(group, rng)
            left += order[: (len(order) + 1) // 2]
            right += order[(len(order) + 1) // 2 :]
        if not left or not right:
            return Injection(targets=(), note="missed: too few nodes for two halves")
        fault_id = await cluster.cut(Link.between(left, right), lease_s=lease_s)
        return Injection(
            targets=tuple(sorted(right)),
            note=f"cut {', '.join(sorted(left))} from {', '.join(sorted(right))}",
            fault_ids=(fault_id,),
        )


class PartitionRandomNode(LinkNemesis):
    """Cuts one random node, leader or not, off from all others."""

    name: ClassVar[str] = "partition-random-node"
    doc: ClassVar[str] = "cut one random node off from all others"

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        """The seed of the draw."""
        return draw_node(rng)

    async def inject(
        self, cluster: Cluster, roles: Roles, fault: Fault, *, lease_s: float
    ) -> Injection:
        """Cut the drawn node, in both directions."""
        del roles
        names = list(cluster.nodes)
        target = drawn_node(names, fault)
        others = [name for name in names if name != target]
        if not others:
            return Injection(targets=(), note=f"missed: {target} is alone")
        fault_id = await cluster.cut(Link.between([target], others), lease_s=lease_s)
        return Injection(
            targets=(target,), note=f"cut {target} off from all others", fault_ids=(fault_id,)
        )


def _shuffled(names: list[str], rng: random.Random) -> list[str]:
    """A Fisher-Yates shuffle on `randrange` alone, so that draws are stable across versions."""
    order = list(names)
    for last in range(len(order) - 1, 0, -1):
        other = rng.randrange(last + 1)
        order[last], order[other] = order[other], order[last]
    return order
