"""What replicas say of themselves along a run, held against what others said of the same place.

A target may announce `checkpoint` events {group, index, and any texts}: "after entry `index` of
this group my log has this digest, my state that one". Whoever was ever there must have said the
same, also a node that was wiped, overwritten or repaired since: what a dump at the end no longer
shows is seen here. TigerBeetle's simulator compares its replicas so (`testing/cluster/
state_checker.zig`).

Only what differs is kept for the history, since what is equal says nothing more; so a run's store
does not grow with the number of checkpoints. Equal indices alone are compared: a node that is
behind, or half recovered, has said nothing wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["DIVERGENCES_MAX", "POINTS_MAX", "Checkpoints"]

POINTS_MAX: Final = 200_000
"""Places remembered; beyond, the oldest are forgotten, and the summary says how many were."""
DIVERGENCES_MAX: Final = 20


class Checkpoints:
    """Compares checkpoints as they come."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, int, str], tuple[str, str, int]] = {}
        self._diverged: dict[tuple[str, str], None] = {}
        self._told = 0
        self._compared = 0
        self._forgotten = 0

    def take(self, node: str, data: Mapping[str, Any], now_ns: int) -> list[dict[str, Any]]:
        """One event of `node`; returns what contradicts an earlier one, for the history.

        A group is named once for each thing that it differs in: whatever follows differs as well.
        What is not such an event is left alone.
        """
        group, index = data.get("group"), data.get("index")
        if not isinstance(group, str) or not isinstance(index, int):
            return []
        self._told += 1
        found = []
        for what, value in data.items():
            if what == "group" or not isinstance(value, str):
                continue
            key = (group, index, what)
            first = self._first.get(key)
            if first is None:
                self._remember(key, (value, node, now_ns))
                continue
            self._compared += 1
            if first[0] != value and self._is_new(group, what):
                found.append(
                    {
                        "group": group,
                        "index": index,
                        "what": what,
                        "nodes": [first[1], node],
                        "values": [first[0], value],
                        "times_ns": [first[2], now_ns],
                    }
                )
        return found

    def summary(self) -> dict[str, int] | None:
        """How much was compared; `None` where nobody announced anything."""
        if not self._told:
            return None
        return {
            "told": self._told,
            "compared": self._compared,
            "diverged": len(self._diverged),
            "forgotten": self._forgotten,
        }

    def _remember(self, key: tuple[str, int, str], said: tuple[str, str, int]) -> None:
        if len(self._first) >= POINTS_MAX:
            del self._first[next(iter(self._first))]
            self._forgotten += 1
        self._first[key] = said

    def _is_new(self, group: str, what: str) -> bool:
        if (group, what) in self._diverged or len(self._diverged) >= DIVERGENCES_MAX:
            return False
        self._diverged[group, what] = None
        return True
