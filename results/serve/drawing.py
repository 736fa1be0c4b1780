"""Coordinates of the plots; templates turn them into SVG, which carries no style of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from results.facts.run_numbers import RunNumbers
from results.serve.over_time import TotalOf, TrendPoint

__all__ = ["Availability", "TrendPlot", "availability", "peak", "total_plots", "trend_plots"]

WIDTH: Final = 1000.0
HEIGHT: Final = 120.0
BARS_MAX: Final = 200
_NS_PER_S: Final = 1_000_000_000
_STEPS: Final = (1, 2, 5)


class Bar(msgspec.Struct, frozen=True):
    """A stretch of time: ok upwards from the ground, fail and info on top of it."""

    x: float
    width: float
    ok: float
    fail: float
    info: float
    title: str


class Box(msgspec.Struct, frozen=True):
    """A fault, or the phase of chaos."""

    x: float
    width: float
    title: str


class Tick(msgspec.Struct, frozen=True):
    """A mark on an axis."""

    at: float
    text: str


class Availability(msgspec.Struct, frozen=True):
    """How many operations ended how, over the time of a run."""

    bars: tuple[Bar, ...]
    faults: tuple[Box, ...]
    chaos: Box | None
    ticks: tuple[float, ...]
    end: str
    top: str


def availability(numbers: RunNumbers, *, end_s: int, most: int | None = None) -> Availability:
    """The picture of a run on an axis of `end_s` seconds, `most` operations high.

    Two runs that are compared have both in common.
    """
    end_s = max(end_s, 1)
    step = max(1, math.ceil(end_s / BARS_MAX))
    sums = _sums(numbers, step)
    top = max(most if most is not None else peak(numbers, end_s=end_s), 1)
    scale, height = WIDTH / end_s, HEIGHT / top
    bars = [
        Bar(
            x=place * step * scale,
            width=max(step * scale - (1 if end_s / step < 150 else 0), 0.5),
            ok=ok * height,
            fail=fail * height,
            info=info * height,
            title=f"{place * step}-{(place + 1) * step} s: {ok} ok, {fail} fail, {info} info",
        )
        for place, (ok, fail, info) in enumerate(sums)
        if ok or fail or info
    ]
    faults = tuple(
        _box(f"{band.nemesis} on {band.targets}", band.start_ns, band.end_ns, scale)
        for band in numbers.faults
    )
    chaos = numbers.chaos_ns
    return Availability(
        tuple(bars),
        faults,
        None if chaos is None else _box("chaos", *chaos, scale),
        # A tenth of the time each, or somewhat more, in a round number of seconds.
        tuple(place * scale for place in range(0, end_s + 1, _step(end_s / 10))),
        f"{end_s} s",
        f"{top} a second" if step == 1 else f"{top} in {step} s",
    )


def peak(numbers: RunNumbers, *, end_s: int) -> int:
    """The highest bar that `availability` would draw."""
    step = max(1, math.ceil(max(end_s, 1) / BARS_MAX))
    return max((sum(row) for row in _sums(numbers, step)), default=0)


def _sums(numbers: RunNumbers, step: int) -> list[tuple[int, int, int]]:
    seconds = numbers.seconds
    chunks = [seconds[start : start + step] for start in range(0, len(seconds), step)]
    return [
        (sum(row[0] for row in chunk), sum(row[1] for row in chunk), sum(row[2] for row in chunk))
        for chunk in chunks
    ]


def _box(title: str, start_ns: int, end_ns: int, scale: float) -> Box:
    start, end = start_ns / _NS_PER_S, end_ns / _NS_PER_S
    return Box(start * scale, max((end - start) * scale, 1), f"{title}: {start:.1f}-{end:.1f} s")


def _step(least: float) -> int:
    power = 1
    while power < 10**12:
        for factor in _STEPS:
            if factor * power >= least:
                return factor * power
        power *= 10
    return power


class Mark(msgspec.Struct, frozen=True):
    """A point of a trend: `y` is its height, `low` and `high` an interval, if it has one."""

    x: float
    y: float | None
    low: float | None
    high: float | None
    label: str
    title: str


class TrendPlot(msgspec.Struct, frozen=True):
    """One quantity over the values of a dimension."""

    title: str
    marks: tuple[Mark, ...]
    lines: tuple[str, ...]  # one a kind of runs: what is unlike is not joined
    ticks: tuple[Tick, ...]


class _Place(msgspec.Struct, frozen=True):
    """A value on the axis: what it is called, of which runs it is, what it may be joined with."""

    value: str
    words: str
    kind: tuple[str, str]


def trend_plots(
    points: Sequence[TrendPoint], pace_words: tuple[str, str], *, joined: bool
) -> list[TrendPlot]:
    """Failure rate, rate of operations and latency, each from zero.

    With `joined`, points of one kind of runs are joined by a line.
    """
    places = [
        _Place(point.value, point.population, (point.setting, point.label)) for point in points
    ]
    plots = [
        _shares(places, [(point.rate, point.low, point.high) for point in points]),
        _plot(pace_words[0], places, [point.ok_per_s for point in points]),
    ]
    tails = [None if point.p99_ns is None else point.p99_ns / 1e6 for point in points]
    if any(tail is not None for tail in tails):
        plots.append(_plot(pace_words[1], places, tails))
    return _joined(plots, joined)


def total_plots(totals: Sequence[TotalOf], *, joined: bool) -> list[TrendPlot]:
    """Runs, failure rate and new failures of all runs together."""
    places = [_Place(total.value, "all runs", ("", "")) for total in totals]
    shares = [total.share for total in totals]
    plots = [
        _plot("runs", places, [sum(total.counts.values()) for total in totals]),
        _shares(places, [(share.rate, share.low, share.high) for share in shares]),
        _plot("failures never seen before", places, [total.new for total in totals]),
    ]
    return _joined(plots, joined)


def _joined(plots: list[TrendPlot], joined: bool) -> list[TrendPlot]:
    return plots if joined else [msgspec.structs.replace(plot, lines=()) for plot in plots]


def _shares(
    places: Sequence[_Place],
    shares: Sequence[tuple[float | None, float | None, float | None]],
) -> TrendPlot:
    """Rates with their intervals, in percent."""
    values, lows, highs = (
        [None if number is None else number * 100 for number in numbers]
        for numbers in (zip(*shares, strict=True) if shares else ((), (), ()))
    )
    return _plot("invalid runs, % of those that finished", places, values, lows, highs)


def _plot(
    title: str,
    points: Sequence[_Place],
    values: Sequence[float | None],
    lows: Sequence[float | None] = (),
    highs: Sequence[float | None] = (),
) -> TrendPlot:
    lows, highs = lows or [None] * len(points), highs or [None] * len(points)
    numbers = [number for number in (*values, *highs) if number is not None]
    top = _nice(max(numbers, default=0.0))
    scale = HEIGHT / top
    width = WIDTH / max(len(points), 1)
    marks = [
        Mark(
            x=(place + 0.5) * width,
            y=None if value is None else HEIGHT - value * scale,
            low=None if low is None else HEIGHT - low * scale,
            high=None if high is None else HEIGHT - high * scale,
            label=point.value,
            title=f"{point.value} ({point.words}): "
            + ("nothing known" if value is None else f"{value:.4g}")
            + ("" if low is None or high is None else f" ({low:.3g} to {high:.3g})"),
        )
        for place, (point, value, low, high) in enumerate(
            zip(points, values, lows, highs, strict=True)
        )
    ]
    kinds: dict[tuple[str, str], list[str]] = {}
    for mark, point in zip(marks, points, strict=True):
        if mark.y is not None:
            own = kinds.setdefault(point.kind, [])
            own.append(f"{mark.x:.1f},{mark.y:.1f}")
    lines = tuple(" ".join(own) for own in kinds.values() if len(own) > 1)
    ticks = tuple(Tick(HEIGHT - top * share * scale, f"{top * share:g}") for share in (0, 0.5, 1))
    return TrendPlot(title, tuple(marks), lines, ticks)


def _nice(most: float) -> float:
    """A round number, not below `most`."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= most * 0.999999)
