"""What must hold for every generator, over random compositions and random completions."""

import random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.generator import (
    Context,
    Draft,
    Generator,
    any_of,
    clients,
    concurrency_limit,
    cycle,
    cycle_times,
    delay,
    each_process,
    each_thread,
    filter_ops,
    flip_flop,
    limit,
    map_ops,
    mix,
    nemesis,
    on_threads,
    phases,
    repeat,
    reserve,
    sequential_keys,
    shortest_any,
    sleep,
    split,
    stagger,
    synchronize,
    then,
    time_limit,
    until_ok,
    weighted,
)
from harness.generator.simulate import Outcome, invocations, simulate
from harness.ops import History, Op, OpType
from tests.generator.shapes import S, forever, numbered

LEAVES = st.sampled_from(["a", "b", "c"]).flatmap(
    lambda f: st.sampled_from([Draft(f), repeat(Draft(f)), numbered(f, 3), lambda _ctx: Draft(f)])
)
COUNTS = st.integers(0, 12)
SPANS_S = st.integers(0, 60).map(lambda ns: ns / S)


def _wrap(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    two = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(COUNTS, inner).map(lambda t: limit(*t)),
        st.tuples(SPANS_S, inner).map(lambda t: time_limit(*t)),
        st.tuples(SPANS_S, inner).map(lambda t: delay(*t)),
        st.tuples(SPANS_S, inner).map(lambda t: stagger(*t)),
        st.tuples(inner, COUNTS).map(lambda t: cycle(limit(5, t[0]), t[1])),
        st.tuples(inner, COUNTS).map(lambda t: repeat(*t)),
        inner.map(until_ok),
        inner.map(synchronize),
        inner.map(clients),
        inner.map(each_thread),
        inner.map(each_process),
        inner.map(lambda g: concurrency_limit(2, g)),
        inner.map(lambda g: on_threads(lambda thread: thread != 1, g)),
        inner.map(lambda g: map_ops(lambda d: d.replace(value=1), g)),
        inner.map(lambda g: filter_ops(lambda d: d.f != "none", g)),
        two.map(list),
        two.map(lambda t: phases(*t)),
        two.map(lambda t: then(*t)),
        two.map(lambda t: mix(*t)),
        two.map(lambda t: weighted([(1, t[0]), (3, t[1])])),
        two.map(lambda t: any_of(*t)),
        two.map(lambda t: shortest_any(*t)),
        two.map(lambda t: flip_flop(*t)),
        two.map(lambda t: reserve(1, t[0], t[1])),
        two.map(lambda t: cycle_times((20 / S, t[0]), (30 / S, t[1]))),
        inner.map(lambda g: sequential_keys([1, 2], lambda _key: limit(3, g))),
    )


def _wrap_or_sleep(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        _wrap(inner), st.tuples(inner, inner).map(lambda t: [t[0], sleep(7 / S), t[1]])
    )


SLEEPLESS = st.recursive(LEAVES, _wrap, max_leaves=6)
GENERATORS = st.recursive(LEAVES, _wrap_or_sleep, max_leaves=6)


def run(generator: Any, seed: int, *, concurrency: int = 3) -> list[Op]:
    """Random outcomes and latencies, ties included."""
    rng = random.Random(seed)

    def complete(_ctx: Context, _op: Op) -> Outcome:
        kind = (OpType.OK, OpType.OK, OpType.FAIL, OpType.INFO)[rng.randrange(4)]
        return Outcome(kind, rng.randrange(0, 40))

    # The simulation validates every answer: the process is free, the time is not in the past.
    try:
        return simulate(generator, complete, concurrency=concurrency, seed=seed)
    except UsageError as error:
        assume("reserve" not in str(error))  # one thread alone cannot be reserved
        raise


@settings(max_examples=150, deadline=None)
@given(GENERATORS, st.integers(0, 99))
def test_every_run_is_a_valid_history_in_order_of_time(generator, seed):
    ops = run(limit(60, generator), seed)
    times = [op.time for op in ops]

    assert sorted(times) == times
    assert all(pair.completion is not None for pair in History(ops).pairs)


@settings(max_examples=60, deadline=None)
@given(GENERATORS, st.integers(0, 99))
def test_a_run_is_a_function_of_its_seed(generator, seed):
    assert run(limit(40, generator), seed) == run(limit(40, generator), seed)


@settings(max_examples=60, deadline=None)
@given(SLEEPLESS, st.integers(0, 30), st.integers(0, 99))
def test_limit_is_exact(generator, n, seed):
    assert len(invocations(run(limit(n, generator), seed))) <= n
    assert n == len(invocations(run(limit(n, any_of(forever("z"), generator)), seed)))


@settings(max_examples=60, deadline=None)
@given(GENERATORS, st.integers(1, 300), st.integers(0, 99))
def test_time_limit_is_exact(generator, limit_ns, seed):
    ops = invocations(run(time_limit(limit_ns / S, [limit(50, generator), forever("z")]), seed))
    at = [op.time for op in ops]

    assert all(time_ns < at[0] + limit_ns for time_ns in at)


@settings(max_examples=60, deadline=None)
@given(st.lists(GENERATORS, min_size=2, max_size=4), st.integers(0, 99))
def test_phases_never_interleave(generators, seed):
    def tagged(number: int, generator: Any) -> Generator:
        return map_ops(lambda draft: draft.replace(value=[number]), limit(9, generator))

    ops = run(phases(*(tagged(n, g) for n, g in enumerate(generators))), seed)
    at_work: dict[Any, int] = {}
    phase = 0
    for op in ops:
        if op.process in at_work:
            del at_work[op.process]
            continue
        if op.value[0] != phase:
            assert not at_work
            assert phase < op.value[0]
            phase = op.value[0]
        at_work[op.process] = phase


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_reserved_threads_are_never_lent(first, second, seed):
    generator = clients(reserve(first, forever("a"), second, forever("b"), forever("c")))
    ops = invocations(run(limit(80, generator), seed, concurrency=9))

    for op in ops:
        thread = op.process % 9
        assert op.f == ("a" if thread < first else "b" if thread < first + second else "c")


@settings(max_examples=10, deadline=None)
@given(st.integers(100, 5000), st.integers(0, 99))
def test_stagger_keeps_its_mean_rate(interval_ns, seed):
    ops = invocations(run(limit(1500, stagger(interval_ns / S, forever("a"))), seed, concurrency=9))
    mean_ns = ops[-1].time / (len(ops) - 1)

    # 5 standard errors of the mean of 1500 draws, uniform in 0 .. 2 intervals.
    assert abs(mean_ns - interval_ns) < 5 * interval_ns * 3**-0.5 / 1500**0.5 + 1


@settings(max_examples=50, deadline=None)
@given(GENERATORS, GENERATORS, st.integers(0, 99))
def test_clients_and_nemesis_keep_to_themselves(work, chaos, seed):
    named = map_ops(lambda draft: draft.replace(f="chaos"), limit(9, chaos))
    ops = run(split(limit(30, filter_ops(lambda _d: True, work)), named), seed)

    assert all((op.f == "chaos") == (op.process == "nemesis") for op in ops)


@settings(max_examples=50, deadline=None)
@given(GENERATORS, st.integers(0, 99))
def test_no_combinator_changes_what_it_was_given(generator, seed):
    before = run(limit(20, generator), seed)
    run(limit(20, cycle(limit(7, generator))), seed + 1)

    assert before == run(limit(20, generator), seed)


def test_nemesis_alone_never_uses_clients():
    assert {"nemesis"} == {op.process for op in run(limit(9, nemesis(forever("a"))), 1)}
