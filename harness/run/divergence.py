"""What replicas say of themselves along a run, held against what others said of the same place.

A target may announce `checkpoint` events {group, index, and any texts}: "after entry `index` of
this group my log has this digest, my state that one". Whoever was ever there must have said the
same, also a node that was wiped, overwritten or repaired since: what a dump at the end no longer
shows is seen here. TigerBeetle's simulator compares its replicas so (`testing/cluster/
state_checker.zig`).

Whole numbers besides the index (which may then be left out) are what the group has reached: a
version of its schema, say. It is kept when anybody first had each, so that an answer "all have it"
can be held against it.

Who leads a group in a term is compared likewise, whatever group it is: there is one.

Of the rest only what differs is kept for the history, since what is equal says nothing more; so
the store of a run hardly grows. Equal indices alone are compared: a node that is behind, or half
recovered, has said nothing wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

POINTS_MAX: Final = 200_000
"""Places remembered; beyond, the oldest are forgotten, and the summary says how many were."""
DIVERGENCES_MAX: Final = 20
REACHED_MAX: Final = 50_000
"""Steps forward that are kept; beyond, none are: one that is missing would prove the opposite."""


LEADER: Final = "leader"
"""What a divergence is about where two nodes lead a group in one term, its index."""


def _divergence(
    key: tuple[str, int, str], first: tuple[str, str, int], second: tuple[str, str, int]
) -> dict[str, Any]:
    group, index, what = key
    return {
        "group": group,
        "index": index,
        "what": what,
        "nodes": [first[1], second[1]],
        "values": [first[0], second[0]],
        "times_ns": [first[2], second[2]],
    }


class Checkpoints:
    """Compares checkpoints as they come."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, int, str], tuple[str, str, int]] = {}
        self._diverged: dict[tuple[str, str], None] = {}
        self._reached: dict[str, dict[str, list[tuple[int, int]]]] = {}
        self._steps = 0
        self._told = 0
        self._compared = 0
        self._forgotten = 0
        self._elections = 0
        self._given_up: dict[str, None] = {}

    def give_up(self, group: str) -> None:
        """An administrator overruled the votes of this group: there may be two of it from now on,
        so nothing more is compared.
        """
        self._given_up[group] = None

    def lead(self, node: str, group: str, term: int, said_ns: int) -> list[dict[str, Any]]:
        """`node` leads `group` in `term`, which nobody else may: one more thing to compare."""
        if group in self._given_up:
            return []
        key = (group, term, LEADER)
        first = self._first.get(key)
        if first is None:
            self._elections += 1
            self._remember(key, (node, node, said_ns))
            return []
        if first[0] == node or not self._is_new(group, LEADER):
            return []
        return [_divergence(key, first, (node, node, said_ns))]

    def take(self, node: str, data: Mapping[str, Any], said_ns: int) -> list[dict[str, Any]]:
        """One event of `node`; returns what contradicts an earlier one, for the history.

        A group is named once for each thing that it differs in: whatever follows differs as well.
        What is not such an event is left alone.
        """
        group, index = data.get("group"), data.get("index")
        if not isinstance(group, str):
            return []
        self._told += 1
        found = []
        for what, value in data.items():
            if isinstance(value, int) and what != "index":
                self._reach(what, group, value, said_ns)
            if what == "group" or not isinstance(value, str) or not isinstance(index, int):
                continue
            if group in self._given_up:
                continue
            key = (group, index, what)
            first = self._first.get(key)
            if first is None:
                self._remember(key, (value, node, said_ns))
                continue
            self._compared += 1
            if first[0] != value and self._is_new(group, what):
                found.append(_divergence(key, first, (value, node, said_ns)))
        return found

    def summary(self) -> dict[str, Any] | None:
        """How much was compared, and what was `reached` when: {what: {group: [[number, ns]...]}}.

        `None` where nobody announced anything.
        """
        if not self._told and not self._elections:
            return None
        reached = self._reached if self._steps <= REACHED_MAX else {}
        return {
            "reached": {
                what: {group: list(steps) for group, steps in groups.items()}
                for what, groups in reached.items()
            },
            "told": self._told,
            "compared": self._compared,
            "diverged": len(self._diverged),
            "forgotten": self._forgotten,
            **({"elections": self._elections} if self._elections else {}),
        }

    def _reach(self, what: str, group: str, value: int, said_ns: int) -> None:
        steps = self._reached.setdefault(what, {}).setdefault(group, [])
        if steps and steps[-1][0] >= value:
            if steps[-1][0] == value and said_ns < steps[-1][1]:  # said before, heard after
                steps[-1] = (value, said_ns)
            return
        self._steps += 1
        if self._steps <= REACHED_MAX:
            steps.append((value, said_ns))

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
