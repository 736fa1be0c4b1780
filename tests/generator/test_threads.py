"""Combinators over threads."""

import pytest

from harness.errors import UsageError
from harness.generator import (
    NOTHING,
    Draft,
    any_of,
    clients,
    concat,
    concurrency_limit,
    delay,
    each_process,
    each_thread,
    limit,
    nemesis,
    on_role,
    on_threads,
    on_update,
    phases,
    process_limit,
    repeat,
    reserve,
    split,
    synchronize,
    then,
    until_ok,
)
from harness.generator.simulate import (
    imperfect,
    invocations,
    perfect,
    perfect_history,
    perfect_info,
    quick,
)
from harness.ops import OpType
from tests.generator.shapes import forever, names, numbered, processes, short, times


def test_on_threads_restricts():
    ops = perfect(
        limit(4, on_threads(lambda thread: thread in {1, 3}, forever("a"))), concurrency=4
    )

    assert [(op.time, op.process) for op in ops] == [(0, 1), (0, 3), (10, 3), (10, 1)]


def test_on_threads_learns_of_its_own_threads_only():
    told = []

    def note(generator, ctx, event):
        told.append((event.process, ctx.threads))
        return generator

    mine = on_threads(lambda thread: thread == 1, on_update(note, limit(3, forever("mine"))))
    perfect_info(any_of(mine, limit(3, clients(forever("other")))))

    assert told
    assert all(process % 2 == 1 and threads == (1,) for process, threads in told)


def test_clients_and_nemesis_are_split():
    ops = perfect(split(limit(4, forever("work")), numbered("break", 2)))

    assert {0, 1} == set(processes([op for op in ops if op.f == "work"]))
    assert [line for line in short(ops) if line[2] == "break"] == [
        (0, "nemesis", "break", 0),
        (10, "nemesis", "break", 1),
    ]


def test_a_generator_that_nobody_can_run_is_an_error():
    with pytest.raises(UsageError, match="nemesis has no thread to run on"):
        quick(nemesis(Draft("a")), nemesis=False)
    assert quick(nemesis(clients(Draft("a")))) == []
    assert processes(quick(each_thread(clients(Draft("a"))))) == [0, 1]


def test_on_role():
    roles = {"reader": [0, 2], "writer": [1]}
    ops = quick(limit(4, on_role("reader", roles, forever("a"))), concurrency=3)

    assert {0, 2} == set(processes(ops))
    with pytest.raises(UsageError, match="known roles: reader, writer"):
        on_role("admin", roles, Draft("a"))


def test_reserve_gives_each_group_its_threads():
    generator = clients(reserve(1, forever("a"), 2, forever("b"), forever("c")))
    ops = perfect(limit(100, generator), concurrency=5)

    by_process = {op.process: op.f for op in ops}
    assert by_process == {0: "a", 1: "b", 2: "b", 3: "c", 4: "c"}
    assert all(by_process[op.process] == op.f for op in ops)
    assert [names(ops).count(f) for f in "abc"] == [20, 40, 40]


def test_reserve_nests_inside_a_restriction():
    inner = reserve(1, forever("a"), forever("b"))
    ops = quick(limit(20, on_threads(lambda thread: thread in {2, 3}, inner)), concurrency=4)

    assert {(2, "a"), (3, "b")} == {(op.process, op.f) for op in ops}


def test_reserve_goes_on_where_one_group_is_done():
    generator = clients(reserve(1, numbered("a", 2), 1, numbered("b", 5), None))
    ops = perfect(generator)

    assert [names(ops).count(f) for f in "ab"] == [2, 5]


def test_reserve_tells_a_group_of_its_own_events_only():
    generator = clients(reserve(1, until_ok(forever("a")), limit(4, forever("b"))))
    ops = perfect(generator)

    assert [names(ops).count(f) for f in "ab"] == [1, 4]


def test_reserve_needs_enough_threads():
    with pytest.raises(UsageError, match="reserve wants 3 threads and has 2"):
        quick(clients(reserve(1, forever("a"), 2, forever("b"), None)))
    with pytest.raises(UsageError, match="leaves none for its default"):
        quick(clients(reserve(2, forever("a"), forever("b"))))


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


def test_each_thread_runs_a_copy_on_every_thread():
    ops = perfect(each_thread(numbered("a", 2)))

    assert [(op.time, op.process, op.value) for op in ops][:4] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, "nemesis", 0),
        (10, 0, 1),
    ]
    assert len(ops) == 6


def test_each_thread_takes_the_soonest_when_none_is_due():
    at = {0: 30, 1: 20, 2: 10}
    generator = clients(each_thread(lambda ctx: Draft("a", time_ns=at[ctx.threads[0]])))
    (op,) = perfect(limit(1, generator), concurrency=3)

    assert (op.time, op.process) == (10, 2)


def test_each_thread_sees_one_thread_and_its_events():
    seen = []

    def look(ctx):
        seen.append(ctx.threads)
        return Draft("a")

    perfect(limit(6, each_thread(until_ok(look))))
    assert {(0,), (1,), ("nemesis",)} == set(seen)
    # Every client's first ok ends that client's copy alone.
    assert len(perfect(clients(each_thread(until_ok(forever("a")))))) == 2


def test_each_thread_goes_on_after_a_crash_and_each_process_begins_again():
    by_thread = perfect_info(clients(each_thread(numbered("a", 2))), concurrency=1)
    by_process = perfect_info(limit(4, clients(each_process(numbered("a", 2)))), concurrency=1)

    assert [(op.process, op.value) for op in by_thread] == [(0, 0), (1, 1)]
    assert [(op.process, op.value) for op in by_process] == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_each_process_ends_when_no_process_is_left_to_begin():
    ops = perfect(each_process(numbered("a", 2)), concurrency=3, nemesis=False)

    assert len(ops) == 6


def test_each_process_waits_for_those_that_may_crash():
    ops = imperfect(each_process(limit(1, forever("a"))), concurrency=1, nemesis=False)

    assert processes(ops) == [0, 0]  # it failed, which is no crash


@pytest.mark.parametrize(("n", "used"), [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (6, 6)])
def test_process_limit_counts_all_processes_that_could_take_part(n, used):
    # Every 10 ns both processes crash, and two new ones take their places.
    ops = perfect_info(process_limit(n, clients(forever("a"))), concurrency=2)

    assert sorted(processes(ops)) == list(range(used))
    assert process_limit(0, forever("a")) is NOTHING


def test_concurrency_limit_bounds_the_threads_at_work():
    ops = perfect_history(concurrency_limit(2, limit(6, clients(forever("a")))), concurrency=5)
    at_work = most = 0
    for op in ops:
        at_work += 1 if op.type is OpType.INVOKE else -1
        most = max(most, at_work)

    assert most == 2
    assert times(invocations(ops)) == [0, 0, 10, 10, 20, 20]
    with pytest.raises(UsageError, match="concurrency_limit got n = 0"):
        concurrency_limit(0, Draft("a"))


def test_synchronize_waits_for_all_threads():
    ops = perfect([Draft("a"), delay(3 / 1e9, numbered("b", 2)), synchronize(Draft("c"))])

    assert [(op.time, op.f) for op in ops] == [(0, "a"), (0, "b"), (3, "b"), (13, "c")]


def test_phases_do_not_interleave():
    ops = perfect(phases(numbered("a", 2), numbered("b", 1), numbered("c", 3)))

    assert [(op.time, op.f) for op in ops] == [
        (0, "a"),
        (0, "a"),
        (10, "b"),
        (20, "c"),
        (20, "c"),
        (20, "c"),
    ]


def test_then_reads_in_order():
    ops = perfect(then(numbered("a", 2), Draft("b")))

    assert [(op.time, op.f) for op in ops] == [(0, "a"), (0, "a"), (10, "b")]
    assert names(quick(then(None, Draft("b")))) == ["b"]


def test_long_chains_of_then_do_not_nest():
    chain = NOTHING
    for value in range(2000):
        chain = then(chain, Draft("a", value))

    assert list(range(2000)) == [op.value for op in quick(concat(chain))]


def test_deep_restrictions_keep_their_context():
    generator = repeat(Draft("a"))
    for _ in range(50):
        generator = clients(generator)

    assert {0, 1} == set(processes(perfect(limit(9, generator))))
