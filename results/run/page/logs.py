"""Reads excerpts of nodes' logs for the page, and aligns their times with the history's clock.

A log line begins with its time, in one of three forms: seconds of the simulated world; a JSON
object with `ts_ns` of the wall clock; or, for a foreign program, `@` and the wall clock at the
line's arrival. A line without a time gets the time of the line above.

The history counts from the start of the run, so every log needs an offset. For foreign programs,
the fact `clock` has the offset. For other logs, each leader that occurs both in the history and in
a log yields an offset, and the median is used.

Small logs are embedded as a whole. Of large logs, only the lines around the time `focus` are
embedded.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import counted
from harness.ops import NS_PER_S

LOG_CHARS_MAX: Final = 1_500_000
"""The maximum number of characters of all logs together on one page."""
LINE_CHARS_MAX: Final = 500
FILE_BYTES_MAX: Final = 32_000_000
"""The number of bytes that are read at the end of a file. The end of a run explains most."""
FILES_MAX: Final = 200
NO_LOGS: Final = (
    "Logs of nodes were not kept: none is in the run's folder. Soaks in simulation keep logs of "
    "failed seeds; the replay command above makes a run with logs."
)

_SECONDS: Final = re.compile(r"(\d{1,12}\.\d{1,9})\s")
_STAMP: Final = re.compile(r"@(\d{1,12}\.\d{1,9})\s")
_WALL: Final = re.compile(r'\{"ts_ns":\s*(\d{1,19})\b')
_LEADER: Final = re.compile(r'(?:\sleader\s|"event":\s*"leader").*?"term":\s*(\d{1,18})')


class Log(msgspec.Struct, kw_only=True):
    """The excerpt of one log: times in ns of the history (`None` if unknown), and texts."""

    node: str
    path: str
    size: int
    clock: str  # "seconds", "wall", "stamp" or "none"
    first: int  # number of the first excerpted line, from 1
    total: int
    times: list[int | None]
    lines: list[str]
    note: str = ""


def find_logs(folder: Path) -> list[Path]:
    """List a run's log files: plain files `*.log`, except `ops.log`, in its folder and `logs/`."""
    paths = [
        path
        for place in (folder, folder / "logs")
        if place.is_dir()
        for path in place.iterdir()
        if path.suffix == ".log" and path.is_file() and not path.is_symlink()
        if path.name != "ops.log"
    ]
    return sorted(paths, key=lambda path: (path.stem == "warden", path.name))


def read_logs(
    folder: Path,
    leaders: Sequence[tuple[int, str, int]],
    focus: int | None,
    *,
    begin_ns: int | None = None,
) -> tuple[list[Log], str]:
    """Read excerpts of all logs; also return a sentence on how well the logs' clocks are aligned.

    `leaders` has time, node and term of each leader in the history. Lines near the time `focus` of
    the history are kept first. `begin_ns` is the wall-clock time at the history's start.
    """
    logs = [_read(folder, path) for path in find_logs(folder)[:FILES_MAX]]
    offset, sentence = _align(logs, leaders)
    if begin_ns is not None and any(log.clock == "stamp" for log in logs):
        offset["stamp"] = begin_ns
        sentence = (
            f"{sentence} Lines of foreign programs have the time at which the harness "
            "received them."
        ).strip()
    if all(log.node == "warden" for log in logs):
        sentence = NO_LOGS
    for log in logs:
        shift = offset.get(log.clock)
        log.times = [
            None if time is None or shift is None else time - shift
            for time in _inherited(log.times)
        ]
    share = LOG_CHARS_MAX // max(1, len(logs))
    for log in logs:
        _cut(log, share, focus)
    return logs, sentence


def _read(folder: Path, path: Path) -> Log:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size > FILE_BYTES_MAX:
            file.seek(size - FILE_BYTES_MAX, os.SEEK_SET)
        text = file.read(FILE_BYTES_MAX).decode(errors="replace")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    times: list[int | None] = []
    clock = "none"
    for line in lines:
        wall, seconds, stamp = _WALL.match(line), _SECONDS.match(line), _STAMP.match(line)
        if wall is not None:
            clock, time = "wall", int(wall[1])
        elif seconds is not None:
            clock, time = "seconds", round(float(seconds[1]) * NS_PER_S)
        elif stamp is not None:
            clock, time = "stamp", round(float(stamp[1]) * NS_PER_S)
        else:
            times.append(None)
            continue
        times.append(time)
    note = ""
    if size > FILE_BYTES_MAX:
        note = (
            f"only the last {FILE_BYTES_MAX:,} of {size:,} bytes were read; lines count from there"
        )
    return Log(
        node=path.stem,
        path=path.relative_to(folder).as_posix(),
        size=size,
        clock=clock,
        first=1,
        total=len(lines),
        times=times,
        lines=lines,
        note=note,
    )


def _inherited(times: Sequence[int | None]) -> list[int | None]:
    """Give each line without a time the time of the line above it."""
    times_ns: list[int | None] = []
    for time in times:
        times_ns.append(time if time is not None or not times_ns else times_ns[-1])
    return times_ns


def _align(
    logs: Sequence[Log], leaders: Sequence[tuple[int, str, int]]
) -> tuple[dict[str, int], str]:
    """Return the offset of each log's clock from the history's clock; describe the precision."""
    announced = {(node, term): time for time, node, term in leaders}
    offsets: dict[str, list[int]] = {"wall": [], "seconds": []}
    for log in logs:
        if log.clock == "stamp":
            continue
        for time, line in zip(log.times, log.lines, strict=True):
            match = _LEADER.search(line) if time is not None and "leader" in line else None
            fact = announced.get((log.node, int(match[1]))) if match is not None else None
            if time is not None and fact is not None:
                offsets[log.clock].append(time - fact)
    offset_by_clock: dict[str, int] = {}
    sentences = []
    for clock, values in offsets.items():
        if values:
            offset_by_clock[clock] = int(statistics.median_high(values))
            spread_ms = (
                statistics.median(abs(value - offset_by_clock[clock]) for value in values) / 1e6
            )
            sentences.append(
                f"Log times are aligned with the history by {counted(len(values), 'election')} "
                f"in both (half of them differ by at most {spread_ms:.1f} ms)."
            )
        elif any(log.clock == clock for log in logs):
            if clock == "seconds":
                offset_by_clock[clock] = 0
                sentences.append("Log times are taken as seconds since the start of the run.")
            else:
                sentences.append(
                    "Log times could not be aligned with the history: no election is in both."
                )
    return offset_by_clock, " ".join(sentences)


def _cut(log: Log, chars_max: int, focus: int | None) -> None:
    """Keep the lines nearest to `focus`. Without `focus` or times, keep the last lines."""
    log.lines = [_short(line) for line in log.lines]
    sizes = [len(line) + 1 for line in log.lines]
    if sum(sizes) <= chars_max:
        return
    last = len(sizes) - 1
    middle = last
    if focus is not None and any(time is not None for time in log.times):
        middle = min(range(len(sizes)), key=lambda at: _distance(log.times[at], focus))
    low, high, used = middle, middle + 1, sizes[middle]
    while True:
        grown = False
        if low > 0 and used + sizes[low - 1] <= chars_max:
            low -= 1
            used += sizes[low]
            grown = True
        if high <= last and used + sizes[high] <= chars_max:
            used += sizes[high]
            high += 1
            grown = True
        if not grown:
            break
    log.first, log.lines, log.times = low + 1, log.lines[low:high], log.times[low:high]


def _distance(time: int | None, focus: int) -> float:
    return float("inf") if time is None else abs(time - focus)


def _short(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]}… ({len(line) - LINE_CHARS_MAX} more characters)"
