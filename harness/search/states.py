"""Observes which states a run reaches, as digests, and when its events happen.

A guided search prefers cases that reached states which no earlier case reached. A state is a small
tuple of facts about one moment, from the history and the events of nodes (`Env.event`). Examples:

* a replica group: each node's role, how far its term and log position are behind, and whether it is
  down; with the kinds of active faults;
* a fault that begins, with the last event and the role of its target, or with a kind of operation
  in flight;
* an operation that ends, with its outcome and the active faults; or with its outcome, the number of
  its attempts and the state of a group that has a fixed name;
* two operations that overlap, with the active faults;
* two consecutive events, of one node or of two, with the magnitude of their count.

Names of nodes and random ids are left out, so that symmetric states are equal. This module works
for any target: an event belongs to a replica group if it has the fields `group` and `term`, and
reports a log position if it has `group` and `index`. Observing a run does not change it.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections import Counter, defaultdict
from typing import Any, Final

import msgspec

from harness.cluster import CHECKPOINT, ClusterEvent
from harness.ops import HARNESS, NEMESIS, Op, OpType, error_code

MOMENTS_MAX: Final = 8
"""How many moments are kept for each kind of event."""
KINDS_MAX: Final = 64
"""For how many kinds of events moments are kept. The rarest kinds are kept."""
ATTEMPTS_MAX: Final = 4
FAR: Final = 10
"""With this many missing log entries, a replica counts as far behind."""
_ID: Final = re.compile(r"[0-9a-f]{8,}|\d+")
_WIDTH: Final = 4
_MAGNITUDES: Final = (2, 4, 16, 64)


class Reached(msgspec.Struct, frozen=True):
    """The states that a run reached, as packed digests, and moments of its events.

    `moments` maps a kind of event to the first moments, in ns after the start of the chaos phase,
    at which a node reported it.
    """

    packed: str
    moments: dict[str, list[int]] = {}

    @property
    def states(self) -> tuple[int, ...]:
        """The digests of the states, 32 bits each, in ascending order."""
        data = base64.b85decode(self.packed)
        return tuple(
            int.from_bytes(data[at : at + _WIDTH], "big") for at in range(0, len(data), _WIDTH)
        )


class _Member:
    """A node in a replica group: its last event with a term, this term, and its log position."""

    __slots__ = ("index", "kind", "term")

    def __init__(self) -> None:
        self.kind = ""
        self.term = 0
        self.index = 0


class StateWatch:
    """Observes one run. `on_op` and `on_event` must be called with every op and event, in order."""

    def __init__(self) -> None:
        self._reached: set[tuple[Any, ...]] = set()
        self._pairs: Counter[tuple[Any, ...]] = Counter()
        self._groups: defaultdict[str, defaultdict[str, _Member]] = defaultdict(
            lambda: defaultdict(_Member)
        )
        self._summaries: dict[str, tuple[Any, ...]] = {}
        self._down: set[str] = set()
        self._faults: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._active: tuple[str, ...] = ()
        self._open: dict[int | str, str] = {}
        self._last: dict[str, str] = {}
        self._last_node = ""
        self._chaos_ns: int | None = None
        self._moments: dict[str, list[int]] = {}
        self._counts: Counter[str] = Counter()

    # --- ops and events ------------------------------------------------------------------------

    def on_op(self, op: Op) -> None:
        """Observe one op of the history."""
        if op.process == NEMESIS:
            self._on_fault(op)
        elif op.process == HARNESS:
            self._on_fact(op)
        elif op.type is OpType.INVOKE:
            for other in set(self._open.values()):
                self._reached.add(("overlap", *sorted((op.f, other)), self._active))
            self._open[op.process] = op.f
        else:
            self._open.pop(op.process, None)
            error = None if op.error is None else error_code(op.error)
            self._reached.add(("op", op.f, op.type.value, error, self._active))
            tries = min(len(op.attempts), ATTEMPTS_MAX)
            for name in self._named():
                state = self._summary(name)
                self._reached.add(("in", op.f, op.type.value, tries, name, state))

    def on_event(self, event: ClusterEvent, now_ns: int) -> None:
        """Observe one event of a node. It arrived `now_ns` after the start of the run."""
        data, node = event.data, event.node
        group, term, index = data.get("group"), data.get("term"), data.get("index")
        if isinstance(group, str):
            member = self._groups[group][node]
            if isinstance(index, int):
                member.index = max(member.index, index)
                self._summaries.pop(group, None)
            elif isinstance(term, int):
                member.kind, member.term = event.kind, term
                self._summaries.pop(group, None)
                self._reached.add(("group", self._summary(group), self._active))
        if event.kind == CHECKPOINT:
            return
        if event.by_driver:
            self._on_life(event)
        elif self._chaos_ns is not None:
            self._counts[event.kind] += 1
            moments = self._moments.setdefault(event.kind, [])
            if len(moments) < MOMENTS_MAX:
                moments.append(now_ns - self._chaos_ns)
        word = event.kind if not isinstance(group, str) else f"{event.kind}@{_masked(group)}"
        if node in self._last:
            self._pairs["then", self._last[node], word] += 1
        if self._last_node not in {"", node}:
            self._pairs["across", self._last[self._last_node], word] += 1
        self._last[node], self._last_node = word, node

    def _on_life(self, event: ClusterEvent) -> None:
        """Record that a node has ended or started."""
        if event.kind == "node-exited":
            self._down.add(event.node)
        elif event.kind == "node-started":
            self._down.discard(event.node)
        self._summaries.clear()

    def _on_fact(self, op: Op) -> None:
        value = op.value if isinstance(op.value, dict) else {}
        if op.f == "phase":
            self._chaos_ns = op.time if value.get("phase") == "chaos" else None
        words = (value.get(name) for name in ("phase", "ok", "what", "by", "expected"))
        self._reached.add(("fact", op.f, *(each for each in words if isinstance(each, str | bool))))

    def _on_fault(self, op: Op) -> None:
        value = op.value if isinstance(op.value, dict) else {}
        fault, kind = str(value.get("fault")), str(value.get("kind", op.f))
        if value.get("action") == "inject":
            targets = tuple(map(str, value.get("targets", ())))
            if not targets:
                self._reached.add(("missed", kind))
                return
            self._faults[fault] = (kind, targets)
            for node in targets:
                self._reached.add(("hit", kind, self._last.get(node)))
                self._reached.update(("in flight", kind, f) for f in self._open.values())
                for name, members in self._groups.items():
                    if node in members:
                        state = self._summary(name)
                        self._reached.add(("struck", kind, members[node].kind, state))
        else:
            self._faults.pop(fault, None)
        self._active = tuple(sorted({kind for kind, _ in self._faults.values()}))

    # --- states --------------------------------------------------------------------------------

    def _named(self) -> list[str]:
        return [name for name in self._groups if _ID.search(name) is None]

    def _summary(self, group: str) -> tuple[Any, ...]:
        """Return each node's role, relative term and position, and whether it is down."""
        summary = self._summaries.get(group)
        if summary is None:
            members = self._groups[group]
            term = max(member.term for member in members.values())
            index = max(member.index for member in members.values())
            summary = tuple(
                sorted(
                    (
                        member.kind,
                        min(term - member.term, 2),
                        _behind(index - member.index),
                        node in self._down,
                    )
                    for node, member in members.items()
                )
            )
            self._summaries[group] = summary
        return summary

    def reached(self) -> Reached:
        """Return the states that the run has reached so far, and the moments of its events."""
        digests = {_digest(state) for state in self._reached}
        for pair, count in self._pairs.items():
            magnitude = sum(count >= limit for limit in _MAGNITUDES)
            digests.update(_digest((*pair, level)) for level in range(magnitude + 1))
        packed = b"".join(digest.to_bytes(_WIDTH, "big") for digest in sorted(digests))
        rarest = sorted(self._moments, key=lambda kind: (self._counts[kind], kind))[:KINDS_MAX]
        moments = {kind: self._moments[kind] for kind in sorted(rarest)}
        return Reached(base64.b85encode(packed).decode(), moments)


def _behind(entries: int) -> int:
    """Say how far a replica is behind: 0 is not at all, 1 a little, 2 far."""
    return 0 if entries == 0 else 1 if entries < FAR else 2


def _masked(group: str) -> str:
    return _ID.sub("#", group)


def _digest(state: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(state).encode())
