"""Combinators that assign generators to threads."""

from functools import partial

import pytest

from harness.errors import UsageError
from harness.generator import (
    NOTHING,
    Draft,
    delay,
    each_thread,
    limit,
    phases,
    reserve,
    synchronize,
)
from tests.generator.shapes import UntilOk, forever, names, numbered, processes
from tests.generator.simulate import perfect, perfect_info, quick


def test_reserve_gives_each_group_its_threads():
    generator = reserve(1, forever("a"), 2, forever("b"), forever("c"))
    ops = perfect(limit(100, generator), concurrency=5)

    by_process = {op.process: op.f for op in ops}
    assert by_process == {0: "a", 1: "b", 2: "b", 3: "c", 4: "c"}
    assert all(by_process[op.process] == op.f for op in ops)
    assert [names(ops).count(f) for f in "abc"] == [20, 40, 40]


def test_reserve_needs_enough_threads():
    with pytest.raises(UsageError, match="reserve wants 3 threads and has 2"):
        quick(reserve(1, forever("a"), 2, forever("b"), None))
    with pytest.raises(UsageError, match="leaves none for its default"):
        quick(reserve(2, forever("a"), forever("b")))


@pytest.mark.parametrize(
    "arguments", [(0, "a", None), (True, "a", None), (2.5, "a", None), (1, 2, None), (1, "a", 2)]
)
def test_reserve_checks_its_arguments(arguments):
    drafts = [Draft(part) if isinstance(part, str) else part for part in arguments]

    with pytest.raises(UsageError, match="reserve got"):
        reserve(*drafts)


def test_reserve_of_nothing_is_its_default():
    assert reserve(3, None, None) is NOTHING
    assert names(quick(reserve(Draft("a")))) == ["a"]


def counts(ops):
    return [names(ops).count(f) for f in "ab"]


def starts(ops):
    return [(op.time, op.f) for op in ops]


def places(ops):
    return [(op.time, op.process, op.value) for op in ops]


three = partial(perfect, concurrency=3)


@pytest.mark.parametrize(
    ("play", "generator", "read", "expected"),
    [
        # A group continues when another group has ended, and sees only its own events.
        (perfect, reserve(1, numbered("a", 2), 1, numbered("b", 5), None), counts, [2, 5]),
        (perfect, reserve(1, UntilOk(forever("a")), limit(4, forever("b"))), counts, [1, 4]),
        # Groups nest inside a restriction.
        (partial(quick, concurrency=4),
         limit(6, reserve(2, None, reserve(1, forever("a"), forever("b")))),
         lambda ops: {(op.process, op.f) for op in ops}, {(2, "a"), (3, "b")}),
        # Each thread has its own copy, and continues after a crash.
        (perfect, each_thread(numbered("a", 2)),
         places, [(0, 0, 0), (0, 1, 0), (10, 0, 1), (10, 1, 1)]),
        (partial(quick, concurrency=3), limit(6, each_thread(forever("a"))),
         processes, [0, 1, 2] * 2),
        (partial(perfect_info, concurrency=1), each_thread(numbered("a", 2)),
         places, [(0, 0, 0), (10, 1, 1)]),
        # `synchronize` waits for all threads, and phases do not interleave.
        (three, [Draft("a"), delay(3 / 1e9, numbered("b", 2)), synchronize(Draft("c"))],
         starts, [(0, "a"), (0, "b"), (3, "b"), (13, "c")]),
        (three, phases(numbered("a", 2), numbered("b", 1), numbered("c", 3)),
         starts, [(0, "a"), (0, "a"), (10, "b"), (20, "c"), (20, "c"), (20, "c")]),
    ],
)  # fmt: skip
def test_operations_and_their_threads(play, generator, read, expected):
    assert read(play(generator)) == expected


def test_each_thread_takes_the_soonest_when_none_is_due():
    at = {0: 30, 1: 20, 2: 10}
    generator = each_thread(lambda ctx: Draft("a", time_ns=at[ctx.threads[0]]))
    (op,) = perfect(limit(1, generator), concurrency=3)

    assert (op.time, op.process) == (10, 2)


def test_each_thread_sees_one_thread_and_its_events():
    seen = []

    def look(ctx):
        seen.append(ctx.threads)
        return Draft("a")

    perfect(limit(6, each_thread(UntilOk(look))))
    assert {(0,), (1,)} == set(seen)
    # Each client's first ok ends only that client's copy.
    assert len(perfect(each_thread(UntilOk(forever("a"))))) == 2
