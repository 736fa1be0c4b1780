"""The interface of token stores: Hive's `DelegationTokenStore`, and two atomic steps for `strict`.

The store keeps a token under its identifier, which is the token without its password. Passwords are
made with master keys, which the store numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec


class StoredToken(msgspec.Struct, frozen=True):
    """The stored part of a token, without its identifier."""

    renew_ms: int  # the expiry, unless the token is renewed
    password: str


class MasterKey(msgspec.Struct, frozen=True):
    """A key of one metastore, and the latest expiry of tokens made with it."""

    expires_ms: int
    secret: str


encode: Final = msgspec.json.Encoder().encode
"""Encodes a token or a key for the store: equal values have equal bytes."""
decode_token: Final = msgspec.json.Decoder(StoredToken).decode
decode_key: Final = msgspec.json.Decoder(MasterKey).decode


class TokenStore(Protocol):
    """Tokens and keys. Each call is atomic, and raises `MetastoreError` without an answer."""

    async def add_key(self, key: MasterKey) -> int:
        """Keep a new key; returns its number."""
        ...

    async def remove_key(self, number: int) -> None:
        """Remove a key."""
        ...

    async def keys(self) -> Mapping[int, MasterKey]:
        """All keys by their numbers."""
        ...

    async def add(self, ident: str, token: StoredToken) -> None:
        """Store a token, unless its identifier is in the store already."""
        ...

    async def get(self, ident: str) -> StoredToken | None:
        """The stored form of a token; sees every acknowledged write, through any metastore."""
        ...

    async def replace(self, ident: str, token: StoredToken) -> bool:
        """Replace the stored form of a token; returns `False` if the token is absent."""
        ...

    async def remove(self, ident: str, only: StoredToken | None = None) -> bool:
        """Remove a token, if it equals `only`; returns whether it was removed."""
        ...

    async def all(self) -> Mapping[str, StoredToken]:
        """All tokens by their identifiers."""
        ...
