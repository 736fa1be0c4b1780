"""Timestamps always increase, and only logs may move them far beyond the wall clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu.hybrid_clock import ClockError, HybridClock, from_micros, to_micros
from tests.support.env import Clock

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["now", "observe", "update"]),
        st.integers(0, 60),  # the wall clock, in s
        st.integers(0, 60),  # the timestamp in a request, in s
    ),
    max_size=30,
)


@given(STEPS)
def test_timestamps_rise(steps):
    wall = Clock()
    clock = HybridClock(wall, max_error_us=10_000_000)
    highest = 0
    for step, wall_s, at_s in steps:
        wall.now_ns = wall_s * 10**9
        brought = from_micros(at_s * 10**6, 7)
        if step == "now":
            now = clock.now()
            assert now > highest
            assert now >= from_micros(wall_s * 10**6)
            highest = now
        elif step == "observe":
            clock.observe(brought)
            highest = max(highest, brought)
        elif brought > highest and at_s - wall_s > 10:
            with pytest.raises(ClockError, match="max_clock_sync_error_usec"):
                clock.update(brought)
        else:
            clock.update(brought)
            highest = max(highest, brought)
    assert clock.now() > highest


def test_time_is_the_wall_clock_while_that_goes_forward():
    wall = Clock()
    clock = HybridClock(wall, max_error_us=0)
    wall.now_ns = 5_000_123_999
    assert from_micros(5_000_123) == clock.now()
    assert from_micros(5_000_123, 1) == clock.now()
    wall.now_ns = 1
    assert from_micros(5_000_123, 2) == clock.now()
    wall.now_ns = 6_000_000_000
    assert to_micros(clock.now()) == 6_000_000


def test_the_counter_spills_into_the_microseconds():
    clock = HybridClock(Clock(), max_error_us=0)
    clock.observe(from_micros(1, (1 << 12) - 1))
    assert from_micros(2) == clock.now()
