"""A byte stream to and from a node: one TCP connection with size limits, closed without waiting."""

from __future__ import annotations

import asyncio
from typing import Final

from harness.env import Address, ClientEnv
from harness.errors import shown
from harness.support.http1 import hang_up, unread
from harness.support.loopback import dial
from targets.declared.protocols import MalformedError, NotSentError

__all__ = ["ANSWER_BYTES_MAX", "LINE_BYTES_MAX", "Stream"]

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
LINE_BYTES_MAX: Final = 64 * 1024
_READ_BYTES: Final = 64 * 1024


class Stream:
    """A connection with one request at a time. Answers are lines, and blocks of known size."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = bytearray()

    @classmethod
    async def open(cls, env: ClientEnv, address: Address) -> Stream:
        """Connect to a node at the endpoint that this client uses in the environment."""
        host, port = env.endpoint(address)
        return cls(*await dial(host, port))

    async def send(self, data: bytes) -> None:
        """Send a request.

        Raises `NotSentError` if the peer has closed the connection, and `MalformedError` if there
        are unread bytes, since these answer no request.
        """
        arrived = unread(self._reader)
        self._buffer += arrived or b""
        if self._buffer:
            raise MalformedError(f"bytes that answer nothing: {shown(bytes(self._buffer))}")
        if arrived is not None:
            raise NotSentError("the server had closed the connection")
        self._writer.write(data)
        await self._writer.drain()

    async def line(self, end: bytes = b"\r\n") -> bytes:
        """Read a line, and return it without its end.

        Raises `EOFError` for a torn line, and `MalformedError` for a line that is too long.
        """
        while (at := self._buffer.find(end)) < 0:
            if len(self._buffer) > LINE_BYTES_MAX:
                raise MalformedError(f"a line of more than {LINE_BYTES_MAX} bytes")
            await self._fill()
        line = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return line

    async def block(self, size: int) -> bytes:
        """Read `size` bytes.

        Raises `EOFError` if there are fewer, and `MalformedError` for a bad size.
        """
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise MalformedError(f"a block of {size} bytes; it may have 0 to {ANSWER_BYTES_MAX}")
        while len(self._buffer) < size:
            await self._fill()
        block = bytes(self._buffer[:size])
        del self._buffer[:size]
        return block

    async def rest(self, size_max: int) -> bytes:
        """Read until the peer closes the connection, at most `size_max` bytes."""
        while data := await self._reader.read(_READ_BYTES):
            self._buffer += data
            if len(self._buffer) > size_max:
                raise MalformedError(f"an answer of more than {size_max} bytes")
        return bytes(self._buffer)

    async def _fill(self) -> None:
        data = await self._reader.read(_READ_BYTES)
        if not data:
            raise EOFError(f"the answer ended after {shown(bytes(self._buffer))}")
        self._buffer += data

    async def close(self) -> None:
        """Abort the connection. Safe to call twice."""
        await hang_up(self._writer)
