"""The verifier of certificates accepts correct ones and refuses broken ones."""

import ast
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import UNKNOWN, Model, Operation, check_operations, verify
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.models.register import Cas, Read, Register, Write
from checkers.linearizability.verify import CertificateError, verify_core, verify_orders
from tests.linearizability.test_engine import random_register
from tests.support.orders import has_order

Ops = list[Operation[Any, Any]]


def test_it_is_short_and_shares_nothing_with_the_searches():
    path = Path(verify.__file__)
    text = path.read_text()
    assert len(text.splitlines()) < 165
    ours = {
        node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("checkers", "harness"))
    }
    assert ours == {"checkers.linearizability.model", "harness.errors"}


# --- certificates of valid histories: orders --------------------------------------------------

VALID: Ops = [
    Operation(0, Write(1), 0, None, 2, 10),
    Operation(1, Read(), 1, 1, 3, 11),
    Operation(2, Write(2), 4, UNKNOWN, None, 12),
    Operation(0, Read(), 5, 2, 6, 13),
    Operation(0, Cas(2, 3), 7, True, 9, 14),
    Operation(1, Read(), 8, 2, 10, 15),
    Operation(3, Write(7), 9, UNKNOWN, None, 16),
]
ORDER = (10, 11, 12, 13, 15, 14)


def test_a_legal_order_passes():
    verify_orders(Register(0), VALID, [ORDER])
    verify_orders(Register(0), VALID, [(*ORDER, 16)])
    verify_orders(Register(0), [], [])


@pytest.mark.parametrize(
    ("orders", "complaint"),
    [
        ([], "0 orders for 1 parts"),
        ([ORDER, ()], "2 orders for 1 parts"),
        ([(10, 11, 12, 13, 15)], "operation 14 returned, but never takes effect"),
        ([(*ORDER, 12)], "takes effect twice"),
        ([(*ORDER, 17)], "operation 17 is not in this part"),
        # the order lacks the write whose outcome is unknown
        (
            [(10, 11, 13, 15, 14)],
            "operation 13 is not legal",
        ),
        ([(10, 11, 12, 13, 14, 15)], "operation 15 is not legal"),
        ([(11, 10, 12, 13, 15, 14)], "operation 11 is not legal"),
        ([(10, 12, 13, 11, 15, 14)], "operation 11 takes effect after an operation that was"),
    ],
)
def test_a_broken_order_is_refused(orders, complaint):
    with pytest.raises(CertificateError, match=complaint):
        verify_orders(Register(0), VALID, orders)


def test_each_part_has_an_order_of_its_own():
    operations: Ops = [
        Operation(0, KeyValueInput("put", "x", "a"), 0, None, 1, 0),
        Operation(0, KeyValueInput("put", "y", "b"), 2, None, 3, 1),
        Operation(0, KeyValueInput("get", "x"), 4, "a", 5, 2),
    ]
    verify_orders(KeyValue(), operations, [(0, 2), (1,)])
    for wrong in ([(0, 2)], [(0, 1, 2), ()], [(1,), (0, 2)], [(0,), (1,)]):
        with pytest.raises(CertificateError):
            verify_orders(KeyValue(), operations, wrong)


def test_a_partition_that_loses_an_operation_is_refused():
    class Forgetful(Register):
        def partition(self, operations: Sequence[Any], /) -> Sequence[Sequence[Any]]:
            return [operations[:-2]]

    with pytest.raises(CertificateError, match="operation 15 is in no part"):
        verify_orders(Forgetful(0), VALID, [(10, 11, 12, 13, 14)])


def shuffled(order: list[int], rng: random.Random, _: Ops) -> list[int]:
    return rng.sample(order, len(order))


def swapped(order: list[int], rng: random.Random, _: Ops) -> list[int]:
    n = rng.randrange(len(order) - 1)
    return [*order[:n], order[n + 1], order[n], *order[n + 2 :]]


def shortened(order: list[int], rng: random.Random, _: Ops) -> list[int]:
    n = rng.randrange(len(order))
    return order[:n] + order[n + 1 :]


def doubled(order: list[int], rng: random.Random, _: Ops) -> list[int]:
    n = rng.randrange(len(order))
    return [*order, order[n]]


def lengthened(order: list[int], rng: random.Random, operations: Ops) -> list[int]:
    order = list(order)
    order.insert(rng.randrange(len(order) + 1), rng.choice(operations).id)
    return order


def holds(operations: Ops, order: list[int]) -> bool:
    """Whether an order is a linearization by the definition."""
    by_id = {o.id: o for o in operations}
    if len(set(order)) != len(order) or not set(order) <= set(by_id):
        return False
    if any(not o.is_unknown and o.id not in order for o in operations):
        return False
    for a, b in itertools.combinations(order, 2):
        end = by_id[b].return_time
        if end is not None and end < by_id[a].call:
            return False
    state: Any = 0
    for n in order:
        o = by_id[n]
        legal, state = Register(0).step(state, o.input, UNKNOWN if o.is_unknown else o.output)
        if not legal:
            return False
    return True


@pytest.mark.parametrize("change", [shuffled, swapped, shortened, doubled, lengthened])
def test_mutated_orders_are_refused_exactly_where_they_are_wrong(change):
    refused = 0
    for seed in range(400):
        rng = random.Random(seed)
        operations = [replace(o, id=n) for n, o in enumerate(random_register(seed))]
        witness = check_operations(Register(0), operations, explained=False).witness
        if witness is None or len(witness[0]) < 2:
            continue
        order = change(list(witness[0]), rng, operations)
        try:
            verify_orders(Register(0), operations, [order])
        except CertificateError:
            refused += 1
            assert not holds(operations, order), seed
        else:
            assert holds(operations, order), seed
    assert refused > 30


# --- certificates of invalid histories: cores -------------------------------------------------

INVALID: Ops = [
    Operation(0, Write(1), 0, None, 1, 0),
    Operation(1, Write(9), 0, UNKNOWN, None, 1),
    Operation(0, Write(2), 2, None, 3, 2),
    Operation(1, Read(), 4, 1, 5, 3),  # this read is stale if write 1 precedes write 2
    Operation(0, Write(3), 6, None, 7, 4),
]


def core(operations: Ops, *ids: int, steps_max: int = 10_000) -> bool:
    return verify_core(Register(0), operations, ids, steps_max=steps_max)


def test_a_core_passes_and_so_does_a_larger_one():
    assert core(INVALID, 0, 2, 3)
    assert core(INVALID, 0, 2, 3, 4)


@pytest.mark.parametrize("ids", [(), (0, 2, 3, 77), (0, 0, 2, 3), (0, 1, 2, 3)])
def test_a_core_is_a_set_of_operations_that_returned(ids):
    with pytest.raises(CertificateError, match="is not a set of operations that returned"):
        core(INVALID, *ids)


def test_histories_beyond_the_step_limit_are_undecided():
    assert not core(INVALID, 0, 2, 3, steps_max=1)


def plainly(operations: Ops, ids: set[int]) -> bool:
    """Whether some order of the core and of some other operations is legal; tries all orders."""

    def after(state: Any, o: Operation[Any, Any]) -> list[Any]:
        legal, then = Register(0).step(state, o.input, UNKNOWN if o.is_unknown else o.output)
        return [then] if legal else []

    items = [(o.call, o.return_time if o.id in ids else inf, o) for o in operations]
    return has_order(items, 0, after)


def test_random_cores_are_decided_as_all_orders_decide_them():
    proven = refused = 0
    for seed in range(300):
        rng = random.Random(seed)
        operations = [replace(o, id=n) for n, o in enumerate(random_register(seed)[:6])]
        known = [o.id for o in operations if not o.is_unknown]
        if not known:
            continue
        ids = rng.sample(known, rng.randint(1, len(known)))
        expected = plainly(operations, set(ids))
        try:
            assert core(operations, *ids)
        except CertificateError:
            refused += 1
            assert expected, seed
        else:
            proven += 1
            assert not expected, seed
    assert proven > 50
    assert refused > 50


def test_a_model_with_unhashable_inputs_is_verified():
    class Listed(Model[int, list[int], None]):
        def init(self) -> int:
            return 0

        def step(self, state: int, input_: list[int], output: Any, /) -> tuple[bool, int]:
            return state == input_[0], input_[1]

    operations = [Operation(0, [0, 1], 0, None, 1, 0), Operation(0, [0, 2], 2, None, 3, 1)]
    assert verify_core(Listed(), operations, (0, 1), steps_max=100)
    with pytest.raises(CertificateError):
        verify_core(Listed(), operations, (1,), steps_max=100)


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param(
            [
                Operation(0, Write(5), 0, None, 1, 0),
                Operation(0, Write(5), 100, None, 101, 1),
                Operation(1, Read(), 2, 5, 3, 2),
                Operation(1, Write(9), 150, None, 151, 3),
            ],
            id="of equal ones, the earliest called is used first",
        ),
        pytest.param(
            [
                Operation(0, Write(5), 0, None, 1, 0),
                Operation(1, Cas(5, 7), 2, True, 3, 1),
                Operation(2, Read(), 4, 7, 5, 2),
            ],
            id="a write that only another optional operation looks at",
        ),
    ],
)
def test_optional_operations_that_complete_an_order(operations):
    with pytest.raises(CertificateError):
        core(operations, *(o.id for o in operations if o.id in {2, 3}))


def test_many_optional_operations_are_decided_in_few_steps():
    writes: Ops = [Operation(n, Write(n), 0, None, 1, n) for n in range(1, 9)]
    lost: Ops = [Operation(20, Cas(n, 99), 0, UNKNOWN, None, 20 + n) for n in range(1, 9)]
    last = Operation(30, Read(), 5, 77, 6, 50)
    assert core([*writes, *lost, last], 50, steps_max=2_000)


def test_operations_with_different_answers_are_not_interchangeable():
    class Counter(Model[int, str, int]):
        def init(self) -> int:
            return 0

        def step(self, state: int, input_: str, output: Any, /) -> tuple[bool, int]:
            return output == state + 1, state + 1

    answers = [7, 1, 2]
    operations = [Operation(n, "next", n, answer, n, n) for n, answer in enumerate(answers)]
    with pytest.raises(CertificateError):
        verify_core(Counter(), operations, (2,), steps_max=100)
