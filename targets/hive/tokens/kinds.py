"""The kinds of stores, and the one that a metastore opens."""

from __future__ import annotations

import enum

from targets.hive.metastore.transactions import Transactions
from targets.hive.tokens.database import DatabaseTokens
from targets.hive.tokens.memory import MemoryTokens
from targets.hive.tokens.store import TokenStore

__all__ = ["StoreKind", "open_store"]


class StoreKind(enum.StrEnum):
    """`hive.cluster.delegation.token.store.class`."""

    MEMORY = "memory"
    DB = "db"


def open_store(kind: StoreKind, transactions: Transactions) -> TokenStore:
    """A store; `transactions` are those of the metastore's database."""
    if kind is StoreKind.MEMORY:
        return MemoryTokens()
    return DatabaseTokens(transactions)
