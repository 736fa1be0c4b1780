"""asyncio's stream transports over simulated connections.

Each frame of a simulated connection is a piece of the stream. As with TCP, the boundaries between
writes have no meaning: a receiver may get several pieces at once, or part of one. Lost pieces
arrive late but in order, as if TCP had sent them again.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from harness.environments.sim.connection import EndState, SimConn
from harness.environments.sim.names import ephemeral
from harness.environments.sim.programs.sockets import SimSocket

if TYPE_CHECKING:
    from harness.environments.sim.programs.net_loop import NetLoop

_PIECE_BYTES: Final = 64 * 1024
_RECEIVE_BYTES: Final = 256 * 1024
_HIGH_WATER: Final = 64 * 1024
_SPLIT_SHARE: Final = 1 / 16
"""The probability that a read returns only a part of the data that has arrived."""


class Accepting(Protocol):
    """A server that counts its open connections."""

    def attach(self) -> None: ...
    def detach(self) -> None: ...


class StreamTransport(asyncio.Transport):
    """One end of a simulated connection: a transport, and the protocol that it calls."""

    def __init__(
        self,
        loop: NetLoop,
        conn: SimConn,
        protocol: asyncio.BaseProtocol,
        *,
        port: int | None = None,
        server: Accepting | None = None,
    ) -> None:
        """Connect one end of a connection to its protocol.

        `port` is the local port of an accepted end, and `None` for the calling end.
        """
        names, number = loop.names, conn.incoming.number // 2
        caller = port is None
        mine, theirs = names.address(loop.name), names.address(conn.peer)
        here = (mine, ephemeral(number) if caller else port)
        there = (theirs, conn.peer_port if caller else ephemeral(number))
        super().__init__(
            {"sockname": here, "peername": there, "socket": SimSocket(loop, here=here, there=there)}
        )
        self._loop = loop
        self._conn = conn
        self._server = server
        self._protocol: Any = protocol
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._closing = self._given_up = self._lost = False
        self._eof_sent = self._eof_seen = False
        self._reading = True
        self._writing_paused = self._noticed = self._flushing = False
        conn.out.is_stream = conn.incoming.is_stream = True
        conn.notify = self._notice
        if server is not None:
            server.attach()
        loop.call_soon(protocol.connection_made, self)
        self._notice()

    # --- reading ----------------------------------------------------------------------------

    def _notice(self) -> None:
        """Schedule a callback of the node that looks at the connection. It may have changed."""
        if not self._noticed and not self._lost:
            self._noticed = True
            self._loop.call_soon(self._receive)

    def _receive(self) -> None:
        """Read once. As in asyncio, a paused transport notices neither the end nor a reset."""
        self._noticed = False
        conn = self._conn
        if self._lost or self._closing or self._eof_seen or not self._reading:
            return
        if size := min(conn.arrived_bytes, _RECEIVE_BYTES):
            random = conn.out.fabric.random
            if size > 1 and random.random() < _SPLIT_SHARE:
                size = random.randrange(1, size)
            self._call(self._deliver, conn.receive_nowait(size))
            if conn.arrived_bytes or conn.has_ended or conn.state is EndState.RESET:
                self._notice()
        elif conn.has_ended:
            self._eof_seen = True
            if not self._call(self._protocol.eof_received):
                self.close()
        elif conn.state is EndState.RESET:
            self._abort(_reset_by_peer())

    def _deliver(self, data: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(data)
            return
        while data:
            buffer = memoryview(self._protocol.get_buffer(len(data)))
            size = min(len(buffer), len(data))
            if size == 0:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:size] = data[:size]
            self._protocol.buffer_updated(size)
            data = data[size:]

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call the protocol. An error of the protocol ends the connection, as in asyncio."""
        try:
            return function(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as in asyncio
            context = {"message": "Fatal error: protocol call failed.", "exception": error}
            self._loop.call_exception_handler(context | {"transport": self})
            self._abort(error)
            return True

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._eof_seen = False  # makes the transport read the end again, as asyncio does
            self._notice()

    # --- writing ----------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        if self._eof_sent:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._given_up or not data:
            return
        content = bytes(data)
        for start in range(0, len(content), _PIECE_BYTES):
            self._backlog.append(content[start : start + _PIECE_BYTES])
        self._backlog_bytes += len(content)
        self._flush()
        self._pause_writing()

    def _pause_writing(self) -> None:
        if self._backlog_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._call(self._protocol.pause_writing)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _flush(self) -> None:
        """Send as much of the backlog as the pipe accepts, once the node is not blocked."""
        if self._flushing or not self._loop.alive:
            return
        conn = self._conn
        busy_ns = self._loop.busy_until_ns
        if self._backlog and busy_ns > self._loop.world.now_ns:
            # a blocking call before this write (such as fsync) ends only at `busy_ns`
            self._flushing = True
            self._loop.world.schedule(busy_ns, self._flush_again)
            return
        while self._backlog:
            if conn.state is not EndState.OPEN:
                ended = conn.has_ended  # the peer closed the connection before it sent the reset
                self._abort(
                    BrokenPipeError(errno.EPIPE, "Broken pipe") if ended else _reset_by_peer()
                )
                return
            if self._loop.paused:
                self._flushing = True
                self._loop.call_soon(self._flush_again, None)
                return
            if not conn.try_send(self._backlog[0]):
                self._flushing = True
                waiter = self._loop.create_future()
                waiter.add_done_callback(self._flush_again)
                conn.out.waiters.append(waiter)
                return
            self._backlog_bytes -= len(self._backlog.popleft())
        if self._eof_sent or self._closing:
            conn.finish()

    def _flush_again(self, _: object) -> None:
        self._flushing = False
        if self._lost:
            return
        self._flush()
        if self._writing_paused and self._backlog_bytes <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._protocol.resume_writing)
        if self._closing and not self._backlog:
            self._give_up(None)

    def write_eof(self) -> None:
        if not self._closing and not self._eof_sent:
            self._eof_sent = True
            if self._conn.state is EndState.RESET:
                raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
            self._flush()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_writing()

    # --- the end ----------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing or not self._loop.alive

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._backlog:
                self._give_up(None)

    def abort(self) -> None:
        self._abort(None)

    def _abort(self, error: BaseException | None) -> None:
        if not self._lost:
            self._backlog.clear()
            self._backlog_bytes = 0
            self._closing = True
            self._give_up(error)

    def _give_up(self, error: BaseException | None) -> None:
        """Discard the backlog, and close the connection in a callback."""
        if not self._given_up:
            self._given_up = True
            self._loop.call_soon(self._lose, error)

    def _lose(self, error: BaseException | None) -> None:
        self._lost = True
        self._conn.die()
        try:
            self._protocol.connection_lost(error)
        finally:
            if self._server is not None:
                self._server.detach()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        state = "closing" if self._closing else "open"
        return f"<StreamTransport {state} peer={self.get_extra_info('peername')}>"


def _reset_by_peer() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
