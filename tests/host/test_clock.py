"""A faulty clock, and the event loop that uses it."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import DRIFT_PPM_MAX, DRIFT_PPM_MIN
from harness.environments.faulty import ClockError, FaultyClock
from harness.environments.host.node import DriftingLoop

BEGIN_NS = 1_000_000_000_000
WALL_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
drifts = st.integers(DRIFT_PPM_MIN, DRIFT_PPM_MAX)
errors = st.builds(ClockError, offset_ns=st.integers(-(10**18), 10**18), drift_ppm=drifts)


class RightClock:
    def __init__(self) -> None:
        self.passed_ns = 0

    def monotonic_ns(self):
        return BEGIN_NS + self.passed_ns

    def wall_ns(self):
        return WALL_NS + self.passed_ns

    def max_error_ns(self):
        return 7


def faulty(**error) -> tuple[RightClock, FaultyClock]:
    right = RightClock()
    return right, FaultyClock(right, ClockError(**error))


@given(st.lists(st.tuples(st.integers(0, 10**12), st.none() | errors)))
def test_monotonic_time_never_goes_back(steps):
    right, clock = faulty()
    before_ns = clock.monotonic_ns()
    for passed_ns, error in steps:
        right.passed_ns += passed_ns
        assert clock.monotonic_ns() >= before_ns
        before_ns = clock.monotonic_ns()
        if error is not None:
            clock.set(error)
        # a change of the rate does not make the clock jump
        assert clock.monotonic_ns() == before_ns


@given(errors, st.integers(0, 10**15), st.integers(0, 10**15))
def test_both_clocks_keep_the_rate_and_the_wall_clock_its_offset(error, wait_ns, passed_ns):
    right, clock = faulty()
    right.passed_ns += wait_ns
    clock.set(error)
    monotonic_ns, wall_ns = clock.monotonic_ns(), clock.wall_ns()
    assert wall_ns - right.wall_ns() == error.offset_ns
    right.passed_ns += passed_ns
    drifted_ns = passed_ns + passed_ns * error.drift_ppm // 1_000_000
    assert clock.monotonic_ns() - monotonic_ns == drifted_ns
    assert clock.wall_ns() - wall_ns == drifted_ns
    assert clock.max_error_ns() == 7
    assert clock.rate == pytest.approx(1 + error.drift_ppm / 1e6)


def test_the_same_once_more_changes_nothing():
    error = ClockError(drift_ppm=500_000, since_ns=WALL_NS)
    right, clock = faulty(drift_ppm=500_000, since_ns=WALL_NS)
    right.passed_ns += SECOND_NS
    clock.set(error)
    assert clock.wall_ns() - right.wall_ns() == SECOND_NS // 2
    # the clock is corrected, and then drifts again
    clock.set(ClockError(drift_ppm=500_000, since_ns=1))
    assert clock.wall_ns() == right.wall_ns()


def test_a_wall_clock_has_drifted_before_its_node_began():
    error = {"drift_ppm": 1_000_000, "offset_ns": 5 * SECOND_NS}
    right, clock = faulty(**error, since_ns=WALL_NS - 3 * SECOND_NS)
    assert clock.wall_ns() - right.wall_ns() == 8 * SECOND_NS
    right.passed_ns += SECOND_NS
    assert clock.wall_ns() - right.wall_ns() == 9 * SECOND_NS
    clock.set(ClockError())
    assert clock.wall_ns() == right.wall_ns()
    # wall clocks of the two hosts differ slightly
    right, clock = faulty(**error, since_ns=WALL_NS + SECOND_NS)
    assert clock.wall_ns() - right.wall_ns() == 5 * SECOND_NS


class MachineClock:
    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)

    @staticmethod
    def max_error_ns():
        return 0


def took_s(clock: FaultyClock, main) -> float:
    begin_s = time.monotonic()
    with asyncio.Runner(loop_factory=lambda: DriftingLoop(clock)) as runner:
        runner.run(main())
    return time.monotonic() - begin_s


def test_timers_of_a_fast_clock_are_early_and_of_a_slow_one_late():
    fast = FaultyClock(MachineClock(), ClockError(drift_ppm=9_000_000))
    assert took_s(fast, lambda: asyncio.sleep(3)) < 2.9  # takes 0.3 s if nothing else runs
    slow = FaultyClock(MachineClock(), ClockError(drift_ppm=-900_000))
    assert took_s(slow, lambda: asyncio.sleep(0.01)) >= 0.1


def test_a_timer_under_way_follows_a_change_of_rate():
    clock = FaultyClock(MachineClock(), ClockError())

    async def main():
        loop = asyncio.get_running_loop()
        assert loop.time() == pytest.approx(clock.monotonic_ns() / 1e9, abs=60)
        loop.call_later(0.01, clock.set, ClockError(drift_ppm=9_000_000))
        await asyncio.sleep(2)

    assert took_s(clock, main) < 1.9  # takes 0.21 s if nothing else runs
