"""Properties of every generator, over random compositions and completions."""

import random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.generator import (
    Context,
    Draft,
    Emit,
    Generator,
    Pending,
    any_of,
    delay,
    each_thread,
    lift,
    limit,
    mix,
    phases,
    repeat,
    reserve,
    sleep,
    stagger,
    synchronize,
    time_limit,
    weighted,
)
from harness.ops import History, Op, OpType
from tests.generator.shapes import S, UntilOk, forever, numbered
from tests.generator.simulate import Outcome, invocations, simulate
from tests.tiers import examples

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
        st.tuples(inner, COUNTS).map(lambda t: repeat(*t)),
        inner.map(UntilOk),
        inner.map(synchronize),
        inner.map(each_thread),
        two.map(list),
        two.map(lambda t: phases(*t)),
        two.map(lambda t: mix(*t)),
        two.map(lambda t: weighted([(1, t[0]), (3, t[1])])),
        two.map(lambda t: any_of(*t)),
        two.map(lambda t: reserve(1, t[0], t[1])),
    )


def _wrap_or_sleep(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        _wrap(inner), st.tuples(inner, inner).map(lambda t: [t[0], sleep(7 / S), t[1]])
    )


SLEEPLESS = st.recursive(LEAVES, _wrap, max_leaves=6)
GENERATORS = st.recursive(LEAVES, _wrap_or_sleep, max_leaves=6)


class Tagged:
    """A wrapped generator that sets each operation's value to the number of its phase."""

    def __init__(self, number: int, generator: Generator) -> None:
        self.number, self.generator = number, generator

    def op(self, ctx: Context) -> Emit | Pending | None:
        step = self.generator.op(ctx)
        if step is None:
            return None
        rest = Tagged(self.number, step.next)
        if isinstance(step, Pending):
            return Pending(rest)
        draft = step.draft
        return Emit(draft if draft.f == "sleep" else draft.replace(value=[self.number]), rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        return Tagged(self.number, self.generator.update(ctx, event))


def run(generator: Any, seed: int, *, concurrency: int = 3) -> list[Op]:
    """Run a generator with random outcomes and latencies, including ties."""
    rng = random.Random(seed)

    def complete(_ctx: Context, _op: Op) -> Outcome:
        kind = (OpType.OK, OpType.OK, OpType.FAIL, OpType.INFO)[rng.randrange(4)]
        return Outcome(kind, rng.randrange(0, 40))

    # The simulation validates every answer: the process is free, the time is not in the past.
    try:
        return simulate(generator, complete, concurrency=concurrency, seed=seed)
    except UsageError as error:
        assume("reserve" not in str(error))  # the only thread cannot be reserved
        raise


@settings(max_examples=examples(150), deadline=None)
@given(GENERATORS, st.integers(0, 99))
def test_every_run_is_a_valid_history_in_order_of_time(generator, seed):
    ops = run(limit(60, generator), seed)
    times = [op.time for op in ops]

    assert sorted(times) == times
    assert all(pair.completion is not None for pair in History(ops).pairs)


@settings(max_examples=examples(60), deadline=None)
@given(GENERATORS, st.integers(0, 99))
def test_a_run_is_a_function_of_its_seed(generator, seed):
    assert run(limit(40, generator), seed) == run(limit(40, generator), seed)


@settings(max_examples=examples(60), deadline=None)
@given(SLEEPLESS, st.integers(0, 30), st.integers(0, 99))
def test_limit_is_exact(generator, n, seed):
    assert len(invocations(run(limit(n, generator), seed))) <= n
    assert n == len(invocations(run(limit(n, any_of(forever("z"), generator)), seed)))


@settings(max_examples=examples(60), deadline=None)
@given(GENERATORS, st.integers(1, 300), st.integers(0, 99))
def test_time_limit_is_exact(generator, limit_ns, seed):
    ops = invocations(run(time_limit(limit_ns / S, [limit(50, generator), forever("z")]), seed))
    at = [op.time for op in ops]

    assert all(time_ns < at[0] + limit_ns for time_ns in at)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(GENERATORS, min_size=2, max_size=4), st.integers(0, 99))
def test_phases_never_interleave(generators, seed):
    def tagged(number: int, generator: Any) -> Any:
        return Tagged(number, lift(limit(9, generator)))

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


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_reserved_threads_are_never_lent(first, second, seed):
    generator = reserve(first, forever("a"), second, forever("b"), forever("c"))
    ops = invocations(run(limit(80, generator), seed, concurrency=9))

    for op in ops:
        thread = op.process % 9
        assert op.f == ("a" if thread < first else "b" if thread < first + second else "c")


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(100, 5000), st.integers(0, 99))
def test_stagger_keeps_its_mean_rate(interval_ns, seed):
    ops = invocations(run(limit(1500, stagger(interval_ns / S, forever("a"))), seed, concurrency=9))
    mean_ns = ops[-1].time / (len(ops) - 1)

    # 5 standard errors of the mean of 1500 draws, uniform in 0 .. 2 intervals.
    assert abs(mean_ns - interval_ns) < 5 * interval_ns * 3**-0.5 / 1500**0.5 + 1


@settings(max_examples=examples(50), deadline=None)
@given(GENERATORS, st.integers(0, 99))
def test_no_combinator_changes_what_it_was_given(generator, seed):
    before = run(limit(20, generator), seed)
    run(limit(20, lambda _ctx: [limit(7, generator), Draft("z")]), seed + 1)

    assert before == run(limit(20, generator), seed)
