"""Plain values and sequences as generators, and the context that generators get."""

import random
import re

import pytest

import harness.generator as generator_package
from harness.errors import InternalError, UsageError
from harness.generator import (
    NOTHING,
    Context,
    Draft,
    Emit,
    Generator,
    Pending,
    concat,
    lift,
    limit,
    new_context,
)
from harness.ops import History, Op, OpType
from harness.plugins import Request
from tests.generator.shapes import forever, names, numbered, short
from tests.generator.simulate import Outcome, perfect, quick, quick_history, simulate
from tests.support.programs import python


def test_nothing_is_exhausted():
    assert quick(None) == []
    assert lift(None) is NOTHING


@pytest.mark.parametrize(
    ("generator", "ops"),
    [
        (Draft("write", 2), [(0, 0, "write", 2)]),
        (Request("write", 2), [(0, 0, "write", 2)]),
        (Draft("a", time_ns=7), [(7, 0, "a", None)]),
        # a draft whose time has passed happens now
        ([Draft("a", time_ns=5), Draft("b", time_ns=3)], [(5, 0, "a", None), (5, 1, "b", None)]),
        (Draft("a", process=1), [(0, 1, "a", None)]),
    ],
)
def test_a_draft_happens_once_when_it_is_due(generator, ops):
    assert short(quick(generator)) == ops


def test_a_draft_waits_for_the_process_it_names():
    drafts = [Draft("a", process=1), Draft("b", process=1)]

    assert short(perfect(drafts)) == [(0, 1, "a", None), (10, 1, "b", None)]


@pytest.mark.parametrize("process", [2, 7, -1, "nemesis"])
def test_a_draft_for_a_process_that_does_not_exist_is_an_error(process):
    with pytest.raises(UsageError, match=f"process {process!r}"):
        quick(Draft("a", process=process))


def test_a_list_runs_in_order_and_may_nest():
    generator = [Draft("a"), [Draft("b"), None, [], Draft("c")], (Draft("d"),)]

    assert names(quick(generator)) == ["a", "b", "c", "d"]


def test_concat_of_long_chains_does_not_nest():
    generator: Generator = NOTHING
    for value in range(3000):
        generator = concat(generator, Draft("a", value))

    assert list(range(3000)) == [op.value for op in quick(generator)]


def test_a_function_is_called_until_it_returns_none():
    def countdown(ctx: Context) -> Draft | None:
        return None if ctx.time_ns >= 20 else Draft("a", ctx.time_ns)

    assert [op.value for op in perfect(countdown)] == [0, 0, 10, 10]


def test_a_generator_returned_by_a_function_runs_to_its_end():
    pairs = limit(5, lambda _ctx: [Draft("a"), Draft("b")])
    assert names(quick(pairs)) == ["a", "b", "a", "b", "a"]


def test_a_function_of_empty_generators_is_an_error():
    with pytest.raises(UsageError, match="empty generators in a row"):
        quick(lambda _ctx: [])


@pytest.mark.parametrize("value", [3, "text", {"f": "a"}, object()])
def test_other_values_are_errors(value):
    with pytest.raises(UsageError, match="generator"):
        lift(value)


class Outsider:
    """A third-party generator, whose operations have neither a process nor a time."""

    def __init__(self, count: int, seen: tuple[str, ...] = ()) -> None:
        self.count, self.seen = count, seen

    def op(self, ctx: Context) -> Emit | Pending | None:
        if self.count == 0:
            return None
        return Emit(Draft("own", len(self.seen)), Outsider(self.count - 1, self.seen))

    def update(self, ctx: Context, event: Op) -> Generator:
        return Outsider(self.count, (*self.seen, event.type.value))


def test_a_generator_from_outside_may_leave_gaps():
    ops = perfect(Outsider(5), concurrency=2)

    assert short(ops) == [
        (0, 0, "own", 0),
        (0, 1, "own", 1),
        (10, 0, "own", 4),
        (10, 1, "own", 5),
        (20, 0, "own", 8),
    ]


@pytest.mark.slow
def test_100_000_operations_need_no_stack():
    assert len(quick(limit(100_000, [forever("a")]))) == 100_000
    assert len(quick(numbered("a", 20_000))) == 20_000


def test_a_history_of_any_simulation_is_valid():
    assert len(History(quick_history(limit(20, forever("a"))))) == 40


def test_an_endless_generator_is_an_error():
    def ok(_ctx: Context, _op: Op) -> Outcome:
        return Outcome(OpType.OK)

    with pytest.raises(UsageError, match="wrap it in a limit"):
        simulate(forever("a"), ok, ops_max=1000)


class Stuck:
    def op(self, ctx: Context) -> Pending:
        return Pending(self)

    def update(self, ctx: Context, event: Op) -> Generator:
        return self


def test_a_stuck_generator_is_an_error():
    with pytest.raises(InternalError, match="stays pending"):
        quick(Stuck())


# --- the context -----------------------------------------------------------------------------


def context() -> Context:
    return new_context(3, random.Random(0))


def test_a_fresh_context_has_all_threads_free():
    ctx = context()

    assert (0, 1, 2) == ctx.threads == ctx.processes
    assert ctx.free_process() == 0
    assert ctx.free_mask == ctx.all_mask


def test_free_process_rotates():
    ctx, taken = context(), []
    for time_ns in range(7):
        process = ctx.free_process()
        taken.append(process)
        ctx = ctx.busy(ctx.index_of(process), time_ns).freed(ctx.index_of(process), time_ns)

    assert taken == [0, 1, 2, 0, 1, 2, 0]


def test_rotation_skips_the_busy_and_wraps():
    ctx = context().busy(1, 0)

    assert ctx.free_process() == 2
    assert ctx.busy(2, 0).free_process() == 0
    assert ctx.busy(2, 0).busy(0, 0).free_process() is None


def test_time_never_goes_back():
    assert context().at(9).busy(0, 4).freed(0, 6).time_ns == 9


def test_a_retired_thread_goes_on_under_a_new_process():
    ctx = context().retired(1).retired(1)

    assert ctx.processes == (0, 7, 2)
    assert 1 == ctx.index_of(7) == ctx.index_of(4)
    assert ctx.is_free(7)
    assert not ctx.is_free(4)


def test_restriction_hides_threads_for_good():
    ctx = context().restrict(0b110)

    assert ctx.threads == (1, 2)
    assert ctx.restrict(0b011).threads == (1,)
    assert ctx.busy(1, 0).threads == (1, 2)
    assert ctx.busy(1, 0).free_mask == 0b100


def test_a_thread_freed_elsewhere_stays_hidden_elsewhere():
    ctx = context().busy(0, 1)

    assert ctx.restrict(0b111).free_mask == 0b110
    assert not ctx.restrict(0b010).is_free(0)


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_context_needs_a_thread(concurrency):
    with pytest.raises(UsageError, match="needs at least one thread"):
        new_context(concurrency, random.Random(0))


@pytest.mark.parametrize("own", [[0, 1], [1, 0, 2], [0, 1, -1], [0, 1, 6]])
def test_processes_must_fit_their_threads(own):
    with pytest.raises(UsageError, match="do not fit 3 threads"):
        new_context(3, random.Random(0), processes=own)


def test_processes_of_an_earlier_part_of_the_run_go_on():
    ctx = new_context(3, random.Random(0), processes=[3, 1, 8])

    assert ctx.processes == (3, 1, 8)
    assert ctx.threads == (0, 1, 2)


# --- what the package exports ----------------------------------------------------------------


def test_every_public_combinator_is_in_the_table_of_names():
    documented = set(re.findall(r"[a-z_]+", generator_package.__doc__))
    public = {name for name in generator_package.__all__ if name.islower()}

    assert public - documented == {"complete", "due_ns", "lift", "new_context"}


def test_a_run_does_not_depend_on_the_hash_seed():
    script = (
        "from harness.generator import *\n"
        "from tests.generator.simulate import imperfect\n"
        "g = lambda f: repeat(Draft(f))\n"
        "each = reserve(1, each_thread(mix(g('a'), g('b'))), any_of(g('c'), g('d')))\n"
        "print(imperfect(limit(300, stagger(1e-8, each)), concurrency=4))\n"
    )
    outputs = {python(script, PYTHONHASHSEED=seed) for seed in ("0", "1", "77")}

    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000
