"""The interface of token stores: Hive's `DelegationTokenStore`, and two atomic steps for `strict`.

A token is kept under its identifier, which is the token without its password. Master keys, with
which passwords are made, are numbered by the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec


class StoredToken(msgspec.Struct, frozen=True):
    """The stored part of a token, without its identifier."""

    renew_ms: int  # it expires then, unless it is renewed
    password: str


class MasterKey(msgspec.Struct, frozen=True):
    """A key of one metastore, and until when tokens made with it may be about."""

    expires_ms: int
    secret: str


_encoder: Final = msgspec.json.Encoder()
_token: Final = msgspec.json.Decoder(StoredToken)
_key: Final = msgspec.json.Decoder(MasterKey)


def encode(value: StoredToken | MasterKey) -> bytes:
    """The stored form: equal values have equal bytes."""
    return _encoder.encode(value)


def decode_token(data: str | bytes) -> StoredToken:
    """Decode a token that `encode` wrote."""
    return _token.decode(data)


def decode_key(data: str | bytes) -> MasterKey:
    """Decode a key that `encode` wrote."""
    return _key.decode(data)


class TokenStore(Protocol):
    """Each call is atomic by itself. All raise `MetastoreError` where the store does not answer."""

    async def add_key(self, key: MasterKey) -> int:
        """Keep a new key; its number."""
        ...

    async def remove_key(self, number: int) -> None:
        """Forget it."""
        ...

    async def keys(self) -> Mapping[int, MasterKey]:
        """All keys by their numbers."""
        ...

    async def add(self, ident: str, token: StoredToken) -> None:
        """Store a token, unless its identifier has one already."""
        ...

    async def get(self, ident: str) -> StoredToken | None:
        """The stored token, as of every write acknowledged before, through any metastore."""
        ...

    async def replace(self, ident: str, token: StoredToken) -> bool:
        """Keep this instead; false, and nothing is done, where there is none."""
        ...

    async def remove(self, ident: str, only: StoredToken | None = None) -> bool:
        """Forget it, `only` if it is this; whether that was done."""
        ...

    async def all(self) -> Mapping[str, StoredToken]:
        """All tokens by their identifiers."""
        ...
