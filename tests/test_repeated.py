"""A repeated test receives every value, and its failure names the value."""

import inspect

import pytest

from tests.support.repeated import for_each


def test_every_value_is_seen_beside_the_fixtures():
    seen = []

    @for_each("n", range(3))
    def test(seen, n):
        seen.append(n)

    assert list(inspect.signature(test).parameters) == ["seen"]
    test(seen=seen)
    assert seen == [0, 1, 2]


def test_a_failure_names_its_value():
    @for_each("seed", [7, 8])
    def test(seed):
        assert seed == 7

    with pytest.raises(AssertionError) as caught:
        test()
    assert caught.value.__notes__ == ["seed=8"]


def test_no_value_is_a_mistake():
    with pytest.raises(ValueError, match="no values"):
        for_each("seed", [])
