"""The micro-operations of a recorded transaction, for Elle and for its verifier."""

from __future__ import annotations

from typing import Any

from harness.ops import OpType, Pair


def mops_of(pair: Pair) -> Any:
    """The micro-operations of a transaction: as answered if it was answered, else as invoked.

    The value of a `fail` is up to the client's error, and says nothing of the transaction; nor does
    one of an `info` that is no list.
    """
    done = pair.completion
    if done is None or done.value is None or done.type is OpType.FAIL:
        return pair.invoke.value
    if done.type is OpType.INFO and not isinstance(done.value, list | tuple):
        return pair.invoke.value
    return done.value
