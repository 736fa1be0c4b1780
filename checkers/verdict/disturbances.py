"""Disturbances of a run, and the one rule by which liveness and bounds are judged under them.

A bound is a promise of the target. While the harness itself did not run, or its engine or its host
failed, it is unknown what the target would have done in that time. So:

* done within its bound: `valid` under any disturbance, since a disturbance delays and never
  hastens;
* not done, or done after its bound, in a window that no disturbance overlaps: the caller convicts
  if it is sure that the bound was passed (it looked again after the bound), else it says `unknown`;
* not done, or done late, in a window that a disturbance overlaps: `unknown`, and the disturbance is
  cited.

Disturbances are facts of the history (the table in `harness.ops`): `heartbeat-gap`, `starvation`,
`infrastructure`, and `node-exit` by the host or by an unknown sender.

Two of them have a begin and an end, and excuse no more than that (`excuses`): the target had its
bound again where as much time went by undisturbed, and bounds are wide enough for nodes that had to
wait for a processor in less than a tenth of it, as nodes that start together do.
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
"""Two looks at the processors lie this close, one after the other."""
FOREIGN_EXITS = frozenset({"host", "unknown"})
"""Who may have ended a node so that neither the nemesis nor the target has to answer for it."""

TIMED = frozenset({"heartbeat-gap", "starvation"})
"""Kinds with a known time. Of a failure only its discovery is known."""
STARVED_SHARE_MIN = 0.1
"""Of a bound, which is wide: nodes that starve for less of it did not pass it for that."""

HEALING = frozenset({"heal-core", "heal-all"})
"""The phases that start the core's nodes that are down, and all of them."""


class Disturbance(msgspec.Struct, frozen=True):
    """Something of ours that went wrong from `begin_ns` to `end_ns`, on `node` or everywhere."""

    kind: str  # the fact's name
    begin_ns: int
    end_ns: int
    node: str | None
    text: str  # a clause: "the harness did not run from 81.2 s to 144.3 s"
    operation: int  # the fact's index in the history

    def overlaps(self, begin_ns: int, end_ns: int) -> bool:
        """Whether it and this window (both ends included) have a moment in common."""
        return self.begin_ns <= end_ns and begin_ns <= self.end_ns

    def concerns(self, node: str) -> bool:
        """Whether it may have touched this node."""
        return self.node is None or self.node == node


def disturbances_of(history: History) -> tuple[Disturbance, ...]:
    """Every disturbance that the history records, in its order."""
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
    """Those in this window that may be why a bound of the target was passed in it.

    None is, where the bound passed undisturbed: in any stretch of a window that was silent all
    along, in the last one where only a look `at_end` proves anything. Nodes that starved for less
    than `tolerated_s` did not pass it for that.
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
    """For how much of this time nodes starved."""
    starved = (each for each in disturbances if each.kind == "starvation")
    return sum(max(0, min(each.end_ns, end_ns) - max(each.begin_ns, begin_ns)) for each in starved)


def weight(disturbances: Iterable[Disturbance]) -> int:
    """To how many faults they come up: one each, and starvation one for each second."""
    return sum(
        max(1, round((each.end_ns - each.begin_ns) / NS_PER_S)) if each.kind == "starvation" else 1
        for each in disturbances
    )


def citation(disturbances: Iterable[Disturbance]) -> str:
    """The clauses of a few of them, joined; how many more there are."""
    texts = [disturbance.text for disturbance in disturbances]
    more = f"; and {len(texts) - CITED_MAX} more" if len(texts) > CITED_MAX else ""
    return "; ".join(texts[:CITED_MAX]) + more


def _field(op: Op, name: str) -> object:
    return op.value.get(name) if isinstance(op.value, dict) else None


def _node(op: Op) -> str | None:
    node = _field(op, "node")
    return None if node is None else str(node)


def _time_ns(op: Op, name: str) -> int:
    """A moment that the fact tells in seconds; the fact's own time where it does not."""
    value = _field(op, name)
    if isinstance(value, int | float) and math.isfinite(value):
        return int(value * NS_PER_S)
    return op.time


def _gap(op: Op) -> Disturbance:
    begin_ns, end_ns = _time_ns(op, "from_s"), _time_ns(op, "to_s")
    text = f"the harness did not run from {seconds(begin_ns)} s to {seconds(end_ns)} s"
    return Disturbance(op.f, begin_ns, end_ns, None, text, op.index)


def _starvations(history: History) -> Iterator[Disturbance]:
    """One for each time without a break, for all nodes that starved in it."""
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
    """Most are of a moment; one that lasts does so until it is over, or to the end."""
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
    """The node is away until the harness starts it again, which it does to heal, or to the end."""
    heals = [op.time for op in history.facts("phase") if _field(op, "phase") in HEALING]
    for op in history.facts("node-exit"):
        if _field(op, "by") in FOREIGN_EXITS:
            text = f"at {seconds(op.time)} s node {_node(op)} was ended {how_ended(op)}"
            end_ns = next((time for time in heals if time > op.time), history[-1].time)
            yield Disturbance(op.f, op.time, end_ns, _node(op), text, op.index)
