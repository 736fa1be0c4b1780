"""The answer as text of at most one screen, including the limits of its numbers."""

from __future__ import annotations

import itertools
from typing import Final

from harness.errors import clipped, counted
from harness.ops import NS_PER_S
from results.statistics.estimates import zero_bound
from results.why.answer import (
    IMPOSSIBLE,
    NECESSARY,
    NO_DIFFERENCE,
    NOT_TRIED,
    Cause,
    Count,
    Inevitable,
    Point,
    Why,
)

ROWS_MAX: Final = 22
PART_MAX: Final = 58
REASON_MAX: Final = 150
RISE_MIN: Final = 0.3
"""The smallest rise of the rate between two points that the text names."""
LOW_RATE: Final = 0.3
"""Below this rate of the base, some tens of seeds can rarely show a difference."""


def text_of(why: Why) -> list[str]:
    """Return the answer as lines of text."""
    lines = [f"{why.kind}, run {why.run}, seed {why.seed}", clipped(why.reason, REASON_MAX), ""]
    if why.causes or why.base.runs:
        lines += [*_causes(why), ""]
    if why.points:
        lines += [*_time(why), ""]
    lines += notes_of(why)
    lines += ["", f"{counted(why.trials, 'run')}, {why.cpu_s:.0f} s of CPU time"]
    return lines


def _causes(why: Why) -> list[str]:
    lines = [f"{'the case with other seeds':{PART_MAX}}  {_fails(why.base)}"]
    if why.recorded is not None:
        lines.append(f"{'the case with recorded operations':{PART_MAX}}  {_fails(why.recorded)}")
    lines += ["without"]
    for cause in why.causes[:ROWS_MAX]:
        tried = cause.without != Count()
        end = f"{_fails(cause.without)}  {cause.verdict}" if tried else cause.verdict
        if others := others_in_words(cause.without):
            end = f"{end}; {others}"
        lines.append(f"  {clipped(cause.words, PART_MAX - 2):{PART_MAX - 2}}  {end}")
    if len(why.causes) > ROWS_MAX:
        lines.append(f"  {len(why.causes) - ROWS_MAX} more parts: see --json")
    return lines


def _fails(count: Count) -> str:
    low, high = count.interval
    interval = f"({low:.0%} to {high:.0%})".replace("%", " %")
    return f"{count.failed:>3} of {count.runs} fail {interval:16}"


def others_in_words(count: Count) -> str:
    """The numbers of runs that failed in another way or are `unknown`, as text, or ""."""
    parts = []
    if count.failed_otherwise:
        parts.append(f"{count.failed_otherwise} fail in another way")
    if count.unknown:
        parts.append(f"{count.unknown} more are unknown")
    return ", ".join(parts)


def _time(why: Why) -> list[str]:
    lines = [
        f"rate of the failure among runs that are equal until a time ({why.reseeds} futures each)"
    ]
    for begin in range(0, len(why.points), 8):
        row = why.points[begin : begin + 8]
        lines.append("  " + "".join(f"{seconds(point.at_ns):>9}" for point in row))
        lines.append("  " + "".join(f"{_percent(point):>9}" for point in row))
    return [*lines, *turns_in_words(why)]


def turns_in_words(why: Why) -> list[str]:
    """Name the times at which the rate rises most, and from which it stays at 100 %."""
    rises = [
        (after.count.rate - before.count.rate, before, after)
        for before, after in itertools.pairwise(why.points)
    ]
    lines = inevitable_in_words(why.inevitable, why.points, why.shown_ns)
    if not rises:
        return lines
    rise, before, after = max(rises, key=lambda each: each[0])
    if rise < RISE_MIN or before.at_ns == why.inevitable.before_ns:
        return lines
    text = (
        f"it rises most from {_percent(before)} at {seconds(before.at_ns)} to {_percent(after)} at "
        f"{seconds(after.at_ns)}"
    )
    return [text, *lines]


def _percent(point: Point) -> str:
    return f"{point.count.rate * 100:.0f} %"


def seconds(time_ns: int) -> str:
    """Format a time of the run in seconds, with three decimals."""
    return f"{time_ns / NS_PER_S:.3f} s"


def inevitable_in_words(
    inevitable: Inevitable, points: tuple[Point, ...], shown_ns: int
) -> list[str]:
    """State from when the failure was inevitable, and the events just before."""
    if inevitable.from_ns is None:
        return [
            "no inevitable failure: some runs still pass that are equal to the failed run until "
            f"{seconds(at_ns)}"
            for at_ns in [inevitable.before_ns or 0]
        ]
    by_time = {point.at_ns: point for point in points}
    first = by_time[inevitable.from_ns]
    text = (
        f"inevitable from {seconds(first.at_ns)} on: all {first.count.runs} futures fail "
        f"(at least {first.low * 100:.0f} % do, at 95 %); it shows at {seconds(shown_ns)}"
    )
    if inevitable.before_ns is None:
        return [f"{text}; no run passed at any earlier point, so the case itself decides"]
    before = by_time[inevitable.before_ns].count
    passed = before.runs - before.failed
    lines = [text, f"{passed} of {before.runs} still pass from {seconds(inevitable.before_ns)}"]
    lines += [f"  in between: {event}" for event in inevitable.between]
    return lines


def notes_of(why: Why) -> list[str]:
    """Describe the limits of the numbers, and the parts without a result."""
    notes: list[str] = []
    of = {cause.verdict for cause in why.causes}
    if why.cut:
        notes.append(
            "The limit of CPU time ended the search: the same command with a higher --cpu "
            "continues."
        )
    if why.base.runs and why.base.rate < LOW_RATE:
        notes.append(
            f"The case itself fails in only {why.base.failed} of {why.base.runs} seeds, so few "
            "differences can be shown: give more --seeds, or a smaller case that fails more often."
        )
    if NECESSARY in of:
        fewest = min(cause.without.runs for cause in why.causes if cause.verdict == NECESSARY)
        bound = zero_bound(fewest)
        notes.append(
            f"Necessary: no run failed without it, so at most {bound * 100:.0f} % do (at 95 %)."
        )
    verdicts = {cause.kind: set[str]() for cause in why.causes}
    for cause in why.causes:
        verdicts[cause.kind].add(cause.verdict)
    together = NECESSARY in verdicts.get("all-faults", ())
    if together and NECESSARY not in verdicts.get("fault", ()):
        notes.append("Some fault is necessary, but no single one: they can replace each other.")
    if any(2 * cause.without.failed_otherwise > cause.without.runs for cause in why.causes):
        notes.append(
            "If most runs without a part fail in another way, the part decides how the case "
            "fails, and perhaps not whether it fails."
        )
    if NO_DIFFERENCE in of:
        notes.append(
            "“No difference shown” does not prove that a part is irrelevant: parts that can "
            "replace each other show no difference each."
        )
    if NOT_TRIED in of:
        count = sum(cause.verdict == NOT_TRIED for cause in why.causes)
        notes.append(f"{counted(count, 'part')} {'was' if count == 1 else 'were'} not tried.")
    notes += [f"{cause.words}: {cause.why_not}" for cause in _needed(why)[:3]]
    crashed = why.base.crashed + sum(cause.without.crashed for cause in why.causes)
    crashed += sum(point.count.crashed for point in why.points)
    if crashed:
        notes.append(
            f"{counted(crashed, 'run')} crashed and {'is' if crashed == 1 else 'are'} not counted."
        )
    return notes


def _needed(why: Why) -> list[Cause]:
    return [cause for cause in why.causes if cause.verdict == IMPOSSIBLE]
