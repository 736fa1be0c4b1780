"""Generators that limit the rate, the spacing and the time of operations."""

from functools import partial
from itertools import pairwise

import pytest

from harness.errors import UsageError
from harness.generator import (
    NOTHING,
    Draft,
    delay,
    limit,
    reserve,
    sleep,
    stagger,
    synchronize,
    time_limit,
    timed_ops,
)
from harness.ops import OpType, ScheduledOp
from tests.generator import simulate as sim
from tests.generator.shapes import S, forever, names, numbered, short, times
from tests.generator.simulate import perfect, perfect_history, perfect_info, quick

NS = 1 / S


def op(at_ns, process, f):
    return ScheduledOp(at_ns, process, f, at_ns)


def places(ops):
    return [(op.time, op.process, op.f) for op in ops]


alone, crashing = partial(perfect, concurrency=1), partial(perfect_info, concurrency=1)


@pytest.mark.parametrize(
    ("play", "generator", "read", "expected"),
    [
        # A time limit counts from the first operation, and also ends a generator that waits.
        (quick, [Draft("b", time_ns=100), time_limit(30 * NS, delay(10 * NS, forever("a")))],
         times, [100, 100, 110, 120]),
        (perfect, time_limit(15 * NS, [Draft("a"), Draft("b", time_ns=15), Draft("c")]),
         names, ["a"]),
        # A delay is exact, and does not catch up after lateness.
        (perfect, limit(4, delay(30 * NS, forever("a"))), times, [0, 30, 60, 90]),
        (alone, limit(5, delay(3 * NS, forever("a"))), times, [0, 10, 20, 30, 40]),
        # A sleep keeps one thread idle, is not recorded, and does not retire its process.
        (perfect, [sleep(50 * NS), limit(4, forever("a"))],
         places, [(0, 1, "a"), (10, 1, "a"), (20, 1, "a"), (30, 1, "a")]),
        (perfect_history, [sleep(50 * NS), synchronize(Draft("a"))], times, [50, 60]),
        (crashing, [sleep(5 * NS), synchronize(Draft("a"))], places, [(5, 0, "a")]),
        # Scheduled operations run at their times on their threads, the earliest first.
        (partial(perfect, concurrency=3),
         timed_ops([op(30, 1, "b"), op(5, 0, "a"), op(30, 2, "c"), op(90, 4, "d")]),
         short, [(5, 0, "a", 5), (30, 1, "b", 30), (30, 2, "c", 30), (90, 1, "d", 90)]),
        (partial(quick, concurrency=8), timed_ops([op(90 - 10 * n, n, "a") for n in range(8)]),
         times, list(range(20, 100, 10))),
        # A late thread does not delay other threads.
        (perfect, timed_ops([op(0, 0, "a"), op(1, 0, "b"), op(2, 0, "c"), op(3, 1, "d")]),
         places, [(0, 0, "a"), (3, 1, "d"), (10, 0, "b"), (20, 0, "c")]),
        # After a crash, scheduled operations continue with the new process.
        (perfect_info, timed_ops([op(0, 5, "a"), op(50, 5, "b")]),
         places, [(0, 1, "a"), (50, 3, "b")]),
        # Scheduled times count from the first request, plus an offset.
        (quick, [Draft("b", time_ns=100), timed_ops([op(5, 0, "a")], offset_ns=20)],
         times, [100, 125]),
        # With a start time, scheduled times do not depend on the first request.
        (quick, [Draft("b", time_ns=100), timed_ops([op(5, 0, "a")], offset_ns=20, start_ns=200)],
         times, [100, 225]),
    ],
)  # fmt: skip
def test_operations_and_their_times(play, generator, read, expected):
    assert read(play(generator)) == expected


def test_time_limit_ends_a_generator_that_is_always_pending():
    # the operation's thread is busy for longer than the limit
    generator = time_limit(15 * NS, [Draft("a", process=0), Draft("b", process=0)])

    def slow(_ctx, _op):
        return sim.Outcome(OpType.OK, 1000)

    assert names(sim.invocations(sim.simulate(generator, slow))) == ["a"]
    assert time_limit(0, forever("a")) is NOTHING


def test_stagger_spaces_at_random_up_to_twice_its_interval():
    at = times(perfect(limit(2000, stagger(1000 * NS, forever("a"))), concurrency=5))
    gaps = [after - before for before, after in pairwise(at)]

    assert at[0] == 0
    assert min(gaps) >= 0
    assert max(gaps) < 2000
    assert 970 < sum(gaps) / len(gaps) < 1030


def test_stagger_makes_up_for_small_delays():
    # Each operation occupies the only thread for 10 ns. At random distances of 0 to 40 ns, this
    # delays about a quarter of the operations, but the mean remains 20 ns.
    at = times(perfect(limit(4000, stagger(20 * NS, forever("a"))), concurrency=1))

    assert 19 < at[-1] / (len(at) - 1) < 21


def test_stagger_does_not_burst_after_a_stall():
    def stalls(_ctx, op):
        return sim.Outcome(OpType.OK, 100_000 if op.value == 2 else 1)

    ops = sim.simulate(stagger(100 * NS, numbered("a", 50)), stalls, concurrency=1)
    after = [op.time for op in sim.invocations(ops) if op.value > 2]

    assert after[-1] - after[0] > 4000


def test_what_goes_together_is_not_spaced_and_the_rate_stays():
    drafts = [Draft("a", number, together=number % 4 != 0) for number in range(2000)]
    at = times(perfect(stagger(1000 * NS, drafts), concurrency=8))
    gaps = [after - before for before, after in pairwise(at)]

    assert all(gap <= 1 for number, gap in enumerate(gaps, start=1) if number % 4)
    assert 900 < at[-1] / (len(at) - 1) < 1100


def test_timed_ops_for_threads_of_others_are_an_error():
    restricted = reserve(1, timed_ops([op(0, 1, "a")]), None)

    with pytest.raises(UsageError, match="whose thread is not among"):
        quick(restricted)
    with pytest.raises(UsageError, match="both must be 0 or more"):
        timed_ops([op(-1, 1, "a")])
    with pytest.raises(UsageError, match="offset_ns = -5"):
        timed_ops([op(1, 1, "a")], offset_ns=-5)
    assert timed_ops([]) is NOTHING


@pytest.mark.parametrize("combinator", [time_limit, stagger, delay])
@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_spans_must_be_spans(combinator, seconds):
    with pytest.raises(UsageError, match="it must be in 0"):
        combinator(seconds, Draft("a"))
