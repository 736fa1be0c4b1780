"""The timeline of a run: phases, faults, leaders and terms, and times when nodes did not run.

The timeline is a pure function of a history and is computed only here: pages, traces, tables of
facts and the sentence about the moment of a violation (`harness.verdict.explain`) use it. It
contains only what the history proves, by these rules:

* A fault lasts from its op `inject` to its op `heal`, which closes the oldest open fault of its id.
  Without a `heal` the fault lasts to the end. A fault without targets affected no node and is never
  open.
* A node leads from its op `leader` until the next `leader` op, or its own `node-exit`. Answers that
  it gives after the next leader appeared are counted separately, since the old leader may not know
  of the new one.
* A node is down from its op `node-exit`, and paused from the `inject` of a pause. Both states end
  at the first proof that the node runs again. A proof is the `heal` of a fault that stopped (or
  paused) this node, a later RPC to it with the answer `ok`, an op `live` with the node in its
  `core` (nodes that the run has healed and started), or the phase `converge`, before which the run
  starts every node.

A history may come from any source: values in shapes that the harness never writes are ignored.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from harness.ops import NEMESIS, History, Op, OpType

__all__ = [
    "ALL_CLIENTS",
    "CLOCK",
    "CPU",
    "CUT",
    "DISK",
    "EXCUSED_AFTER_NS",
    "FACTS_MAX",
    "KILL",
    "OPERATION",
    "PAUSE",
    "POWER_CUT",
    "RESET",
    "RESTART",
    "SHAPE",
    "Fault",
    "NodeState",
    "Reign",
    "core_of",
    "faults_of",
    "how_ended",
    "kind_of",
    "nodes_of",
    "phases_of",
    "power_cuts",
    "reigns_of",
    "states_of",
]

FACTS_MAX: Final = 10_000
"""How many phases are read at most. The same limit holds for faults, leaders and node states."""
NODES_MAX: Final = 1_000
CUT: Final = "cut"
KILL: Final = "kill"
POWER_CUT: Final = "power-cut"
PAUSE: Final = "pause"
RESTART: Final = "restart"
SHAPE: Final = "shape"
RESET: Final = "reset"
CLOCK: Final = "clock"
CPU: Final = "cpu"
DISK: Final = "disk"
OPERATION: Final = "operation"
EXCUSED_AFTER_NS: Final = 10_000_000_000
"""If a node exits within this time after the end of a disk or clock fault, the fault is still to
blame."""
DOWN: Final = "down"
PAUSED: Final = "paused"
_STATES: Final = {KILL: DOWN, POWER_CUT: DOWN, RESTART: DOWN, PAUSE: PAUSED}
"""Maps a kind of fault to the state of its target nodes."""
_NAMES: Final = (
    (PAUSE, ("pause",)),
    (POWER_CUT, ("power",)),
    (KILL, ("kill", "crash", "stop", "restart", "wipe")),
    (CUT, ("partition", "isolate", "cut")),
)
"""Words in nemesis names, by kind of fault. They are used for histories that do not record the
kind."""


ALL_CLIENTS: Final = "client"
"""The link end that represents all clients together (`harness.cluster.CLIENT`)."""


class Fault(msgspec.Struct, frozen=True):
    """One injected fault: the op that injected it, and the op that healed it, if there is one."""

    begin: Op
    heal: Op | None = None

    @property
    def id(self) -> str:
        return _field(self.begin.value, "fault")

    @property
    def nemesis(self) -> str:
        return self.begin.f

    @property
    def kind(self) -> str:
        """The kind of the fault: `cut`, `kill`, `power-cut`, `pause`, or a plug-in's own word."""
        return kind_of(self.begin)

    @property
    def targets(self) -> tuple[str, ...]:
        """The nodes that the fault affected; empty if it affected none."""
        return _names(self.begin, "targets")

    @property
    def clients(self) -> tuple[str, ...]:
        """The link ends of clients that the fault affected; "client" means all of them.

        If the fault affected a client, a missing answer does not prove that the node failed. See
        `harness.nodes.caller`.
        """
        clients = _get(self.begin.value, "clients")
        if clients is True:  # version 0.1 recorded only whether clients were affected
            return (ALL_CLIENTS,)
        return tuple(map(str, clients)) if isinstance(clients, (list, tuple)) else ()

    @property
    def clients_only(self) -> bool:
        """Whether the fault affected only links of clients, and no link between nodes."""
        return bool(_get(self.begin.value, "clients_only"))

    @property
    def start(self) -> int:
        """The time when the fault was injected, in ns of the run."""
        return self.begin.time

    @property
    def end(self) -> int | None:
        """The time when the fault was healed, in ns of the run; `None` without an op `heal`."""
        return None if self.heal is None else self.heal.time

    @property
    def note(self) -> str:
        return _field(self.begin.value, "note")

    @property
    def after_event_ms(self) -> float | None:
        """The delay from the event that triggered the fault to the injection.

        `None` if the fault waited for no event.
        """
        after = _get(self.begin.value, "after_event_ms")
        return float(after) if isinstance(after, int | float) else None

    @property
    def bite(self) -> Mapping[str, Any] | None:
        """The effect that the heal measured: `count` (`None` if not measurable) and `unit`."""
        bite = None if self.heal is None else _get(self.heal.value, "bite")
        return bite if isinstance(bite, Mapping) else None

    @property
    def bitten(self) -> bool | None:
        """Whether the fault had an effect; `None` if it was not measured, or if `undone`."""
        if self.undone:
            return None
        count = None if self.bite is None else self.bite.get("count")
        return count > 0 if isinstance(count, (int, float)) else None

    @property
    def undone(self) -> bool:
        """Whether another program ended or changed the fault before it was healed."""
        return self.heal is not None and _get(self.heal.value, "undone") is True

    def is_on(self, start: int, end: int) -> bool:
        begun = bool(self.targets) and self.start <= end
        return begun and (self.end is None or self.end >= start)


class Reign(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which one node led. It ended at `end`, for the reason `until`.

    Term 0 means a target without terms. `answered` is the time of the node's last answer to a
    client after `end`, if the answer named this term (`in_term`) or none. `asked` means that no
    node reports that it leads, so the harness asked for the leader at certain moments, and changes
    in between are unknown. `contested` means that another node had already led in this term or in a
    later one.
    """

    node: str
    term: int
    start: int
    end: int | None
    until: str
    answered: int | None
    in_term: bool
    asked: bool = False
    contested: bool = False


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a node was `down` or `paused`. `why` says what proves `start` and `end`."""

    node: str
    kind: str
    start: int
    end: int | None
    why: str


def phases_of(history: History) -> list[tuple[int, str]]:
    """Return the start, in ns of the run, and the name of each phase of the run."""
    return [
        (op.time, _field(op.value, "phase")) for op in islice(history.facts("phase"), FACTS_MAX)
    ]


def faults_of(ops: Iterable[Op], *, most: int | None = FACTS_MAX) -> list[Fault]:
    """Return the first `most` faults in `ops`, in the order of their injection."""
    begun: list[Op] = []
    healed: dict[int, Op] = {}
    still_open: dict[str, deque[int]] = {}
    for op in ops:
        if op.process != NEMESIS:
            continue
        action, fault = _get(op.value, "action"), _field(op.value, "fault")
        if action == "inject":
            if Fault(op).targets:
                still_open.setdefault(fault, deque()).append(len(begun))
            begun.append(op)
        elif action == "heal" and still_open.get(fault):
            healed[still_open[fault].popleft()] = op
    return [Fault(op, healed.get(number)) for number, op in enumerate(begun[:most])]


def power_cuts(history: History) -> list[Op]:
    """Return the ops that injected power cuts.

    These include power cuts of stopped nodes, which lose unsynced data, too.
    """
    return [
        fault.begin
        for fault in faults_of(history.of_process(NEMESIS), most=None)
        if fault.kind == POWER_CUT and (fault.targets or _names(fault.begin, "disks"))
    ]


def kind_of(inject: Op) -> str:
    """Return the kind of the fault that `inject` records, or guess it from the nemesis's name."""
    kind = _get(inject.value, "kind")
    if isinstance(kind, str) and kind:
        return kind
    kinds = (kind for kind, words in _NAMES if any(word in inject.f for word in words))
    return next(kinds, inject.f)


def reigns_of(history: History) -> list[Reign]:
    """Return the times in which nodes led, one per op `leader`, in the order of these ops."""
    facts = [
        op
        for op in islice(history.facts("leader"), FACTS_MAX)
        if isinstance(op.value, dict) and isinstance(op.value.get("term", 0), int)
    ]
    usual = [op for op in history.leaders() if isinstance(op.value, dict)]
    counted = {op.index for op in usual}
    exits = _times_by_node(history.facts("node-exit"))
    seen = _times_by_node(facts)
    answers = _Answers(history)
    reigns = []
    for op in facts:
        node, term = _field(op.value, "node"), op.value.get("term", 0)
        ends = [(time, "its process ended") for time in _next(exits.get(node, ()), op.time)]
        at = bisect.bisect_right(usual, op.index, key=lambda other: other.index)
        for following in usual[at : at + 1]:
            name, newer = _field(following.value, "node"), following.value.get("term")
            within = f" in term {newer}" if newer else ""
            ends.append((following.time, f"{name} was seen to lead{within}"))
        end, until = min(ends, default=(None, "the run ended"))
        asked = op.value.get("asked") is True
        late = None
        if end is not None and not asked:
            late = answers.last(node, term, end, min(_next(seen[node], op.time), default=None))
        reigns.append(
            Reign(
                node=node,
                term=term,
                start=op.time,
                end=end,
                until=until,
                answered=late,
                in_term=late is not None and answers.in_term(node, term) == late,
                asked=asked,
                contested=op.index not in counted,
            )
        )
    return reigns


def _times_by_node(ops: Iterable[Op]) -> dict[str, list[int]]:
    by_node: dict[str, list[int]] = {}
    for op in ops:
        by_node.setdefault(_field(op.value, "node"), []).append(op.time)
    return {node: sorted(times) for node, times in by_node.items()}


def _next(times: Sequence[int], time_ns: int) -> Sequence[int]:
    at = bisect.bisect_right(times, time_ns)
    return times[at : at + 1]


class _Answers:
    """The times of each node's answers: the last in each term, and all `ok` ones without a term."""

    def __init__(self, history: History) -> None:
        self._in_term: dict[tuple[str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        for pair in history.pairs:
            done = pair.completion
            if done is None or done.node is None:
                continue
            term = _get(done.value, "term")
            if isinstance(term, int):
                key = done.node, term
                self._in_term[key] = max(done.time, self._in_term.get(key, 0))
            elif done.type is OpType.OK:
                self._times.setdefault(done.node, []).append(done.time)
        for times in self._times.values():
            times.sort()

    def last(self, node: str, term: int, after: int, before: int | None) -> int | None:
        """Return the time of the last answer of `node` in `term`, if it is later than `after`.

        An answer without a term counts only if it is before `before`, when the node led again.
        """
        times = self._times.get(node, [])
        at = len(times) if before is None else bisect.bisect_left(times, before)
        last = max(self.in_term(node, term) or 0, times[at - 1] if at else 0)
        return last if last > after else None

    def in_term(self, node: str, term: int) -> int | None:
        return self._in_term.get((node, term))


def nodes_of(history: History, faults: Sequence[Fault], logs: Iterable[str]) -> list[str]:
    """Return the names of all nodes that `history`, `faults` or `logs` mention.

    The history of a run that reached its op `live` mentions all nodes.
    """
    names = set(logs)
    for fact in ("leader", "node-exit"):
        names.update(_field(op.value, "node") for op in history.facts(fact))
    for op in history.facts("live"):
        names.update(core_of(op), _names(op, "rest"))
    for fault in faults:
        names.update(fault.targets)
    for pair in history.pairs:
        if pair.completion is not None:
            names.update(attempt.node for attempt in pair.completion.attempts)
    return sorted(names - {""})[:NODES_MAX]


def how_ended(exited: Op) -> str:
    """Return the cause of a node's exit in words, if its op `node-exit` records it."""
    if _field(exited.value, "expected") == "True":
        return "as asked"
    others = {"host": "by its host", "unknown": "by an unknown cause"}
    return others.get(_field(exited.value, "by"), "by itself")


def states_of(history: History, faults: Sequence[Fault]) -> list[NodeState]:
    """Return the times when nodes were down or paused, as far as the history proves them."""
    begins: list[tuple[int, str, str, str]] = []
    for op in islice(history.facts("node-exit"), FACTS_MAX):
        how = f"ended {how_ended(op)}, code {_field(op.value, 'code')}"
        begins.append((op.time, _field(op.value, "node"), DOWN, how))
    for fault in faults:
        if fault.kind == PAUSE:
            begins += [(fault.start, node, PAUSED, fault.id) for node in fault.targets]
    life = _Life(history, faults)
    states = []
    for start, node, kind, cause in sorted(begins)[:FACTS_MAX]:
        end, proof = life.after(node, kind, start)
        why = f"{cause}; {proof}"
        states.append(NodeState(node=node, kind=kind, start=start, end=end, why=why))
    return states


class _Life:
    """The times at which nodes are proven not to be down, or not to be paused."""

    def __init__(self, history: History, faults: Sequence[Fault]) -> None:
        self._proofs: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for fault in faults:
            state = _STATES.get(fault.kind)
            for node in fault.targets if state is not None and fault.end is not None else ():
                self._add(node, state or "", fault.end or 0, f"until {fault.id} was healed")
        for op in history.facts("live"):
            for node in core_of(op):
                for kind in (DOWN, PAUSED):
                    self._add(node, kind, op.time, "until the fact `live` listed it in the core")
        for op in history.facts("node-exit"):
            self._add(_field(op.value, "node"), PAUSED, op.time, "until its fact `node-exit`")
        self._all = [
            (op.time, "until the phase `converge`, before which the run starts every node")
            for op in history.facts("phase")
            if _field(op.value, "phase") == "converge"
        ]
        self._answers: dict[str, list[tuple[int, int]]] = {}
        for pair in history.pairs:
            for attempt in pair.completion.attempts if pair.completion is not None else ():
                if attempt.outcome == "ok":
                    answers = self._answers.setdefault(attempt.node, [])
                    answers.append((attempt.start, attempt.end))
        for proofs in self._proofs.values():
            proofs.sort()
        for answers in self._answers.values():
            answers.sort()

    def _add(self, node: str, kind: str, time_ns: int, proof: str) -> None:
        self._proofs.setdefault((node, kind), []).append((time_ns, proof))

    def after(self, node: str, kind: str, time_ns: int) -> tuple[int | None, str]:
        """Return the first proof after `time_ns` that `node` is no longer down or paused (`kind`).

        A proof is a time and a phrase. Without a proof, the time is `None`.
        """
        proofs = [proof for proof in self._proofs.get((node, kind), ()) if proof[0] > time_ns][:1]
        proofs += [proof for proof in self._all if proof[0] > time_ns][:1]
        answers = self._answers.get(node, [])
        at = bisect.bisect_right(answers, time_ns, key=lambda answer: answer[0])
        if at < len(answers):
            proofs.append((answers[at][1], "until it answered an RPC that was sent later"))
        return min(proofs, default=(None, "nothing later proves that it ran again"))


def core_of(op: Op) -> tuple[str, ...]:
    """Return the nodes of the healed quorum that an op `live` names; empty if it names none."""
    return _names(op, "core")


def _names(op: Op, field: str) -> tuple[str, ...]:
    names = _get(op.value, field)
    return tuple(str(name) for name in names) if isinstance(names, (list, tuple)) else ()


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _field(value: Any, name: str) -> str:
    field = _get(value, name)
    return "" if field is None else str(field)
