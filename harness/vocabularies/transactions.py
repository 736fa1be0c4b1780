"""Transactions: lists of micro-operations that take effect at once, as Elle reads them.

A micro-operation is ["append", key, element], ["r", key, null], or ["w", key, value]; the answer to
a transaction has what was read in place of the nulls. In the vocabulary `append` keys are tables,
elements are columns, and `create` is that of `ddl`; a table that is not there reads as empty.
"""

from __future__ import annotations

from typing import Any, ClassVar

from harness.vocabularies import Call

__all__ = ["Txn", "only_reads"]


class Txn(Call, frozen=True):
    """Its value is the list itself."""

    f: ClassVar[str] = "txn"
    mutates: ClassVar[bool] = True
    verb: ClassVar[str] = "carry out"
    past: ClassVar[str] = "carried out"
    mops: list[list[Any]]

    def asked(self) -> list[list[Any]]:
        """The list."""
        return self.mops


def only_reads(value: Any) -> bool:
    """Whether a transaction with this value changes nothing; keywords are those of Jepsen."""
    return isinstance(value, list) and all(
        isinstance(mop, list | tuple) and mop and mop[0] in ("r", ":r") for mop in value
    )
