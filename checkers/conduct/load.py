"""Measures a run's request rate, and how often operations on the same name overlapped.

Clients wait for a disturbed target, so the rate necessarily falls during faults. A run with hardly
any operations, or with a low rate even in its best seconds, proves too little, so it gets a doubt
in its certificate.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any, Final

from checkers.verdict.disturbances import disturbances_of, starved_ns
from harness.case import Case
from harness.ops import NS_PER_S, History, OpType, Pair
from harness.vocabularies import logs

RATE_SHARE_MIN: Final = 0.1
"""The smallest accepted share of the requested rate, over the whole chaos phase. The share is 0.15
to 0.27 under all nemeses of the catalog at once, and 0.36 to 0.83 under two nemeses.
"""
PEAK_S: Final = 2.0
PEAK_SHARE_MIN: Final = 0.5
"""The smallest accepted share of the requested rate, over the best `PEAK_S` seconds. The gaps
between operations are random, so the rate of a short stretch varies by a quarter.
"""
STARVED_SHARE_MIN: Final = 0.1
"""If processors were scarce for more than this share of the chaos phase, scarcity explains a low
rate.
"""
OPERATIONS_MIN: Final = 100
"""With fewer operations during chaos, it may be chance that none overlapped."""


class Load:
    """The load on the target during the chaos phase; zero if the history has no such phase."""

    def __init__(self, history: History, case: Case) -> None:
        """Count the client operations that began during chaos."""
        self._case = case
        starts = [(op.value.get("phase"), op.time) for op in history.facts("phase")]
        begins = [time for phase, time in starts if phase == "chaos"]
        self.known = bool(begins)
        begin_ns = begins[0] if begins else 0
        limit_ns = begin_ns + int(case.time_limit_s * NS_PER_S)
        end_ns = min([limit_ns, *(time for _, time in starts if time > begin_ns)])
        self._chaos_s = (end_ns - begin_ns) / NS_PER_S
        work = [pair for pair in history.pairs if pair.invoke.time < end_ns] if begins else []
        self._peak = _most_within([pair.invoke.time for pair in work], int(PEAK_S * NS_PER_S))
        chaos = [pair for pair in work if pair.invoke.time >= begin_ns]
        self.operations = len(chaos)
        self._starved_s = starved_ns(disturbances_of(history), 0, end_ns) / NS_PER_S
        self.overlapping, self.overlap_most = _overlaps(chaos, end_ns)
        self._outage = _longest_outage(history)

    @property
    def requested_rate(self) -> float | None:
        """The requested operations per second; `None` if the case lists its operations."""
        return self._case.rate if self._case.ops is None else None

    @property
    def achieved_rate(self) -> float:
        """The number of operations per second that began during chaos."""
        return self.operations / self._chaos_s if self._chaos_s > 0 else 0.0

    @property
    def peak_rate(self) -> float:
        """The operations per second in the best `PEAK_S` seconds of warm-up and chaos."""
        return self._peak / PEAK_S

    def certificate(self) -> dict[str, Any]:
        """Return the certificate's lines about load; empty for an imported history."""
        if not self.known:
            return {}
        asked = self.requested_rate
        starved = {"too_few_processors": f"for {self._starved_s:.1f} s"} if self._starved_s else {}
        return (
            self._outage
            | starved
            | {
                "requested_rate": "as listed in the case" if asked is None else f"{asked:g} /s",
                "achieved_rate": f"{self.achieved_rate:.1f} /s, at best {self.peak_rate:.1f} /s",
                "overlap_on_a_name": (
                    f"{self.overlapping} of {self.operations} operations, "
                    f"at most {self.overlap_most} at once"
                ),
            }
        )

    def doubts(self) -> list[tuple[str, str]]:
        """Return the reasons why this load proves too little, each as (rule, text)."""
        if not self.known:
            return []
        doubts = []
        asked = self.requested_rate
        if asked is not None and self.peak_rate < asked * PEAK_SHARE_MIN:
            text = (
                f"even the best {PEAK_S:g} s had {self.peak_rate:.1f} operations per second, of "
                f"{asked:g} requested; "
            )
            if self._starved_s > self._chaos_s * STARVED_SHARE_MIN:
                text += f"processors were scarce for {self._starved_s:.1f} s"
            else:
                text += "raise --concurrency or lower --rate"
            doubts.append(("rate", text))
        elif asked is not None and self.achieved_rate < asked * RATE_SHARE_MIN:
            text = (
                f"{self.achieved_rate:.1f} operations per second began during chaos, of "
                f"{asked:g} requested; fewer or shorter faults leave time for more"
            )
            doubts.append(("rate", text))
        if (
            not self.overlapping
            and self.operations >= OPERATIONS_MIN
            and self._case.concurrency > 1
        ):
            text = (
                "no two operations on the same name overlapped during chaos, so no race was tested"
            )
            doubts.append(("overlap", text))
        return doubts


def _most_within(times: Sequence[int], window_ns: int) -> int:
    most = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - window_ns:
            first += 1
        most = max(most, last - first + 1)
    return most


def _names(value: object) -> list[str]:
    names: list[object] = []
    if isinstance(value, dict):
        names = [value[field] for field in ("name", "new_name", "key") if field in value]
        # A row is identified by its table and its key. Inserts conflict only if their keys are
        # equal.
        if "table" in value and "id" not in value:
            names = [f"{value['table']}/{key}" for key in [*names, *_seconds(value.get("rows"))]]
    elif isinstance(value, list):
        names = _seconds(value)
    return list(dict.fromkeys(map(str, names)))


def _seconds(parts: object) -> list[object]:
    whole = parts if isinstance(parts, list | tuple) else ()
    return [part[1] for part in whole if isinstance(part, list | tuple) and len(part) > 1]


def _overlaps(pairs: Sequence[Pair], end_ns: int) -> tuple[int, int]:
    """Count the operations that overlapped another operation on the same name.

    Also returns the maximum number of operations on one name at once. Without any names, all
    operations count as operations on one object.
    """
    names = [_names(pair.invoke.value) for pair in pairs]
    every = list(dict.fromkeys(itertools.chain.from_iterable(names)))
    for number, pair in enumerate(pairs):
        if pair.invoke.f == logs.Poll.f and not names[number]:
            names[number] = every  # a poll may read any key, so it overlaps operations on all keys
    if not any(names):
        names = [[""]] * len(pairs)
    by_name: dict[str, list[tuple[int, int, int]]] = {}
    for number, pair in enumerate(pairs):
        end = end_ns if pair.completion is None else pair.completion.time
        for name in names[number]:
            by_name.setdefault(name, []).append((pair.invoke.time, end, number))
    met: dict[int, None] = {}
    most = 0
    for spans in by_name.values():
        open_: list[tuple[int, int]] = []
        for begin, end, number in sorted(spans):
            while open_ and open_[0][0] <= begin:
                heapq.heappop(open_)
            if open_:
                # All operations that began earlier and are still open overlap this operation.
                met.update(dict.fromkeys([number, *(other for _, other in open_)]))
            heapq.heappush(open_, (end, number))
            most = max(most, len(open_))
    return len(met), most


def _longest_outage(history: History) -> dict[str, str]:
    phases = {op.value.get("phase"): op.time for op in history.facts("phase")}
    end = phases.get("heal-core")
    done = (pair.completion for pair in history.pairs if pair.type is OpType.OK)
    times = sorted(op.time for op in done if op is not None and end is not None and op.time < end)
    if end is None or not times:  # an imported history, or a run that was interrupted
        return {}
    longest_ns = max(after - before for before, after in itertools.pairwise([*times, end]))
    return {"longest_outage": f"{longest_ns / NS_PER_S:.1f} s"}
