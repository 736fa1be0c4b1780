"""The search for a legal order, compared with oracles and between its variants."""

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.linearizability import (
    UNKNOWN,
    CheckOutcome,
    Event,
    Limits,
    Model,
    ModelError,
    Operation,
    Projection,
    Result,
    Unknown,
    check_events,
    check_operations,
)
from checkers.linearizability.clock import Clock
from checkers.linearizability.core import find_core
from checkers.linearizability.frontier import Frontier
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.models.register import Cas, MultiRegister, Read, Register, Txn, Write
from checkers.linearizability.part import Part
from checkers.linearizability.problem import Problem
from checkers.linearizability.search import DepthFirst, Status, dominated
from tests.support.orders import has_order
from tests.tiers import examples

NAN = float("nan")

FAST = Limits(shrink_steps=3_000)
Ops = list[Operation[Any, Any]]


def replayed(model: Model[Any, Any, Any], order: Sequence[Operation[Any, Any]]) -> bool:
    """Whether the operations are legal in this order."""
    state = model.init()
    for operation in order:
        output = UNKNOWN if operation.is_unknown else operation.output
        legal, state = model.step(state, operation.input, output)
        if not legal:
            return False
    return True


def respects_real_time(order: Sequence[Operation[Any, Any]]) -> bool:
    return not any(
        later.return_time is not None and later.return_time < earlier.call
        for earlier, later in itertools.combinations(order, 2)
    )


times = st.integers(0, 9)
values = st.integers(0, 2)
register_calls = st.one_of(
    st.tuples(st.just(Read()), values),
    st.tuples(st.builds(Write, values), st.none()),
    st.tuples(st.builds(Cas, values, values), st.booleans()),
)
kv_calls = st.one_of(
    st.tuples(
        st.builds(KeyValueInput, st.just("get"), st.sampled_from("xy")),
        st.sampled_from(["", "a", "b", "ab"]),
    ),
    st.tuples(
        st.builds(
            KeyValueInput,
            st.sampled_from(["put", "append"]),
            st.sampled_from("xy"),
            st.sampled_from("ab"),
        ),
        st.none(),
    ),
)


def operations_of(calls: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[Ops]:
    """Draw operations with overlapping intervals and ties; a quarter have no return."""

    def build(drawn: list[tuple[Any, int, int, int]]) -> Ops:
        return [
            Operation(n, call[0], start, call[1], None if lost == 0 else start + length)
            for n, (call, start, length, lost) in enumerate(drawn)
        ]

    one = st.tuples(calls, times, st.integers(0, 5), st.integers(0, 3))
    return st.lists(one, max_size=most).map(build)


def strategies(model: Model[Any, Any, Any], operations: Ops) -> list[Status]:
    problem = Problem(model, operations)
    return [
        DepthFirst(problem, lean=False, configurations_max=10**6).run(10**6),
        Frontier(problem, configurations_max=10**6).run(10**6),
    ]


def assert_agrees(model: Model[Any, Any, Any], operations: Ops) -> CheckOutcome:
    """Assert that the check, both searches and the oracle agree, and that a witness replays."""
    expected = wing_and_gong(model, operations)
    outcome = check_operations(model, operations, limits=FAST)
    assert outcome.result is (Result.OK if expected else Result.ILLEGAL)
    for status in strategies(model, operations):
        assert status is (Status.FOUND if expected else Status.EXHAUSTED)
    lean = DepthFirst(Problem(model, operations), lean=True, configurations_max=10**6).run(10**6)
    assert expected or lean is not Status.FOUND
    if outcome.witness is not None:
        order = [operations[index] for part in outcome.witness for index in part]
        known = [operation for operation in operations if not operation.is_unknown]
        assert all(operation in order for operation in known)
        if len(outcome.witness) == 1:
            assert respects_real_time(order)
            assert replayed(model, order)
    if outcome.failure is not None:
        assert not operations[outcome.failure.operation].is_unknown
        assert set(outcome.failure.core) <= set(range(len(operations)))
    return outcome


@given(operations_of(register_calls, 6))
@settings(max_examples=examples(150), deadline=None)
def test_register_agrees_with_all_orders(operations):
    assert_agrees(Register(0), operations)


@given(operations_of(kv_calls, 6))
@settings(max_examples=examples(100), deadline=None)
def test_key_value_agrees_with_all_orders_with_and_without_partitions(operations):
    assert_agrees(KeyValue(partitioned=False), operations)
    whole = check_operations(KeyValue(partitioned=False), operations, limits=FAST)
    parts = check_operations(KeyValue(), operations, limits=FAST)
    assert whole.result is parts.result


def random_register(seed: int) -> Ops:
    rng = random.Random(seed)
    found: Ops = []
    for n in range(rng.randint(2, 7)):
        start = rng.randint(0, 12)
        kind = rng.random()
        if kind < 0.45:
            call: tuple[Any, Any] = (Read(), rng.randint(0, 2))
        elif kind < 0.75:
            call = (Write(rng.randint(0, 2)), None)
        else:
            call = (Cas(rng.randint(0, 2), rng.randint(0, 2)), rng.random() < 0.4)
        lost = not isinstance(call[0], Read) and rng.random() < 0.25
        end = None if lost else start + rng.randint(0, 10)
        found.append(Operation(n, call[0], start, call[1], end))
    return found


def test_thousands_of_random_registers_agree_with_wing_and_gong():
    invalid = 0
    total = 1_000
    for seed in range(total):
        operations = random_register(seed)
        expected = wing_and_gong(Register(0), operations)
        outcome = check_operations(Register(0), operations, limits=Limits(shrink_steps=0))
        assert outcome.result is (Result.OK if expected else Result.ILLEGAL), seed
        invalid += not expected
    assert 0.3 < invalid / total < 0.7


def wing_and_gong(model: Model[Any, Any, Any], operations: Ops) -> bool:
    """Whether some order is legal, by trying all orders without a cache."""

    def after(state: Any, operation: Operation[Any, Any]) -> list[Any]:
        output = UNKNOWN if operation.is_unknown else operation.output
        legal, then = model.step(state, operation.input, output)
        return [then] if legal else []

    items = [(o.call, inf if o.return_time is None else o.return_time, o) for o in operations]
    return has_order(items, model.init(), after)


@given(st.lists(st.integers(0, 31), max_size=12))
def test_an_antichain_keeps_the_minimal_sets(sets):
    chain: list[int] = []
    for number, used in enumerate(sets):
        before = sets[:number]
        assert dominated(chain, used) == any(other & ~used == 0 for other in before)
    minimal = {a for a in sets if not any(b != a and b & ~a == 0 for b in sets)}
    assert sorted(chain) == sorted(minimal)


def lost_compare_and_sets(seed: int) -> Ops:
    """Build a history with many lost operations, tractable only by the search's dominance rule."""
    rng = random.Random(seed)
    lost: Ops = [
        Operation(n, Cas(rng.randint(0, 3), rng.randint(0, 3)), rng.randint(0, 4), None, None)
        for n in range(rng.randint(3, 5))
    ]
    reads: Ops = [
        Operation(9, Read(), 10 + 4 * n, rng.randint(0, 3), 12 + 4 * n + rng.choice([0, 0, 5]))
        for n in range(rng.randint(2, 4))
    ]
    return lost + reads


def test_lost_operations_are_used_at_most_once():
    invalid = 0
    for seed in range(500):
        operations = lost_compare_and_sets(seed)
        expected = wing_and_gong(Register(0), operations)
        for status in strategies(Register(0), operations):
            assert status is (Status.FOUND if expected else Status.EXHAUSTED), seed
        invalid += not expected
    assert 60 < invalid < 440


# --- metamorphic tests ------------------------------------------------------------------------


def stretched(operations: Ops, rng: random.Random) -> Ops:
    return [
        replace(
            operation,
            call=operation.call - rng.randint(0, 3),
            return_time=None
            if operation.return_time is None
            else operation.return_time + rng.randint(0, 3),
        )
        for operation in operations
    ]


def without_a_read(operations: Ops, rng: random.Random) -> Ops:
    reads = [
        n
        for n, o in enumerate(operations)
        if Register(0).read_only(o.input, UNKNOWN if o.is_unknown else o.output)
    ]
    gone = rng.choice(reads) if reads else -1
    return [operation for n, operation in enumerate(operations) if n != gone]


def one_unknown(operations: Ops, rng: random.Random) -> Ops:
    at = rng.randrange(len(operations))
    return [
        replace(operation, return_time=None) if n == at else operation
        for n, operation in enumerate(operations)
    ]


@pytest.mark.parametrize("change", [stretched, without_a_read, one_unknown])
def test_weaker_histories_of_valid_ones_are_valid(change):
    rng = random.Random(7)
    seen = 0
    for seed in range(800):
        operations = random_register(seed)
        if check_operations(Register(0), operations, limits=FAST).result is not Result.OK:
            continue
        seen += 1
        weaker = change(operations, rng)
        assert check_operations(Register(0), weaker, limits=FAST).result is Result.OK
    assert seen > 200


def test_order_and_names_of_operations_do_not_matter():
    rng = random.Random(3)
    for seed in range(300):
        operations = random_register(seed)
        shuffled = rng.sample(operations, len(operations))
        assert (
            check_operations(Register(0), operations, limits=FAST).result
            is check_operations(Register(0), shuffled, limits=FAST).result
        )


def test_a_core_contradicts_whatever_became_of_the_others():
    checked = 0
    for seed in range(400):
        operations = [replace(o, id=n) for n, o in enumerate(random_register(seed))]
        outcome = check_operations(Register(0), operations)
        failure = outcome.failure
        if failure is None:
            continue
        checked += 1
        remaining = [
            replace(operation, return_time=None) if operation.id in failure.weakened else operation
            for operation in operations
            if operation.id in failure.core or operation.id in failure.weakened
        ]
        assert not wing_and_gong(Register(0), remaining)
        assert failure.operation in failure.core
    assert checked > 100


# --- explanations -----------------------------------------------------------------------------


def test_failure_names_the_operation_the_one_before_and_what_survived():
    operations: Ops = [
        Operation(0, Write(1), 0, None, 1),
        Operation(1, Read(), 2, 1, 3),
        Operation(2, Read(), 4, 2, 5),
        Operation(0, Write(2), 6, None, 7),
    ]
    failure = check_operations(Register(0), operations).failure
    assert failure is not None
    assert failure.operation == 2
    assert failure.previous == 1
    assert [survivor.order for survivor in failure.survivors] == [(0, 1)]
    assert failure.survivors[0].state_text == "the register holds 1"
    assert failure.core == (2,)  # the read returned 2 before any operation had written it
    assert failure.core_minimal


def test_the_search_for_a_core_stops_at_its_budget_and_says_so():
    operations = [Operation(0, Write(n), 2 * n, None, 2 * n + 1, n) for n in range(50)] + [
        Operation(0, Read(), 200, 99, 201, 50)
    ]
    everything = set(range(51))
    core = find_core(Register(0), operations, everything, 50, Limits(shrink_steps=60))
    assert not core.minimal
    assert 50 in core.operations


# --- limits -----------------------------------------------------------------------------------


class Searched(Register):
    """A register without a direct method, so that only a search can decide it."""

    def decide(self, operations: Sequence[Operation[Any, Any]], /) -> None:
        del operations


def hard_invalid(writers: int) -> Ops:
    lost: Ops = [Operation(n, Write(n), 0, None, None) for n in range(1, writers + 1)]
    open_writes: Ops = [Operation(n, Write(100 + n), 0, None, 1000) for n in range(12)]
    return [*lost, *open_writes, Operation(99, Read(), 500, -1, 600)]


@pytest.mark.parametrize(
    ("limits", "timeout_s", "reason"),
    [
        (Limits(steps=2_000), None, r"limit of 2000 steps.*passed 0 of 13 returns"),
        (Limits(configurations=50, rounds=(1_000_000,)), None, "more than 50 configurations"),
        (Limits(), 0.0, "time limit"),
    ],
)
def test_a_search_that_meets_a_limit_is_unknown(limits, timeout_s, reason):
    outcome = check_operations(Searched(0), hard_invalid(6), limits=limits, timeout_s=timeout_s)
    assert outcome.result is Result.UNKNOWN
    assert re.search(reason, outcome.reason)


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize(("steps", "rounds"), [(2_000, (10_000,)), (3_000, (100, 1_000, 10_000))])
def test_all_searches_together_stay_within_the_steps(steps, rounds, native, monkeypatch):
    monkeypatch.setenv("HARNESS_NATIVE", native)
    limits = Limits(steps=steps, rounds=rounds)
    outcome = check_operations(Searched(0), hard_invalid(6), limits=limits)
    assert outcome.result is Result.UNKNOWN
    assert steps <= outcome.steps < steps + 200


def test_searches_share_the_remaining_steps():
    limits = Limits(steps=20_000)
    part = Part("all", Searched(0), hard_invalid(6), limits, only_refutes=False)
    for _ in range(2):
        before = [search.steps for search in (part.lean, part.depth, part.breadth)]
        assert part.run(10_000, Clock(None), room=5_000) is None
        after = [search.steps for search in (part.lean, part.depth, part.breadth)]
        shares = zip(before, after, (3_000, 1_000, 1_000), strict=True)
        assert all(abs(now - then - share) < 100 for then, now, share in shares)


@pytest.mark.parametrize("native", ["0", "1"])
def test_projections_stay_within_the_steps_that_are_left(native, monkeypatch):
    class Projected(Searched):
        def projections(self, operations: Sequence[Operation[Any, Any]]) -> Any:
            return [Projection(f"{n}", Register(0), tuple(operations)) for n in range(30)]

    monkeypatch.setenv("HARNESS_NATIVE", native)
    limits = Limits(steps=8_000, rounds=(1_000, 10_000))
    outcome = check_operations(Projected(0), hard_invalid(6), limits=limits)
    assert outcome.result is Result.UNKNOWN
    assert 8_000 <= outcome.steps < 8_200


def test_without_time_projections_are_not_even_made():
    class Projected(Searched):
        def projections(self, operations: Sequence[Operation[Any, Any]]) -> Any:
            raise AssertionError(f"{len(operations)} operations are projected")

    outcome = check_operations(Projected(0), hard_invalid(6), timeout_s=0.0)
    assert outcome.result is Result.UNKNOWN


def test_many_lost_writes_are_decided_by_dominance():
    lost: Ops = [Operation(n, Write(n), 0, None, None) for n in range(1, 25)]
    chain: Ops = [Operation(50, Read(), 10 + n, n % 3 + 1, 10 + n) for n in range(3)]
    outcome = check_operations(Register(0), [*lost, *chain, Operation(51, Read(), 20, -5, 21)])
    assert outcome.result is Result.ILLEGAL


def test_a_long_history_takes_steps_in_proportion():
    operations: Ops = []
    for n in range(20_000):
        operations.append(Operation(0, Write(n), 2 * n, None, 2 * n + 1))
        operations.append(Operation(1, Read(), 2 * n, n, 2 * n + 1.5))
    outcome = check_operations(Register(0), operations)
    assert outcome.result is Result.OK
    assert outcome.steps < 100_000


@pytest.mark.parametrize("bad", [{"steps": 0}, {"configurations": 0}, {"rounds": ()}])
def test_impossible_limits_are_refused(bad):
    with pytest.raises(ValueError, match="at least"):
        Limits(**bad)


# --- requirements on models and callers -------------------------------------------------------


class LyingRegister(Register):
    def read_only(self, input_: Any, output: Any, /) -> bool:
        return True


def test_a_model_that_calls_a_write_read_only_is_found_out():
    with pytest.raises(ModelError, match="read_only"):
        check_operations(LyingRegister(0), [Operation(0, Write(1), 0, None, 1)])


class ListRegister(Model[int, list[int], None]):
    """A register with inputs that cannot be hashed."""

    def init(self) -> int:
        return 0

    def step(self, state: int, input_: list[int], output: Unknown | None, /) -> tuple[bool, int]:
        return input_[0] == state, input_[1]


def test_inputs_need_not_be_hashable():
    good: Ops = [Operation(0, [1, 2], 0, None, 5), Operation(1, [0, 1], 0, None, 5)]
    assert check_operations(ListRegister(), good).result is Result.OK
    assert check_operations(ListRegister(), [*good, *good[:1]]).result is Result.ILLEGAL


def test_nothing_to_check_is_ok():
    assert check_operations(Register(0), []).result is Result.OK
    assert check_operations(KeyValue(), []).witness == ()


def test_equal_times_count_as_overlap():
    operations: Ops = [Operation(0, Write(1), 0, None, 5), Operation(1, Read(), 5, 0, 9)]
    assert check_operations(Register(0), operations).result is Result.OK
    later = [operations[0], replace(operations[1], call=5.1)]
    assert check_operations(Register(0), later).result is Result.ILLEGAL


@pytest.mark.parametrize("switch", ["0", "1"])
@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([Operation(0, Read(), 5, 0, 1)], "before its call"),
        ([Operation(0, Read(), 0, 0, 1, 7)] * 2, "same id"),
        # nan cannot be ordered, so the order of events and the verdict would be arbitrary
        *(([Operation(0, Write(1), call, None, end)], "nan is not a time")
          for call, end in ((NAN, 20), (5, NAN), (NAN, NAN), (NAN, None))),
    ],
)  # fmt: skip
def test_operations_that_cannot_be_are_refused(operations, words, switch, monkeypatch):
    monkeypatch.setenv("HARNESS_NATIVE", switch)
    with pytest.raises(ValueError, match=words):
        check_operations(Register(0), operations)


def test_operations_that_can_be_gone_through_only_once_are_all_checked():
    operations: Ops = [Operation(0, Write(1), 0, None, 1), Operation(1, Read(), 2, 0, 3)]
    outcome = check_operations(Register(0), iter(operations))  # type: ignore[arg-type]
    assert outcome.result is Result.ILLEGAL


def test_events_are_ordered_by_position_and_an_open_call_is_unknown():
    events = [Event(0, True, Write(1), 40), Event(1, True, Read(), 7), Event(1, False, 1, 7)]
    outcome = check_events(Register(0), events)
    assert outcome.result is Result.OK
    assert outcome.witness == ((0, 1),)
    events.append(Event(0, False, None, 40))
    events += [Event(2, True, Read(), 1), Event(2, False, 0, 1)]
    assert check_events(Register(0), events).result is Result.ILLEGAL


def test_events_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="no open call"):
        check_events(Register(0), [Event(0, False, None, 3)])
    with pytest.raises(ValueError, match="second time"):
        check_events(Register(0), [Event(0, True, Read(), 3), Event(0, True, Read(), 3)])


@given(st.integers(-1, 3), register_calls, st.booleans())
def test_register_read_only_is_what_step_does(state, call, unknown):
    output = UNKNOWN if unknown else call[1]
    legal, after = Register(0).step(state, call[0], output)
    if legal and Register(0).read_only(call[0], output):
        assert after == state


def test_multi_register_applies_transactions_in_order():
    model = MultiRegister({"x": 0, "y": 0})
    write = Txn((("write", "x", 1), ("read", "x", 1), ("write", "x", 2)))
    good = [
        Operation(0, write, 0, write, 1),
        Operation(1, Txn((("read", "x", None),)), 2, Txn((("read", "x", 2),)), 3),
    ]
    assert check_operations(model, good).result is Result.OK
    stale = [good[0], replace(good[1], output=Txn((("read", "x", 1),)))]
    assert check_operations(model, stale).result is Result.ILLEGAL
