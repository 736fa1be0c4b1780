"""The kinds of token stores, and how a metastore opens one."""

from __future__ import annotations

import enum
from collections.abc import Callable

from harness.env import Env
from targets.hive.metastore.transactions import Transactions
from targets.hive.tokens.database import DatabaseTokens
from targets.hive.tokens.memory import MemoryTokens
from targets.hive.tokens.store import TokenStore
from targets.hive.tokens.zookeeper import ZooKeeperTokens
from targets.hive.zookeeper.protocol import ZooKeeper


class StoreKind(enum.StrEnum):
    """The kind of token store: Hive's `hive.cluster.delegation.token.store.class`."""

    MEMORY = "memory"
    DB = "db"
    ZOOKEEPER = "zookeeper"


def open_store(
    env: Env, kind: StoreKind, transactions: Transactions, zookeeper: Callable[[], ZooKeeper]
) -> TokenStore:
    """A token store over the metastore's transactions or a session with ZooKeeper."""
    match kind:
        case StoreKind.MEMORY:
            return MemoryTokens()
        case StoreKind.DB:
            return DatabaseTokens(env, transactions)
        case StoreKind.ZOOKEEPER:
            return ZooKeeperTokens(zookeeper())
