"""Transactions for Elle: what a recorded one did, and those of a run in the vocabulary "append".

Creating a table is no transaction: a list that nobody created reads as the empty one, so a create
orders nothing and is left out. Anything else that is no transaction is refused by Elle itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.ops import History, Op, OpType, Pair


def mops_of(pair: Pair) -> Any:
    """The micro-operations of a transaction: as answered where it was, else as invoked.

    The value of a `fail` is whatever the client makes of an error, and tells nothing of the
    transaction; nor does one of an `info` that is no list.
    """
    done = pair.completion
    if done is None or done.value is None or done.type is OpType.FAIL:
        return pair.invoke.value
    if done.type is OpType.INFO and not isinstance(done.value, list | tuple):
        return pair.invoke.value
    return done.value


def transactions_of(ops: Iterable[Op]) -> History:
    """The history without the creation of tables; indices stay."""
    history = ops if isinstance(ops, History) else History(ops)
    if not any(op.is_client and op.f == "create" for op in history):
        return history
    kept = (op for op in history if not (op.is_client and op.f == "create"))
    return History(kept, foreign=history.reused > 0)
