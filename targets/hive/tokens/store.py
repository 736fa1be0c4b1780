"""The interface of token stores: Hive's `DelegationTokenStore`, and two more atomic steps.

A store has each token under its identifier, which is the token without its password. The store
numbers the master keys, with which metastores make passwords. The two steps that Hive lacks are
`replace`, with which the profile `strict` renews tokens, and `remove` with `only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec


class StoredToken(msgspec.Struct, frozen=True):
    """The stored part of a token, without its identifier."""

    renew_ms: int  # the time of expiry
    password: str


class MasterKey(msgspec.Struct, frozen=True):
    """A key with which one metastore makes passwords, and the latest expiry of its tokens."""

    expires_ms: int
    secret: str


encode: Final = msgspec.json.Encoder().encode
"""Encode a token or a key for the store. Equal values have equal bytes."""
decode_token: Final = msgspec.json.Decoder(StoredToken).decode
decode_key: Final = msgspec.json.Decoder(MasterKey).decode


class TokenStore(Protocol):
    """A store of tokens and keys. Each call is atomic; raises `MetastoreError` if it fails."""

    async def add_key(self, key: MasterKey) -> int:
        """Store a new key and return its number."""
        ...

    async def remove_key(self, number: int) -> None:
        """Remove the key with this number."""
        ...

    async def keys(self) -> Mapping[int, MasterKey]:
        """Return all keys by their numbers."""
        ...

    async def add(self, ident: str, token: StoredToken) -> None:
        """Store a token, unless the store already has its identifier."""
        ...

    async def get(self, ident: str) -> StoredToken | None:
        """Return the stored token or `None`. The read sees all writes acknowledged before it."""
        ...

    async def replace(self, ident: str, token: StoredToken) -> bool:
        """Replace a stored token; return whether it was in the store."""
        ...

    async def remove(self, ident: str, only: StoredToken | None = None) -> bool:
        """Remove a token; return whether it was removed.

        If `only` is given, a stored token that differs from it stays.
        """
        ...

    async def all(self) -> Mapping[str, StoredToken]:
        """Return all tokens by their identifiers."""
        ...
