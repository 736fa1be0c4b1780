"""Writes a run as a trace (`trace.json`) for the Perfetto viewer (https://ui.perfetto.dev).

The format is Chrome's JSON (https://perfetto.dev/docs/getting-started/other-formats). A *slice* is
an interval on a track, an *instant* is a point, and a *flow* is an arrow between slices. Slices of
one track must not overlap, or the viewer shows a wrong picture. The trace has these groups of
tracks:

| group     | tracks                 | events                                                   |
|-----------|------------------------|----------------------------------------------------------|
| anomalies | one                    | one instant per broken rule, at the failing answer       |
| phases    | one                    | one slice per phase; one instant per other harness event |
| faults    | one per fault          | asynchronous begin and end, as faults overlap            |
| clients   | one or more per client | one slice per operation                                  |
| nodes     | one for the leader     | one slice per leader's term                              |
| nodes     | one or more per node   | one slice per RPC attempt; one instant per process exit  |

An arrow leads from each operation to its RPC attempts.

A client or a node gets further tracks if its slices overlap. RPC attempts at one node often do.
Operations of one client overlap only if the history's clock ran backwards. An operation that ended
in `info` may take effect at any time until the end of the run. Its name says so. Times are in
microseconds, with nanoseconds as decimals.

Events are sorted by time. A trace has at most `EVENTS_MAX` events. If some were left out, the trace
says how many.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.ops import NEMESIS, Attempt, CheckResult, History, Op, OpType, Pair, Verdict
from harness.plugins import API_VERSION, Reporter
from harness.store import StoredRun, load_run
from harness.timeline import faults_of
from harness.verdict.signature import rule_of
from results.run.page.summary import read_results
from results.run.trace_events import (
    ANOMALIES,
    CLIENTS,
    FAULTS,
    NODES,
    PHASES,
    Event,
    Lanes,
    Timed,
    Trace,
    bounded,
    edge,
    group_events,
    instant,
    meta,
    slice_event,
    text_of,
    us,
    write_trace,
)

TRACE_FILE: Final = "trace.json"
EVENTS_MAX: Final = 500_000
"""The maximum number of events. The viewer opens a file of this size (about 100 MB) in seconds."""
ATTEMPTS_TOLD_MAX: Final = 20
_TARGETS_NAMED_MAX: Final = 5
OPERATIONS_NAMED_MAX: Final = 20

_EVENTS_PER_ATTEMPT: Final = 3
"""The events of an RPC attempt: a slice, and both ends of the flow that leads to the slice."""
_LEADER: Final = "leader"
_COLOURS: Final = {
    OpType.OK: "good",
    OpType.FAIL: "bad",
    OpType.INFO: "terrible",
}
"""Colour names of chrome://tracing. Perfetto instead chooses a colour by the slice's name."""


class TraceReporter(Reporter, default=False):
    """The reporter `trace`: writes `trace.json` next to the history, but only on request."""

    api_version = API_VERSION
    name = "trace"
    doc = "trace.json, for the Perfetto viewer"

    def write(self, folder: Path) -> Path:
        """Write `trace.json` into the run's folder."""
        path = folder / TRACE_FILE
        write_trace(trace_of(load_run(folder)), path)
        return path


def trace_of(run: StoredRun, *, events_max: int = EVENTS_MAX) -> Trace:
    """Make a run's trace. If it has too many events, leave out attempts first, then operations."""
    maker = _Maker(run.history, run.case.concurrency, read_results(run.folder).checkers, events_max)
    metadata = _metadata(run, maker.end_ns)
    if maker.cut is not None:
        metadata["cut"] = maker.cut
    return Trace(metadata, maker.events(), maker.cut)


def _metadata(run: StoredRun, end_ns: int) -> dict[str, Any]:
    case, record = run.case, run.record
    about: dict[str, Any] = {
        "run": run.folder.name if record is None else record.run,
        "seed": case.seed,
        "target": case.system,
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


class _Maker:
    """Selects the events of a trace, then makes them one by one."""

    def __init__(
        self,
        history: History,
        concurrency: int,
        results: Sequence[CheckResult],
        events_max: int,
    ) -> None:
        self._history = history
        self._concurrency = concurrency
        self.end_ns = max(
            (
                max(op.time, *(attempt.end for attempt in op.attempts)) if op.attempts else op.time
                for op in history
            ),
            default=0,
        )
        self._clients = Lanes(CLIENTS)
        self._nodes = Lanes(NODES)
        marks = [*self._phases(), *self._leaders(), *self._faults(), *self._anomalies(results)]
        units = sorted(marks, key=lambda unit: _when(unit[0]))
        room = events_max
        self._marks, marks_kept = _fitting(units, room)
        room -= len(self._marks)
        pairs = sorted(history.pairs, key=lambda pair: (pair.invoke.time, pair.invoke.index))
        self._pairs = pairs[:room]
        room -= len(self._pairs)
        attempts = sorted(_attempts(self._pairs), key=lambda item: (item[0].start, item[0].end))
        self._attempts = attempts[: room // _EVENTS_PER_ATTEMPT]
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
        """Yield all events: first the names of tracks, then all other events by time."""
        # Assign all lanes first, because the names of tracks depend on the number of lanes.
        operations = [(pair, self._lane_of_operation(pair)) for pair in self._pairs]
        attempts = [(item, self._lane_of_attempt(item[0])) for item in self._attempts]
        marks = [self._placed(mark) for mark in self._marks]
        for group in (ANOMALIES, PHASES, FAULTS):
            yield from group_events(group)
        yield meta("thread_name", ANOMALIES, 1, name="broken rule")
        yield meta("thread_name", PHASES, 1, name="phase")
        yield from self._clients.names()
        yield from self._nodes.names()
        if self.cut is not None:
            yield instant(PHASES, 1, 0, f"cut: {self.cut}", {})
        slices = (self._operation(pair, tid) for pair, tid in operations)
        tids = {pair.invoke.index: tid for pair, tid in operations}
        calls = (
            event
            for number, ((attempt, op), tid) in enumerate(attempts)
            for event in self._attempt(number, attempt, op, (tids[op.index], tid))
        )
        for _, _, event in heapq.merge(iter(marks), slices, calls, key=_when):
            yield event

    # --- operations and attempts -------------------------------------------------------------

    def _interval(self, pair: Pair) -> tuple[int, int]:
        """Return the interval in which the client of an operation waited for the answer."""
        start = pair.invoke.time
        return start, self.end_ns if pair.completion is None else max(start, pair.completion.time)

    def _lane_of_operation(self, pair: Pair) -> int:
        process = pair.invoke.process
        assert isinstance(process, int)
        # after an operation that ended in info, the client continues as another process
        client = process % self._concurrency
        return self._clients.tid(f"client {client}", *self._interval(pair), client)

    def _operation(self, pair: Pair, tid: int) -> Timed:
        start, end = self._interval(pair)
        call, done = pair.invoke, pair.completion
        args: dict[str, Any] = {
            "index": call.index,
            "process": call.process,
            "type": pair.type.value,
            "value": bounded(call.value),
        }
        name = call.f
        if done is None:
            name += " (info: open at the end of the run)"
        else:
            args["answer"] = bounded(done.value)
            if done.error is not None:
                args["error"] = text_of(done.error)
            if done.node is not None:
                args["node"] = done.node
            args["attempts"] = _told(done.attempts)
            if done.type is OpType.INFO:
                name += " (info: may act until the end)"
            elif done.type is OpType.FAIL:
                name += " (fail)"
            if done.time < call.time:
                args["clock"] = f"the completion is {call.time - done.time} ns before the call"
        event = slice_event(CLIENTS, tid, start, end, name, "op", args)
        event["cname"] = _COLOURS[pair.type]
        return start, 1, event

    def _lane_of_attempt(self, attempt: Attempt) -> int:
        return self._nodes.tid(
            f"rpc to {text_of(attempt.node)}", attempt.start, max(attempt.start, attempt.end), 1
        )

    def _attempt(
        self, number: int, attempt: Attempt, op: Op, tids: tuple[int, int]
    ) -> Iterator[Timed]:
        """Yield the slice of an RPC, and the flow that leads to it.

        `tids` has the track of the operation and the track of the RPC.
        """
        args = {"op": op.index, "process": op.process, "outcome": text_of(attempt.outcome)}
        name = op.f if attempt.outcome == "ok" else f"{op.f}: {text_of(attempt.outcome)}"
        end = max(attempt.start, attempt.end)
        event = slice_event(NODES, tids[1], attempt.start, end, name, "attempt", args)
        yield attempt.start, 2, event
        flow = {"cat": "flow", "name": "rpc", "id": number, "ts": us(attempt.start)}
        yield attempt.start, 2, {"ph": "s", "pid": CLIENTS, "tid": tids[0], **flow}
        yield attempt.start, 2, {"ph": "f", "bp": "e", "pid": NODES, "tid": tids[1], **flow}

    # --- phases, leaders, faults: `tid` is filled in by `_placed` ------------------------------

    def _phases(self) -> Iterator[list[Timed]]:
        facts = [op for op in self._history.of_process("harness") if op.f != _LEADER]
        phases = sorted((op for op in facts if op.f == "phase"), key=lambda op: op.time)
        for op, end in _until_next(phases, self.end_ns):
            name = text_of(_field(op, "phase"))
            event = slice_event(PHASES, 1, op.time, end, name, "phase", {"index": op.index})
            yield [(op.time, 0, event)]
        for op in facts:
            if op.f == "phase":
                continue
            args = {"index": op.index}
            if op.f != "snapshot":
                args["value"] = bounded(op.value)
            name = op.f
            event = instant(PHASES, 1, op.time, name, args)
            if op.f == "node-exit":
                expected = isinstance(op.value, Mapping) and op.value.get("expected") is True
                name = "exit (expected)" if expected else "exit (NOT expected)"
                node = f"rpc to {text_of(_field(op, 'node'))}"
                event = instant(NODES, 0, op.time, name, args) | {"lane": node}
            yield [(op.time, 0, event)]

    def _anomalies(self, results: Sequence[CheckResult]) -> Iterator[list[Timed]]:
        """Yield an instant per invalid result, at the answer to the result's first operation."""
        moments = {op.index: op.time for op in self._history}
        for pair in self._history.pairs:
            moments[pair.invoke.index] = self._interval(pair)[1]
        for result in results:
            if result.verdict is not Verdict.INVALID:
                continue
            time = next((moments[i] for i in result.operations if i in moments), self.end_ns)
            args = {
                "reason": text_of(result.reason),
                "operations": list(result.operations[:OPERATIONS_NAMED_MAX]),
            }
            name = f"{result.checker}: {rule_of(result)}"
            yield [(time, 0, instant(ANOMALIES, 1, time, name, args))]

    def _leaders(self) -> Iterator[list[Timed]]:
        facts = sorted(self._history.leaders(), key=lambda op: op.time)
        for op, end in _until_next(facts, self.end_ns):
            name = f"{text_of(_field(op, 'node'))} @ term {text_of(_field(op, 'term'))}"
            event = slice_event(NODES, 0, op.time, end, name, "leader", {"index": op.index})
            yield [(op.time, 0, event | {"lane": _LEADER})]

    def _faults(self) -> Iterator[list[Timed]]:
        """Yield the start and end of each fault. A fault without targets becomes an instant."""
        notes = list(self._history.of_process(NEMESIS))
        edges: set[int] = set()
        hits = [fault for fault in faults_of(notes, most=None) if fault.targets]
        for count, fault in enumerate(hits, 1):
            identity = f"{text_of(fault.id)}#{count}"
            name = f"{fault.nemesis}: {', '.join(fault.targets[:_TARGETS_NAMED_MAX])}"
            last = fault.heal or fault.begin
            until = max(fault.start, self.end_ns if fault.end is None else fault.end)
            end = edge("e", last, identity, name, until)
            if fault.heal is None:
                end[2]["args"] = {"note": "never healed"}
            edges |= {fault.begin.index, last.index}
            yield [edge("b", fault.begin, identity, name, fault.start), end]
        # a fault without targets, or a heal without a fault (only in foreign histories)
        for op in notes:
            if op.index not in edges:
                args = {"index": op.index, "value": bounded(op.value)}
                text = f"{op.f}: {text_of(_field(op, 'action'))}"
                yield [(op.time, 0, instant(FAULTS, 0, op.time, text, args))]

    def _placed(self, mark: Timed) -> Timed:
        time, rank, event = mark
        lane = event.pop("lane", None)
        if lane == _LEADER:
            event["tid"] = self._nodes.tid(lane, time, time + int(event["dur"] * 1000), 0)
        elif lane is not None:
            event["tid"] = self._nodes.first(lane, 1)
        return time, rank, event


def _fitting(units: Sequence[Sequence[Timed]], room: int) -> tuple[list[Timed], int]:
    """Return the events (by time) of the first units that fit into `room`, and how many units fit.

    A unit is a group of events to keep or cut as a whole, such as the start and end of a fault.
    """
    kept: list[Timed] = []
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
    """Yield each fact with the time of the next fact. The last fact lasts until `end_ns`."""
    for position, op in enumerate(facts):
        yield op, facts[position + 1].time if position + 1 < len(facts) else end_ns


def _when(timed: Timed) -> tuple[int, int]:
    return timed[0], timed[1]


def _field(op: Op, name: str) -> Any:
    return op.value.get(name, "?") if isinstance(op.value, Mapping) else "?"


def _told(attempts: Sequence[Attempt]) -> list[str]:
    lines = [
        f"{text_of(each.node)}: {text_of(each.outcome)} ({us(each.end - each.start):g} µs)"
        for each in attempts[:ATTEMPTS_TOLD_MAX]
    ]
    rest = len(attempts) - len(lines)
    return [*lines, f"and {rest} more"] if rest > 0 else lines
