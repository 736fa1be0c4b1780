"""Hive's `ZooKeeperTokenStore`: one znode per token and per key, below a common parent.

Keys get their numbers from the parent znode's sequence. A renewal replaces a token with a single
write. An expired token is removed only if its version is unchanged. A server of an ensemble may
answer with old data. So each read of tokens or keys comes after a fence, which waits for earlier
writes; Hive reads without a fence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from targets.hive.api import META, MetastoreError
from targets.hive.tokens.store import MasterKey, StoredToken, decode_key, decode_token, encode
from targets.hive.zookeeper.protocol import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    ZooKeeper,
    ZooKeeperError,
)

_ROOT: Final = "/hivedelegation"
_TOKENS: Final = f"{_ROOT}/tokens"
_KEYS: Final = f"{_ROOT}/keys"


class ZooKeeperTokens:
    """A `targets.hive.tokens.store.TokenStore` that keeps tokens and keys in znodes."""

    def __init__(self, session: ZooKeeper) -> None:
        """Store tokens over `session`; the first call creates the parent znodes."""
        self._session = session
        self._has_parents = False

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ZooKeeperError as error:
            self._has_parents = not isinstance(error, NoNodeError)
            raise MetastoreError(META, f"TokenStoreException: IOException: {error}") from error

    async def _open(self) -> ZooKeeper:
        if not self._has_parents:
            for path in (_ROOT, _TOKENS, _KEYS):
                with contextlib.suppress(NodeExistsError):
                    await self._session.create(path, b"")
            self._has_parents = True
        return self._session

    async def _open_now(self) -> ZooKeeper:
        """Return the session after a fence, so that reads see all earlier writes."""
        session = await self._open()
        await session.fence()
        return session

    async def add_key(self, key: MasterKey) -> int:
        with self._translated():
            session = await self._open()
            path = await session.create(f"{_KEYS}/", encode(key), sequential=True)
        return int(path.rpartition("/")[2])

    async def remove_key(self, number: int) -> None:
        with self._translated(), contextlib.suppress(NoNodeError):
            await (await self._open()).delete(f"{_KEYS}/{number:010d}")

    async def keys(self) -> Mapping[int, MasterKey]:
        with self._translated():
            children = await self._read_all(_KEYS)
        return {int(name): decode_key(data) for name, data in children.items()}

    async def add(self, ident: str, token: StoredToken) -> None:
        with self._translated(), contextlib.suppress(NodeExistsError):
            await (await self._open()).create(f"{_TOKENS}/{ident}", encode(token))

    async def get(self, ident: str) -> StoredToken | None:
        with self._translated(), contextlib.suppress(NoNodeError):
            znode = await (await self._open_now()).get(f"{_TOKENS}/{ident}")
            return decode_token(znode.data)
        return None

    async def replace(self, ident: str, token: StoredToken) -> bool:
        with self._translated(), contextlib.suppress(NoNodeError):
            await (await self._open()).set(f"{_TOKENS}/{ident}", encode(token))
            return True
        return False

    async def remove(self, ident: str, only: StoredToken | None = None) -> bool:
        path, version = f"{_TOKENS}/{ident}", None
        with self._translated(), contextlib.suppress(NoNodeError, BadVersionError):
            session = await self._open()
            if only is not None:
                znode = await session.get(path)
                if decode_token(znode.data) != only:
                    return False
                version = znode.version
            await session.delete(path, version)
            return True
        return False

    async def all(self) -> Mapping[str, StoredToken]:
        with self._translated():
            children = await self._read_all(_TOKENS)
        return {ident: decode_token(data) for ident, data in children.items()}

    async def _read_all(self, parent: str) -> dict[str, bytes]:
        session = await self._open_now()
        data = {}
        for name in await session.children(parent):
            with contextlib.suppress(NoNodeError):
                data[name] = (await session.get(f"{parent}/{name}")).data
        return data
