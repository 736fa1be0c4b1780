"""ZooKeeper, with sessions of the harness's own, so that each request is exactly one attempt.

kazoo's client would retry by itself and move sessions between servers, so only kazoo's wire format
is used. Items are znodes with JSON data. The first write of an item creates its znode. Without the
setting `sync`, a read may be as old as the state of its server.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import UsageError, shown
from targets.declared.protocols import (
    Answer,
    DeclinedError,
    MalformedError,
    Template,
    settings_of,
)
from targets.declared.protocols.streams import Stream
from targets.declared.protocols.text import decoded, encoded
from targets.declared.protocols.updates import VersionedProtocol, built_in
from targets.declared.protocols.versioned import Items, VersionedSession

__all__ = ["ZooKeeper", "ZooKeeperSession"]

_ANY_VERSION: Final = -1
_ABSENT: Final = -2
_NO_NODE, _BAD_VERSION, _NODE_EXISTS = -101, -103, -110
_DECLINED: Final = frozenset({-6, -8, -102, -108, -114, -115, -119, -123, -125})
"""Errors about the request itself: a wrong argument, a missing permission, a read-only server."""
_READ_ONLY: Final = -119
_STAT_BYTES: Final = 68
_HEADER_BYTES: Final = 16
_WORD: Final = re.compile(r"[a-z]{4}")
_LIBRARY_ERRORS: Final = (struct.error, IndexError, TypeError, UnicodeDecodeError)
_STATUS_BYTES_MAX: Final = 16 * 1024


class ZooKeeperSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `sync`: send a sync before each read. `root`: an existing znode that contains all items.
    """

    sync: bool = False
    root: str = ""
    session_ms: int = 10_000


class ZooKeeper(VersionedProtocol):
    """ZooKeeper, in its own protocol."""

    name, port, knows_leader = "zookeeper", 2181, True

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            import kazoo.protocol.serialization  # noqa: F401 - only tests the import
        except ImportError as error:
            raise UsageError(
                f"client.protocol: 'zookeeper' needs kazoo, which cannot be imported: {error}; "
                "install catalog-harness[systems]"
            ) from error
        self.settings = settings_of(ZooKeeperSettings, settings)
        root = self.settings.root
        if root and (not root.startswith("/") or root.endswith("/") or "//" in root):
            raise UsageError(f"client.root is {root!r}: write a path, such as '/app'")
        if self.settings.session_ms <= 0:
            raise UsageError(f"client.session_ms is {self.settings.session_ms}: it must be over 0")

    def template(self, where: str, written: object, answer: Answer) -> Template:
        if answer == "raw" and isinstance(written, str) and _WORD.fullmatch(written):
            return Word(written)
        raise built_in("ZooKeeper", where, written)

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> ZooKeeperSession:
        del observes
        stream = await Stream.open(env, address)
        session = ZooKeeperSession(env, address, stream, self.settings)
        try:
            await session.greet()
        except BaseException:
            await session.close()
            raise
        return session


class Word(Template):
    """A four-letter word (such as `mntr`), as a request whose answer is text."""

    def __init__(self, word: str) -> None:
        self.word = word


class _RefusedError(Exception):
    """An answer with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ZooKeeperSession(VersionedSession):
    """A session with one server, with one request at a time in progress."""

    def __init__(
        self, env: ClientEnv, address: Address, stream: Stream, settings: ZooKeeperSettings
    ) -> None:
        super().__init__(env, address)
        self._stream, self._settings, self._xid = stream, settings, 0
        self._server: str | None = None

    async def greet(self) -> None:
        """Open a session. The ensemble grants one only while a majority of it is up.

        Raises `MalformedError` if the server's answer grants no session.
        """
        from kazoo.protocol.serialization import Connect

        asked = Connect(0, 0, self._settings.session_ms, 0, b"\0" * 16, False)
        await self._send(bytes(asked.serialize()))
        frame = await self._frame()
        try:
            granted, _ = Connect.deserialize(frame, 0)
        except _LIBRARY_ERRORS as error:
            raise MalformedError(f"not an answer to a new session: {shown(frame)}") from error
        if granted.time_out <= 0 or not granted.session_id:
            raise MalformedError(f"the server grants no session: {shown(granted)}")

    async def load(self, keys: Sequence[str]) -> Mapping[str, tuple[Any, Any]]:
        (key,) = keys
        return {key: await self.attempt(self._load(self._path(key)), changes=False)}

    async def _load(self, path: str) -> tuple[Any, int]:
        from kazoo.protocol.serialization import GetData, Sync

        if self._settings.sync:
            synced = await self._ask(Sync(path))
            if synced != path:
                raise MalformedError(f"a sync of {path!r} answered {shown(synced)}")
        try:
            data, stat = await self._ask(GetData(path, None))
        except _RefusedError as refused:
            if refused.code == _NO_NODE:
                return None, _ABSENT
            raise _translated(refused) from refused
        return decoded(data or b""), stat.version

    async def store(self, items: Items, seen: Mapping[str, Any]) -> bool:
        ((key, value),) = items.items()
        return await self._written(key, value, seen[key])

    async def put(self, key: str, value: Any) -> None:
        """Set the znode or, if it does not exist, create it.

        A refused request certainly did nothing, so the other one may follow.
        """
        while True:
            for version in (_ANY_VERSION, _ABSENT):
                if await self._written(key, value, version):
                    return
                self.had_no_effect()

    async def _written(self, key: str, value: Any, version: int) -> bool:
        exchange = self._write(self._path(key), encoded(value).encode(), version)
        return await self.attempt(exchange, changes=True)

    async def _write(self, path: str, data: bytes, version: int) -> bool:
        from kazoo.protocol.serialization import Create, SetData
        from kazoo.security import OPEN_ACL_UNSAFE

        absent = version == _ABSENT
        request = Create(path, data, OPEN_ACL_UNSAFE, 0) if absent else SetData(path, data, version)
        try:
            answer = await self._ask(request)
        except _RefusedError as refused:
            if refused.code in ({_NODE_EXISTS} if absent else {_NO_NODE, _BAD_VERSION}):
                return False
            raise _translated(refused) from refused
        if absent and answer != path:
            raise MalformedError(f"the new znode is {shown(answer)}, and not {path!r}")
        return True

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        if isinstance(template, Word):
            return await self.attempt(self._answer_to(template.word), changes=changes)
        return await super().perform(template, arguments, changes=changes)

    async def _answer_to(self, word: str) -> str:
        stream = await Stream.open(self.env, self.address)
        try:
            await stream.send(word.encode())
            return (await stream.rest(_STATUS_BYTES_MAX)).decode("utf-8", "replace")
        finally:
            await stream.close()

    async def leadership(self) -> tuple[bool, int]:
        text = await self._answer_to("srvr")
        status = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        if "Mode" not in status or "Zxid" not in status:
            raise MalformedError(f"the server does not serve: {shown(text)}")
        leads, epoch = status["Mode"] in {"leader", "standalone"}, int(status["Zxid"], 16) >> 32
        self._server = f"the leader of epoch {epoch}" if status["Mode"] == "leader" else None
        return leads, epoch

    async def server(self) -> str | None:
        """Return the epoch in the last answer to `leadership`: an epoch has only one leader.

        The server's address would not identify it: through a proxy, a four-letter word and a
        session have different connections, which may lead to different servers.
        """
        return self._server

    def _path(self, key: str) -> str:
        return f"{self._settings.root}/harness-{quote(key, safe='')}"

    async def _ask(self, request: Any) -> Any:
        from kazoo.protocol.serialization import GetData, ReplyHeader

        self._xid += 1
        await self._send(struct.pack(">ii", self._xid, request.type) + bytes(request.serialize()))
        frame = await self._frame()
        try:
            header, offset = ReplyHeader.deserialize(frame, 0)
            if header.xid != self._xid:
                raise MalformedError(f"an answer to request {header.xid}, not to {self._xid}")
            if header.err:
                raise _RefusedError(header.err)
            answer = request.deserialize(frame, offset)
        except _LIBRARY_ERRORS as error:
            raise MalformedError(f"a malformed answer: {shown(frame)}") from error
        if isinstance(request, GetData):
            size = _HEADER_BYTES + 4 + len(answer[0] or b"") + _STAT_BYTES
            if size != len(frame):
                raise MalformedError(f"an answer of {len(frame)} bytes, and not {size}")
        return answer

    async def _send(self, frame: bytes) -> None:
        await self._stream.send(struct.pack(">i", len(frame)) + frame)

    async def _frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self._stream.block(4))
        return await self._stream.block(size)

    async def close(self) -> None:
        await self._stream.close()


def _translated(refused: _RefusedError) -> Exception:
    from kazoo.exceptions import EXCEPTIONS

    kind = EXCEPTIONS.get(refused.code)
    why = f"{kind.__name__ if kind else 'error'} ({refused.code})"
    if refused.code in _DECLINED:
        return DeclinedError(why, elsewhere=refused.code == _READ_ONLY)
    return MalformedError(why)
