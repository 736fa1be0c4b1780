"""Draws the answer to why a run failed, as one self-contained HTML file with two drawings.

The first drawing has one row per part of the case. It shows the failure rate without this part as a
dot on its 95 % interval, in front of the interval of the whole case. The second drawing shows the
failure rate over the time of the run, as a line with a band, with the faults below. The file
contains no scripts.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from harness.errors import clipped
from harness.ops import NS_PER_S
from harness.support.atomic_file import write_whole
from harness.support.html_template import filled, policy_hash
from results.run.page.lanes import lanes_of
from results.why.answer import (
    LOWERS,
    NECESSARY,
    NO_DIFFERENCE,
    RAISES,
    Cause,
    Count,
    FaultSpan,
    Point,
    Why,
)
from results.why.words import notes_of, others_in_words, seconds, summary_of, turns_in_words

PAGE_FILE: Final = "why.html"
WIDTH: Final = 960
LEFT: Final = 340
RIGHT: Final = 210
ROW: Final = 24
LABEL_MAX: Final = 52
ROWS_MAX: Final = 40
TIME_LEFT: Final = 130
TIME_RIGHT: Final = 24
TIME_HEIGHT: Final = 200
LANE: Final = 20
LANES_MAX: Final = 12
LANE_LABEL_MAX: Final = 18
TICKS: Final = 8
_TOP: Final = 24
_CLASSES: Final = {
    NECESSARY: "necessary",
    RAISES: "raises",
    LOWERS: "lowers",
    NO_DIFFERENCE: "same",
}


def write_page(why: Why, folder: Path) -> Path:
    """Write the drawings into the run's folder; raises `InfrastructureError`."""
    path = folder / PAGE_FILE
    write_whole(path, page_of(why).encode())
    return path


def page_of(why: Why) -> str:
    """Return the whole page as HTML."""
    style = _asset("why.css")
    source = policy_hash(style)
    policy = f"default-src 'none'; style-src '{source}'; base-uri 'none'; form-action 'none'"
    about = f"{why.run}, seed {why.seed}; {why.trials:,} runs, {why.cpu_s:,.0f} s of CPU time"
    fillings = {
        "POLICY": html.escape(policy, quote=True),
        "STYLE": style,
        "TITLE": html.escape(f"Why it failed: {why.kind}"),
        "ABOUT": html.escape(about),
        "REASON": html.escape(why.reason),
        "CAUSES": _causes_section(why) if why.causes else "",
        "TIME": _time_section(why) if why.points else "",
        "NOTES": "".join(f"<li>{html.escape(note)}</li>" for note in notes_of(why)),
    }
    return filled(_asset("why.html"), fillings)


def _asset(name: str) -> str:
    return (resources.files("results.why") / "assets" / name).read_text("utf-8")


def _section(title: str, answer: Sequence[str], key: str, drawing: str) -> str:
    """Make the section of one question: its answer in words, a key to the drawing, the drawing."""
    return (
        f"<section><h2>{html.escape(title)}</h2><p>{html.escape(' '.join(answer))}</p>"
        f'<p class="soft">{html.escape(key)}</p>'
        f'<div class="scroll">{drawing}</div></section>'
    )


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>'


def _line(kind: str, x: tuple[float, float], y: tuple[float, float]) -> str:
    ends = f'x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}"'
    return f'<line class="{kind}" {ends}/>'


# --- causes --------------------------------------------------------------------------------------


def _causes_section(why: Why) -> str:
    key = (
        "Each row is the case without one part. The dot is the share of runs with other seeds that "
        "fail in the same way, on its 95 % interval; the shaded column is the interval of the "
        "whole case. Other seeds change delays, timeouts and the random choices of the workload, "
        "but not the planned faults."
    )
    if why.recorded is not None:
        key += (
            " Operations can only be left out of a fixed list, so rows without operations are "
            "compared with the second row, in which the operations of this run are fixed."
        )
    if any(others_in_words(cause.without) for cause in why.causes):
        key += " * Some runs fail in another way or are unknown: point at the row."
    return _section("Which parts it needs", summary_of(why), key, causes_svg(why))


def causes_svg(why: Why) -> str:
    """Draw the failure rate without each part, as a dot on its interval."""
    drawn = why.causes[:ROWS_MAX]
    rows = [_row(0, "the case with other seeds", why.base, "base", "")]
    if why.recorded is not None:
        rows.append(_row(len(rows), "the case with recorded operations", why.recorded, "base", ""))
    rows += [_cause_row(len(rows) + place, cause) for place, cause in enumerate(drawn)]
    bottom = len(rows) * ROW + 8
    low, high = why.base.interval
    wide = _x(high) - _x(low)
    back = [f'<rect class="reference" x="{_x(low):.1f}" width="{wide:.1f}" height="{bottom}"/>']
    for part in range(5):
        x = _x(part / 4)
        back += [_line("grid", (x, x), (0, bottom)), _text(x, bottom + 15, "tick", _quarter(part))]
    left_out = len(why.causes) - len(drawn)
    more = _text(4, bottom + 15, "soft", f"{left_out} more in why.json") if left_out else ""
    title = "The rate of the failure without each part of the case"
    return _svg(bottom + 24, title, [*back, *rows, more])


def _quarter(part: int) -> str:
    return f"{part * 25} %"


def _x(rate: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * rate


def _cause_row(place: int, cause: Cause) -> str:
    kind = _CLASSES.get(cause.verdict, "none")
    return _row(place, f"without {cause.words}", cause.without, kind, cause.verdict)


def _row(place: int, label: str, count: Count, kind: str, verdict: str) -> str:
    y = place * ROW + 16
    low, high = count.interval
    numbers = f"{count.failed} of {count.runs}" if count.runs else ""
    title = f"{label}: {numbers or 'not tried'}"
    if count.runs:
        title += f", 95 % interval {low * 100:.0f} to {high * 100:.0f} %"
        title = ", ".join(filter(None, (title, others_in_words(count))))
    end = WIDTH - RIGHT + 14
    parts = [
        _text(LEFT - 12, y + 4, "label", clipped(label, LABEL_MAX)),
        _text(end, y + 4, "numbers", f"{numbers}*" if others_in_words(count) else numbers),
        _text(end + 62, y + 4, "verdict", verdict),
    ]
    if count.runs:
        dot = f'<circle cx="{_x(count.rate):.1f}" cy="{y}" r="5"/>'
        parts += [_line("whisker", (_x(low), _x(high)), (y, y)), dot]
    return f'<g class="{kind}"><title>{html.escape(title)}</title>{"".join(parts)}</g>'


# --- time ----------------------------------------------------------------------------------------


def _time_section(why: Why) -> str:
    key = (
        "Each dot is the share of runs that fail in the same way, on its 95 % interval. These runs "
        "equal this run until then, and go on with other random draws. The bars are the faults of "
        "this run; as planned, they come in all of these runs."
    )
    return _section("When it became inevitable", turns_in_words(why), key, time_svg(why))


def time_svg(why: Why) -> str:
    """Draw the failure rate over the time of the run, with the run's faults below."""
    end_ns = max(why.shown_ns, *(point.at_ns for point in why.points), 1)
    scale = (WIDTH - TIME_LEFT - TIME_RIGHT) / end_ns

    def across(time_ns: int) -> float:
        return TIME_LEFT + min(time_ns, end_ns) * scale

    lanes = _fault_lanes(why.faults, end_ns)
    bottom = TIME_HEIGHT + len(lanes) * LANE + 6
    parts = []
    for part in range(5):
        y = _up(part / 4)
        parts.append(_line("grid", (TIME_LEFT, WIDTH - TIME_RIGHT), (y, y)))
        parts.append(_text(TIME_LEFT - 10, y + 4, "label soft", _quarter(part)))
    for time in range(0, end_ns + 1, _step(end_ns)):
        x = across(time)
        parts.append(_line("grid", (x, x), (_TOP, bottom)))
        parts.append(_text(x, bottom + 16, "tick", f"{time / NS_PER_S:g} s"))
    for place, (name, spans) in enumerate(lanes):
        y = TIME_HEIGHT + place * LANE + 4
        label = _text(TIME_LEFT - 10, y + 12, "label soft", clipped(name, LANE_LABEL_MAX))
        parts.append(f"<g><title>{html.escape(name)}</title>{label}</g>")
        parts += [_fault_bar(span, across, round(y), end_ns) for span in spans]
    parts += _curve(why.points, across)
    parts += _moments(why, across, bottom)
    return _svg(bottom + 24, "The rate of the failure along the time of the run", parts)


def _up(rate: float) -> float:
    return _TOP + (TIME_HEIGHT - _TOP - 8) * (1 - rate)


def _curve(points: Sequence[Point], across: Callable[[int], float]) -> list[str]:
    """Draw the failure rate as a line with dots, in front of the band of its intervals."""

    def way(rates: Iterable[tuple[int, float]]) -> str:
        return " ".join(f"{across(at_ns):.1f},{_up(rate):.1f}" for at_ns, rate in rates)

    above = way((point.at_ns, point.high) for point in points)
    below = way((point.at_ns, point.low) for point in reversed(points))
    line = way((point.at_ns, point.count.rate) for point in points)
    parts = [f'<polygon class="band" points="{above} {below}"/>', f'<polyline points="{line}"/>']
    for point in points:
        title = (
            f"equal until {seconds(point.at_ns)}: {point.count.failed} of {point.count.runs} "
            f"fail, 95 % interval {point.low * 100:.0f} to {point.high * 100:.0f} %"
        )
        place = f'cx="{across(point.at_ns):.1f}" cy="{_up(point.count.rate):.1f}"'
        parts.append(f'<circle class="point" {place} r="4"><title>{title}</title></circle>')
    return parts


def _moments(why: Why, across: Callable[[int], float], bottom: int) -> list[str]:
    """Mark the time from which the failure was inevitable, and the time at which it showed."""
    moments = [(why.shown_ns, "a checker sees it", "shown", TIME_HEIGHT - 14)]
    if why.inevitable.from_ns is not None and why.inevitable.is_turn:
        moments.append((why.inevitable.from_ns, "inevitable", "inevitable", 11))
    parts = []
    for time, word, kind, y in moments:
        x = across(time)
        side, by = ("end", -5) if x > WIDTH / 2 else ("start", 5)
        text = f'<text text-anchor="{side}" x="{x + by:.1f}" y="{y}">{word}</text>'
        parts.append(f'<g class="{kind}">{_line("", (x, x), (2, bottom))}{text}</g>')
    return parts


def _fault_lanes(faults: Sequence[FaultSpan], end_ns: int) -> list[tuple[str, list[FaultSpan]]]:
    """Distribute faults over lanes without overlaps. Each lane has the faults of one nemesis."""
    lanes: list[tuple[str, list[FaultSpan]]] = []
    for nemesis in dict.fromkeys(fault.nemesis for fault in faults):
        spans = [fault for fault in faults if fault.nemesis == nemesis and fault.start_ns <= end_ns]
        places = lanes_of((fault.start_ns, fault.end_ns) for fault in spans)
        for place in range(max(places, default=-1) + 1):
            of_lane = [fault for fault, lane in zip(spans, places, strict=True) if lane == place]
            lanes.append(("" if place else nemesis, of_lane))
    return lanes[:LANES_MAX]


def _fault_bar(span: FaultSpan, across: Callable[[int], float], y: int, end_ns: int) -> str:
    end = end_ns if span.end_ns is None else span.end_ns
    x, right = across(span.start_ns), across(end)
    targets = ", ".join(span.targets) or "no target"
    until = "the end" if span.end_ns is None else seconds(span.end_ns)
    title = f"{span.nemesis} on {targets}, {seconds(span.start_ns)} to {until}"
    room = int((right - x) / 6.5)
    words = clipped(targets, room) if room >= 3 else ""
    return (
        f'<g class="fault"><title>{html.escape(title)}</title><rect x="{x:.1f}" y="{y}" '
        f'width="{max(2.0, right - x):.1f}" height="{LANE - 5}"/>'
        f'<text x="{x + 4:.1f}" y="{y + 11}">{html.escape(words)}</text></g>'
    )


def _step(end_ns: int) -> int:
    least = max(1, end_ns // TICKS)
    power: int = 10 ** (len(str(least)) - 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
