"""Writes the answer as text of at most one screen, including the limits of its numbers."""

from __future__ import annotations

import itertools
from typing import Final

from harness.errors import clipped, counted, listed
from harness.ops import NS_PER_MS, NS_PER_S
from results.statistics.estimates import zero_bound
from results.why.answer import (
    IMPOSSIBLE,
    NECESSARY,
    NO_DIFFERENCE,
    NOT_TRIED,
    RAISES,
    Cause,
    Count,
    Point,
    Why,
)
from results.why.causes import can_show_necessary, seeds_to_show

ROWS_MAX: Final = 22
PART_MAX: Final = 58
PARTS_MAX: Final = 6
"""The maximum number of parts that one sentence names."""
REASON_MAX: Final = 150
RISE_MIN: Final = 0.3
"""The smallest rise of the rate between two points that the text names."""
LOW_RATE: Final = 0.3
"""Below this rate of the base, some tens of seeds can rarely show a difference."""


def text_of(why: Why) -> list[str]:
    """Return the answer as lines of text."""
    lines = [f"{why.kind}, run {why.run}, seed {why.seed}", clipped(why.reason, REASON_MAX), ""]
    if summary := summary_of(why):
        lines += [*summary, ""]
    if why.causes or why.base.runs:
        lines += [*_causes(why), ""]
    if why.points:
        lines += [*_time(why), ""]
    lines += notes_of(why)
    lines += ["", f"{counted(why.trials, 'run')}, {why.cpu_s:.0f} s of CPU time"]
    return lines


def summary_of(why: Why) -> list[str]:
    """Name the parts that the failure needs, and the parts without which it is less frequent."""
    if not why.causes:
        return []
    by_verdict: dict[str, list[Cause]] = {}
    for cause in why.causes:
        by_verdict.setdefault(cause.verdict, []).append(cause)
    parts = by_verdict.get(NECESSARY, [])
    of_kinds = {cause.kind for cause in parts}
    for narrower, wider in (("fault", "faults"), ("fault", "all-faults"), ("faults", "all-faults")):
        if narrower in of_kinds:
            parts = [cause for cause in parts if cause.kind != wider]
    lines = []
    if parts:
        words = listed([cause.words for cause in parts], limit=PARTS_MAX)
        lines.append(f"The failure needs {words}: no run failed without {_one_of(parts)}.")
    elif by_verdict.keys() - {NOT_TRIED, IMPOSSIBLE}:
        lines.append("No part of the case is shown to be necessary.")
    if "fault" not in of_kinds and of_kinds & {"faults", "all-faults"}:
        lines.append(
            "No single fault is shown to be necessary: perhaps they can replace each other."
        )
    if rarer := by_verdict.get(RAISES):
        words = listed([cause.words for cause in rarer], limit=PARTS_MAX)
        lines.append(f"The failure is rarer without {words}.")
    if rare := _too_rare(why):
        lines.append(rare)
    return lines


def _one_of(parts: list[Cause]) -> str:
    return "it" if len(parts) == 1 else "any one of them"


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
    """Say how many runs failed in another way or are `unknown`; empty if there are none."""
    parts = []
    if count.failed_otherwise:
        parts.append(f"{count.failed_otherwise} fail in another way")
    if count.unknown:
        parts.append(f"{count.unknown} more are unknown")
    return ", ".join(parts)


def _time(why: Why) -> list[str]:
    futures = counted(why.reseeds, "other future")
    lines = [f"runs that equal this run until a time, with {futures} each: the share that fails"]
    for begin in range(0, len(why.points), 8):
        row = why.points[begin : begin + 8]
        lines.append("  " + "".join(f"{seconds(point.at_ns):>9}" for point in row))
        lines.append("  " + "".join(f"{_percent(point):>9}" for point in row))
    return [*lines, *turns_in_words(why)]


def turns_in_words(why: Why) -> list[str]:
    """Name the time at which the failure rate rises most, and the time from which it is 100 %."""
    rises = [
        (after.count.rate - before.count.rate, before, after)
        for before, after in itertools.pairwise(why.points)
    ]
    lines = inevitable_in_words(why)
    if not rises:
        return lines
    rise, before, after = max(rises, key=lambda each: each[0])
    if rise < RISE_MIN or (
        why.inevitable.from_ns is not None and before.at_ns == why.inevitable.before_ns
    ):
        return lines
    text = (
        f"The share rises most from {_percent(before)} at {seconds(before.at_ns)} to "
        f"{_percent(after)} at {seconds(after.at_ns)}."
    )
    return [*lines, text]


def _percent(point: Point) -> str:
    return f"{point.count.rate * 100:.0f} %"


def seconds(time_ns: int) -> str:
    """Format a time of the run in seconds, with three decimals."""
    return f"{time_ns / NS_PER_S:.3f} s"


def inevitable_in_words(why: Why) -> list[str]:
    """State from when the failure was inevitable, and the events just before."""
    inevitable = why.inevitable
    shows = f"A checker sees it at {seconds(why.shown_ns)}."
    if inevitable.from_ns is None:
        last = max(point.at_ns for point in why.points)
        passed = f"some runs that equal this run until {seconds(last)} pass"
        if why.cut and last < why.shown_ns - NS_PER_MS:
            return [f"So far not inevitable: {passed}, and later times were not tried. {shows}"]
        return [f"It never became inevitable: {passed}. {shows}"]
    by_time = {point.at_ns: point for point in why.points}
    first = by_time[inevitable.from_ns]
    all_fail = (
        f"all {first.count.runs} futures fail (so at least {first.low * 100:.0f} % of all futures "
        "do, at 95 % confidence)"
    )
    if inevitable.before_ns is None:
        since = "the start" if first.at_ns == 0 else f"{seconds(first.at_ns)}, the first time tried"
        return [
            f"Inevitable from {since}: {all_fail}.",
            f"So the case with its planned faults decides, not chance. {shows}",
        ]
    before = by_time[inevitable.before_ns].count
    if not inevitable.is_turn:
        start = why.points[0]
        text = (
            f"All {first.count.runs} futures fail from {seconds(first.at_ns)} on. But "
            f"{start.count.failed} of {start.count.runs} already fail from {seconds(start.at_ns)} "
            "on, and these numbers do not separate the two: no turn of the run is shown, and only "
            f"more --reseeds could show one. {shows}"
        )
        return [text]
    passed = f"{before.runs - before.failed} of {before.runs} futures still passed"
    lines = [
        f"Inevitable from {seconds(first.at_ns)} on: {all_fail}. {shows}",
        f"At {seconds(inevitable.before_ns)}, {passed}.",
    ]
    if inevitable.between:
        lines.append(f"Between these two times: {'; '.join(inevitable.between)}.")
    return lines


def notes_of(why: Why) -> list[str]:
    """Describe what the numbers cannot show, and the parts without a result."""
    notes: list[str] = []
    of = {cause.verdict for cause in why.causes}
    if why.cut:
        notes.append(
            "The limit of CPU time ended the search: the same command with a higher --cpu "
            "continues."
        )
    too_rare = bool(_too_rare(why))
    if why.base.runs and why.base.rate < LOW_RATE and not too_rare:
        notes.append(
            f"The case itself fails in only {why.base.failed} of {why.base.runs} seeds, so few "
            "differences can be shown: give more --seeds, or a smaller case that fails more often."
        )
    if NECESSARY in of:
        fewest = min(cause.without.runs for cause in why.causes if cause.verdict == NECESSARY)
        bound = zero_bound(fewest)
        notes.append(
            "Necessary: no run failed without the part, so at most "
            f"{bound * 100:.0f} % of such runs fail, at 95 % confidence."
        )
    others = [c for c in why.causes if 2 * c.without.failed_otherwise > c.without.runs]
    if others:
        words = listed([cause.words for cause in others], limit=2)
        notes.append(
            f"Most runs without {words} fail in another way: "
            f"{'this part decides' if len(others) == 1 else 'these parts decide'} how the case "
            "fails, and perhaps not whether it fails."
        )
    if NO_DIFFERENCE in of:
        notes.append(
            "“No difference shown” does not prove that a part is irrelevant: parts that can "
            "replace each other show no difference each."
        )
    if NOT_TRIED in of and not too_rare:
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


def _too_rare(why: Why) -> str:
    """Say that parts were not tried, if the case fails too rarely for its number of seeds."""
    bases = {
        base
        for cause in why.causes
        if cause.verdict == NOT_TRIED
        and not can_show_necessary(base := _base_of(cause, why), why.seeds)
    }
    if not bases or why.cut:
        return ""
    base = min(bases, key=lambda each: each.rate)
    enough = seeds_to_show(base)
    more = "" if enough is None else f", or give about --seeds {enough}"
    return (
        f"The case fails in only {base.failed} of {base.runs} seeds: {counted(why.seeds, 'seed')} "
        "without a failure would prove nothing, so parts were not tried. Explain a case that "
        f"fails more often, such as a shrunk one{more}."
    )


def _base_of(cause: Cause, why: Why) -> Count:
    return why.recorded if cause.recorded and why.recorded is not None else why.base


def _needed(why: Why) -> list[Cause]:
    return [cause for cause in why.causes if cause.verdict == IMPOSSIBLE]
