"""Converts histories in our vocabularies to Jepsen's form, so that one model reads both.

In Jepsen's form, a value is the argument or the answer itself, such as `add 3`, or `read nil` with
the answer `[1 3]`. In our vocabularies, a request is an object with the fields of the vocabulary's
struct (`{"value": 3}`), and an answer is an object with `value`. A history is in our form if every
request fits the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from harness.ops import History, Op, OpType, Pair
from harness.vocabularies import Vocabulary, is_ok


def is_ours(pairs: Sequence[Pair], vocabulary: Vocabulary[Any]) -> bool:
    """Whether every request is an object with the fields of its struct in the vocabulary."""
    fields = {kind.f: set(kind.__struct_encode_fields__) for kind in vocabulary}
    return bool(pairs) and all(
        isinstance(pair.invoke.value, Mapping)
        and set(pair.invoke.value) == fields.get(pair.invoke.f)
        for pair in pairs
    )


def plain(value: Mapping[str, Any]) -> Any:
    """Return the argument of a request in our form: nil, the only field, or all fields."""
    if not value:
        return None
    return next(iter(value.values())) if len(value) == 1 else value


def outcome_of(pair: Pair) -> OpType:
    """Return the outcome of an operation in our form, where an `ok` may contain a refusal."""
    return OpType.FAIL if pair.type is OpType.OK and not is_ok(pair) else pair.type


def in_plain_form(history: History, vocabulary: Vocabulary[Any]) -> History:
    """Return a history of our vocabulary in Jepsen's form. Any other history is returned as is.

    Ops keep their indices. The new history has only ops of clients.
    """
    if not is_ours(history.pairs, vocabulary):
        return history
    ops: list[Op] = []
    for pair in history.pairs:
        call, done = pair.invoke, pair.completion
        ops.append(replace(call, value=plain(call.value)))
        if done is not None:
            value = done.value.get("value") if isinstance(done.value, Mapping) else None
            ops.append(replace(done, type=outcome_of(pair), value=value))
    ops.sort(key=lambda op: op.index)
    return History(ops, foreign=True)
