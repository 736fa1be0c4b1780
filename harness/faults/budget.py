"""The damage budget: a limit, so that faults never destroy data that a majority has synced.

A replicated system promises to survive the loss of a minority's data. After a greater loss, a
failure would not be the system's fault. A node is charged when a fault destroys its synced data
(`damages` of the fault's kind). Unsynced data may be lost on all nodes at once. A node may recover
its data from other replicas, but the harness cannot see that, so the node stays charged for the
whole run. Another fault on a charged node costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.cluster import NodeSpec
from harness.errors import listed

_COPIES: Final = 3
"""The assumed number of replicas of any data on nodes outside all observed groups. (Nodes of one
role may have the replicas of groups that are not observed.)"""
_NAMED_MAX: Final = 8


class DamageBudget:
    """The nodes whose data were destroyed in one run, and the limit on further damage."""

    def __init__(self, specs: Mapping[str, NodeSpec], *, majority: bool) -> None:
        """Start with no damaged node. `majority` means that there is no limit."""
        self._specs = specs
        self._majority = majority
        self._damaged: set[str] = set()

    def charge(self, nodes: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str | None:
        """Charge `nodes` for their destroyed data, unless this would damage a majority of a group.

        `groups` has the members of each observed group. Returns the reason if the charge is
        refused, else `None`.
        """
        new = self._damaged.union(nodes) - self._damaged
        for name, (members, limit) in self._limits(groups).items():
            hit = [node for node in members if node in self._damaged or node in new]
            if not self._majority and len(hit) > limit and not new.isdisjoint(members):
                return (
                    f"refused: it would damage the data of {listed(hit, limit=_NAMED_MAX)}, "
                    f"{len(hit)} of the {len(members)} nodes of {name}, where at most {limit} may "
                    "be damaged in one run; --damage majority allows it"
                )
        self._damaged |= new
        return None

    def _limits(
        self, groups: Mapping[str, Sequence[str]]
    ) -> Mapping[str, tuple[Sequence[str], int]]:
        """Map each group to its members and to how many of them may be damaged."""
        observed = {node for members in groups.values() for node in members}
        limits = {name: (members, len(members) // 2) for name, members in groups.items()}
        roles: dict[str, list[str]] = {}
        for node, spec in self._specs.items():
            if node not in observed:
                roles.setdefault(spec.role, []).append(node)
        for role, alike in roles.items():
            limits[f"the role {role}"] = (alike, min(len(alike), _COPIES) // 2)
        return limits
