"""Streams for proxied connections, which still deliver data received before a reset.

The kernel keeps data that arrived before a reset. asyncio's own streams discard data that was not
read yet, whether a read or a write notices the reset.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable
from typing import Final

READ_BUFFER_BYTES: Final = 64 * 1024
_BACKLOG: Final = 1024
_LINGER_NONE: Final = struct.pack("ii", 1, 0)

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class Reader(asyncio.StreamReader):
    """A stream reader that, after a reset, returns all earlier data and then the end of file."""

    was_reset = False

    def set_exception(self, exc: Exception) -> None:
        del exc
        self.was_reset = True
        self.feed_eof()


class _Protocol(asyncio.StreamReaderProtocol):
    def __init__(self, reader: Reader, accepted: Accepted | None = None) -> None:
        super().__init__(reader, accepted, loop=asyncio.get_running_loop())
        self._received = reader
        self._made: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._made is not None:
            self._take_the_rest(self._made)
        self._made = None
        super().connection_lost(exc)

    def _take_the_rest(self, transport: asyncio.BaseTransport) -> None:
        """Read the rest of the kernel's receive buffer after a reset, when no more data arrives."""
        descriptor = transport.get_extra_info("socket").fileno()
        try:
            while data := os.read(descriptor, READ_BUFFER_BYTES):
                self._received.feed_data(data)
        except OSError:
            return  # the receive buffer is empty now


def _listening(host: str, port: int) -> socket.socket:
    """Create a listening socket. An empty host means all IPv4 and IPv6 addresses, on one port."""
    if host or not socket.has_dualstack_ipv6():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    return socket.create_server(
        ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
    )


async def serve(host: str, port: int, accepted: Accepted) -> asyncio.Server:
    """Start a server that calls `accepted` for each connection; may raise `OSError`.

    An empty host means all addresses of this machine.
    """

    def protocol() -> _Protocol:
        return _Protocol(Reader(limit=READ_BUFFER_BYTES), accepted)

    loop = asyncio.get_running_loop()
    return await loop.create_server(protocol, sock=_listening(host, port), backlog=_BACKLOG)


async def connect(host: str, port: int) -> tuple[Reader, asyncio.StreamWriter]:
    """Open a TCP connection with a `Reader`; raises `OSError` if that fails."""
    loop = asyncio.get_running_loop()
    reader = Reader(limit=READ_BUFFER_BYTES)
    transport, protocol = await loop.create_connection(lambda: _Protocol(reader), host, port)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def unsent_bytes(writer: asyncio.StreamWriter) -> int:
    """Return how many written bytes the peer's kernel has yet to acknowledge."""
    if writer.is_closing():
        return 0
    queued = fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    return writer.transport.get_write_buffer_size() + int(struct.unpack("i", queued)[0])


def reset_at_once(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once by RST, and drop its unsent data."""
    try:
        end = writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    except OSError:
        return  # the peer has already closed the connection
    finally:
        writer.transport.abort()
