"""Values that are `[key value]` tuples, as in `jepsen.independent`; each key is one object.

Jepsen extends a test of one object to many objects: each operation's value becomes `[key value]`. A
read is invoked with nil as the value, `[3 nil]`, and completed with `[3 7]`. In EDN such a tuple is
an ordinary vector, so only its shape can show whether the values are tuples:

* **no**: some value is not a pair, a key is not a scalar, or a completion has another key.
* **maybe**: all values are pairs, but they may also be, for example, set elements `[3 7]`.
* **surely**: in addition, some kinds of operations always have nil in the second place, the others
  never do, and a key occurs more than once. Only `[key value]` tuples look like this.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from harness.errors import HistoryError, clipped
from harness.exact import exact, is_scalar
from harness.ops import History, Op, OpType, Pair

VACUOUS: Final = frozenset({"nothing-observed", "empty-transaction-graph"})
"""Rules and anomalies that mean that the history has no answer to check. A key with such a result
does not change the verdict on the other keys."""


class Shape(enum.Enum):
    """The certainty that the values of a history are tuples of key and value."""

    NO = "no"
    MAYBE = "maybe"
    SURE = "sure"


def _is_tuple(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2


def _has_plain_key(value: Any) -> bool:
    return _is_tuple(value) and value[0] is not None and is_scalar(value[0])


def shape_of(pairs: Iterable[Pair]) -> Shape:
    """Return how certain it is that the values of all `pairs` are `[key value]` tuples."""
    keys: Counter[Hashable] = Counter()
    asking: dict[str, set[bool]] = {}
    for pair in pairs:
        call, done = pair.invoke, pair.completion
        if not _has_plain_key(call.value):
            return Shape.NO
        key = exact(call.value[0])
        keys[key] += 1
        asking.setdefault(call.f, set()).add(call.value[1] is None)
        if done is None or (done.value is None and done.type is not OpType.OK):
            continue
        if not _has_plain_key(done.value) or exact(done.value[0]) != key:
            return Shape.NO
    if not keys:
        return Shape.NO
    kinds = list(asking.values())
    sure = {True} in kinds and {True, False} not in kinds and max(keys.values()) > 1
    return Shape.SURE if sure else Shape.MAYBE


def split(history: History) -> dict[Hashable, History]:
    """Return one history per key, with the keys removed from the values. Ops keep their indices.

    The new histories contain only ops of clients. Raises `HistoryError`, which names the first op
    without a key.
    """
    parts: dict[Hashable, list[Op]] = {}
    for pair in history.pairs:
        key = _key(_naming(pair))
        ops = parts.setdefault(key, [])
        ops.append(_without_key(pair.invoke))
        done = pair.completion
        if done is None:
            continue
        if done.value is not None and _key(done) != key:
            raise HistoryError(
                f"op {done.index} completes an operation on the key {key!r} with the value "
                f"{clipped(repr(done.value), 80)}; with --independent it must have this key"
            )
        ops.append(_without_key(done))
    by_key = {}
    for key, ops in parts.items():
        ops.sort(key=lambda op: op.index)
        by_key[key] = History(ops, foreign=True)
    return by_key


def without_keys(ops: Iterable[Op]) -> list[Op]:
    """Return the ops of clients, with each value `[key value]` replaced by its second element."""
    return [_without_key(op) for op in ops if op.is_client]


def _naming(pair: Pair) -> Op:
    """Return the op whose value has the key: the invocation, or the completion if that has none."""
    done = pair.completion
    silent = pair.invoke.value is None and done is not None and done.value is not None
    return done if silent and done is not None else pair.invoke


def _key(op: Op) -> Hashable:
    if not _is_tuple(op.value):
        raise HistoryError(
            f"op {op.index} is {op.f!r} with the value {clipped(repr(op.value), 80)}; with "
            "--independent the value of each operation is a pair [key value]"
        )
    return exact(op.value[0])


def _without_key(op: Op) -> Op:
    return replace(op, value=op.value[1]) if _is_tuple(op.value) else op
