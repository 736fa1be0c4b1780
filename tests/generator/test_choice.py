"""Combinators that choose among several generators."""

from collections import Counter

import pytest

from harness.errors import UsageError
from harness.generator import NOTHING, Draft, any_of, delay, limit, mix, synchronize, weighted
from tests.generator.shapes import S, Thread, UntilOk, forever, names, numbered, short, times
from tests.generator.simulate import perfect, quick


def test_any_takes_the_soonest():
    drafts = [Draft("a", time_ns=time_ns) for time_ns in (40, 90, 10, 70, 20, 80, 30, 60, 50)]

    assert times(quick(any_of(*drafts))) == list(range(10, 100, 10))


def test_any_ends_when_all_have():
    assert len(quick(any_of(numbered("a", 2), numbered("b", 3), None))) == 5
    assert any_of() is NOTHING
    assert any_of(None, None) is NOTHING


# `any_of` chooses among ties only, `mix` among all members
@pytest.mark.parametrize("choose", [any_of, mix])
def test_choices_are_fair(choose):
    counts = Counter(names(quick(limit(3000, choose(*(forever(f) for f in "abc"))))))

    assert all(900 < counts[f] < 1100 for f in "abc")


def test_any_goes_on_where_one_is_pending():
    # One of the two threads is always busy, so a generator that needs both runs at the end.
    work = limit(6, delay(7 / S, forever("c")))
    ops = perfect(any_of(synchronize(Draft("b")), work))

    assert names(ops).count("b") == 1
    assert names(ops).count("c") == 6
    assert names(ops).index("b") in {0, 6}


@pytest.mark.parametrize("choose", [any_of, mix])
def test_every_generator_is_updated(choose):
    ops = perfect(choose(UntilOk(forever("a"), "a"), limit(50, forever("b"))), concurrency=1)

    assert Counter(names(ops)) == {"a": 1, "b": 50}


def test_mix_loses_members_and_then_ends():
    counts = Counter(names(quick(mix(numbered("a", 10), numbered("b", 3), None))))

    assert counts == {"a": 10, "b": 3}
    assert mix() is NOTHING


def test_mix_of_one_list_is_an_error():
    with pytest.raises(UsageError, match=r"write mix\(\*generators\)"):
        mix([Draft("a"), Draft("b")])


def test_mix_keeps_its_proportions_at_any_speed():
    # If only time counted, the fast member would run a thousand times as many operations.
    counts = Counter(names(quick(limit(200, mix(delay(1, forever("slow")), forever("fast"))))))

    assert 70 < counts["slow"] < 130


def test_a_pending_member_does_not_hold_up_the_mixture():
    only_second = Thread(1, "second")
    ops = perfect(limit(40, mix(only_second, forever("any"))), concurrency=2)

    # Both threads are always busy: two operations every 10 ns.
    assert [n // 2 * 10 for n in range(40)] == times(ops)
    assert 10 <= names(ops).count("second") <= 20


def test_weighted_follows_its_weights():
    generator = weighted([(6, forever("a")), (3, forever("b")), (0, forever("never")), (1, draws)])
    counts = Counter(names(quick(limit(5000, generator))))

    assert 2850 < counts["a"] < 3150
    assert 1380 < counts["b"] < 1620
    assert 420 < counts["c"] < 580
    assert counts["never"] == 0


def draws(_ctx):
    return Draft("c")


@pytest.mark.parametrize("weight", [-1, float("inf"), float("nan")])
def test_weights_must_be_weights(weight):
    with pytest.raises(UsageError, match="a weight is"):
        weighted([(weight, Draft("a"))])


def test_choices_depend_on_the_seed_alone():
    def run(seed):
        generator = limit(200, mix(any_of(forever("a"), forever("b")), delay(1 / S, forever("c"))))
        return short(perfect(generator, seed=seed))

    assert run(1) == run(1)
    assert run(1) != run(2)
