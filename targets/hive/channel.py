"""Calls over one connection, one at a time, as in Thrift clients and PostgreSQL sessions.

A request is the msgpack array `[number, body]`. The answer repeats the number, which exposes
duplicate and late answers. If an answer is lost, the caller gives up the connection, because the
server may still be working on the request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from harness.env import Address, Conn, Env
from harness.errors import UsageError

_REQUEST: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
_encode: Final = msgspec.msgpack.Encoder().encode
Config = TypeVar("Config")


class ChannelError(Exception):
    """A request got no answer. If `sent`, the server may have executed it, or may still do so."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class IdleError(Exception):
    """No request came within the idle time, so the server closes the connection."""


class Channel:
    """The client side of one connection, which is unusable after an error."""

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self._count = 0
        self.broken = False

    @classmethod
    async def open(cls, env: Env, address: Address, *, timeout_s: float) -> Channel:
        """Connect to a server. Raises a `ChannelError` whose `sent` is false."""
        try:
            async with asyncio.timeout(timeout_s):
                return cls(await env.net.connect(env.net.resolve(address)))
        except TimeoutError as error:
            message = f"connect to {address} timed out after {timeout_s:g} s"
            raise ChannelError(message, sent=False) from error
        except OSError as error:
            raise ChannelError(f"connect to {address} failed: {error}", sent=False) from error

    async def call(self, body: Any, *, timeout_s: float) -> msgspec.Raw:
        """Send a request and wait for the answer. A `ChannelError` leaves the channel unusable."""
        self._count += 1
        number = self._count
        whole = False
        try:
            async with asyncio.timeout(timeout_s):
                await self._conn.send(_encode((number, body)))
                while True:
                    frame = await self._conn.recv()
                    if frame is None:
                        raise ChannelError("the other side hung up", sent=True)
                    answered, answer = _REQUEST.decode(frame)
                    if answered == number:
                        whole = True
                        return answer
        except TimeoutError as error:
            raise ChannelError(f"no answer within {timeout_s:g} s", sent=True) from error
        except (OSError, msgspec.MsgspecError) as error:
            raise ChannelError(f"the connection broke: {error}", sent=True) from error
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        self.broken = True
        self._conn.close()


async def serve(
    conn: Conn,
    handle: Callable[[msgspec.Raw], Awaitable[Any]],
    *,
    idle_s: Callable[[], float | None] = lambda: None,
) -> None:
    """Answer a connection's requests. Raises `IdleError` if no request comes for `idle_s`."""
    last = 0
    try:
        while True:
            try:
                async with asyncio.timeout(idle_s()):
                    frame = await conn.recv()
            except TimeoutError as error:
                raise IdleError from error
            except OSError:
                return
            if frame is None:
                return
            try:
                number, body = _REQUEST.decode(frame)
            except msgspec.MsgspecError:
                return  # the peer does not speak this protocol: close the connection
            if number <= last:
                continue  # a late copy of a request that was already answered
            last = number
            answer = _encode((number, await handle(body)))
            try:
                await conn.send(answer)
            except OSError:
                return
    finally:
        conn.close()


def configured(kind: type[Config], config: dict[str, Any], node: str) -> Config:
    """Read the configuration of a node. Raises `UsageError` for a bad `config`."""
    try:
        return msgspec.convert(config, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"bad configuration of {node}: {error}") from error


@contextlib.asynccontextmanager
async def listening(
    env: Env, port: int, converse: Callable[[Conn], Awaitable[None]], *, sessions_max: int
) -> AsyncIterator[None]:
    """Serve connections during the block. Connections beyond `sessions_max` are closed at once."""
    sessions = 0

    async def admit(conn: Conn) -> None:
        nonlocal sessions
        if sessions >= sessions_max:
            conn.close()
            return
        sessions += 1
        try:
            await converse(conn)
        finally:
            sessions -= 1

    listener = await env.net.listen(port, admit)
    try:
        yield
    finally:
        listener.close()


async def until_stopped() -> None:
    """Wait until the node is stopped, which cancels this task."""
    await asyncio.get_running_loop().create_future()
