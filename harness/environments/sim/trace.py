"""Compares two runs of one seed, and finds the first difference between their traces.

Every run computes a digest, which costs nearly nothing: a CRC over every message (with its arrival
time and connection), every event, every disk write and every fault. A digest detects accidental
differences, not forgery. For runs that are recorded to files (the knob `trace`), `first_divergence`
names the first line that differs (time, node, message), as the simulators of TigerBeetle and
FoundationDB do.
"""

from __future__ import annotations

import itertools
from collections import deque
from pathlib import Path
from typing import Final, Protocol

import msgspec

from harness.cluster import Link

TRACE_LINES_MAX: Final = 5_000_000
_CONTEXT_LINES: Final = 5
_TRACED_BYTES_MAX: Final = 96
_END: Final = "(the trace ends here)"


class Trace(Protocol):
    """A listener that learns of everything that happens in a world, in order.

    It must not change the world.
    """

    def noted(self, now_ns: int, node: str, what: str, data: bytes) -> None:
        """Handle an event of a node, a write to its disk, or a fault."""

    def sent(self, now_ns: int, link: Link, pipe: int, at_ns: int, frame: bytes) -> None:
        """Handle a frame that was sent now and arrives at `at_ns`.

        `pipe` is the number of one direction of a connection.
        """

    def close(self) -> None:
        """Close the trace when the world is discarded."""


def noted_text(what: str, data: bytes) -> str:
    """Return an event and its data as one line without control characters."""
    text = "".join(c if c.isprintable() else "·" for c in data.decode(errors="replace"))
    return f"{what} {text}".rstrip()


class TraceWriter:
    """Writes a trace, one line per message or event; at the limit, a last line reports the cut."""

    def __init__(self, path: Path, *, lines_max: int = TRACE_LINES_MAX) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._lines_left = lines_max
        self._lines_max = lines_max

    def noted(self, now_ns: int, node: str, what: str, data: bytes) -> None:
        self._write(now_ns, node, noted_text(what, data))

    def sent(self, now_ns: int, link: Link, pipe: int, at_ns: int, frame: bytes) -> None:
        self._write(
            now_ns,
            link.source,
            f"send {link.destination} #{pipe} due {at_ns / 1e9:.9f} "
            f"{len(frame)} bytes {frame[:_TRACED_BYTES_MAX]!r}",
        )

    def _write(self, now_ns: int, node: str, what: str) -> None:
        if self._lines_left > 0:
            self._file.write(f"{now_ns / 1e9:.9f} {node} {what}\n")
        elif self._lines_left == 0:
            self._file.write(f"... the trace was cut after {self._lines_max} lines\n")
        self._lines_left -= 1

    def close(self) -> None:
        self._file.close()


class Divergence(msgspec.Struct, frozen=True):
    """The first difference of two traces: its line number, both lines, and the lines before it."""

    line: int
    first: str
    second: str
    before: tuple[str, ...]

    def __str__(self) -> str:
        context = "".join(f"    {line}\n" for line in self.before)
        sides = f"  1 {self.first}\n  2 {self.second}"
        return f"the runs diverge at event {self.line}:\n{context}{sides}"


def first_divergence(first: Path, second: Path) -> Divergence | None:
    """Find the first line in which two traces differ; `None` if they are equal."""
    before: deque[str] = deque(maxlen=_CONTEXT_LINES)
    with first.open(encoding="utf-8") as left, second.open(encoding="utf-8") as right:
        pairs = itertools.zip_longest(left, right)
        for number, (mine, other) in enumerate(pairs, start=1):
            if mine != other:
                return Divergence(
                    number,
                    _END if mine is None else mine.rstrip("\n"),
                    _END if other is None else other.rstrip("\n"),
                    tuple(before),
                )
            before.append(mine.rstrip("\n"))
    return None
