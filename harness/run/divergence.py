"""Compares the digests that replicas publish during a run.

A target may report `checkpoint` events with a `group`, an `index` and any strings. The strings are
digests of a replica's log and state after entry `index` of the group. Every replica that passes an
index must report the same strings. A dump at the end of the run would miss a difference if the
replica was wiped, overwritten or repaired later. TigerBeetle's simulator compares its replicas in
this way, too (`testing/cluster/state_checker.zig`).

Other whole numbers in the event, with or without an index, show the progress of the group, such as
the version of its schema. For each number, the time at which the group first reached it is kept, so
that checkers can verify answers such as "all replicas have version 5".

The leaders of a group are compared, too: a group must have at most one leader per term.

Only differences enter the history, so the store of a run hardly grows. Only equal indices are
compared: a node that is behind, or half recovered, is not wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

POINTS_MAX: Final = 200_000
"""The maximum number of remembered values. Above it the oldest values are forgotten, and the
summary counts them."""
DIVERGENCES_MAX: Final = 20
REACHED_MAX: Final = 50_000
"""The maximum number of progress steps. A run with more steps reports none, since a checker would
draw false conclusions from an incomplete list."""


LEADER: Final = "leader"
"""The subject of the divergence "two nodes lead a group in one term". Its index is the term."""


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
    """Compares the `checkpoint` events and the leaders of a run, as the events arrive."""

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
        """Stop comparing this group.

        An administrator overruled its votes, so the group may have two histories from now on.
        """
        self._given_up[group] = None

    def lead(self, node: str, group: str, term: int, sent_ns: int) -> list[dict[str, Any]]:
        """Record that `node` leads `group` in `term`; returns a divergence if two nodes do."""
        if group in self._given_up:
            return []
        key = (group, term, LEADER)
        first = self._first.get(key)
        if first is None:
            self._elections += 1
            self._remember(key, (node, node, sent_ns))
            return []
        if first[0] == node or not self._is_new(group, LEADER):
            return []
        return [_divergence(key, first, (node, node, sent_ns))]

    def take(self, node: str, data: Mapping[str, Any], sent_ns: int) -> list[dict[str, Any]]:
        """Compare one event of `node` with earlier events; returns contradictions for the history.

        Each field of a group is reported only once, since all later values differ, too. Events
        without a group are ignored.
        """
        group, index = data.get("group"), data.get("index")
        if not isinstance(group, str):
            return []
        self._told += 1
        divergences = []
        for what, value in data.items():
            if isinstance(value, int) and what != "index":
                self._reach(what, group, value, sent_ns)
            if what == "group" or not isinstance(value, str) or not isinstance(index, int):
                continue
            if group in self._given_up:
                continue
            key = (group, index, what)
            first = self._first.get(key)
            if first is None:
                self._remember(key, (value, node, sent_ns))
                continue
            self._compared += 1
            if first[0] != value and self._is_new(group, what):
                divergences.append(_divergence(key, first, (value, node, sent_ns)))
        return divergences

    def summary(self) -> dict[str, Any] | None:
        """Return counts of values, and `reached` as {field: {group: [[number, ns]...]}}.

        Returns `None` if no node reported a checkpoint or a leader.
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

    def _reach(self, what: str, group: str, value: int, sent_ns: int) -> None:
        steps = self._reached.setdefault(what, {}).setdefault(group, [])
        if steps and steps[-1][0] >= value:
            if steps[-1][0] == value and sent_ns < steps[-1][1]:  # sent earlier but arrived later
                steps[-1] = (value, sent_ns)
            return
        self._steps += 1
        if self._steps <= REACHED_MAX:
            steps.append((value, sent_ns))

    def _remember(self, key: tuple[str, int, str], announced: tuple[str, str, int]) -> None:
        if len(self._first) >= POINTS_MAX:
            del self._first[next(iter(self._first))]
            self._forgotten += 1
        self._first[key] = announced

    def _is_new(self, group: str, what: str) -> bool:
        if (group, what) in self._diverged or len(self._diverged) >= DIVERGENCES_MAX:
            return False
        self._diverged[group, what] = None
        return True
