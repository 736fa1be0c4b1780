"""The transactions of a run in the vocabulary "append", for Elle.

Creating a table is no transaction: a list that nobody created reads as the empty one, so a create
orders nothing and is left out. Anything else that is no transaction is refused by Elle itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.ops import History, Op

__all__ = ["transactions_of"]


def transactions_of(ops: Iterable[Op]) -> History:
    """The history without the creation of tables; indices stay."""
    history = ops if isinstance(ops, History) else History(ops)
    if not any(op.is_client and op.f == "create" for op in history):
        return history
    kept = (op for op in history if not (op.is_client and op.f == "create"))
    return History(kept, foreign=history.reused > 0)
