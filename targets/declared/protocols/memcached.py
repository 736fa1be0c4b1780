"""memcached, by its text protocol. Values are JSON; versions are memcached's CAS numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import shown
from targets.declared.protocols import (
    Answer,
    DeclinedError,
    MalformedError,
    Session,
    Template,
    settings_of,
)
from targets.declared.protocols.streams import Stream
from targets.declared.protocols.text import decoded, encoded
from targets.declared.protocols.updates import VersionedProtocol, built_in
from targets.declared.protocols.versioned import Items, VersionedSession

__all__ = ["Memcached", "MemcachedSession"]

_KEY_BYTES_MAX: Final = 250
_ABSENT: Final = None


class MemcachedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """memcached has no settings in the file."""


class Memcached(VersionedProtocol):
    """memcached, by its text protocol."""

    name, port = "memcached", 11211

    def __init__(self, settings: Mapping[str, Any]) -> None:
        settings_of(MemcachedSettings, settings)

    def template(self, where: str, written: object, answer: Answer) -> Template:
        del answer
        raise built_in("memcached", where, written)

    async def open(self, env: ClientEnv, address: Address, *, observes: bool = False) -> Session:
        del observes
        session = MemcachedSession(env, address, await Stream.open(env, address))
        try:
            await session.greet()
        except BaseException:
            await session.close()
            raise
        return session


class MemcachedSession(VersionedSession):
    """A connection with one command at a time in progress."""

    def __init__(self, env: ClientEnv, address: Address, stream: Stream) -> None:
        super().__init__(env, address)
        self._stream = stream

    async def greet(self) -> None:
        """Wait for an answer, because Docker's port proxy accepts even for dead servers."""
        await self._stream.send(b"version\r\n")
        line = await self._stream.line()
        if not line.startswith(b"VERSION "):
            raise MalformedError(f"not memcached: it answers {shown(line)}")

    async def load(self, keys: Sequence[str]) -> Mapping[str, tuple[Any, Any]]:
        (key,) = keys
        return {key: await self.attempt(self._load(_key_of(key)), changes=False)}

    async def _load(self, key: str) -> tuple[Any, int | None]:
        await self._stream.send(f"gets {key}\r\n".encode())
        line = await self._stream.line()
        if line == b"END":
            return None, _ABSENT
        _refuse(line)
        words = line.split(b" ")
        numbers = words[2:]
        if words[:2] != [b"VALUE", key.encode()] or len(numbers) != 3:
            raise MalformedError(f"not an item: {shown(line)}")
        if not all(number.isdigit() and len(number) <= 20 for number in numbers):
            raise MalformedError(f"not an item: {shown(line)}")
        data = await self._stream.block(int(numbers[1]))
        if await self._stream.block(2) != b"\r\n" or await self._stream.line() != b"END":
            raise MalformedError(f"an item does not end after {len(data)} bytes")
        return decoded(data), int(numbers[2])

    async def store(self, items: Items, seen: Mapping[str, Any]) -> bool:
        ((key, value),) = items.items()
        version = seen[key]
        command, end = ("add", "") if version is _ABSENT else ("cas", f" {version}")
        return await self.attempt(self._store(command, key, value, end), changes=True)

    async def put(self, key: str, value: Any) -> None:
        if not await self.attempt(self._store("set", key, value, ""), changes=True):
            raise MalformedError("a set was not stored")

    async def _store(self, command: str, key: str, value: Any, end: str) -> bool:
        data = encoded(value).encode()
        head = f"{command} {_key_of(key)} 0 0 {len(data)}{end}\r\n".encode()
        await self._stream.send(head + data + b"\r\n")
        line = await self._stream.line()
        if line == b"STORED":
            return True
        if line in {b"NOT_STORED", b"EXISTS", b"NOT_FOUND"}:
            return False
        _refuse(line)
        raise MalformedError(f"not an answer to {command}: {shown(line)}")

    async def close(self) -> None:
        await self._stream.close()


def _key_of(key: str) -> str:
    name = quote(key, safe="") or "%"
    if len(name) > _KEY_BYTES_MAX:
        raise DeclinedError(f"a key of {len(name)} bytes; memcached allows {_KEY_BYTES_MAX}")
    return name


def _refuse(line: bytes) -> None:
    """Raise the exception for an error reply.

    A SERVER_ERROR may come after an effect: a set that runs out of memory removes the old item.
    """
    if line == b"ERROR" or line.startswith(b"CLIENT_ERROR"):
        raise DeclinedError(line.decode("utf-8", "replace"))
    if line.startswith(b"SERVER_ERROR"):
        raise MalformedError(line.decode("utf-8", "replace"))
