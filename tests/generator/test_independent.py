"""Many keys, a small history each."""

import pytest

from harness.errors import UsageError
from harness.generator import (
    NOTHING,
    Draft,
    clients,
    concurrent_keys,
    each_thread,
    limit,
    on_update,
    sequential_keys,
    until_ok,
)
from harness.generator.simulate import perfect, perfect_info, quick
from tests.generator.shapes import forever, numbered


def key_values(ops):
    return [(op.process, *op.value) for op in ops]


def test_sequential_keys_follow_one_another():
    ops = quick(clients(sequential_keys(["x", "y"], lambda _key: numbered("a", 2))))

    assert [tuple(op.value) for op in ops] == [("x", 0), ("x", 1), ("y", 0), ("y", 1)]


def test_sequential_keys_skip_empty_ones_and_may_be_endless():
    def make(key):
        return Draft("a") if key % 3 == 0 else None

    ops = quick(limit(3, sequential_keys(range(10**9), make)))
    assert [op.value[0] for op in ops] == [0, 3, 6]
    with pytest.raises(UsageError, match="keys in a row are empty"):
        quick(sequential_keys(range(10**9), lambda _key: None))
    assert quick(sequential_keys([], lambda _key: Draft("a"))) == []


def test_inside_events_are_of_one_key_and_have_none():
    told = []

    def make(key):
        def note(generator, _ctx, event):
            told.append((key, event.value))
            return generator

        return on_update(note, [Draft("a", f"{key}{n}") for n in range(3)])

    perfect(sequential_keys("xyz", make), concurrency=2)

    assert {key for key, _ in told} == {"x", "y", "z"}
    assert all(value.startswith(key) for key, value in told)


def test_concurrent_keys_have_a_group_of_threads_each():
    ops = perfect(concurrent_keys(2, "xyz", lambda _key: numbered("a", 4)), concurrency=4)
    threads = {key: {p % 4 for p, k, _ in key_values(ops) if k == key} for key in "xyz"}

    assert {0, 1} == threads["x"]
    assert {2, 3} == threads["y"]
    assert threads["z"] in ({0, 1}, {2, 3})
    assert all([v for _, k, v in key_values(ops) if k == key] == [0, 1, 2, 3] for key in "xyz")


def test_concurrent_keys_with_more_groups_than_keys():
    ops = perfect(concurrent_keys(1, "x", lambda _key: numbered("a", 3)), concurrency=3)

    assert key_values(ops) == [(0, "x", 0), (0, "x", 1), (0, "x", 2)]
    assert concurrent_keys(1, [], lambda _key: Draft("a")) is NOTHING


def test_concurrent_keys_tell_the_key_that_an_event_is_about():
    ops = perfect(
        concurrent_keys(2, range(6), lambda _key: each_thread(until_ok(forever("a")))),
        concurrency=4,
    )

    # On each of its two threads, every key has one operation, which succeeds.
    assert [(key, 2) for key in range(6)] == [
        (key, sum(k == key for _, k, _ in key_values(ops))) for key in range(6)
    ]


def test_concurrent_keys_go_on_after_crashes():
    ops = perfect_info(concurrent_keys(2, "xy", lambda _key: numbered("a", 3)), concurrency=2)

    assert [tuple(op.value) for op in ops] == [
        ("x", 0),
        ("x", 1),
        ("x", 2),
        ("y", 0),
        ("y", 1),
        ("y", 2),
    ]


def test_groups_must_fit_the_threads():
    with pytest.raises(UsageError, match="make the concurrency a multiple of 2"):
        quick(concurrent_keys(2, "xy", lambda _key: Draft("a")), concurrency=3)
    with pytest.raises(UsageError, match="groups of 0"):
        concurrent_keys(0, "xy", lambda _key: Draft("a"))
