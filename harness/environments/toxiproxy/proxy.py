"""A proxy: a listening port, its upstream, its toxics, and the connections through it.

As in Shopify's server, stopping a proxy closes all of its connections, and a toxic that ends one
direction closes its connection. Unlike in Shopify's server, all other connections end as they would
without a proxy. The end of one direction leaves the other direction open, a reset is passed on as a
reset after all earlier data, and an unreachable destination causes a reset. A slow destination does
not delay the next connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import random
import socket
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from harness.case import stream
from harness.environments.toxiproxy import sockets
from harness.environments.toxiproxy.link import Link
from harness.environments.toxiproxy.sockets import Reader
from harness.environments.toxiproxy.stub import Counters, End, ToxicEntry
from harness.errors import HarnessError
from harness.exact import whole_number

DIRECTIONS: Final = ("upstream", "downstream")
CONNECTIONS_MAX: Final = 4096
_FLUSH_POLL_S: Final = 0.01
_FLUSH_POLLS_MAX: Final = 100
"""The maximum number of times that a reset checks whether earlier data has arrived."""
_CUT_POLL_S: Final = 0.02

_log = logging.getLogger(__name__)


class ApiError(HarnessError):
    """A failed API request: an HTTP status, and a message worded as in Shopify's server."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Withheld(msgspec.Struct, frozen=True):
    """The connections at one address that the server held or dropped without a fault."""

    address: str
    held: int
    dropped: int  # connections that have ever been dropped


def split_address(address: str) -> tuple[str, int]:
    """Split an address `host:port` or `[v6]:port`; raises `ValueError` for any other text.

    An empty host means all addresses of this machine.
    """
    host, colon, port = address.rpartition(":")
    number = whole_number(port or "0")
    if not colon or number is None or number > 65535:
        raise ValueError(f"the address {address!r} must have the form host:port")
    return host.removeprefix("[").removesuffix("]"), number


async def _resolved(address: str) -> tuple[str, int]:
    """Resolve an address to (host, port); like Go, prefer IPv4.

    Raises `OSError` for an unknown host, and `ValueError` for an invalid address.
    """
    host, port = split_address(address or ":0")
    if not host:
        return host, port
    loop = asyncio.get_running_loop()
    resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    first = min(resolved, key=lambda each: each[0] != socket.AF_INET)
    return str(first[4][0]), port


def _join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def listen(
    address: str, accepted: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
) -> tuple[asyncio.Server, str]:
    """Listen on an address; returns the server and its actual address.

    The port 0 means any free port. Raises `ApiError` if the server cannot listen there.
    """
    try:
        host, port = await _resolved(address)
        server = await sockets.serve(host, port, accepted)
    except (OSError, ValueError) as error:
        raise ApiError(500, f"listen tcp {address}: {error}") from error
    return server, _join_address(*server.sockets[0].getsockname()[:2])


class _Connection:
    """A proxied connection: the client's socket, the upstream socket, and two links."""

    def __init__(
        self,
        client: asyncio.StreamWriter,
        upstream: asyncio.StreamWriter,
        is_cut: Callable[[str], bool],
    ) -> None:
        """`is_cut` tells whether a toxic blocks all bytes of a direction."""
        self.writers = {"upstream": upstream, "downstream": client}  # each direction's receiver
        self.links: list[Link] = []
        self._is_cut = is_cut
        self._ended: set[str] = set()
        self._resets: set[asyncio.Task[None]] = set()

    def end(self, direction: str, end: End) -> None:
        self._ended.add(direction)
        writer = self.writers[direction]
        match end:
            case End.RESET:
                # the set keeps the task alive, because asyncio has only weak references to tasks
                self._resets.add(asyncio.get_running_loop().create_task(self._reset_after(writer)))
                return
            case End.FINISHED if not writer.is_closing():
                # the next read reports that the socket was reset
                with contextlib.suppress(OSError):
                    writer.write_eof()
            case End.CLOSED:
                writer.close()
        if len(self._ended) == len(self.writers) and not self._resets:
            for each in self.writers.values():
                each.close()

    async def _reset_after(self, writer: asyncio.StreamWriter) -> None:
        """Reset both sockets once `writer`'s peer has all earlier data, or after a second."""
        for _ in range(_FLUSH_POLLS_MAX):
            if sockets.unsent_bytes(writer) == 0:
                break
            await asyncio.sleep(_FLUSH_POLL_S)
        self.reset()

    def reset(self) -> None:
        for writer in self.writers.values():
            sockets.reset_at_once(writer)

    def drop(self) -> None:
        for writer in self.writers.values():
            writer.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until both sockets are closed, then stop the links."""
        await asyncio.gather(*map(self._wait_gone, self.writers))
        for link in self.links:
            await link.close()

    async def _wait_gone(self, direction: str) -> None:
        """Wait until the receiver of this direction is gone.

        If the receiver has already ended its own direction and then resets the connection, no link
        notices the reset, so this method passes it on.
        """
        (back,) = self.writers.keys() - {direction}
        try:
            await self.writers[direction].wait_closed()
        except OSError:
            while back in self._ended and self._is_cut(back):  # noqa: ASYNC110 - a poll
                await asyncio.sleep(_CUT_POLL_S)
            if back in self._ended and not self._resets:
                await self._reset_after(self.writers[back])


class Proxy:
    """One proxy of the API. Its methods may raise `ApiError`."""

    def __init__(
        self,
        name: str,
        listen: str,
        upstream: str,
        *,
        seed: int,
        report: Callable[[Withheld], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.enabled = False
        self.toxics: list[ToxicEntry] = []
        self.counters = {direction: Counters() for direction in DIRECTIONS}
        self._seed = seed
        self._report = report
        self._dropped = 0
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()

    @property
    def connections(self) -> int:
        return len(self._connections)

    # --- life ----------------------------------------------------------------------------

    async def start(self) -> None:
        if self.enabled:
            return
        self._server, self.listen = await listen(self.listen, self.adopt)
        self.enabled = True

    async def stop(self) -> None:
        if not self.enabled:
            return
        self.enabled = False
        assert self._server is not None
        self._server.close()
        self._server = None
        for connection in list(self._connections):
            connection.drop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def differs(self, listen: str, upstream: str) -> bool:
        """Whether these addresses differ from the proxy's; `listen` is resolved first."""
        try:
            resolved = _join_address(*await _resolved(listen))
        except (OSError, ValueError) as error:
            raise ApiError(500, f"address {listen}: {error}") from error
        return (resolved, upstream) != (self.listen, self.upstream)

    async def update(self, listen: str, upstream: str, *, enabled: bool) -> None:
        """Change the proxy's addresses (this closes its connections), and switch it on or off."""
        if await self.differs(listen, upstream):
            await self.stop()
            self.listen, self.upstream = listen, upstream
        if enabled:
            await self.start()
        else:
            await self.stop()

    def reset_connections(self) -> int:
        """Send RST to both ends of every open connection; returns how many there were."""
        count = len(self._connections)
        for connection in list(self._connections):
            connection.reset()
        return count

    def is_cut(self, direction: str) -> bool:
        """Whether no byte passes in this direction: the proxy is off, or a toxic blocks all."""
        return not self.enabled or any(
            entry.direction == direction and entry.toxic.blocks for entry in self.toxics
        )

    # --- connections -----------------------------------------------------------------------

    def adopt(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to this proxy or to a shared address; drop it if the proxy is off."""
        if not self.enabled:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            _log.warning("proxy %s: more than %d connections", self.name, CONNECTIONS_MAX)
            self._dropped += 1
            self._report(Withheld(self.listen, 0, self._dropped))
            writer.transport.abort()
            return
        try:
            host, port = split_address(self.upstream)
            upstream_reader, upstream_writer = await sockets.connect(host, port)
        except (OSError, ValueError) as error:
            _log.debug("proxy %s: no connection to %s: %s", self.name, self.upstream, error)
            sockets.reset_at_once(writer)
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        connection = _Connection(writer, upstream_writer, self.is_cut)
        number = next(self._numbers)
        readers = {"upstream": cast("Reader", reader), "downstream": upstream_reader}
        connection.links = [
            self._link(direction, number, readers[direction], connection)
            for direction in DIRECTIONS
        ]
        self._connections.add(connection)
        try:
            for link in connection.links:
                link.start([toxic for toxic in self.toxics if toxic.direction == link.direction])
            await connection.wait_closed()
        except asyncio.CancelledError:
            connection.drop()
            for link in connection.links:
                await link.close()
            raise
        finally:
            self._connections.discard(connection)

    def _link(self, direction: str, number: int, reader: Reader, connection: _Connection) -> Link:
        def toxic_stream(toxic: str) -> random.Random:
            return stream(self._seed, f"{self.name}/{number}/{direction}/{toxic}")

        return Link(
            direction,
            reader,
            connection.writers[direction],
            counters=self.counters[direction],
            stream=toxic_stream,
            end=functools.partial(connection.end, direction),
            reset_connection=connection.reset,
        )

    # --- toxics ------------------------------------------------------------------------------

    def toxic(self, name: str) -> ToxicEntry:
        for entry in self.toxics:
            if entry.name == name:
                return entry
        raise ApiError(404, "toxic not found")

    def require_free(self, name: str) -> None:
        if any(entry.name == name for entry in self.toxics):
            raise ApiError(409, "toxic already exists")

    async def add_toxic(self, entry: ToxicEntry) -> None:
        self.require_free(entry.name)
        self.toxics.append(entry)
        await self._on_links(entry.direction, lambda link: link.add(entry))

    async def update_toxic(self, entry: ToxicEntry) -> None:
        """Apply the changed attributes of the toxic `entry` to every connection."""
        await self._on_links(entry.direction, lambda link: link.update(entry))

    async def remove_toxic(self, entry: ToxicEntry) -> None:
        """Remove a toxic from every connection; raises `ApiError` if it is already removed."""
        if entry not in self.toxics:
            raise ApiError(404, "toxic not found")
        self.toxics.remove(entry)
        await self._on_links(entry.direction, lambda link: link.remove(entry))

    async def remove_all_toxics(self) -> None:
        for entry in list(self.toxics):
            await self.remove_toxic(entry)

    async def _on_links(self, direction: str, change: Callable[[Link], Any]) -> None:
        links = [
            link
            for connection in self._connections
            for link in connection.links
            if link.direction == direction
        ]
        await asyncio.gather(*(change(link) for link in links))
