"""Describes a shrunk run on one screen: the case that is left, the events, and why it fails."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from harness.errors import clipped, counted
from harness.ops import CheckResult, History, OpType, Pair, Verdict
from harness.run.keep import KeptRun
from harness.timeline import Fault, faults_of
from harness.trials.shrink import Shrunk

WIDTH: Final = 100
LINES_MAX: Final = 24
EVENTS_MAX: Final = 12
EXPLANATION_LINES_MIN: Final = 5
_TIMES: Final = 1e9


class _Event(NamedTuple):
    time_ns: int
    who: str
    words: str
    blamed: bool


def story(shrunk: Shrunk, kept: KeptRun, places: Sequence[tuple[str, str]]) -> list[str]:
    """Describe a shrunk run in at most `LINES_MAX` lines of `WIDTH` characters.

    `places` are named paths and commands. They come last and are never cut.
    """
    result = _result(shrunk, kept)
    head = [headline(shrunk), *textwrap.wrap(_setting(shrunk), WIDTH)[:2], ""]
    tail = [f"{name:8} {text}" for name, text in places]
    if shrunk.exhausted:
        tail.insert(
            0,
            f"The limit of CPU time ended the search after {shrunk.cpu_s:.0f} s; the same command "
            "with a higher --cpu continues it.",
        )
    room = LINES_MAX - len(head) - len(tail) - 2
    happened = _events(kept.outcome.history, set(result.operations))
    events = _shown(happened, min(EVENTS_MAX, room - EXPLANATION_LINES_MIN))
    lines = [line for text in result.explanation or (result.reason,) for line in _wrapped(text)]
    explanation = _cut(lines, room - len(events), "in results.json")
    return [*head, *events, "", *explanation, "", *tail]


def headline(shrunk: Shrunk) -> str:
    """Return the kind of the failure and the size of the shrunk case in one line."""
    before = len(shrunk.start.faults or ())
    left = (
        f"{shrunk.result.ops} operations of the generator"
        if shrunk.operations is None
        else counted(shrunk.operations, "operation")
    )
    return (
        f"{shrunk.kind}: {counted(shrunk.faults, 'fault')} of {before}, {left}, after "
        f"{counted(shrunk.runs, 'trial')} in {shrunk.cpu_s:.0f} CPU s"
    )


def _setting(shrunk: Shrunk) -> str:
    case = shrunk.case
    parts = [f"{case.system}/{case.profile}"]
    parts += [f"bug {', '.join(case.bugs)}"] if case.bugs else []
    parts += [f"workload {case.workload}", counted(case.concurrency, "client")]
    parts.append(f"{case.time_limit_s:g} s, seed {case.seed}")
    for name in ("knobs", "target_options", "workload_options"):
        was, now = getattr(shrunk.start, name), getattr(case, name)
        changed = {key: value for key, value in now.items() if value != was.get(key)}
        parts += [f"{key.replace('_', '-')} {value}" for key, value in changed.items()]
    parts += [f"knob {key} {value}" for key, value in case.knobs.items()]
    return ", ".join(parts)


def _result(shrunk: Shrunk, kept: KeptRun) -> CheckResult:
    results = kept.judgement.results
    invalid = [each for each in results if each.verdict is Verdict.INVALID]
    same = (each for each in invalid if each.checker == shrunk.kind.checker)
    return next(same, next(iter(invalid or results)))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ") or [""]


def _cut(lines: list[str], most: int, where: str) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"... and {counted(len(lines) - most + 1, 'line')} {where}"]


def _events(history: History, blamed: set[int]) -> list[_Event]:
    """Return the faults and the client operations that began before the final heal, by time."""
    phases = {op.value["phase"]: op.time for op in history.facts("phase")}
    end_ns = phases.get("heal-core", 0)
    events = [_of_fault(fault, blamed) for fault in faults_of(history) if fault.start < end_ns]
    events += [
        _of_operation(pair, blamed)
        for pair in history.pairs
        if isinstance(pair.invoke.process, int) and pair.invoke.time < end_ns
    ]
    return sorted(events, key=lambda event: event.time_ns)


def _of_fault(fault: Fault, blamed: set[int]) -> _Event:
    until = "" if fault.end is None else f", until {fault.end / _TIMES:.3f}"
    words = fault.note or f"{fault.nemesis}: {', '.join(fault.targets) or 'hit nothing'}"
    return _Event(fault.start, "fault", f"{words}{until}", fault.begin.index in blamed)


def _of_operation(pair: Pair, blamed: set[int]) -> _Event:
    call, done = pair.invoke, pair.completion
    words = f"{call.f} {_plain(call.value)}".rstrip()
    if done is None or done.type is OpType.INFO:
        outcome = "no answer"
    else:
        answer = done.error if done.type is OpType.FAIL and done.error else _answer(pair)
        outcome = f"{done.time / _TIMES:.3f} {done.type.value} {answer}".rstrip()
    named = not blamed.isdisjoint({call.index} | ({done.index} if done is not None else set()))
    text = f"op {call.index}: {clipped(words, 44)} -> {outcome}"
    return _Event(call.time, f"client {call.process}", text, named)


def _answer(pair: Pair) -> str:
    """Return the completion's value as text, without entries that the invocation already has."""
    done = pair.completion
    if done is None or not isinstance(done.value, Mapping):
        return ""
    asked = pair.invoke.value if isinstance(pair.invoke.value, Mapping) else {}
    return _plain({key: value for key, value in done.value.items() if asked.get(key) != value})


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_plain(item)}" for key, item in value.items())
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _shown(events: Sequence[_Event], most: int) -> list[str]:
    """Return at most `most` events as lines. Blamed operations are kept first, then faults."""
    ranked = sorted(
        range(len(events)),
        key=lambda n: (not events[n].blamed, events[n].who != "fault", -events[n].time_ns),
    )
    chosen = set(ranked if len(events) <= most else ranked[: most - 1])
    lines = [
        clipped(
            f"{event.time_ns / _TIMES:8.3f} s {'*' if event.blamed else ' '} "
            f"{event.who:9} {event.words}",
            WIDTH,
        )
        for n, event in enumerate(events)
        if n in chosen
    ]
    if len(chosen) < len(events):
        lines.append(f"           ... and {len(events) - len(chosen)} more, on the page")
    return lines or ["           no fault, and no operation before the final reads"]
