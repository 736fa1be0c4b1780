"""Disturbances of a run, and the rule for judging liveness and bounds under disturbances.

A bound is a promise of the target. While the harness itself did not run, or its engine or its host
failed, it is unknown what the target would have done in that time. The rule is:

* If the target kept the bound, the verdict is `valid` under any disturbance, since a disturbance
  can only delay the target.
* If the target missed the bound and no disturbance overlaps the window, the verdict is `invalid` if
  the caller is sure that the bound was exceeded (it checked again after the bound), and `unknown`
  otherwise.
* If the target missed the bound and a disturbance overlaps the window, the verdict is `unknown`,
  and the reason cites the disturbance.

Disturbances are facts of the history (the table in `harness.ops`): `heartbeat-gap`, `starvation`,
`infrastructure`, and `node-exit` by the host or by an unknown sender.

Two kinds have a start and an end, and excuse only the time between them (see `excuses`): if a
stretch as long as the bound was undisturbed, the target had its full bound in that stretch.
Starvation for less than a tenth of the bound excuses nothing, since bounds are wide enough for it:
nodes that start together starve that much.
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
"""The maximum gap between two consecutive measurements of processor starvation."""
FOREIGN_EXITS = frozenset({"host", "unknown"})
"""Causes of a node's end for which neither the nemesis nor the target is responsible."""

TIMED = frozenset({"heartbeat-gap", "starvation"})
"""The kinds whose time is known. Of an infrastructure failure only the discovery is known."""
STARVED_SHARE_MIN = 0.1
"""The share of a bound for which nodes may starve without being excused, as bounds are wide."""

HEALING = frozenset({"heal-core", "heal-all"})
"""The phases that start the core's nodes that are down, and all nodes that are down."""


class Disturbance(msgspec.Struct, frozen=True):
    """A failure outside the target from `begin_ns` to `end_ns`, on `node` or everywhere."""

    kind: str  # the fact's name
    begin_ns: int
    end_ns: int
    node: str | None
    text: str  # a clause: "the harness did not run from 81.2 s to 144.3 s"
    operation: int  # the fact's index in the history

    def overlaps(self, begin_ns: int, end_ns: int) -> bool:
        """Whether the disturbance and this window (both ends included) overlap."""
        return self.begin_ns <= end_ns and begin_ns <= self.end_ns

    def concerns(self, node: str) -> bool:
        return self.node is None or self.node == node


def disturbances_of(history: History) -> tuple[Disturbance, ...]:
    """Every disturbance that the history records, in the history's order."""
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
    """The disturbances in this window that may explain why the target exceeded a bound in it.

    None explains it if a stretch as long as the bound was undisturbed. If the window was silent
    throughout, any such stretch counts; if only a check `at_end` proves anything, only the last
    stretch counts. Starvation for less than `tolerated_s` explains nothing.
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
    """How long nodes starved in this window."""
    starved = (each for each in disturbances if each.kind == "starvation")
    return sum(max(0, min(each.end_ns, end_ns) - max(each.begin_ns, begin_ns)) for each in starved)


def weight(disturbances: Iterable[Disturbance]) -> int:
    """The number of faults that they count as: one each, and starvation one for each second."""
    return sum(
        max(1, round((each.end_ns - each.begin_ns) / NS_PER_S)) if each.kind == "starvation" else 1
        for each in disturbances
    )


def citation(disturbances: Iterable[Disturbance]) -> str:
    """The clauses of the first few disturbances, joined, and how many more there are."""
    texts = [disturbance.text for disturbance in disturbances]
    more = f"; and {len(texts) - CITED_MAX} more" if len(texts) > CITED_MAX else ""
    return "; ".join(texts[:CITED_MAX]) + more


def _field(op: Op, name: str) -> object:
    return op.value.get(name) if isinstance(op.value, dict) else None


def _node(op: Op) -> str | None:
    node = _field(op, "node")
    return None if node is None else str(node)


def _time_ns(op: Op, name: str) -> int:
    """A moment that the fact gives in seconds; the fact's own time if it gives none."""
    value = _field(op, name)
    if isinstance(value, int | float) and math.isfinite(value):
        return int(value * NS_PER_S)
    return op.time


def _gap(op: Op) -> Disturbance:
    begin_ns, end_ns = _time_ns(op, "from_s"), _time_ns(op, "to_s")
    text = f"the harness did not run from {seconds(begin_ns)} s to {seconds(end_ns)} s"
    return Disturbance(op.f, begin_ns, end_ns, None, text, op.index)


def _starvations(history: History) -> Iterator[Disturbance]:
    """One disturbance for each uninterrupted interval, for all nodes that starved in it."""
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
    """Most failures are of one moment; a lasting one ends when it is over, or with the run."""
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
    """The node is down until the harness restarts it while healing, or to the end of the run."""
    heals = [op.time for op in history.facts("phase") if _field(op, "phase") in HEALING]
    for op in history.facts("node-exit"):
        if _field(op, "by") in FOREIGN_EXITS:
            text = f"at {seconds(op.time)} s node {_node(op)} was ended {how_ended(op)}"
            end_ns = next((time for time in heals if time > op.time), history[-1].time)
            yield Disturbance(op.f, op.time, end_ns, _node(op), text, op.index)
