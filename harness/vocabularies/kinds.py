"""Kinds of operations in any vocabulary, for statistics."""

from __future__ import annotations

from typing import Final

from harness.ops import Op
from harness.vocabularies import (
    ddl,
    follower_reads,
    hms,
    hms_tokens,
    logs,
    members,
    register,
    rows,
)
from harness.vocabularies.transactions import Txn, only_reads

_READING_TXN: Final = f"{Txn.f} r"
READS: Final = (
    ddl.READS
    | rows.READS
    | hms.READS
    | hms_tokens.READS
    | register.CALLS.reads
    | follower_reads.CALLS.reads
    | members.READS
    | logs.CALLS.reads
    | {_READING_TXN}
)
"""The kinds that only read. Every other kind counts as a change."""


def kind_of(op: Op) -> str:
    """Return the kind of an operation: its `f`, or another kind for read-only transactions."""
    return _READING_TXN if op.f == Txn.f and only_reads(op.value) else op.f
