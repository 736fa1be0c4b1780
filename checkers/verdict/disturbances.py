"""Reads the disturbances of a run, and decides what a missed bound means under disturbances.

A disturbance is a failure outside the target: the harness itself did not run, or its container
engine or its host failed. A bound is the target's promise to do something within a time.

* If the target kept the bound, the verdict is `valid`, since a disturbance can only delay it.
* If the target missed the bound without a disturbance, the verdict is `invalid` if the harness
  checked again after the bound, and otherwise `unknown`.
* If the target missed the bound and a disturbance overlaps the window, the verdict is `unknown`,
  and the reason cites the disturbance.

Disturbances are facts of the history (the table in `harness.ops`): `heartbeat-gap`, `starvation`,
`infrastructure`, and `node-exit` by the host or by an unknown sender. The first two (`TIMED`) have
a start and an end, and excuse only the time between them: if there was an undisturbed stretch as
long as the bound, the target had all the time that it was promised. Starvation for less than a
tenth of the bound excuses nothing, since it is normal when nodes start together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from checkers.verdict.sentences import seconds
from harness.errors import listed
from harness.ops import NS_PER_S, History, Op
from harness.timeline import how_ended

CITED_MAX = 5
BREAK_NS_MIN = NS_PER_S // 10
"""If the gap between two intervals of processor starvation is shorter, they count as one."""
FOREIGN_EXITS = frozenset({"host", "unknown"})
"""Causes of a node's end for which neither the nemesis nor the target is responsible."""

TIMED = frozenset({"heartbeat-gap", "starvation"})
"""The kinds of disturbances with a known start and end.

Of an infrastructure failure, only the time of its discovery is known.
"""
STARVED_SHARE_MIN = 0.1
"""The share of a bound for which nodes must starve before starvation excuses a delay."""

HEALING = frozenset({"heal-core", "heal-all"})
"""The phases in which the harness restarts nodes that are down: first the core, then all."""


class Disturbance(msgspec.Struct, frozen=True):
    """A failure outside the target from `begin_ns` to `end_ns`, on `node` or everywhere."""

    kind: str
    begin_ns: int
    end_ns: int
    node: str | None
    text: str  # a clause such as "the harness did not run from 81.2 s to 144.3 s"
    operation: int

    def overlaps(self, begin_ns: int, end_ns: int) -> bool:
        """Return whether the disturbance overlaps the window (both ends included)."""
        return self.begin_ns <= end_ns and begin_ns <= self.end_ns

    def concerns(self, node: str) -> bool:
        return self.node is None or self.node == node


def disturbances_of(history: History) -> tuple[Disturbance, ...]:
    """Return all disturbances that the history records, in the order of the history."""
    every = [
        *(_gap(op) for op in history.facts("heartbeat-gap")),
        *_starvations(history),
        *_failures(history),
        *_exits(history),
    ]
    return tuple(sorted(every, key=lambda disturbance: disturbance.operation))


def excuses(
    disturbances: Iterable[Disturbance],
    begin_ns: int,
    end_ns: int,
    bound_s: float | None,
    tolerated_s: float,
    *,
    at_end: bool,
) -> list[Disturbance]:
    """Return the disturbances that may explain why the target exceeded a bound in a window.

    The result is empty if all disturbances are of the kinds `TIMED` and an undisturbed stretch is
    longer than the bound. With `at_end`, the target was checked only at the end of the window, so
    only the last stretch counts. Starvation for less than `tolerated_s` explains nothing.
    """
    within = [each for each in disturbances if each.overlaps(begin_ns, end_ns)]
    if bound_s is None or any(each.kind not in TIMED for each in within):
        return within
    free_ns, last_ns = 0, begin_ns
    for each in sorted(within, key=lambda each: each.begin_ns):
        free_ns = max(free_ns, each.begin_ns - last_ns)
        last_ns = max(last_ns, each.end_ns)
    if max(0 if at_end else free_ns, end_ns - last_ns) > bound_s * NS_PER_S:
        return []
    if starved_ns(within, begin_ns, end_ns) < tolerated_s * NS_PER_S:
        return [each for each in within if each.kind != "starvation"]
    return within


def starved_ns(disturbances: Iterable[Disturbance], begin_ns: int, end_ns: int) -> int:
    """Return the nanoseconds of starvation in the window from `begin_ns` to `end_ns`."""
    starved = (each for each in disturbances if each.kind == "starvation")
    return sum(max(0, min(each.end_ns, end_ns) - max(each.begin_ns, begin_ns)) for each in starved)


def weight(disturbances: Iterable[Disturbance]) -> int:
    """Return how many faults `disturbances` count as.

    Each disturbance counts as one fault. Starvation counts as one fault per second.
    """
    return sum(
        max(1, round((each.end_ns - each.begin_ns) / NS_PER_S)) if each.kind == "starvation" else 1
        for each in disturbances
    )


def citation(disturbances: Iterable[Disturbance]) -> str:
    """Join the clauses of the first few disturbances, and add the number of further ones."""
    texts = [disturbance.text for disturbance in disturbances]
    more = f"; and {len(texts) - CITED_MAX} more" if len(texts) > CITED_MAX else ""
    return "; ".join(texts[:CITED_MAX]) + more


def _field(op: Op, name: str) -> object:
    return op.value.get(name) if isinstance(op.value, dict) else None


def _node(op: Op) -> str | None:
    node = _field(op, "node")
    return None if node is None else str(node)


def _time_ns(op: Op, name: str) -> int:
    value = _field(op, name)
    if isinstance(value, int | float) and math.isfinite(value):
        return int(value * NS_PER_S)
    return op.time


def _gap(op: Op) -> Disturbance:
    begin_ns, end_ns = _time_ns(op, "from_s"), _time_ns(op, "to_s")
    text = f"the harness did not run from {seconds(begin_ns)} s to {seconds(end_ns)} s"
    return Disturbance(op.f, begin_ns, end_ns, None, text, op.index)


def _starvations(history: History) -> Iterator[Disturbance]:
    spans = [
        (_time_ns(op, "from_s"), _time_ns(op, "to_s"), op) for op in history.facts("starvation")
    ]
    joined: list[tuple[int, int, int, dict[str, None]]] = []
    for begin_ns, end_ns, op in sorted(spans, key=lambda one: one[0]):
        waited = _field(op, "waited_s")
        names = dict.fromkeys(
            map(str, waited if isinstance(waited, dict) and waited else ["a node"])
        )
        if joined and begin_ns - joined[-1][1] < BREAK_NS_MIN:
            first_ns, last_ns, index, before = joined.pop()
            joined.append((first_ns, max(last_ns, end_ns), index, before | names))
        else:
            joined.append((begin_ns, end_ns, op.index, names))
    for begin_ns, end_ns, index, names in joined:
        text = (
            f"from {seconds(begin_ns)} to {seconds(end_ns)} s there were too few processors: "
            f"{listed(list(names), limit=CITED_MAX)} waited for one"
        )
        yield Disturbance("starvation", begin_ns, end_ns, None, text, index)


def _failures(history: History) -> Iterator[Disturbance]:
    """Yield the failures of the infrastructure. Most have no duration.

    A failure marked `lasts` ends with a fact marked `over` for the same node, or with the run.
    """
    lasting: dict[str | None, Op] = {}
    for op in history.facts("infrastructure"):
        node = _node(op)
        if _field(op, "over"):
            if (begin := lasting.pop(node, None)) is not None:
                yield _failure(begin, op.time)
        elif _field(op, "lasts"):
            lasting.setdefault(node, op)
        else:
            yield _failure(op, op.time)
    for begin in lasting.values():
        yield _failure(begin, history[-1].time)


def _failure(op: Op, end_ns: int) -> Disturbance:
    node, what = _node(op), _field(op, "what")
    where = "" if node is None else f" for node {node}"
    text = f"at {seconds(op.time)} s the infrastructure failed{where}: {what}"
    if _field(op, "lasts"):
        text = f"from {seconds(op.time)} to {seconds(end_ns)} s {what}"
    return Disturbance(op.f, op.time, end_ns, node, text, op.index)


def _exits(history: History) -> Iterator[Disturbance]:
    """Yield a disturbance for each exit of a node by the host or an unknown sender.

    It lasts until the harness heals by restarting nodes, or to the end of the run.
    """
    heals = [op.time for op in history.facts("phase") if _field(op, "phase") in HEALING]
    for op in history.facts("node-exit"):
        if _field(op, "by") in FOREIGN_EXITS:
            text = f"at {seconds(op.time)} s node {_node(op)} was ended {how_ended(op)}"
            end_ns = next((time for time in heals if time > op.time), history[-1].time)
            yield Disturbance(op.f, op.time, end_ns, _node(op), text, op.index)
