"""The two sockets of a connection through a proxy, as streams that keep what came before a reset.

asyncio's own streams forget received but unread data as soon as a connection breaks, be
it by a reset that was read or by one that a write ran into. The kernel does not: it hands on data
that arrived first. So do these.
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
    """A stream that ends at a reset, after everything that came before it."""

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
        """Read what the kernel still has; its receive buffer gets nothing more, so it is finite."""
        descriptor = transport.get_extra_info("socket").fileno()
        try:
            while data := os.read(descriptor, READ_BUFFER_BYTES):
                self._received.feed_data(data)
        except OSError:
            return  # that was all


def _listening(host: str, port: int) -> socket.socket:
    """One socket; of all hosts for either kind of address, with one port for both."""
    if host or not socket.has_dualstack_ipv6():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    return socket.create_server(
        ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
    )


async def serve(host: str, port: int, accepted: Accepted) -> asyncio.Server:
    """Listen; an empty host is all of them. Raises `OSError`."""

    def protocol() -> _Protocol:
        return _Protocol(Reader(limit=READ_BUFFER_BYTES), accepted)

    loop = asyncio.get_running_loop()
    return await loop.create_server(protocol, sock=_listening(host, port), backlog=_BACKLOG)


async def connect(host: str, port: int) -> tuple[Reader, asyncio.StreamWriter]:
    """Open a connection. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    reader = Reader(limit=READ_BUFFER_BYTES)
    transport, protocol = await loop.create_connection(lambda: _Protocol(reader), host, port)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def unsent_bytes(writer: asyncio.StreamWriter) -> int:
    """The number of written bytes that the other end's kernel does not have yet."""
    if writer.is_closing():
        return 0
    queued = fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    return writer.transport.get_write_buffer_size() + int(struct.unpack("i", queued)[0])


def reset_at_once(writer: asyncio.StreamWriter) -> None:
    """Send RST, and drop unsent data."""
    try:
        end = writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    except OSError:
        return  # its other end has closed it already
    finally:
        writer.transport.abort()
