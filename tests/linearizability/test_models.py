"""The supplied models accept legal answers and refuse all others."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from checkers.linearizability import (
    UNKNOWN,
    Limits,
    Model,
    NondeterministicModel,
    Operation,
    Result,
    check_operations,
    observations,
)
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.models.mutex import Acquire, Mutex, Release
from checkers.linearizability.models.queues import Dequeue, Enqueue, Queue, UnorderedQueue
from checkers.linearizability.models.register import Cas, MultiRegister, Read, Register, Txn, Write
from checkers.linearizability.models.sets import Add, Contains, ReadAll, Remove, Set
from tests.linearizability.test_engine import wing_and_gong

FAST = Limits(shrink_steps=2_000)
Ops = list[Operation[Any, Any]]


def in_turn(*pairs: tuple[Any, Any]) -> Ops:
    return [Operation(0, i, 2 * n, o, 2 * n + 1) for n, (i, o) in enumerate(pairs)]


def verdict(model: Model[Any, Any, Any], operations: Ops) -> Result:
    return check_operations(model, operations, limits=FAST).result


# In each row, all operations except the last are legal.
ALMOST: list[tuple[Model[Any, Any, Any], list[tuple[Any, Any]], Any]] = [
    (Mutex(), [(Acquire("a"), True), (Acquire("b"), False), (Acquire("b"), True)], False),
    (Mutex(), [(Acquire("a"), True), (Release("b"), True)], False),
    (Mutex(), [(Acquire(), True), (Release(), True), (Release(), True)], False),
    (Set(), [(Add(1), True), (Add(1), True)], False),
    (Set(), [(Add(1), None), (Remove(1), True), (Contains(1), True)], False),
    (Set(), [(Add(1), None), (Add(2), None), (ReadAll(), frozenset((1,)))], frozenset((1, 2))),
    (Set(), [(Remove(1), True)], False),
    (Queue(), [(Enqueue(1), None), (Enqueue(2), None), (Dequeue(), 2)], 1),
    (Queue(), [(Enqueue(1), None), (Dequeue(), None)], 1),
    (Queue(), [(Dequeue(), 1)], None),
    (UnorderedQueue().to_model(), [(Enqueue(1), None), (Dequeue(), 2)], 1),
    (UnorderedQueue().to_model(), [(Enqueue(1), None), (Dequeue(), None)], 1),
    (UnorderedQueue().to_model(), [(Dequeue(), 1)], None),
    (Register(0), [(Write(1), None), (Read(), 0)], 1),
    (Register(0), [(Write(1), None), (Cas(0, 2), True)], False),
    (KeyValue(), [(KeyValueInput("append", "k", "a"), None), (KeyValueInput("get", "k"), "")], "a"),
    (
        MultiRegister({"x": 0, "y": 0}),
        [
            (Txn((("write", "x", 1), ("write", "y", 2))), Txn((("write", "x", 1),))),
            (Txn((("read", "x", None),)), Txn((("read", "x", 0),))),
        ],
        Txn((("read", "x", 1),)),
    ),
]


@pytest.mark.parametrize(("model", "pairs", "right"), ALMOST)
def test_the_last_answer_is_wrong_and_another_right(model, pairs, right):
    assert verdict(model, in_turn(*pairs)) is Result.ILLEGAL
    assert verdict(model, in_turn(*pairs[:-1])) is Result.OK
    assert verdict(model, in_turn(*pairs[:-1], (pairs[-1][0], right))) is Result.OK


def test_an_unordered_queue_does_not_know_which_one_a_lost_dequeue_took():
    lost = Operation(9, Dequeue(), 4, UNKNOWN, None)
    history = in_turn((Enqueue(1), None), (Enqueue(2), None))
    for left in (1, 2):
        rest = [Operation(1, Dequeue(), 6, left, 7), Operation(1, Dequeue(), 8, None, 9)]
        assert verdict(UnorderedQueue().to_model(), [*history, lost, *rest]) is Result.OK
        assert verdict(UnorderedQueue().to_model(), [*history, *rest]) is Result.ILLEGAL
    assert verdict(Queue(), [*history, lost, *rest]) is Result.OK
    assert verdict(Queue(), [*history, *rest]) is Result.ILLEGAL


class Coin(NondeterministicModel[str, str, str]):
    """A coin that shows one side; after a throw it may show either side."""

    def init(self) -> Sequence[str]:
        return ["heads", "tails"]

    def step(self, state: str, input_: str, output: Any, /) -> Sequence[str]:
        if input_ == "throw":
            return ["heads", "tails"]
        return [state] if output in (UNKNOWN, state) else []


def test_a_read_narrows_the_possible_states():
    model = Coin().to_model()
    look = [("look", "heads"), ("look", "tails")]
    assert verdict(model, in_turn(*look)) is Result.ILLEGAL
    assert verdict(model, in_turn(look[0], ("throw", None), look[1])) is Result.OK
    assert model.describe_state(model.init()) == "'heads' or 'tails'"


def random_ops(calls: Sequence[tuple[Any, Sequence[Any]]]) -> Callable[[int], Ops]:
    def make(seed: int) -> Ops:
        rng = random.Random(seed)
        found: Ops = []
        for n in range(rng.randint(2, 6)):
            input_, outputs = rng.choice(calls)
            start = rng.randint(0, 8)
            end = None if rng.random() < 0.2 else start + rng.randint(0, 6)
            found.append(Operation(n, input_, start, rng.choice(outputs), end, n))
        return found

    return make


YES_NO = (True, False)
RANDOM: list[tuple[Model[Any, Any, Any], Callable[[int], Ops]]] = [
    (Mutex(), random_ops([(f(h), YES_NO) for f in (Acquire, Release) for h in "ab"])),
    (
        Set(),
        random_ops(
            [(f(e), YES_NO) for f in (Add, Remove, Contains) for e in (1, 2)]
            + [(ReadAll(), [frozenset(), frozenset((1,)), frozenset((1, 2))])]
        ),
    ),
    (Set(), random_ops([(f(e), YES_NO) for f in (Add, Remove, Contains) for e in (1, 2)])),
    (Queue(), random_ops([(Enqueue(1), [None]), (Enqueue(2), [None]), (Dequeue(), [None, 1, 2])])),
    (
        UnorderedQueue().to_model(),
        random_ops([(Enqueue(1), [None]), (Enqueue(2), [None]), (Dequeue(), [None, 1, 2])]),
    ),
    (Coin().to_model(), random_ops([("look", ["heads", "tails"]), ("throw", [None])])),
]


@pytest.mark.parametrize(("model", "make"), RANDOM)
def test_random_histories_agree_with_all_orders(model, make):
    invalid = 0
    for seed in range(150):
        operations = make(seed)
        expected = wing_and_gong(model, operations)
        assert verdict(model, operations) is (Result.OK if expected else Result.ILLEGAL), seed
        invalid += not expected
    assert 10 < invalid < 140


@pytest.mark.parametrize(("model", "make"), RANDOM)
def test_read_only_never_changes_a_state(model, make):
    for seed in range(100):
        operations = make(seed)
        state = model.init()
        for one in operations:
            for other in operations:
                for output in (other.output, UNKNOWN):
                    legal, after = model.step(state, other.input, output)
                    if legal and model.read_only(other.input, output):
                        assert after == state
            state = model.step(state, one.input, UNKNOWN)[1]


@pytest.mark.parametrize(
    ("model", "input_", "output", "words"),
    [
        (Mutex(), Acquire("a"), True, "acquire for a"),
        (Mutex(), Release(), False, "release (refused)"),
        (Mutex(), Release(), UNKNOWN, "release (unknown)"),
        (Set(), Add(1), None, "add 1"),
        (Set(), Remove("x"), True, "remove 'x' -> True"),
        (Set(), ReadAll(), frozenset((2, 1)), "read -> {1, 2}"),
        (Queue(), Enqueue(1), None, "enqueue 1"),
        (Queue(), Dequeue(), None, "dequeue, which found nothing"),
        (UnorderedQueue().to_model(), Dequeue(), 3, "dequeue 3"),
        (KeyValue(), KeyValueInput("get", "k"), "v", "get 'k' -> 'v'"),
        (KeyValue(), KeyValueInput("put", "k", "v"), UNKNOWN, "put 'k' 'v' (unknown)"),
        (MultiRegister({}), Txn((("write", "x", 1),)), UNKNOWN, "write 'x' 1 (unknown)"),
        (Register(), Cas(1, 2), False, "cas 1 -> 2 (held another value)"),
    ],
)
def test_operations_are_described(model, input_, output, words):
    assert model.describe_operation(input_, output) == words


@pytest.mark.parametrize(
    ("model", "state", "words"),
    [
        (Mutex(), None, "the lock is free"),
        (Mutex(), "", "the lock is held"),
        (Mutex(), "a", "a has the lock"),
        (Set([frozenset((2, 1))]), 0b11, "the set is {1, 2}"),
        (Queue(), (1, 2), "the queue holds 1, 2"),
        (UnorderedQueue().to_model(), frozenset(((),)), "the queue holds nothing"),
        (KeyValue(), (("k", "v"),), "'k' holds 'v'"),
        (KeyValue(), (), "no key has a value"),
        (MultiRegister({}), (("x", 1),), "'x' holds 1"),
        (Register(), 4, "the register holds 4"),
    ],
)
def test_states_are_described(model, state, words):
    assert model.describe_state(state) == words


@pytest.mark.parametrize(
    ("model", "silent", "telling"),
    [
        (Register(), [(Write(1), None)], [(Read(), 1), (Cas(1, 2), True), (Cas(1, 2), False)]),
        (
            MultiRegister({"x": 0}),
            [(Txn(()), Txn((("write", "x", 1), ("read", "x", None))))],
            [(Txn(()), Txn((("read", "x", 0),)))],
        ),
        (KeyValue(), [(KeyValueInput("put", "a", "x"), None)], [(KeyValueInput("get", "a"), "")]),
        (Set(), [(Add(1), None), (Remove(1), None)], [(Add(1), True), (ReadAll(), frozenset())]),
        (Queue(), [(Enqueue(1), None)], [(Dequeue(), None), (Dequeue(), 1)]),
        (UnorderedQueue().to_model(), [(Enqueue(1), None)], [(Dequeue(), None), (Dequeue(), 1)]),
        (Mutex(), [], [(Acquire(), True), (Release(), True)]),
    ],
)
def test_operations_legal_in_every_state_observe_nothing(model, silent, telling):
    assert observations(model, in_turn(*silent)) == 0
    assert observations(model, in_turn(*silent, *telling)) == len(telling)
    lost = [Operation(0, i, 0, UNKNOWN, None) for i, _ in (*silent, *telling)]
    assert observations(model, lost) == 0
