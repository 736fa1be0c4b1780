"""Measures the failure rate over the time of a run, and finds when the failure became inevitable.

At each point of the timeline, the run is repeated several times with fresh randomness from this
point on (the simulation's knobs `reseed_at_s` and `reseed`). The share of these runs that fails
estimates the probability of the failure given the run's past. It rises where the run took a wrong
turn. The first points divide the run evenly. Each further point halves the interval over which the
rate changes most.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from harness.case import Case
from harness.ops import NS_PER_MS, NS_PER_S, History
from harness.timeline import faults_of, reigns_of
from harness.trials.trials import Kind, Trials
from results.statistics.estimates import ALPHA, fisher_exact
from results.why.answer import Count, Inevitable, Point
from results.why.causes import counted_in

POINTS_FIRST: Final = 8
POINTS_MAX: Final = 16
GAP_NS_MIN: Final = 20_000_000
"""Intervals shorter than this are not halved."""
JUMP_MIN: Final = 0.15
"""Intervals over which the rate changes by less than this are not halved."""
BETWEEN_MAX: Final = 6
RESEED_AT: Final = "reseed_at_s"


def with_futures(case: Case, at_ns: int, reseeds: int) -> Iterator[Case]:
    """Yield the case with `reseeds` different futures from `at_ns` (ns of the run) on."""
    for number in range(1, reseeds + 1):
        knobs = {**case.knobs, RESEED_AT: at_ns / NS_PER_S, "reseed": number}
        yield msgspec.structs.replace(case, knobs=knobs)


def find_points(
    case: Case,
    kind: Kind,
    trials: Trials,
    *,
    until_ns: int,
    reseeds: int,
    on_trial: Callable[[], None],
) -> tuple[Point, ...]:
    """Return the failure rate at up to `POINTS_MAX` times from 0 to `until_ns`, in order.

    If `trials` reaches its limit, the search ends early and leaves out an incomplete point.
    """
    counts: dict[int, Count] = {}

    def measure(times: Sequence[int]) -> None:
        places = (time for time in times for _ in range(reseeds))
        tried = trials.in_order(
            each for time in times for each in with_futures(case, time, reseeds)
        )
        with contextlib.closing(tried):
            for time, trial in zip(places, tried, strict=False):
                counts[time] = counted_in(counts.get(time, Count()), trial, kind)
                on_trial()

    last = POINTS_FIRST - 1
    times = (until_ns * number // last for number in range(POINTS_FIRST))
    measure(sorted({time_ns // NS_PER_MS * NS_PER_MS for time_ns in times}))
    while len(counts) < POINTS_MAX and not trials.exhausted:
        middle = _widest(counts)
        if middle is None:
            break
        measure([middle])
    return tuple(
        Point(at_ns=time, count=count, low=count.interval.low, high=count.interval.high)
        for time, count in sorted(counts.items())
        if count.runs and count.runs + count.crashed + count.unknown == reseeds
    )


def _widest(counts: dict[int, Count]) -> int | None:
    """Return the middle of the interval with the largest change; `None` if no point is needed."""
    jumps = [
        (abs(counts[right].rate - counts[left].rate), right - left, left)
        for left, right in itertools.pairwise(sorted(counts))
        if right - left >= 2 * GAP_NS_MIN
    ]
    jump, gap, left = max(jumps, default=(0.0, 0, 0))
    return None if jump < JUMP_MIN else (left + gap // 2) // NS_PER_MS * NS_PER_MS


def inevitable_from(points: Sequence[Point], history: History) -> Inevitable:
    """Find the time from which on every run fails, and the events of the run just before it."""
    first: Point | None = None
    before: Point | None = None
    for point in reversed(points):
        if point.count.failed < point.count.runs:
            before = point
            break
        first = point
    if first is None:
        return Inevitable(before_ns=None if before is None else before.at_ns)
    if before is None:
        return Inevitable(from_ns=first.at_ns)
    return Inevitable(
        from_ns=first.at_ns,
        before_ns=before.at_ns,
        between=tuple(events_between(history, before.at_ns, first.at_ns)),
        is_turn=any(
            _differ(point.count, first.count) for point in points if point.at_ns < first.at_ns
        ),
    )


def _differ(one: Count, other: Count) -> bool:
    return fisher_exact(one.failed, one.runs, other.failed, other.runs) < ALPHA


def events_between(history: History, begin_ns: int, end_ns: int) -> list[str]:
    """Return the faults, heals and new leaders in an interval of the run, as text."""
    events: list[tuple[int, str]] = []
    for fault in faults_of(history, most=None):
        targets = f" on {', '.join(fault.targets[:3])}" if fault.targets else ""
        events.append((fault.start, f"{fault.nemesis} begins{targets}"))
        if fault.end is not None:
            events.append((fault.end, f"{fault.nemesis} ends{targets}"))
    events += [
        (reign.start, f"{reign.node} leads in term {reign.term}") for reign in reigns_of(history)
    ]
    inside = sorted(event for event in events if begin_ns <= event[0] < end_ns)
    words = [f"{text} at {time / NS_PER_S:.3f} s" for time, text in inside]
    if len(words) > BETWEEN_MAX:
        words[BETWEEN_MAX - 1 :] = [f"{len(words) - BETWEEN_MAX + 1} more events"]
    return words
