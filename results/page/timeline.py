"""The lanes above the operations: phases, faults, who led in which term, and what nodes were doing.

Only what the history proves is drawn, and each piece says what proves it:

* a fault lasts from the op `inject` to the op `heal` of the same fault; without one, to the end;
* a node leads from its fact `leader` until the next one, or its own `node-exit`. Answers that it
  gave in that term after the next leader was seen are a second piece: it did not know better;
* a node is down from its fact `node-exit`, and paused from the `inject` of a nemesis whose name
  says pause. Both end with the first proof of it: the `heal` of a fault that stops (or pauses)
  processes and hit this node, an RPC that was sent to it later and answered `ok`, its part in a
  core that came to life, or the phase `converge`, before which the run starts every node.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.ops import NEMESIS, History, Op

__all__ = [
    "FACTS_MAX",
    "FAULTS_MAX",
    "Fault",
    "NodeState",
    "Reign",
    "faults_of",
    "lanes_of",
    "marks_of",
    "nodes_of",
    "phases_of",
    "reigns_of",
    "states_of",
]

FAULTS_MAX: Final = 10_000
FACTS_MAX: Final = 10_000
"""Bounds of every list here: faults, terms, states of nodes, marks."""
TEXT_CHARS_MAX: Final = 600
STOPPING: Final = ("kill", "power", "crash", "stop", "restart", "wipe")
"""Words in the names of nemeses whose healing starts a process again."""
DOWN: Final = "down"
PAUSED: Final = "paused"
_MARKS: Final = (
    "live",
    "converged",
    "interrupted",
    "unread",
    "log",
    "heartbeat-gap",
    "infrastructure",
)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One injected fault. `end` is `None` where no healing is in the history."""

    id: str
    nemesis: str
    targets: tuple[str, ...]
    start: int
    end: int | None
    index: int
    note: str
    bite: str


class Reign(msgspec.Struct, frozen=True, kw_only=True):
    """A node that led, until `end`, for the reason `until`.

    `answered` is its last answer in this term after another one was seen to lead.
    """

    node: str
    term: int
    start: int
    end: int | None
    until: str
    answered: int | None


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node was `down` or `paused`; `why` says what proves the beginning and the end."""

    node: str
    kind: str
    start: int
    end: int | None
    why: str


def phases_of(history: History) -> list[tuple[int, str]]:
    """Begin and name of each phase."""
    return [
        (op.time, _short(_field(op.value, "phase")))
        for op in _first(history.facts("phase"), FACTS_MAX)
    ]


def faults_of(history: History) -> list[Fault]:
    """All faults in the order of their injection, at most `FAULTS_MAX`."""
    injected: dict[str, Op] = {}
    healed: dict[str, Op] = {}
    for op in history.of_process(NEMESIS):
        action, fault = _field(op.value, "action"), _field(op.value, "fault")
        if action == "inject":
            injected[fault] = op
        elif action == "heal" and fault in injected:
            healed.setdefault(fault, op)
    return [
        _fault(fault, op, healed.get(fault)) for fault, op in list(injected.items())[:FAULTS_MAX]
    ]


def _fault(fault: str, begin: Op, end: Op | None) -> Fault:
    bite = end.value.get("bite") if end is not None else None
    text = ""
    if isinstance(bite, Mapping):
        count = bite.get("count")
        text = "not measurable" if count is None else f"{count} {bite.get('unit', '')}".strip()
    targets = begin.value.get("targets")
    return Fault(
        id=_short(fault),
        nemesis=_short(begin.f),
        targets=tuple(_short(str(name)) for name in targets[:100])
        if isinstance(targets, (list, tuple))
        else (),
        start=begin.time,
        end=None if end is None else end.time,
        index=begin.index,
        note=_short(_field(begin.value, "note")),
        bite=_short(text),
    )


def reigns_of(history: History) -> list[Reign]:
    """Who led when, in the order of the facts."""
    facts = [
        (op.time, _field(op.value, "node"), op.value.get("term", 0))
        for op in history.leaders()[:FACTS_MAX]
        if isinstance(op.value, dict) and isinstance(op.value.get("term", 0), int)
    ]
    answered: dict[tuple[str, int], int] = {}
    for pair in history.pairs:
        done = pair.completion
        if done is None or done.node is None or not isinstance(done.value, dict):
            continue
        term = done.value.get("term")
        if isinstance(term, int):
            answered[done.node, term] = max(done.time, answered.get((done.node, term), 0))
    exits = [(op.time, _field(op.value, "node")) for op in history.facts("node-exit")]
    reigns = []
    for position, (start, node, term) in enumerate(facts):
        ends = [(time, "its process ended") for time, who in exits if who == node and time > start]
        if position + 1 < len(facts):
            following = facts[position + 1]
            ends.append((following[0], f"{following[1]} was seen to lead in term {following[2]}"))
        end, until = min(ends, default=(None, "the run ended"))
        last = answered.get((node, term))
        late = last if end is not None and last is not None and last > end else None
        reigns.append(
            Reign(
                node=_short(node),
                term=term,
                start=start,
                end=end,
                until=_short(until),
                answered=late,
            )
        )
    return reigns


def marks_of(history: History) -> list[tuple[int, str, str]]:
    """What else the harness noted: time, kind, text."""
    marks = []
    for op in history:
        if op.is_client or op.f not in _MARKS or op.process == NEMESIS:
            continue
        marks.append((op.time, op.f, _short(msgspec.json.encode(op.value).decode())))
        if len(marks) == FACTS_MAX:
            break
    return marks


def nodes_of(history: History, faults: Sequence[Fault], logs: Iterable[str]) -> list[str]:
    """Every node that the run speaks of, those that ever led first."""
    led = [_field(op.value, "node") for op in history.facts("leader")]
    rest: set[str] = set(logs)
    for op in history.facts("snapshot"):
        if isinstance(op.value, dict):
            masters = op.value.get("masters")
            led += sorted(masters) if isinstance(masters, dict) else []
            for group in op.value.values():
                rest.update(group if isinstance(group, dict) else ())
    rest.update(_field(op.value, "node") for op in history.facts("node-exit"))
    for op in history.facts("live"):
        rest.update(_core(op))
    for fault in faults:
        rest.update(fault.targets)
    for pair in history.pairs:
        if pair.completion is not None:
            rest.update(attempt.node for attempt in pair.completion.attempts)
    names = [*sorted(set(led)), *sorted(rest - set(led))]
    return [_short(name) for name in names if name][:1000]


def states_of(history: History, faults: Sequence[Fault]) -> list[NodeState]:
    """When nodes were down or paused, as far as the history proves it."""
    begins: list[tuple[int, str, str, str]] = []
    for op in _first(history.facts("node-exit"), FACTS_MAX):
        expected = "as asked" if _field(op.value, "expected") == "True" else "by itself"
        code = _field(op.value, "code")
        begins.append((op.time, _field(op.value, "node"), DOWN, f"ended {expected}, code {code}"))
    for fault in faults:
        if "pause" in fault.nemesis:
            begins += [(fault.start, node, PAUSED, fault.id) for node in fault.targets]
    life = _Life(history, faults)
    states = []
    for start, node, kind, cause in sorted(begins)[:FACTS_MAX]:
        end, proof = life.after(node, kind, start)
        why = f"{cause}; {proof}"
        states.append(NodeState(node=_short(node), kind=kind, start=start, end=end, why=why))
    return states


class _Life:
    """When nodes are proven not to be down, or not to be paused."""

    def __init__(self, history: History, faults: Sequence[Fault]) -> None:
        self._proofs: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for fault in faults:
            kinds = [DOWN] if any(word in fault.nemesis for word in STOPPING) else []
            kinds += [PAUSED] if "pause" in fault.nemesis else []
            for node in fault.targets if fault.end is not None else ():
                for kind in kinds:
                    self._add(node, kind, fault.end or 0, f"over by the healing of {fault.id}")
        for op in history.facts("live"):
            for node in _core(op):
                for kind in (DOWN, PAUSED):
                    self._add(node, kind, op.time, "over by the fact `live`: part of the core")
        for op in history.facts("node-exit"):
            self._add(_field(op.value, "node"), PAUSED, op.time, "over by its fact `node-exit`")
        self._all = [
            (op.time, "over by the phase `converge`: the run starts every node before it")
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
        """When the first proof came that `node` is no longer `kind`, and which proof that is."""
        found = [proof for proof in self._proofs.get((node, kind), ()) if proof[0] > time_ns][:1]
        found += [proof for proof in self._all if proof[0] > time_ns][:1]
        answers = self._answers.get(node, [])
        at = bisect.bisect_right(answers, time_ns, key=lambda answer: answer[0])
        if at < len(answers):
            found.append((answers[at][1], "over by an RPC sent later, which it answered"))
        return min(found, default=(None, "nothing later proves that it ran again"))


def lanes_of(spans: Iterable[tuple[int, int | None]]) -> list[int]:
    """A lane for each span, in order of begin, so that none overlap in a lane (`None` is open)."""
    busy_until: list[float] = []
    lanes = []
    for start, end in spans:
        until = float("inf") if end is None else end
        for lane, free_at in enumerate(busy_until):
            if free_at <= start:
                busy_until[lane] = until
                lanes.append(lane)
                break
        else:
            lanes.append(len(busy_until))
            busy_until.append(until)
    return lanes


def _core(op: Op) -> list[str]:
    core = op.value.get("core") if isinstance(op.value, dict) else None
    return [str(name) for name in core] if isinstance(core, (list, tuple)) else []


def _field(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, Mapping) else None
    return "" if found is None else str(found)


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[: TEXT_CHARS_MAX - 1]}…"


def _first(ops: Iterable[Op], most: int) -> Iterable[Op]:
    for count, op in enumerate(ops):
        if count == most:
            return
        yield op
