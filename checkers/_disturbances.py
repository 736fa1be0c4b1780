"""What a judgement about time may rest on: the one rule for liveness and for bounds.

A bound is a promise of the target. While the harness itself did not run, or its engine or its host
failed, nobody can say what the target would have done in that time. So:

* done within its bound: `valid`, whatever went on beside it, since a disturbance delays and never
  hastens;
* not done, or done after its bound, in a window that no disturbance overlaps: the caller convicts
  if it is sure that the bound was passed (it looked again after the bound), else it says `unknown`;
* not done, or done late, in a window that a disturbance overlaps: `unknown`, and the disturbance is
  cited.

Disturbances are facts of the history (the table in `harness.ops`): `heartbeat-gap`,
`infrastructure`, and `node-exit` by the host or by nobody knows whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from checkers._sentences import seconds
from harness.ops import History, Op
from harness.timeline import how_ended

__all__ = ["FOREIGN_EXITS", "Disturbance", "citation", "disturbances_of"]

CITED_MAX = 5
NS_PER_S = 1_000_000_000
FOREIGN_EXITS = frozenset({"host", "unknown"})
"""Who may have ended a node so that neither the nemesis nor the target has to answer for it."""

HEALING = frozenset({"heal-core", "heal-all"})
"""The phases that start nodes which are down: those of the core, and all."""


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
    found = [
        *(_gap(op) for op in history.facts("heartbeat-gap")),
        *_failures(history),
        *_exits(history),
    ]
    return tuple(sorted(found, key=lambda disturbance: disturbance.operation))


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
    return int(value * NS_PER_S) if isinstance(value, int | float) else op.time


def _gap(op: Op) -> Disturbance:
    begin_ns, end_ns = _time_ns(op, "from_s"), _time_ns(op, "to_s")
    text = f"the harness did not run from {seconds(begin_ns)} s to {seconds(end_ns)} s"
    return Disturbance(op.f, begin_ns, end_ns, None, text, op.index)


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
