"""Makes the lanes above a page's operations: phases, faults, leaders, nodes and notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.errors import measured
from harness.ops import NEMESIS, History
from harness.timeline import FACTS_MAX, Fault, NodeState, Reign, phases_of

TEXT_CHARS_MAX: Final = 600
TARGETS_MAX: Final = 100
_MARKS: Final = (
    "live",
    "converged",
    "interrupted",
    "unread",
    "log",
    "heartbeat-gap",
    "starvation",
    "infrastructure",
    "divergence",
    "frozen",
)


def phase_rows(history: History) -> list[tuple[int, str]]:
    """Return the start time and the name of each phase."""
    return [(time, short(name)) for time, name in phases_of(history)]


def fault_rows(faults: Sequence[Fault], nemeses: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per fault. Overlapping faults of one nemesis are in different lanes."""
    rows = []
    for nemesis in nemeses:
        injected = [fault for fault in faults if fault.nemesis == nemesis]
        spans = [
            (fault.start, fault.start if not fault.targets else fault.end) for fault in injected
        ]
        rows += [
            {
                "id": short(fault.id),
                "nemesis": short(fault.nemesis),
                "targets": [short(name) for name in fault.targets[:TARGETS_MAX]],
                "start": fault.start,
                "end": fault.end,
                "note": short(fault.note),
                "bite": short(_told(fault.bite)),
                "lane": lane,
            }
            for fault, lane in zip(injected, lanes_of(spans), strict=True)
        ]
    return sorted(rows, key=lambda row: (row["start"], row["id"]))


def _told(bite: Mapping[str, Any] | None) -> str:
    """Describe the measured effect of a fault; empty if it was not measured."""
    if bite is None:
        return ""
    count = bite.get("count")
    return "not measurable" if count is None else measured(count, str(bite.get("unit", "")))


def span_rows(spans: Iterable[Reign | NodeState]) -> list[dict[str, Any]]:
    """Convert spans, of leadership or of nodes that are down or paused, to rows of the page."""
    every = [msgspec.to_builtins(span).items() for span in spans]
    return [
        {name: short(value) if isinstance(value, str) else value for name, value in row}
        for row in every
    ]


def marks_of(history: History) -> list[tuple[int, str, str]]:
    """Return the notes of the harness that have no lane, each as time, kind and text."""
    marks = []
    for op in history:
        if op.is_client or op.f not in _MARKS or op.process == NEMESIS:
            continue
        marks.append((op.time, op.f, short(msgspec.json.encode(op.value).decode())))
        if len(marks) == FACTS_MAX:
            break
    return marks


def lanes_of(spans: Iterable[tuple[int, int | None]]) -> list[int]:
    """Assign lanes to spans (sorted by start; end `None`: open), without overlaps in a lane."""
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


def short(text: str) -> str:
    """Cut `text` to `TEXT_CHARS_MAX` characters."""
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[: TEXT_CHARS_MAX - 1]}…"
