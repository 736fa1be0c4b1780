"""The kinds of token stores, a function that opens a store, and the store in memory."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from harness.env import Env
from targets.hive.metastore.transactions import Transactions
from targets.hive.tokens.database import DatabaseTokens
from targets.hive.tokens.store import MasterKey, StoredToken, TokenStore
from targets.hive.tokens.zookeeper import ZooKeeperTokens
from targets.hive.zookeeper.protocol import ZooKeeper


class MemoryTokens:
    """Hive's default, `MemoryTokenStore`: the tokens of one metastore, lost when it ends.

    Keys are numbered from 0.
    """

    def __init__(self) -> None:
        self._keys: dict[int, MasterKey] = {}
        self._next_key = 0
        self._tokens: dict[str, StoredToken] = {}

    async def add_key(self, key: MasterKey) -> int:
        number = self._next_key
        self._next_key += 1
        self._keys[number] = key
        return number

    async def remove_key(self, number: int) -> None:
        self._keys.pop(number, None)

    async def keys(self) -> Mapping[int, MasterKey]:
        return dict(self._keys)

    async def add(self, ident: str, token: StoredToken) -> None:
        self._tokens.setdefault(ident, token)

    async def get(self, ident: str) -> StoredToken | None:
        return self._tokens.get(ident)

    async def replace(self, ident: str, token: StoredToken) -> bool:
        if ident not in self._tokens:
            return False
        self._tokens[ident] = token
        return True

    async def remove(self, ident: str, only: StoredToken | None = None) -> bool:
        stored = self._tokens.get(ident)
        if stored is None or (only is not None and stored != only):
            return False
        del self._tokens[ident]
        return True

    async def all(self) -> Mapping[str, StoredToken]:
        return dict(self._tokens)


class StoreKind(enum.StrEnum):
    """The kind of token store: Hive's `hive.cluster.delegation.token.store.class`."""

    MEMORY = "memory"
    DB = "db"
    ZOOKEEPER = "zookeeper"


def open_store(
    env: Env, kind: StoreKind, transactions: Transactions, zookeeper: Callable[[], ZooKeeper]
) -> TokenStore:
    """Open a token store of this kind. For `ZOOKEEPER`, `zookeeper` opens a session."""
    match kind:
        case StoreKind.MEMORY:
            return MemoryTokens()
        case StoreKind.DB:
            return DatabaseTokens(env, transactions)
        case StoreKind.ZOOKEEPER:
            return ZooKeeperTokens(zookeeper())
