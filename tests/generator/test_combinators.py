"""Combinators that wrap a single generator."""

import pytest

from harness.errors import InternalError, UsageError
from harness.generator import NOTHING, Draft, limit, phases, repeat, synchronize, validate
from harness.ops import OpType
from tests.generator.shapes import draw, forever, names, numbered
from tests.generator.simulate import perfect, quick


def test_limit_is_exact():
    assert len(quick(limit(3, forever("a")))) == 3
    assert quick(limit(0, forever("a"))) == []
    assert len(quick(limit(3, numbered("a", 2)))) == 2


def test_a_pending_step_costs_limit_and_repeat_nothing():
    waits = [Draft("a"), synchronize(Draft("b"))]

    assert names(perfect(limit(2, waits))) == ["a", "b"]
    assert len(perfect(repeat(synchronize(Draft("b")), 4))) == 4


def test_repeat_does_not_move_its_generator_on():
    assert [op.value for op in quick(repeat(numbered("a", 3), 3))] == [0, 0, 0]
    assert quick(repeat(Draft("a"), 0)) == []


def test_repeat_of_a_random_generator_draws_anew():
    assert len({op.value for op in quick(repeat(draw, 20))}) > 1


@pytest.mark.parametrize("combinator", [limit, lambda n, g: repeat(g, n)])
def test_negative_counts_are_errors(combinator):
    with pytest.raises(UsageError, match="n = -1"):
        combinator(-1, Draft("a"))


def test_combinators_over_nothing_are_nothing():
    for generator in (
        limit(3, None),
        repeat(None),
        synchronize(None),
        phases(None, []),
        validate(None),
    ):
        assert generator is NOTHING


# --- diagnosis of wrong generators -----------------------------------------------------------


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
