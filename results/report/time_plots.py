"""Computes the geometry of drawings over time: one run by seconds, or many runs by days.

A drawing is `WIDE` units wide, and the browser stretches it to the width of the page. Stretching
distorts text, so the template puts all text outside of the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from harness.ops import NS_PER_S
from results.report.plots import Bar, Tick

if TYPE_CHECKING:
    from results.facts.run_numbers import RunNumbers

WIDE: Final = 1000.0
HIGH: Final = 120.0
BARS_MAX: Final = 200
_KINDS: Final = ("ok", "fail", "info")


class Completions(msgspec.Struct, frozen=True):
    """Completed operations over the time of a run, with its faults and the chaos phase."""

    bars: tuple[Bar, ...]
    ticks: tuple[float, ...]
    end: str
    top: str


def completions(numbers: RunNumbers, *, end_s: int, most: int | None = None) -> Completions:
    """Draw a run on an axis of `end_s` seconds. The axis of operations ends at `most`.

    To compare two runs, draw both with the same `end_s` and `most`.
    """
    end_s = max(end_s, 1)
    step = _step_s(end_s)
    top = max(most if most is not None else peak(numbers, end_s=end_s), 1)
    scale = WIDE / end_s
    width = max(step * scale - (1 if end_s / step < 150 else 0), 0.5)

    def span(kind: str, title: str, times_ns: tuple[int, int], y: float, height: float) -> Bar:
        start, end = (time_ns / NS_PER_S for time_ns in times_ns)
        words = f"{title}: {start:.1f}-{end:.1f} s"
        return Bar(start * scale, max((end - start) * scale, 1), kind, words, y, height)

    ends: list[Bar] = []
    for place, counts in enumerate(_sums(numbers, step)):
        words = ", ".join(f"{n} {kind}" for n, kind in zip(counts, _KINDS, strict=True))
        title, y = f"{place * step}-{(place + 1) * step} s: {words}", HIGH
        for n, kind in zip(counts, _KINDS, strict=True):
            y -= n * HIGH / top
            if n:
                ends.append(Bar(place * step * scale, width, kind, title, y, n * HIGH / top))
    faults = [
        (f"{band.nemesis} on {band.targets}", (band.start_ns, band.end_ns))
        for band in numbers.faults
    ]
    chaos = numbers.chaos_ns
    return Completions(
        (
            *(span("fault", *fault, 0, HIGH) for fault in faults),
            *ends,
            *(span("fault-edge", *fault, HIGH + 2, 6) for fault in faults),
            *(() if chaos is None else (span("chaos", "chaos", chaos, HIGH + 10, 4),)),
        ),
        # one tick per tenth of the time, rounded up to a round number of seconds
        tuple(place * scale for place in range(0, end_s + 1, int(_round_up(max(1, end_s / 10))))),
        f"{end_s} s",
        f"{top} a second" if step == 1 else f"{top} in {step} s",
    )


def peak(numbers: RunNumbers, *, end_s: int) -> int:
    """Return the number of operations in the highest bar that `completions` would draw."""
    return max((sum(row) for row in _sums(numbers, _step_s(end_s))), default=0)


def _step_s(end_s: int) -> int:
    return max(1, math.ceil(end_s / BARS_MAX))


def _sums(numbers: RunNumbers, step: int) -> list[tuple[int, ...]]:
    seconds = numbers.seconds
    chunks = [seconds[start : start + step] for start in range(0, len(seconds), step)]
    return [tuple(sum(row[place] for row in chunk) for place in range(3)) for chunk in chunks]


def _round_up(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999999)


class Value(msgspec.Struct, frozen=True):
    """A value of a series. The value, or the ends of its interval, are `None` if unknown.

    A line joins only values of the same `kind`.
    """

    label: str
    words: str
    kind: str
    value: float | None
    low: float | None = None
    high: float | None = None


class Point(msgspec.Struct, frozen=True):
    """The position of a value, and the y positions of the ends of its interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    title: str


class Series(msgspec.Struct, frozen=True):
    """One quantity by label, day or another dimension. Its axis begins at zero."""

    title: str
    labels: tuple[str, ...]
    points: tuple[Point, ...]
    lines: tuple[str, ...]
    ticks: tuple[Tick, ...]  # here, `Tick.x` is the y position


def series(title: str, values: Sequence[Value], *, joined: bool) -> Series:
    """Draw values side by side. With `joined`, a line joins the values of each kind."""
    numbers = [
        number for point in values for number in (point.value, point.high) if number is not None
    ]
    most = max(numbers, default=0.0)
    top = _round_up(most) if most > 0 else 1.0
    width = WIDE / max(len(values), 1)

    def up(value: float | None) -> float | None:
        return None if value is None else HIGH - value * HIGH / top

    points: list[Point] = []
    lines: dict[str, list[str]] = {}
    for place, point in enumerate(values):
        y = up(point.value)
        if y is None:
            continue
        x = (place + 0.5) * width
        words = f"{point.label} ({point.words}): {point.value:.4g}"
        if point.low is not None and point.high is not None:
            words += f" ({point.low:.3g} to {point.high:.3g})"
        points.append(Point(x, y, up(point.low), up(point.high), words))
        lines.setdefault(point.kind, []).append(f"{x:.1f},{y:.1f}")
    return Series(
        title,
        tuple(point.label for point in values),
        tuple(points),
        tuple(" ".join(line) for line in lines.values() if len(line) > 1) if joined else (),
        tuple(Tick(HIGH - HIGH * part, f"{top * part:g}") for part in (0, 0.5, 1)),
    )
