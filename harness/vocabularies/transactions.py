"""Transactions: lists of micro-operations that take effect atomically, in Elle's format.

A micro-operation is ["append", key, element], ["r", key, null], or ["w", key, value]; the answer to
a transaction has the read values in place of the nulls. Micro-operations take effect in their
order: a read sees earlier appends of the same transaction.

In the vocabulary `list-append` keys are strings, elements are numbers, a transaction may have
several keys, and a list without appends reads as []. In the vocabulary `append` keys are tables,
elements are columns, and a transaction has one table; `create` is the operation of `ddl`, and a
missing table reads as empty.

In the vocabulary `rw-register` keys are strings, values are numbers, a transaction may have several
keys, and a register that was never written reads as null. A workload writes each value of a key
once. A transaction that the system aborts is a `fail`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.vocabularies import Call

Mop = list[Any]


class Txn(Call, frozen=True):
    """A transaction. Its value in histories is its list of micro-operations."""

    f: ClassVar[str] = "txn"
    mutates: ClassVar[bool] = True
    mops: list[list[Any]]

    def asked(self) -> list[list[Any]]:
        return self.mops


def only_reads(value: Any) -> bool:
    """Whether this transaction changes nothing. The value may contain Jepsen's keywords."""
    return isinstance(value, list) and all(
        isinstance(mop, list | tuple) and mop and mop[0] in ("r", ":r") for mop in value
    )


def play(mops: Sequence[Mop], lists: Mapping[str, list[Any]]) -> tuple[list[Mop], dict[str, Any]]:
    """Return the answer of a transaction on these lists, and the new content of changed lists.

    The function is for targets that first read all keys of a transaction and then write them.
    """
    now, changed, answer = dict(lists), {}, []
    for f, key, element in mops:
        if f == "append":
            now[key] = changed[key] = [*now[key], element]
        answer.append([f, key, element if f == "append" else now[key]])
    return answer, changed
