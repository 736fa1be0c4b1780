"""The progress of a report, and a reliable estimate of its end."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.judging.pace import Pace, Schedule
from results.judging.pipeline import Progress
from tests.support.repeated import for_each


class Clock:
    now_s = 1_000.0

    def __call__(self):
        return self.now_s


def progress(done, units, **fields):
    given = {"stage": "check", "cost": 100 * units, "cost_done": 100 * done, **fields}
    return Progress(done=done, units=units, noun="runs", **given)


def test_no_end_is_foretold_before_enough_is_done():
    clock = Clock()
    pace = Pace(clock)
    assert pace.line(progress(0, 100)) == "0/100 runs checked, about 0% of the work"
    clock.now_s += 10
    assert pace.line(progress(4, 100)) == "4/100 runs checked, about 4% of the work"
    clock.now_s += 10
    assert pace.line(progress(10, 100)) == (
        "10/100 runs checked, about 10% of the work, 0.5 a second, 3 min left"
    )


def test_work_before_the_first_report_does_not_count_for_the_pace():
    clock = Clock()
    pace = Pace(clock)
    pace.line(progress(50, 100))
    clock.now_s += 10
    assert pace.line(progress(60, 100)).endswith("1 a second, 40 s left")


def test_another_stage_has_a_pace_of_its_own():
    clock = Clock()
    pace = Pace(clock)
    pace.line(progress(0, 100))
    clock.now_s += 100
    pace.line(progress(100, 100))
    assert pace.line(progress(0, 2, stage="again")).endswith("tried again, about 0% of the work")
    clock.now_s += 7_200
    assert pace.line(progress(1, 2, stage="again")).endswith("0.000139 a second, 2.0 h left")


def test_remaining_work_is_named_instead_of_an_end():
    pace, clock = Pace(Clock()), Clock()
    pace.line(progress(0, 100))
    clock.now_s += 600
    found = msgspec.structs.replace(progress(99, 100), left=("n/hard, linearizable, 2.0 GB",))
    assert pace.line(found) == "99/100 runs checked, 1 left: n/hard, linearizable, 2.0 GB"


def test_work_of_no_cost_is_done():
    assert "about 100%" in Pace(Clock()).line(progress(0, 0, cost=0))


def in_order(costs, slots, speed):
    """Return (end, cost) of tasks in this order on `slots`; `speed` maps costs to durations."""
    free, ends = [0.0] * slots, []
    for cost in costs:
        at = free.index(min(free))
        free[at] += speed(cost)
        ends.append((free[at], cost))
    return sorted(ends)


def assert_right_within_half(ends, part_of):
    """Check the estimate after a tenth of the work; `part_of` maps work to a share of the time."""
    clock, total, done = Clock(), sum(cost for _, cost in ends), 0
    pace, begin_s = Pace(clock), Clock.now_s
    pace.line(progress(0, len(ends), cost=total, cost_done=0))
    for number, (end_s, cost) in enumerate(ends, 1):
        done += cost
        clock.now_s = begin_s + end_s
        line = pace.line(
            progress(number, len(ends), cost=total, cost_done=done, time_part=part_of(done))
        )
        if done / total >= 0.1:
            break
    number, unit = line.rpartition(", ")[2].split()[:2]
    said_s = clock.now_s - begin_s + float(number) * {"s": 1, "min": 60, "h": 3600}[unit]
    assert ends[-1][0] / 1.5 <= said_s <= ends[-1][0] * 1.5


@for_each("seed", range(20))
def test_after_a_tenth_of_the_work_the_end_is_right_within_half(seed):
    draw = random.Random(seed)
    slots = draw.choice([2, 8, 32])
    costs = sorted((round(1e6 * draw.uniform(0.8, 1.2)) for _ in range(slots * 12)), reverse=True)
    ends = in_order(costs, slots, lambda cost: cost * draw.uniform(0.7, 1.4) / 1e6)
    assert_right_within_half(ends, lambda _: None)


@for_each("seed", range(40))
def test_giants_and_idle_slots_are_foretold_from_the_plan(seed):
    draw = random.Random(seed)
    slots = draw.choice([2, 8, 32])
    small = [draw.randint(80, 120) for _ in range(slots * 12)]
    giants = [round(sum(small) * draw.uniform(0.02, 0.5) / slots) for _ in range(slots // 2 + 1)]
    costs = sorted(small + giants, reverse=True)
    pace_s = draw.uniform(0.01, 10.0)
    ends = in_order(costs, slots, lambda cost: pace_s * cost * draw.uniform(0.8, 1.25))
    assert_right_within_half(ends, Schedule(costs, slots).part)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 5), st.integers(0, 1500)
)
def test_a_schedule_is_that_of_the_tasks_in_their_order(costs, slots, done):
    schedule, total = Schedule(costs, slots), 0
    ends = in_order(costs, slots, lambda cost: cost)
    for place, (end, cost) in enumerate(ends):
        total += cost
        if place + 1 < len(ends) and ends[place + 1][1] and ends[-1][0]:
            assert schedule.part(total) == pytest.approx(end / ends[-1][0])
    assert schedule.part(total) == 1.0
    assert 0.0 <= schedule.part(done) <= schedule.part(done + 1) <= 1.0
