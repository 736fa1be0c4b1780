"""Makes the events and tracks of a trace in Chrome's JSON format, and writes its file."""

from __future__ import annotations

import gzip
import heapq
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from harness.cli.output import note
from harness.errors import InfrastructureError
from harness.ops import Op
from harness.support.atomic_file import replacing_bytes

VALUE_CHARS_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 300

PHASES: Final = 1
FAULTS: Final = 2
CLIENTS: Final = 3
NODES: Final = 4
ANOMALIES: Final = 5
GROUPS: Final = {
    ANOMALIES: "anomalies",
    PHASES: "phases",
    FAULTS: "faults",
    CLIENTS: "clients",
    NODES: "nodes",
}
"""Names of the groups of tracks, in the order in which the viewer shows them."""

Event = dict[str, Any]
Timed = tuple[int, int, Event]


class Trace(msgspec.Struct, frozen=True):
    """The content of a trace: properties of the run, and the events ordered by time."""

    metadata: dict[str, Any]
    events: Iterator[Event]
    cut: str | None


def write_trace(trace: Trace, path: Path) -> None:
    """Write the whole trace to `path`, or no file at all. Compress it if the name ends in `.gz`."""
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


class Lanes:
    """The tracks of one group. Slices with one name that overlap go to different tracks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ends: dict[str, list[tuple[int, int]]] = {}
        self._names: list[tuple[int, str, int]] = []

    def tid(self, name: str, start: int, end: int, order: int) -> int:
        """Return the track for a slice. A name's slices must come in the order of their starts."""
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
        """Return the first track with this name. Instants use it, because they never overlap."""
        lanes = self._ends.get(name)
        return min(tid for _, tid in lanes) if lanes else self.tid(name, 0, 0, order)

    def names(self) -> Iterator[Event]:
        """Yield metadata events with the names and the order of all tracks."""
        yield from group_events(self._pid)
        for tid, label, order in self._names:
            yield meta("thread_name", self._pid, tid, name=label)
            yield meta("thread_sort_index", self._pid, tid, sort_index=order)


def us(time_ns: int) -> float:
    """Convert a time to µs, from which every reader computes the same number of ns.

    The viewer multiplies by 1000 and truncates. So 0.029 µs would become 28 ns, and slices that
    only touch would overlap.
    """
    time_us = time_ns / 1000
    return time_us if int(time_us * 1000) == time_ns else math.nextafter(time_us, math.inf)


def slice_event(
    pid: int, tid: int, start: int, end: int, name: str, category: str, args: dict[str, Any]
) -> Event:
    """Make the event of a slice from `start` to `end`, both in ns."""
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": us(start),
        "dur": us(end - start),
        "name": text_of(name),
        "cat": category,
        "args": args,
    }


def instant(pid: int, tid: int, time: int, name: str, args: dict[str, Any]) -> Event:
    """Make the event of an instant; `time` is in ns."""
    return {
        "ph": "i",
        "s": "t",
        "pid": pid,
        "tid": tid,
        "ts": us(time),
        "name": text_of(name),
        "cat": "fact",
        "args": args,
    }


def edge(side: str, op: Op, identity: str, name: str, time: int) -> Timed:
    """Make the event of the begin (`side` is `b`) or end (`e`) of a fault."""
    event = {
        "ph": side,
        "pid": FAULTS,
        "tid": 0,
        "ts": us(time),
        "name": text_of(name),
        "cat": "fault",
        "id": identity,
        "args": {"index": op.index, "value": bounded(op.value)},
    }
    return time, 0, event


def group_events(pid: int) -> Iterator[Event]:
    """Yield metadata events with the name and the position of a group of tracks."""
    yield meta("process_name", pid, 0, name=GROUPS[pid])
    yield meta("process_sort_index", pid, 0, sort_index=[*GROUPS].index(pid))


def meta(kind: str, pid: int, tid: int, **args: Any) -> Event:
    """Make a metadata event, which gives a group or track its name or its position."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args}


def text_of(value: Any) -> str:
    """Convert a value to text of at most `TEXT_CHARS_MAX` characters."""
    text = str(value)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def bounded(value: Any) -> Any:
    """Return a small `value` unchanged. Of a large value, return the start of its JSON text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}… (cut)"
