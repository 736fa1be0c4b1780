"""Verifies certificates independently of the searches.

This module and the searches share only the vocabulary and the model's own `step`. It is short
enough to be checked by reading:

* An **order** (verdict valid) is replayed. It must contain each returned operation once, and each
  operation of unknown outcome at most once. An operation must not come before an operation that had
  returned before its call. Every step must be legal.
* A **core** (verdict invalid) is decided by Wing and Gong's enumeration (1993) with a memory.

A core represents a weaker history. In it, only the operations of the core must take effect with
their answers, between their calls and their returns. Every other operation is *optional*: it took
effect with its answer at some moment after its call, or never. If even this weaker history has no
legal order, the original history has none either. Leaving the other operations out would prove
nothing: without a create, a read of the created object is already a contradiction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from checkers.linearizability.model import Model, Operation
from harness.errors import InternalError


class CertificateError(InternalError):
    """A certificate does not prove its verdict, so the checker has a bug."""


def _without_hints(model: Model[Any, Any, Any], operations: Iterable[Any]) -> Model[Any, Any, Any]:
    """Return the model without hints. Hints are answers that the model uses in advance to prune
    steps.
    """
    if type(model).for_operations is Model.for_operations:
        return model
    return model.for_operations([replace(operation, return_time=None) for operation in operations])


def verify_orders(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    orders: Sequence[Sequence[int]],
    *,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Raise `CertificateError` unless `orders` linearize `operations`.

    `orders` has the operation ids in a legal order for each part. `watch` is called before each
    step and may end the verification by raising an error.
    """
    parts = [part for part in model.partition(operations) if part]
    if len(parts) != len(orders):
        raise CertificateError(f"{len(orders)} orders for {len(parts)} parts")
    lost = {o.id for o in operations if not o.is_unknown} - {o.id for p in parts for o in p}
    if lost:
        raise CertificateError(f"operation {min(lost)} is in no part of the history")
    for part, order in zip(parts, orders, strict=True):
        _verify_order(model, part, order, watch)


def _verify_order(
    model: Model[Any, Any, Any],
    part: Sequence[Operation[Any, Any]],
    order: Sequence[int],
    watch: Callable[[], None],
) -> None:
    by_id = {operation.id: operation for operation in part}
    placed = set(order)
    if len(placed) != len(order):
        raise CertificateError("an operation takes effect twice")
    if placed - set(by_id):
        raise CertificateError(f"operation {min(placed - set(by_id))} is not in this part")
    missing = {o.id for o in part if not o.is_unknown} - placed
    if missing:
        raise CertificateError(f"operation {min(missing)} returned, but never takes effect")
    plain = _without_hints(model, part)
    state = plain.init()
    latest_call = float("-inf")
    for number in order:
        watch()
        operation = by_id[number]
        latest_call = max(latest_call, operation.call)
        if operation.return_time is not None and operation.return_time < latest_call:
            raise CertificateError(
                f"operation {number} takes effect after an operation that was called after its "
                "return"
            )
        legal, state = plain.step(state, operation.input, operation.said)
        if not legal:
            raise CertificateError(f"operation {number} is not legal at its place in the order")


def verify_core(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    core: Sequence[int],
    *,
    steps_max: int,
    watch: Callable[[], None] = lambda: None,
) -> bool:
    """Verify that the operations in `core` (ids) contradict each other under `model`.

    The other `operations` are optional. Returns `False` if `steps_max` steps were not enough to
    decide. `watch` is called before each step and may end the verification by raising an error.
    Raises `CertificateError` if a legal order exists.
    """
    wanted = set(core)
    must = [operation for operation in operations if operation.id in wanted]
    if not wanted or len(must) != len(core) or any(operation.is_unknown for operation in must):
        raise CertificateError(f"core {tuple(core)} is not a set of operations that returned")
    returns = [o.return_time for o in must if o.return_time is not None]
    # An operation that was called after the whole core had returned cannot affect the core.
    others = [o for o in operations if o.id not in wanted and o.call <= max(returns)]
    twins = _interchangeable(model.blurred(must, others))
    plain = _without_hints(model, operations)
    full = (1 << len(must)) - 1
    todo: deque[tuple[int, tuple[int, ...], Any]] = deque([(0, (0,) * len(twins), plain.init())])
    seen: dict[tuple[int, Any], list[tuple[int, ...]]] = {}
    steps = 0
    while todo:
        done, used, state = todo.popleft()
        visited = seen.setdefault((done, state), [])
        # An earlier visit that used fewer optional operations reaches everything that this visit
        # can.
        if any(all(a <= b for a, b in zip(fewer, used, strict=True)) for fewer in visited):
            continue
        visited.append(used)
        if done == full:
            raise CertificateError(f"core {tuple(core)} has a legal order")
        first = min(end for n, end in enumerate(returns) if not done >> n & 1)
        for n, operation in enumerate(must):
            if not done >> n & 1 and operation.call <= first:
                steps += 1
                watch()
                legal, after = plain.step(state, operation.input, operation.output)
                if legal:
                    todo.append((done | 1 << n, used, after))
        for n, alike in enumerate(twins):
            if used[n] < len(alike) and alike[used[n]].call <= first:
                steps += 1
                watch()
                legal, after = plain.step(state, alike[0].input, alike[0].said)
                if legal and after != state:
                    todo.append((done, (*used[:n], used[n] + 1, *used[n + 1 :]), after))
        if steps > steps_max:
            return False
    return True


def _interchangeable(operations: Iterable[Any]) -> list[list[Operation[Any, Any]]]:
    classes: dict[Hashable, list[Operation[Any, Any]]] = {}
    for operation in sorted(operations, key=lambda o: o.call):
        answer = operation.said
        key: Hashable = (operation.input, answer, type(operation.input), type(answer))
        try:
            alike = classes.setdefault(key, [])
        except TypeError:  # not hashable, so not interchangeable with any other operation
            alike = classes.setdefault(("alone", id(operation)), [])
        alike.append(operation)
    return list(classes.values())
