"""Phases, faults and active nemeses over the time of a run.

A fault is active in `[inject, heal)`. A fault that is never healed lasts until the end of the run,
and a fault without targets has no duration. A history may come from another program, so lines in a
format that the harness does not write are ignored.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from harness.ops import NEMESIS, History, Op
from harness.timeline import Fault, faults_of
from results.facts.intervals import Interval, Ints, union
from results.facts.schema import LIST_SEPARATOR

T = TypeVar("T", bound=Hashable)


class Timeline:
    """Answers which phase and which faults of a run were active at any time."""

    def __init__(self, history: History, end_ns: int | None = None) -> None:
        """Read phases and faults. `end_ns` is the run's end if `history` lacks client lines."""
        last_ns = history[-1].time if len(history) else 0
        self.end_ns = last_ns if end_ns is None else end_ns
        self.faults = faults_of(history.of_process(NEMESIS), most=None)
        phases = [(op.time, str(field_of(op, "phase"))) for op in history.facts("phase")]
        self._phase_starts = [time for time, _ in phases]
        self._phases = [name for _, name in phases]
        active = [(fault.nemesis, self.interval(fault)) for fault in self.faults]
        self._edges, self.members = sweep(active)
        self.sets = [LIST_SEPARATOR.join(sorted(names)) for names in self.members]
        bounds = [*self._phase_starts, self.end_ns]
        self.chaos = union(
            (bounds[number], bounds[number + 1])
            for number, name in enumerate(self._phases)
            if name == "chaos"
        )

    def phase(self, time_ns: int) -> str:
        return self.phase_name(bisect.bisect_right(self._phase_starts, time_ns) - 1)

    def phase_name(self, number: int) -> str:
        return self._phases[number] if number >= 0 else "before"

    @property
    def phases(self) -> int:
        return len(self._phases)

    def phase_numbers(self, times_ns: Ints) -> Ints:
        """Return, for each time, the number of its phase; -1 before the first phase."""
        phases: Ints = (
            np.searchsorted(np.array(self._phase_starts, np.int64), times_ns, "right") - 1
        )
        return phases

    def numbers(self, times_ns: Ints) -> Ints:
        """Return, for each time, the index in `members` and `sets` of the nemeses active then."""
        return moments(self._edges, times_ns)

    def active(self, time_ns: int) -> str:
        """Return the names of the nemeses with an active fault at a time, joined by `+`."""
        return self.sets[bisect.bisect_right(self._edges, time_ns) - 1]

    def interval(self, fault: Fault) -> Interval:
        """Return the interval in which a fault is active; empty if the fault had no targets."""
        end = self.end_ns if fault.end is None else fault.end
        return fault.start, end if fault.targets else fault.start


def sweep(active: Iterable[tuple[T, Interval]]) -> tuple[list[float], list[frozenset[T]]]:
    """Return each time at which the set of active items may change, and the set from then on.

    The first time is minus infinity, with the empty set.
    """
    changes: dict[float, Counter[T]] = {}
    for name, (start, end) in active:
        changes.setdefault(start, Counter())[name] += 1
        changes.setdefault(end, Counter())[name] -= 1
    edges: list[float] = [float("-inf")]
    members: list[frozenset[T]] = [frozenset()]
    count: Counter[T] = Counter()
    for edge in sorted(changes):
        count.update(changes[edge])
        edges.append(edge)
        members.append(frozenset(name for name, n in count.items() if n > 0))
    return edges, members


def moments(edges: Sequence[float], times_ns: Ints) -> Ints:
    """Return, for each time, the index of its set in the answer of `sweep`."""
    numbers: Ints = np.searchsorted(np.array(edges[1:], np.int64), times_ns, "right")
    return numbers


def field_of(op: Op, name: str) -> Any:
    """Return a field of the op's value, or `None` if the value lacks this field."""
    return op.value.get(name) if isinstance(op.value, dict) else None


def whole_of(value: Any) -> int | None:
    """Return `value` if it is an integer within int64, else `None`."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        return None
    return value
