"""Draws the times of faults before the run, so that a case is plain data.

By default a nemesis injects about one fault per interval. Its last fault outlives the chaos phase
on purpose: something must still be broken when the run checks that a quorum alone can serve, as in
TigerBeetle's liveness mode (`src/vopr.zig`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from harness.case import Fault
from harness.errors import UsageError
from harness.ops import NS_PER_S

FAULTS_MAX: Final = 10_000
Draw = Callable[[random.Random], dict[str, Any]]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one nemesis; by default once in each interval of the case, at a random moment.

    With `every_ns` and `for_ns`, faults come at exact intervals. With `at_ns` and `for_ns`, the
    nemesis has one fault at an exact time. Each fault begins and ends `times` times. Each fault
    affects `nodes` nodes, one after the other, and releases them in a random order.
    """

    every_ns: int = 0
    at_ns: int | None = None
    for_ns: int = 0
    times: int = 1
    nodes: int = 1

    def plan(
        self,
        nemesis: str,
        rng: random.Random,
        draw_args: Draw,
        *,
        horizon_ns: int,
        interval_ns: int,
        duration_ns: int,
    ) -> list[Fault]:
        """Plan at most `FAULTS_MAX` faults, for a chaos phase that lasts `horizon_ns`."""
        if self.at_ns is not None or self.every_ns:
            times = self._exact(nemesis, horizon_ns)
        else:
            times = self._drawn(rng, horizon_ns, interval_ns, duration_ns)
        faults: list[Fault] = []
        for number, (at_ns, length_ns) in enumerate(times, 1):
            fault = Fault(
                id=f"{nemesis}-{number}",
                nemesis=nemesis,
                at_ns=at_ns,
                duration_ns=length_ns,
                args=draw_args(rng),
            )
            faults += self._parts(fault, rng)
        return faults

    def _drawn(
        self, rng: random.Random, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Iterator[tuple[int, int]]:
        """Draw start and length of one fault per interval; the last outlives the chaos phase."""
        count = min(max(1, horizon_ns // interval_ns), FAULTS_MAX // (self.times * self.nodes))
        slot_ns = horizon_ns // count
        for number in range(count):
            length_ns = min(duration_ns * rng.randrange(60, 121) // 100, slot_ns * 9 // 10)
            start_ns = slot_ns * number + rng.randrange(max(1, slot_ns - length_ns))
            if number == count - 1:
                length_ns = horizon_ns - start_ns + duration_ns
            yield start_ns, length_ns

    def _exact(self, nemesis: str, horizon_ns: int) -> Iterator[tuple[int, int]]:
        at_ns = self.every_ns if self.at_ns is None else self.at_ns
        if at_ns >= horizon_ns:
            raise UsageError(
                f"{nemesis!r} begins {at_ns / NS_PER_S:g} s after the start of a chaos phase of "
                f"{horizon_ns / NS_PER_S:g} s; begin earlier, or give a longer --time-limit"
            )
        starts = range(at_ns, horizon_ns, self.every_ns or horizon_ns)
        if len(starts) > FAULTS_MAX:
            raise UsageError(f"{nemesis!r} plans {len(starts)} faults; the limit is {FAULTS_MAX}")
        return ((start_ns, self.for_ns) for start_ns in starts)

    def _parts(self, fault: Fault, rng: random.Random) -> list[Fault]:
        """Split a planned fault into `times` short ones, or one for each of `nodes` nodes."""
        count = self.times * self.nodes
        if count == 1:
            return [fault]
        step_ns = max(1, fault.duration_ns // count)
        end_ns = fault.at_ns + fault.duration_ns
        turn = rng.randrange(self.nodes)
        parts = []
        for number in range(count):
            args = fault.args
            if self.nodes > 1:
                at_ns = fault.at_ns + step_ns * number // 2
                until_ns = end_ns - step_ns * ((number + turn) % self.nodes) // 2
                args = {**args, "draw": args["draw"] + number}
            else:
                at_ns = fault.at_ns + step_ns * number
                until_ns = end_ns if number == count - 1 else at_ns + step_ns // 2
            parts.append(
                msgspec.structs.replace(
                    fault,
                    id=f"{fault.id}.{number + 1}",
                    at_ns=at_ns,
                    duration_ns=max(1, until_ns - at_ns),
                    args=args,
                )
            )
        return parts
