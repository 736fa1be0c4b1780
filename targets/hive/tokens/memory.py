"""Hive's `MemoryTokenStore`, its default: the memory of one metastore.

Other metastores do not know its tokens, which are lost when the metastore ends. Keys are numbered
from 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from targets.hive.tokens.store import MasterKey, StoredToken


class MemoryTokens:
    """A `targets.hive.tokens.store.TokenStore` in memory."""

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
