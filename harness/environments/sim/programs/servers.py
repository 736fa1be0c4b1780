"""asyncio servers on ports of the simulated network, with one transport per connection."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from harness.environments.sim.connection import EndState, SimConn
from harness.environments.sim.network import Host, SimListener
from harness.environments.sim.programs.sockets import SimSocket
from harness.environments.sim.programs.transports import StreamTransport

if TYPE_CHECKING:
    from harness.environments.sim.programs.net_loop import NetLoop


class StreamListener(SimListener):
    """A listening port that gives each accepted connection a transport."""

    def __init__(
        self,
        owner: Host,
        port: int,
        loop: NetLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        server: StreamServer,
        *,
        loopback: bool,
    ) -> None:
        super().__init__(owner, port, _refuse_frames)
        self.loopback = loopback
        self._loop = loop
        self._factory = factory
        self._server = server

    def accept(self, conn: SimConn) -> None:
        self.backlog -= 1
        if conn.state is EndState.OPEN:
            try:
                protocol = self._factory()
            except Exception:
                conn.close()
                raise
            StreamTransport(self._loop, conn, protocol, port=self._port, server=self._server)


async def _refuse_frames(_: Any) -> None:
    raise AssertionError("a stream listener has no handler of frames")


class StreamServer(asyncio.AbstractServer):
    """The server that `loop.create_server` returns."""

    def __init__(
        self, loop: NetLoop, listening: Callable[[StreamServer], list[StreamListener]]
    ) -> None:
        """Create a server. `listening` binds its ports when the server starts."""
        self._loop = loop
        self._listening = listening
        self._listeners: list[StreamListener] | None = None
        self._open = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._forever: asyncio.Future[None] | None = None
        self.places: list[tuple[str, int]] = []

    def attach(self) -> None:
        self._open += 1

    def detach(self) -> None:
        self._open -= 1
        self._wake()

    def _wake(self) -> None:
        if self._closed and self._open == 0:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        if self._listeners is None or self._closed:
            return ()
        return tuple(SimSocket(self._loop, here=place) for place in self.places)

    def begin(self) -> None:
        if self._listeners is None:
            self._listeners = self._listening(self)

    async def start_serving(self) -> None:
        self.begin()
        await asyncio.sleep(0)  # as in asyncio

    async def serve_forever(self) -> None:
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if self._closed:
            raise RuntimeError(f"server {self!r} is closed")
        self.begin()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    def is_serving(self) -> bool:
        return self._listeners is not None and not self._closed

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for listener in self._listeners or ():
            listener.close()
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
        self._wake()

    async def wait_closed(self) -> None:
        """Wait until all connections have ended. In Python 3.11, this only waits before `close`."""
        if self._closed and (sys.version_info < (3, 12) or self._open == 0):
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()

    def __repr__(self) -> str:
        return f"<StreamServer {self.places}>"
