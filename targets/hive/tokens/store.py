"""What a store of tokens does: Hive's `DelegationTokenStore`, and two atomic steps for `strict`.

A token is kept under its identifier, which is the token without its password. Master keys, with
which passwords are made, are numbered by the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec


class StoredToken(msgspec.Struct, frozen=True):
    """What is kept of a token, beside its identifier."""

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
    """As it is kept: equal values have equal bytes."""
    return _encoder.encode(value)


def decode_token(data: str | bytes) -> StoredToken:
    """What `encode` made of a token."""
    return _token.decode(data)


def decode_key(data: str | bytes) -> MasterKey:
    """What `encode` made of a key."""
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
        """Keep a token; what is kept under this identifier already stays."""
        ...

    async def get(self, ident: str) -> StoredToken | None:
        """What is kept: all that was acknowledged before, through whichever metastore it was."""
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
