"""Carries frames between named nodes over TCP.

A frame is a four-byte big-endian length followed by that many bytes. Every connection begins with
a greeting: each side sends `harness/1 NAME` with its own name, and the connecting side goes first.
The greeting tells each peer who the other is. A connection from any other program fails here.

The greeting also makes `connect` reliable behind a link proxy. The proxy accepts a connection
before it has reached the node, so only the node's greeting proves that the node is up. If the
connection ends before the greeting arrives, `connect` raises `ConnectionRefusedError`. If the link
is cut or the node is paused, no greeting arrives, and `connect` waits until the caller times out.

Nothing here sets TCP_NODELAY, because asyncio already does.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from harness.env import FRAME_BYTES_MAX, Address, Conn, Listener
from harness.errors import UsageError
from harness.nodes.caller import calling_end
from harness.support.loopback import dial

_HEADER = struct.Struct(">I")
_GREETING = b"harness/1 "
_GREETING_BYTES_MAX = 256
_GREETING_TIMEOUT_S = 60.0
_READ_BUFFER_BYTES = 256 * 1024
_BACKLOG = 1024

Spawn = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]


class RealConn:
    """A connection that carries frames over one TCP stream."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_close: Callable[[RealConn], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_close = on_close
        # asyncio also stores a connection's error in a future of the stream, and logs it if no task
        # awaits this future. So this task awaits it.
        self._end = asyncio.get_running_loop().create_task(_end_of(writer))
        self.peer = _address(writer)  # the peer's name replaces it after the greeting
        self._body_bytes: int | None = None
        self._closed = False
        self._ended = False

    async def send(self, frame: bytes) -> None:
        self._check_sendable(frame)
        self._writer.write(_HEADER.pack(len(frame)) + frame)
        try:
            await self._writer.drain()
        except OSError as error:
            raise self._reset(error) from error

    def try_send(self, frame: bytes) -> bool:
        self._check_sendable(frame)
        transport = self._writer.transport
        if transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]:
            return False
        self._writer.write(_HEADER.pack(len(frame)) + frame)
        return True

    def _check_sendable(self, frame: bytes) -> None:
        if len(frame) > FRAME_BYTES_MAX:
            raise ValueError(
                f"a frame of {len(frame)} bytes; the limit is FRAME_BYTES_MAX = {FRAME_BYTES_MAX}"
            )
        if self._closed or self._writer.is_closing():
            raise ConnectionResetError(f"the connection to {self.peer} is closed")

    async def recv(self) -> bytes | None:
        return await self._recv(FRAME_BYTES_MAX)

    async def _recv(self, bytes_max: int) -> bytes | None:
        if self._ended:
            return None
        if self._closed:
            raise ConnectionResetError(f"the connection to {self.peer} is closed")
        try:
            if self._body_bytes is None:
                # A cancelled `readexactly` consumes nothing, so only the header needs to be stored.
                header = await self._reader.readexactly(_HEADER.size)
                (self._body_bytes,) = _HEADER.unpack(header)
            self._check_announced(self._body_bytes, bytes_max)
            frame = await self._reader.readexactly(self._body_bytes)
        except asyncio.IncompleteReadError as error:
            if self._body_bytes is None and not error.partial and not self._closed:
                # The peer has closed, so it reads no more: connections are never half open.
                self._ended = True
                self.close()
                return None
            raise self._reset(error) from error
        except OSError as error:
            raise self._reset(error) from error
        self._body_bytes = None
        return frame

    def _check_announced(self, size: int, bytes_max: int) -> None:
        if size > bytes_max:
            self.abort()
            raise ConnectionResetError(
                f"{self.peer} announced a frame of {size} bytes; the limit is {bytes_max}"
            )

    def close(self) -> None:
        self._closed = True
        self._writer.close()
        self._on_close(self)

    def abort(self) -> None:
        self._closed = True
        self._writer.transport.abort()
        self._on_close(self)

    async def greet(self, name: str) -> None:
        """Send the greeting with this node's `name`; may raise `ConnectionResetError`."""
        await self.send(_GREETING + name.encode())

    async def wait_greeted(self) -> bool:
        """Wait for the peer's greeting; false if the peer sends other data or disconnects."""
        greeting = await self._recv(_GREETING_BYTES_MAX)
        if greeting is None or not greeting.startswith(_GREETING):
            return False
        self.peer = greeting.removeprefix(_GREETING).decode("utf-8", "replace")
        return True

    def _reset(self, error: Exception) -> ConnectionResetError:
        self.abort()
        return ConnectionResetError(f"the connection to {self.peer} broke: {error}")


async def _end_of(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _address(writer: asyncio.StreamWriter) -> str:
    host, port = (writer.get_extra_info("peername") or ("?", 0))[:2]
    return f"{host}:{port}"


class RealNetwork:
    """The network of one node (see `harness.env.Network`).

    `listen` maps the node's declared ports to the host and TCP port to bind. `connect` maps
    `node:port` to the host and TCP port at which this node reaches the peer. These are usually the
    host and port of a link proxy.
    """

    def __init__(
        self,
        name: str,
        listen: Mapping[int, tuple[str, int]],
        connect: Mapping[str, tuple[str, int]],
        spawn: Spawn,
    ) -> None:
        self._name = name
        self._listen = listen
        self._connect = connect
        self.aliases: Mapping[str, str] = {}  # alias: node, as the driver has set them
        # Maps a client with its own links to the addresses that it uses, by `node:port`.
        self.by_caller: Mapping[str, Mapping[str, tuple[str, int]]] = {}
        self._spawn = spawn
        # Keeps the garbage collector from closing forgotten streams at arbitrary times.
        self._conns: set[RealConn] = set()
        self._servers: list[asyncio.Server] = []

    def close(self) -> None:
        """Drop every connection and stop listening, as if the process had ended."""
        for server in self._servers:
            server.close()
        for conn in list(self._conns):
            conn.abort()

    def _conn(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> RealConn:
        conn = RealConn(reader, writer, on_close=self._conns.discard)
        self._conns.add(conn)
        return conn

    def resolve(self, address: Address) -> Address:
        return Address(self.aliases.get(address.node, address.node), address.port)

    def endpoint(self, address: Address) -> tuple[str, int]:
        connect = self.by_caller.get(calling_end(), self._connect)
        try:
            return connect[str(address)]
        except KeyError:
            declared = ", ".join(sorted(connect)) or "none"
            raise UsageError(
                f"{self._name} knows no address {str(address)!r}; declared addresses: {declared}"
            ) from None

    def bound(self, port: int) -> tuple[str, int]:
        """Return the host and TCP port to bind for `port`. Raises `ValueError` if undeclared."""
        if port not in self._listen:
            raise ValueError(
                f"{self._name} may not listen on {port}; its NodeSpec declares only the ports "
                f"{sorted(self._listen)}"
            )
        return self._listen[port]

    async def listen(self, port: int, on_connect: Callable[[Conn], Awaitable[None]]) -> Listener:
        host, real_port = self.bound(port)

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            conn = self._conn(reader, writer)
            self._spawn(self._serve(conn, on_connect), f"accept:{port}:{conn.peer}")

        server = await asyncio.start_server(
            accepted, host, real_port, limit=_READ_BUFFER_BYTES, backlog=_BACKLOG
        )
        self._servers.append(server)
        return server

    async def _serve(self, conn: RealConn, on_connect: Callable[[Conn], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(_GREETING_TIMEOUT_S):
                if not await conn.wait_greeted():
                    conn.abort()
                    return
                await conn.greet(self._name)
        except (ConnectionResetError, TimeoutError):
            # another program connected, or the caller gave up while the link was cut
            conn.abort()
            return
        try:
            await on_connect(conn)
        except ConnectionError:
            conn.close()  # a lost connection ends the handler, but not the node

    async def connect(self, address: Address) -> Conn:
        try:
            host, port = self.endpoint(address)
        except UsageError as error:  # a connection to an unknown address is refused
            raise ConnectionRefusedError(str(error)) from error
        try:
            reader, writer = await dial(host, port, limit=_READ_BUFFER_BYTES)
        except OSError as error:
            raise ConnectionRefusedError(f"{address} ({host}:{port}): {error}") from error
        conn = self._conn(reader, writer)
        greeted = False
        try:
            await conn.greet(self._name)
            greeted = await conn.wait_greeted()
        except ConnectionResetError as error:
            raise ConnectionRefusedError(f"{address} ({host}:{port}): {error}") from error
        finally:
            if not greeted:
                conn.abort()
        if not greeted:
            raise ConnectionRefusedError(f"{address} ({host}:{port}) closed before it answered")
        return conn
