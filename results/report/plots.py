"""Computes the geometry of drawings: positions of bars, dots and ticks. A template makes the SVG.

Most drawings are rows with a label at the left and an axis below. `curves` draws lines over an
axis, with their intervals as bands. Lengths are in units of the drawing, which is `WIDTH` wide.
Labels are plain text, which the template escapes.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from results.report.number_words import TIMES, count, duration, interval, ratio, share

WIDTH: Final = 760
LEFT: Final = 270
RIGHT: Final = 70
ROW: Final = 24
ROWS_MAX: Final = 40
LABEL_CHARS_MAX: Final = 33
LINE_CHARS_MAX: Final = 46
_SEPARATORS: Final = re.compile("( · |: )")
PLOT: Final = WIDTH - LEFT - RIGHT


class Bar(msgspec.Struct, frozen=True):
    """A bar of one colour. `kind` is a CSS class."""

    x: float
    width: float
    kind: str
    title: str
    y: float = 4.0
    height: float = 16.0


class Mark(msgspec.Struct, frozen=True):
    """A dot in a row of a drawing. `kind` is a CSS class."""

    x: float
    kind: str
    title: str


class Tick(msgspec.Struct, frozen=True):
    """A tick of an axis, with its text."""

    x: float
    text: str


_QUARTERS: Final = tuple(Tick(LEFT + PLOT * part / 4, f"{part * 25} %") for part in range(5))


class PlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a drawing. `lines` is its label, without the parts that all labels share."""

    y: float
    label: str
    lines: tuple[str, ...] = ()
    small: bool = False
    bars: tuple[Bar, ...] = ()
    line: tuple[float, float] | None = None  # a horizontal line: x of its start and end
    marks: tuple[Mark, ...] = ()
    note: str = ""


class Plot(msgspec.Struct, frozen=True):
    """A drawing of rows with an axis."""

    title: str
    rows: Sequence[PlotRow]
    ticks: Sequence[Tick]
    legend: Sequence[tuple[str, str]]
    not_shown: int
    reference: float | None = None

    @property
    def height(self) -> int:
        """The height of the drawing: rows and axis."""
        return len(self.rows) * ROW + 26

    @property
    def axis_y(self) -> int:
        """The y position of the axis."""
        return len(self.rows) * ROW + 2


class Line(msgspec.Struct, frozen=True):
    """A drawn curve: SVG paths that consist of numbers only. `kind` is a CSS class."""

    kind: str
    path: str
    band: str  # empty if no interval is known
    title: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing of several curves over one axis."""

    title: str
    lines: Sequence[Line]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]  # here, `Tick.x` is the y position
    legend: Sequence[tuple[str, str]]
    not_shown: int
    x_words: str
    height: int = 250
    left: int = 60
    right: int = WIDTH - 20
    bottom: int = 200


class Curve(msgspec.Struct, frozen=True):
    """Points (x, share, low, high) sorted by x. `low` and `high` are `None` if unknown."""

    label: str
    points: Sequence[tuple[float, float, float | None, float | None]]


class Forest(msgspec.Struct, frozen=True):
    """A row of a forest plot: a value with its interval."""

    label: str
    value: float
    low: float
    high: float
    note: str = ""


CURVES_MAX: Final = 4
POINTS_MAX: Final = 400
_TOP: Final = 10


def curves(
    title: str,
    given: Sequence[Curve],
    x_words: str,
    *,
    steps: bool = False,
    logarithmic: bool = False,
) -> Chart:
    """Draw curves of shares. x begins at 0, or at 1 if `logarithmic`. `steps` draws stairs."""
    drawn = [curve for curve in given[:CURVES_MAX] if curve.points]
    most = max((curve.points[-1][0] for curve in drawn), default=1) or 1
    frame = Chart(
        title=title, lines=(), x_ticks=(), y_ticks=(), legend=(), not_shown=0, x_words=x_words
    )

    def across(x: float) -> float:
        part = math.log10(max(x, 1)) / math.log10(max(most, 10)) if logarithmic else x / most
        return frame.left + (frame.right - frame.left) * min(1.0, part)

    def up(y: float) -> float:
        return _TOP + (frame.bottom - _TOP) * (1 - y)

    lines = [
        Line(f"q{place}", *_paths(curve, across, up, steps=steps), curve.label)
        for place, curve in enumerate(drawn)
    ]
    if logarithmic:
        marks = [10**power for power in range(math.floor(math.log10(max(most, 10))) + 1)]
    else:
        marks = _nice_ticks(math.ceil(most))
    return msgspec.structs.replace(
        frame,
        lines=lines,
        x_ticks=[Tick(across(x), count(x)) for x in marks],
        y_ticks=[Tick(up(part / 4), f"{part * 25} %") for part in range(5)],
        legend=[(line.kind, line.title) for line in lines],
        not_shown=len(given) - len(drawn),
    )


def _paths(
    curve: Curve,
    across: Callable[[float], float],
    up: Callable[[float], float],
    *,
    steps: bool,
) -> tuple[str, str]:
    points = list(curve.points)
    if len(points) > POINTS_MAX:
        points = [points[len(points) * n // POINTS_MAX] for n in range(POINTS_MAX)] + points[-1:]
    bounded = [(x, low, high) for x, _, low, high in points if low is not None and high is not None]
    line = _way([(x, y) for x, y, _, _ in points], across, up, steps=steps)
    above = _corners([(x, high) for x, _, high in bounded], steps=steps)
    below = _corners([(x, low) for x, low, _ in bounded], steps=steps)
    band = _way([*above, *reversed(below)], across, up, steps=False)
    return line, f"{band}Z" if band else ""


def _corners(points: Sequence[tuple[float, float]], *, steps: bool) -> list[tuple[float, float]]:
    """With `steps`, add a corner before each point, at its x and at the previous point's y."""
    if not steps:
        return list(points)
    corners = list(points[:1])
    for (_, before), (x, y) in itertools.pairwise(points):
        corners += [(x, before), (x, y)]
    return corners


def _way(
    points: Sequence[tuple[float, float]],
    across: Callable[[float], float],
    up: Callable[[float], float],
    *,
    steps: bool,
) -> str:
    placed = [f"{across(x):.1f} {up(y):.1f}" for x, y in _corners(points, steps=steps)]
    return f"M{'L'.join(placed)}" if placed else ""


def _row(number: int, label: str, **parts: object) -> PlotRow:
    return PlotRow(y=number * ROW, label=label, **parts)  # type: ignore[arg-type]


def _plot(
    title: str,
    rows: Sequence[PlotRow],
    ticks: Sequence[Tick],
    legend: Sequence[tuple[str, str]],
    total: int,
    reference: float | None = None,
) -> Plot:
    """Make a drawing of `rows`, out of `total`; parts that all labels share move to the title."""
    # for each label, map its parts to the separators before them
    parts = []
    for row in rows:
        words = ["", *_SEPARATORS.split(row.label)]
        parts.append(dict(zip(words[1::2], words[::2], strict=True)))
    shared = set.intersection(*({*part} for part in parts)) if len(rows) > 1 else set()
    if any(part.keys() <= shared for part in parts):
        shared = set()
    rest = []
    for part in parts:
        others = [words for words in part if words not in shared]
        rest.append(others[0] + "".join(part[words] + words for words in others[1:]))
    lines = [_lines(words) for words in rest]
    if len({*lines}) < len({*rest}):
        lines = [_lines(words, from_end=True) for words in rest]
    named = [words for words in parts[0] if words in shared] if parts else []
    return Plot(
        f"{title} ({' · '.join(named)})" if named else title,
        [
            msgspec.structs.replace(row, lines=line, small=len("".join(line)) > LABEL_CHARS_MAX)
            for row, line in zip(rows, lines, strict=True)
        ],
        ticks,
        legend,
        total - len(rows),
        reference,
    )


def _lines(label: str, *, from_end: bool = False) -> tuple[str, ...]:
    if len(label) <= LABEL_CHARS_MAX:
        return (label,)
    if from_end and len(label) > 2 * LINE_CHARS_MAX:
        label = f"…{label[1 - 2 * LINE_CHARS_MAX :]}"
    return tuple(textwrap.wrap(label, LINE_CHARS_MAX, max_lines=2, placeholder="…"))


def stacked(
    title: str, rows: Sequence[tuple[str, Sequence[int]]], legend: Sequence[tuple[str, str]]
) -> Plot:
    """Make a bar chart of counts. Each row is a stacked bar with a count per kind of the legend."""
    longest = max((sum(counts) for _, counts in rows), default=0) or 1
    drawn = []
    for number, (label, counts) in enumerate(rows[:ROWS_MAX]):
        x = float(LEFT)
        bars = []
        for (kind, words), n in zip(legend, counts, strict=True):
            width = PLOT * n / longest
            if n:
                bars.append(Bar(x, width, kind, f"{label}: {count(n)} {words}"))
            x += width
        drawn.append(_row(number, label, bars=tuple(bars), note=count(sum(counts))))
    ticks = [Tick(LEFT + PLOT * n / longest, count(n)) for n in _nice_ticks(longest)]
    return _plot(title, drawn, ticks, legend, len(rows))


def _nice_ticks(longest: int) -> list[int]:
    """Return 0 and up to five further round numbers as ticks of an axis."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if longest <= 5 * factor * power:
                return list(range(0, longest + 1, factor * power))
        power *= 10


def shares(
    title: str,
    rows: Sequence[tuple[str, Sequence[float | None]]],
    legend: Sequence[tuple[str, str]],
) -> Plot:
    """Make a bar chart of shares. Each row has one thin bar per kind of the legend."""
    drawn = []
    height = 16.0 / len(legend)
    for number, (label, values) in enumerate(rows[:ROWS_MAX]):
        bars = tuple(
            Bar(
                LEFT,
                PLOT * value,
                kind,
                f"{label}: {share(value)} {words}",
                4 + place * height,
                height - 1,
            )
            for place, ((kind, words), value) in enumerate(zip(legend, values, strict=True))
            if value is not None
        )
        drawn.append(_row(number, label, bars=bars))
    return _plot(title, drawn, _QUARTERS, legend, len(rows))


def _forest(
    number: int, item: Forest, unit: str, kind: str, place: Callable[[float], float]
) -> PlotRow:
    """Make a row with a dot for the value and a line for its interval. `place` maps values to x."""
    value = share(item.value) if unit == "share" else ratio(item.value)
    text = f"{item.label}: {value} ({interval(item.low, item.high, unit)})"
    return _row(
        number,
        item.label,
        line=(place(item.low), place(item.high)),
        marks=(Mark(place(item.value), kind, text),),
        note=item.note if unit == "share" else value,
    )


def rates(title: str, rows: Sequence[Forest]) -> Plot:
    """Make a chart of shares with their intervals, on an axis from 0 to 1."""
    drawn = [
        _forest(number, item, "share", "point", lambda value: LEFT + PLOT * value)
        for number, item in enumerate(rows[:ROWS_MAX])
    ]
    legend = [("point", "rate, with its 95 % interval")]
    return _plot(title, drawn, _QUARTERS, legend, len(rows))


def ratios(title: str, rows: Sequence[Forest]) -> Plot:
    """Make a chart of ratios with their intervals, on a logarithmic axis that includes 1."""
    ends = [math.log10(end) for item in rows for end in (item.low, item.high)]
    low = max(-3, math.floor(min([0.0, *ends])))
    high = min(4, math.ceil(max([1.0, *ends])))

    def place(value: float) -> float:
        part = (math.log10(value) - low) / (high - low)
        return LEFT + PLOT * min(1.0, max(0.0, part))

    drawn = []
    for number, item in enumerate(rows[:ROWS_MAX]):
        certain = item.low > 1 or item.high < 1
        drawn.append(_forest(number, item, "ratio", "point" if certain else "unsure", place))
    ticks = tuple(
        Tick(place(10.0**power), f"{10.0**power:g} {TIMES}") for power in range(low, high + 1)
    )
    legend = [("point", "interval excludes 1"), ("unsure", "interval includes 1: no evidence")]
    return _plot(title, drawn, ticks, legend, len(rows), place(1.0))


def latencies(title: str, rows: Sequence[tuple[str, Sequence[int]]], names: Sequence[str]) -> Plot:
    """Make a chart of durations (ns) on a logarithmic axis, with one dot per quantile."""
    values = [value for _, quantiles in rows for value in quantiles if value > 0]
    low = math.floor(math.log10(min(values))) if values else 0
    high = max(low + 1, math.ceil(math.log10(max(values)))) if values else 1

    def place(value: int) -> float:
        return LEFT + PLOT * max(0.0, math.log10(max(value, 1)) - low) / (high - low)

    kinds = [f"q{number}" for number in range(len(names))]
    drawn = []
    for number, (label, quantiles) in enumerate(rows[:ROWS_MAX]):
        marks = tuple(
            Mark(place(value), kind, f"{label}: {name} {duration(value)}")
            for kind, name, value in zip(kinds, names, quantiles, strict=True)
        )
        line = (marks[0].x, marks[-1].x)
        drawn.append(_row(number, label, line=line, marks=marks))
    ticks = tuple(Tick(place(10**power), duration(10**power)) for power in range(low, high + 1))
    return _plot(title, drawn, ticks, [*zip(kinds, names, strict=True)], len(rows))
