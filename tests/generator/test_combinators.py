"""Combinators over one generator."""

import pytest

from harness.errors import InternalError, UsageError
from harness.generator import (
    NOTHING,
    Draft,
    cycle,
    deferred,
    f_map,
    filter_ops,
    flip_flop,
    friendly_exceptions,
    lazily,
    limit,
    log,
    map_ops,
    on_update,
    once,
    phases,
    repeat,
    synchronize,
    trace,
    until_event,
    until_ok,
    validate,
)
from harness.generator import simulate as sim
from harness.generator.simulate import imperfect, perfect, perfect_info, quick
from harness.ops import OpType
from tests.generator.shapes import draw, forever, names, numbered, short


def test_map_changes_drafts_and_keeps_their_place():
    doubled = map_ops(lambda draft: Draft(draft.f, draft.value * 2), numbered("a", 3))

    assert short(perfect(doubled)) == [(0, 0, "a", 0), (0, 1, "a", 2), (0, "nemesis", "a", 4)]


def test_map_may_put_off():
    later = map_ops(lambda draft: draft.replace(time_ns=draft.time_ns + 50), numbered("a", 2))

    assert [op.time for op in quick(later)] == [50, 100]


def test_f_map_renames_what_it_knows():
    assert names(quick(f_map({"a": "stop"}, [Draft("a"), Draft("b")]))) == ["stop", "b"]


def test_filter_passes_what_fits():
    even = filter_ops(lambda draft: draft.value % 2 == 0, numbered("a", 6))

    assert [op.value for op in quick(even)] == [0, 2, 4]


def test_filter_of_nothing_but_misses_is_an_error():
    with pytest.raises(UsageError, match="rejected 100000 drafts"):
        quick(filter_ops(lambda _draft: False, forever("a")))


def test_on_update_goes_on_with_what_the_handler_returns():
    def handler(generator, _ctx, event):
        return Draft("stop") if (event.type, event.value) == (OpType.OK, 1) else generator

    ops = perfect(on_update(handler, numbered("a", 9)), concurrency=1, nemesis=False)

    assert names(ops) == ["a", "a", "stop"]


def test_limit_is_exact():
    assert len(quick(limit(3, forever("a")))) == 3
    assert quick(limit(0, forever("a"))) == []
    assert len(quick(limit(3, numbered("a", 2)))) == 2


def test_a_pending_step_costs_limit_and_repeat_nothing():
    waits = [Draft("a"), synchronize(Draft("b"))]

    assert names(perfect(limit(2, waits))) == ["a", "b"]
    assert len(perfect(repeat(synchronize(Draft("b")), 4))) == 4


def test_once():
    assert names(quick(once(forever("a")))) == ["a"]


def test_repeat_does_not_move_its_generator_on():
    assert [op.value for op in quick(repeat(numbered("a", 3), 3))] == [0, 0, 0]
    assert quick(repeat(Draft("a"), 0)) == []


def test_repeat_of_a_random_generator_draws_anew():
    assert len({op.value for op in quick(repeat(draw, 20))}) > 1


def test_cycle_begins_again():
    assert [op.value for op in quick(limit(5, cycle(numbered("a", 2))))] == [0, 1, 0, 1, 0]
    assert [op.value for op in quick(cycle(numbered("a", 2), 2))] == [0, 1, 0, 1]
    assert quick(cycle(numbered("a", 2), 0)) == []


def test_cycle_of_what_is_always_empty_ends():
    assert quick(cycle([None, limit(0, forever("a"))])) == []
    assert quick(cycle(lambda _ctx: None)) == []


def test_until_ok_stops_at_the_first_ok():
    # Each of two threads fails first, then crashes, then succeeds.
    ops = imperfect(until_ok(forever("a")), nemesis=False)

    assert sum(op.type is OpType.INVOKE for op in ops) == 6
    first_ok_ns = next(op.time for op in ops if op.type is OpType.OK)
    assert all(op.time <= first_ok_ns for op in ops if op.type is OpType.INVOKE)
    assert not any(op.type is OpType.OK for op in imperfect(limit(6, until_ok(forever("a")))))


def test_until_ok_ignores_the_success_of_others():
    generator = [Draft("other"), until_ok(limit(4, forever("a")))]

    def complete(_ctx, op):
        return sim.Outcome(OpType.OK if op.f == "other" else OpType.FAIL)

    ops = sim.simulate(generator, complete, concurrency=2, nemesis=False)
    assert sum(op.f == "a" and op.type is OpType.INVOKE for op in ops) == 4


def test_until_ok_forgets_a_thread_whose_operation_failed():
    # On one thread, its own operations fail in turn with successes of somebody else's.
    def complete(_ctx, op):
        return sim.Outcome(OpType.OK if op.f == "other" else OpType.FAIL)

    generator = limit(10, flip_flop(until_ok(forever("a")), forever("other")))
    ops = sim.simulate(generator, complete, concurrency=1, nemesis=False)
    assert names(sim.invocations(ops)) == ["a", "other"] * 5


def test_until_event_terminates_early():
    def crashed(op):
        return op.type is OpType.INFO

    assert names(
        perfect_info(until_event(crashed, forever("a")), concurrency=1, nemesis=False)
    ) == ["a"]


def test_lazily_makes_its_generator_when_asked():
    made = []

    def make():
        made.append(True)
        return Draft("a")

    generator = lazily(make)
    assert not made
    assert names(quick(generator)) == ["a"]


def test_deferred_waits_for_its_result():
    class Future:
        asked = 0

        def done(self):
            self.asked += 1
            return self.asked > 5

        def result(self):
            return Draft("a")

    assert short(quick(deferred(Future()))) == [(50_000_000, 0, "a", None)]


@pytest.mark.parametrize("combinator", [limit, lambda n, g: repeat(g, n), lambda n, g: cycle(g, n)])
def test_negative_counts_are_errors(combinator):
    with pytest.raises(UsageError, match="n = -1"):
        combinator(-1, Draft("a"))


def test_combinators_over_nothing_are_nothing():
    for generator in (
        map_ops(lambda draft: draft, None),
        filter_ops(bool, None),
        limit(3, None),
        repeat(None),
        cycle(None),
        until_ok(None),
        synchronize(None),
        phases(None, []),
        validate(None),
    ):
        assert generator is NOTHING


# --- diagnosis -------------------------------------------------------------------------------


def test_log_is_a_fact_of_the_harness():
    assert [(op.process, op.f, op.value) for op in quick([log("half way"), Draft("a")])] == [
        ("harness", "log", {"message": "half way"}),
        (0, "a", None),
    ]


def test_trace_shows_questions_and_events_and_changes_nothing():
    lines: list[str] = []
    traced = trace("mine", [Draft("a"), Draft("b")], sink=lines.append)

    assert names(perfect(traced, concurrency=1, nemesis=False)) == ["a", "b"]
    assert [line.split()[1].strip(":") for line in lines] == ["op", "update", "op", "update", "op"]
    assert all(line.startswith("mine ") for line in lines)
    assert "mine op: pending; time 0 ns" in lines[2]


class Broken:
    """A generator that gives wrong answers."""

    def __init__(self, answer):
        self.answer = answer

    def op(self, ctx):
        return self.answer(ctx)

    def update(self, ctx, event):
        return self


def test_a_generator_from_outside_with_a_wrong_answer_is_an_error():
    with pytest.raises(InternalError, match="must be None, a Pending or an Emit"):
        quick(Broken(lambda _ctx: 3))


@pytest.mark.parametrize("kind", [OpType.OK, OpType.INFO])
def test_validate_refuses_drafts_that_are_no_invocations(kind):
    with pytest.raises(InternalError, match=f"of type {kind.value}"):
        quick(validate(Draft("a", type=kind)))


def test_friendly_exceptions_show_generator_and_context():
    def broken(_ctx):
        raise ValueError("no such key")

    with pytest.raises(InternalError, match=r"ValueError: no such key when asked.*threads \(0, 1"):
        quick(friendly_exceptions(broken))
