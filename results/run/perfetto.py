"""A run as a trace for the Perfetto viewer (https://ui.perfetto.dev), `trace.json` in its folder.

The format is Chrome's JSON (https://perfetto.dev/docs/getting-started/other-formats). It has one
trap: slices that overlap on one track break the picture. So the trace has these groups:

| group   | tracks                       | events                                              |
|---------|------------------------------|-----------------------------------------------------|
| phases  | one                          | one slice per phase; instants for notes             |
| faults  | one per fault                | asynchronous begin and end, as faults overlap       |
| clients | one per process              | one slice per operation                             |
| nodes   | leader; as many as needed    | one slice per term and RPC attempt; exits           |

Operations of a process never overlap, unless the clock of the history ran backwards; attempts at
one node do overlap. The same allocation of lanes places both, so that two slices of one track never
overlap. An operation that ended in info may take effect until the end of the run. So its slice
lasts until then, and its name says so. Times are µs with ns as decimals.

Events are sorted by time and limited by `EVENTS_MAX`; the trace itself says how many were cut.
"""

from __future__ import annotations

import gzip
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from harness.cli.output import note
from harness.errors import InfrastructureError
from harness.ops import NEMESIS, Attempt, History, Op, OpType, Pair
from harness.plugins import API_VERSION, Reporter
from harness.store import StoredRun, load_run
from harness.support.atomic_file import replacing_bytes
from harness.timeline import faults_of

TRACE_FILE: Final = "trace.json"
EVENTS_MAX: Final = 500_000
"""The maximum of events: the viewer opens this many, a file of about 100 MB, in seconds."""
VALUE_CHARS_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 300
ATTEMPTS_TOLD_MAX: Final = 20
_TARGETS_NAMED_MAX: Final = 5

PHASES: Final = 1
FAULTS: Final = 2
CLIENTS: Final = 3
NODES: Final = 4
_GROUPS: Final = {PHASES: "phases", FAULTS: "faults", CLIENTS: "clients", NODES: "nodes"}
_LEADER: Final = "leader"
_COLOURS: Final = {
    OpType.OK: "good",
    OpType.FAIL: "bad",
    OpType.INFO: "terrible",
}
"""Colour names of chrome://tracing; Perfetto instead chooses a colour by the slice's name."""

Event = dict[str, Any]
_Timed = tuple[int, int, Event]


class TraceReporter(Reporter, default=False):
    """The reporter `trace`: writes `trace.json` next to the history, only on request."""

    api_version = API_VERSION
    name = "trace"
    doc = "trace.json, for the Perfetto viewer"

    def write(self, folder: Path) -> Path:
        """Write `trace.json` into the run's folder."""
        path = folder / TRACE_FILE
        write_trace(trace_of(load_run(folder)), path)
        return path


class Trace(msgspec.Struct, frozen=True):
    """The content of a trace: properties of the run, and the events ordered by time."""

    metadata: dict[str, Any]
    events: Iterator[Event]
    cut: str | None


def write_trace(trace: Trace, path: Path) -> None:
    """Write the whole trace to `path`, or no file; compress it if the name ends in `.gz`."""
    try:
        with replacing_bytes(path) as plain:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=plain, mode="wb", mtime=0) as packed:
                    _write(trace, packed)
            else:
                _write(trace, plain)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write the trace {str(path)!r}: {error.strerror}; choose another --output"
        ) from error
    if trace.cut is not None:
        note(f"harness: {path}: {trace.cut}")


def _write(trace: Trace, file: BinaryIO | gzip.GzipFile) -> None:
    """Write a trace event by event, so that a long trace is never in memory as a whole."""
    encoder = msgspec.json.Encoder()
    file.write(b'{"displayTimeUnit":"ms","otherData":')
    file.write(encoder.encode(trace.metadata))
    file.write(b',"traceEvents":[\n')
    buffer = bytearray()
    separator = b""
    for event in trace.events:
        encoder.encode_into(event, buffer)
        file.write(separator)
        file.write(buffer)
        separator = b",\n"
    file.write(b"\n]}\n")


def trace_of(run: StoredRun, *, events_max: int = EVENTS_MAX) -> Trace:
    """The trace of a stored run; above `events_max`, attempts are cut first, then operations."""
    maker = _Maker(run.history, events_max)
    metadata = _metadata(run, maker.end_ns)
    if maker.cut is not None:
        metadata["cut"] = maker.cut
    return Trace(metadata, maker.events(), maker.cut)


def _metadata(run: StoredRun, end_ns: int) -> dict[str, Any]:
    case, record = run.case, run.record
    about: dict[str, Any] = {
        "run": run.folder.name if record is None else record.run,
        "seed": case.seed,
        "target": case.target,
        "profile": case.profile,
        "workload": case.workload,
        "nemeses": list(case.nemeses),
        "bugs": list(case.bugs),
        "length_s": end_ns / 1e9,
        "times": "microseconds since the start of the run",
    }
    if record is not None:
        about |= {
            "environment": record.environment,
            "started": record.started,
            "verdict": record.verdict.value,
            "history_sha256": record.digest,
            "versions": record.versions,
        }
    if run.note is not None:
        about["note"] = run.note
    return about


class _Lanes:
    """Tracks of one group. A slice that would overlap goes to another track of the same name."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ends: dict[str, list[tuple[int, int]]] = {}  # (end, tid) of each lane, a heap
        self._names: list[tuple[int, str, int]] = []

    def tid(self, name: str, start: int, end: int, order: int) -> int:
        """The track for a slice; call it in the order of the starts of the slices of a name."""
        lanes = self._ends.setdefault(name, [])
        if lanes and lanes[0][0] <= start:
            return self._used(lanes, heapq.heappop(lanes)[1], end)
        tid = len(self._names) + 1
        label = name if not lanes else f"{name} ({len(lanes) + 1})"
        self._names.append((tid, label, order))
        return self._used(lanes, tid, end)

    @staticmethod
    def _used(lanes: list[tuple[int, int]], tid: int, end: int) -> int:
        heapq.heappush(lanes, (end, tid))
        return tid

    def first(self, name: str, order: int) -> int:
        """A track of this name for instants, which never overlap."""
        lanes = self._ends.get(name)
        return min(tid for _, tid in lanes) if lanes else self.tid(name, 0, 0, order)

    def names(self) -> Iterator[Event]:
        """Events that tell the viewer the names of the tracks, and their order."""
        yield _meta("process_name", self._pid, 0, name=_GROUPS[self._pid])
        yield _meta("process_sort_index", self._pid, 0, sort_index=self._pid)
        for tid, label, order in self._names:
            yield _meta("thread_name", self._pid, tid, name=label)
            yield _meta("thread_sort_index", self._pid, tid, sort_index=order)


class _Maker:
    """Selects the events of a trace, then makes them one by one."""

    def __init__(self, history: History, events_max: int) -> None:
        self._history = history
        self.end_ns = max(
            (
                max(op.time, *(attempt.end for attempt in op.attempts)) if op.attempts else op.time
                for op in history
            ),
            default=0,
        )
        self._clients = _Lanes(CLIENTS)
        self._nodes = _Lanes(NODES)
        units = sorted(
            [*self._phases(), *self._leaders(), *self._faults()], key=lambda unit: _when(unit[0])
        )
        room = events_max
        self._marks, marks_kept = _fitting(units, room)
        room -= len(self._marks)
        pairs = sorted(history.pairs, key=lambda pair: (pair.invoke.time, pair.invoke.index))
        self._pairs = pairs[:room]
        room -= len(self._pairs)
        attempts = sorted(_attempts(self._pairs), key=lambda item: (item[0].start, item[0].end))
        self._attempts = attempts[:room]
        self.cut = self._what_was_cut(
            {
                "faults and facts": (marks_kept, len(units)),
                "operations": (len(self._pairs), len(pairs)),
                "attempts": (len(self._attempts), len(attempts)),
            },
            events_max,
        )

    @staticmethod
    def _what_was_cut(kept: Mapping[str, tuple[int, int]], events_max: int) -> str | None:
        if all(there == of for there, of in kept.values()):
            return None
        texts = [f"{there} of {of} {name}" for name, (there, of) in kept.items() if there < of]
        return f"a trace has at most {events_max} events; it shows the first {', '.join(texts)}"

    def events(self) -> Iterator[Event]:
        """All events: first the names of tracks, then the others by time."""
        # The names come first, but the number of lanes is only known when every slice has a lane.
        operations = [(pair, self._lane_of_operation(pair)) for pair in self._pairs]
        attempts = [(item, self._lane_of_attempt(item[0])) for item in self._attempts]
        marks = [self._placed(mark) for mark in self._marks]
        yield _meta("process_name", PHASES, 0, name=_GROUPS[PHASES])
        yield _meta("process_sort_index", PHASES, 0, sort_index=PHASES)
        yield _meta("thread_name", PHASES, 1, name="phase")
        yield _meta("process_name", FAULTS, 0, name=_GROUPS[FAULTS])
        yield _meta("process_sort_index", FAULTS, 0, sort_index=FAULTS)
        yield from self._clients.names()
        yield from self._nodes.names()
        if self.cut is not None:
            yield _instant(PHASES, 1, 0, f"cut: {self.cut}", {})
        slices = (self._operation(pair, tid) for pair, tid in operations)
        calls = (self._attempt(attempt, op, tid) for (attempt, op), tid in attempts)
        for _, _, event in heapq.merge(iter(marks), slices, calls, key=_when):
            yield event

    # --- operations and attempts -------------------------------------------------------------

    def _interval(self, pair: Pair) -> tuple[int, int]:
        """The interval in which an operation may have taken effect."""
        start = pair.invoke.time
        if pair.completion is None or pair.type is OpType.INFO:
            return start, self.end_ns
        return start, max(start, pair.completion.time)

    def _lane_of_operation(self, pair: Pair) -> int:
        process = pair.invoke.process
        assert isinstance(process, int)
        return self._clients.tid(f"process {process}", *self._interval(pair), process)

    def _operation(self, pair: Pair, tid: int) -> _Timed:
        start, end = self._interval(pair)
        call, done = pair.invoke, pair.completion
        args: dict[str, Any] = {
            "index": call.index,
            "process": call.process,
            "type": pair.type.value,
            "value": _bounded(call.value),
        }
        name = call.f
        if done is None:
            name += " (info: open at the end of the run)"
        else:
            args["answer"] = _bounded(done.value)
            if done.error is not None:
                args["error"] = _text(done.error)
            if done.node is not None:
                args["node"] = done.node
            args["attempts"] = _told(done.attempts)
            if done.type is OpType.INFO:
                name += " (info: may act until the end)"
                args["given_up_after_us"] = _us(done.time - call.time)
            elif done.type is OpType.FAIL:
                name += " (fail)"
            if done.time < call.time:
                args["clock"] = f"the completion is {call.time - done.time} ns before the call"
        event = _slice(CLIENTS, tid, start, end, name, "op", args)
        event["cname"] = _COLOURS[pair.type]
        return start, 1, event

    def _lane_of_attempt(self, attempt: Attempt) -> int:
        return self._nodes.tid(
            f"rpc to {_text(attempt.node)}", attempt.start, max(attempt.start, attempt.end), 1
        )

    def _attempt(self, attempt: Attempt, op: Op, tid: int) -> _Timed:
        args = {"op": op.index, "process": op.process, "outcome": _text(attempt.outcome)}
        name = op.f if attempt.outcome == "ok" else f"{op.f}: {_text(attempt.outcome)}"
        end = max(attempt.start, attempt.end)
        event = _slice(NODES, tid, attempt.start, end, name, "attempt", args)
        return attempt.start, 2, event

    # --- phases, leaders, faults: `tid` is filled in by `_placed` ------------------------------

    def _phases(self) -> Iterator[list[_Timed]]:
        facts = [op for op in self._history.of_process("harness") if op.f != _LEADER]
        phases = sorted((op for op in facts if op.f == "phase"), key=lambda op: op.time)
        for op, end in _until_next(phases, self.end_ns):
            name = _text(_field(op, "phase"))
            event = _slice(PHASES, 1, op.time, end, name, "phase", {"index": op.index})
            yield [(op.time, 0, event)]
        for op in facts:
            if op.f == "phase":
                continue
            args = {"index": op.index}
            if op.f != "snapshot":  # the state of every node is too long to show
                args["value"] = _bounded(op.value)
            name = op.f
            event = _instant(PHASES, 1, op.time, name, args)
            if op.f == "node-exit":
                expected = isinstance(op.value, Mapping) and op.value.get("expected") is True
                name = "exit (expected)" if expected else "exit (NOT expected)"
                node = f"rpc to {_text(_field(op, 'node'))}"
                event = _instant(NODES, 0, op.time, name, args) | {"lane": node}
            yield [(op.time, 0, event)]

    def _leaders(self) -> Iterator[list[_Timed]]:
        facts = sorted(self._history.leaders(), key=lambda op: op.time)
        for op, end in _until_next(facts, self.end_ns):
            name = f"{_text(_field(op, 'node'))} @ term {_text(_field(op, 'term'))}"
            event = _slice(NODES, 0, op.time, end, name, "leader", {"index": op.index})
            yield [(op.time, 0, event | {"lane": _LEADER})]

    def _faults(self) -> Iterator[list[_Timed]]:
        """Begin and end of each fault. A fault that never had a target is shown as an instant."""
        notes = list(self._history.of_process(NEMESIS))
        edges: set[int] = set()
        hits = [fault for fault in faults_of(notes, most=None) if fault.targets]
        for count, fault in enumerate(hits, 1):
            identity = f"{_text(fault.id)}#{count}"
            name = f"{fault.nemesis}: {', '.join(fault.targets[:_TARGETS_NAMED_MAX])}"
            last = fault.heal or fault.begin
            until = max(fault.start, self.end_ns if fault.end is None else fault.end)
            end = _edge("e", last, identity, name, until)
            if fault.heal is None:
                end[2]["args"] = {"note": "never healed"}
            edges |= {fault.begin.index, last.index}
            yield [_edge("b", fault.begin, identity, name, fault.start), end]
        # In foreign histories: a fault without targets, or a heal without a fault.
        for op in notes:
            if op.index not in edges:
                args = {"index": op.index, "value": _bounded(op.value)}
                text = f"{op.f}: {_text(_field(op, 'action'))}"
                yield [(op.time, 0, _instant(FAULTS, 0, op.time, text, args))]

    def _placed(self, mark: _Timed) -> _Timed:
        time, rank, event = mark
        lane = event.pop("lane", None)
        if lane == _LEADER:
            event["tid"] = self._nodes.tid(lane, time, time + int(event["dur"] * 1000), 0)
        elif lane is not None:
            event["tid"] = self._nodes.first(lane, 1)
        return time, rank, event


def _fitting(units: Sequence[Sequence[_Timed]], room: int) -> tuple[list[_Timed], int]:
    """The events of the first units that fit, by time, and the number of these units.

    A unit is kept or cut as a whole, so that a fault that begins also ends.
    """
    kept: list[_Timed] = []
    count = 0
    for unit in units:
        if len(kept) + len(unit) > room:
            break
        kept += unit
        count += 1
    return sorted(kept, key=_when), count


def _attempts(pairs: Sequence[Pair]) -> Iterator[tuple[Attempt, Op]]:
    for pair in pairs:
        if pair.completion is not None:
            for attempt in pair.completion.attempts:
                yield attempt, pair.invoke


def _until_next(facts: Sequence[Op], end_ns: int) -> Iterator[tuple[Op, int]]:
    """Each fact with the time of the next fact; the last lasts until the end."""
    for position, op in enumerate(facts):
        yield op, facts[position + 1].time if position + 1 < len(facts) else end_ns


def _when(timed: _Timed) -> tuple[int, int]:
    return timed[0], timed[1]


def _us(time_ns: int) -> float:
    """A time in µs that every reader converts back to the same ns.

    The viewer multiplies by 1000 and truncates. So 0.029 µs would become 28 ns, and a slice that
    begins at the end of another slice would overlap it.
    """
    time_us = time_ns / 1000
    return time_us if int(time_us * 1000) == time_ns else math.nextafter(time_us, math.inf)


def _slice(
    pid: int, tid: int, start: int, end: int, name: str, category: str, args: dict[str, Any]
) -> Event:
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": _us(start),
        "dur": _us(end - start),
        "name": _text(name),
        "cat": category,
        "args": args,
    }


def _instant(pid: int, tid: int, time: int, name: str, args: dict[str, Any]) -> Event:
    return {
        "ph": "i",
        "s": "t",
        "pid": pid,
        "tid": tid,
        "ts": _us(time),
        "name": _text(name),
        "cat": "fact",
        "args": args,
    }


def _edge(side: str, op: Op, identity: str, name: str, time: int) -> _Timed:
    event = {
        "ph": side,
        "pid": FAULTS,
        "tid": 0,
        "ts": _us(time),
        "name": _text(name),
        "cat": "fault",
        "id": identity,
        "args": {"index": op.index, "value": _bounded(op.value)},
    }
    return time, 0, event


def _meta(kind: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args}


def _field(op: Op, name: str) -> Any:
    return op.value.get(name, "?") if isinstance(op.value, Mapping) else "?"


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def _told(attempts: Sequence[Attempt]) -> list[str]:
    lines = [
        f"{_text(attempt.node)}: {_text(attempt.outcome)} ({_us(attempt.end - attempt.start):g} µs)"
        for attempt in attempts[:ATTEMPTS_TOLD_MAX]
    ]
    rest = len(attempts) - len(lines)
    return [*lines, f"and {rest} more"] if rest > 0 else lines


def _bounded(value: Any) -> Any:
    """A small `value` itself; for a large value, the beginning of its JSON text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}… (cut)"
