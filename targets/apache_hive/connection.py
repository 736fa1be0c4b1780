"""Thrift connections over asyncio, one call at a time, in Hive's default binary protocol.

A Thrift answer does not announce its length. So the connection tries to decode the bytes received
so far, until they contain a whole answer. A new connection first sends the user's name (`set_ugi`),
like Hive's own client. It counts as open once the metastore has answered, because the proxies on
links accept a connection before they have connected to the metastore.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer, TTransportBase

from harness.env import Address, ClientEnv
from targets.apache_hive.messages import Exchange, error_of, exchange_for, greeting
from targets.hive import api
from targets.hive.channel import ChannelError
from targets.hive.client.classify import INTERNAL
from targets.hive.client.connection import Connect, ask_once

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_DEFAULT: Final = "default"


class _Bytes(TTransportBase):  # type: ignore[misc]  # the library has no types
    """A transport that reads the bytes received so far. A read beyond them raises `EOFError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def read(self, size: int) -> bytes:
        piece = self._data[self.at : self.at + size]
        self.at += len(piece)
        return piece


class ThriftConnection:
    """One connection to a metastore. It implements `targets.hive.client.connection.Connection`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, framed: bool = False
    ) -> None:
        """Create a connection. With `framed`, a length precedes each message, as after SASL."""
        self._reader, self._writer = reader, writer
        self._framed = framed
        self._count = 0
        self.broken = False

    async def call(self, call: api.ApiCall, *, timeout_s: float) -> api.Reply:
        """Send a call and return its answer. After a `ChannelError` the connection is unusable."""
        return await self._exchange(exchange_for(call), timeout_s)

    async def greet(self, *, timeout_s: float) -> None:
        """Send the user's name to the metastore. Raises `ChannelError` if no answer comes."""
        await self._exchange(greeting(), timeout_s)

    async def _exchange(self, exchange: Exchange, timeout_s: float) -> api.Reply:
        self._count += 1
        whole = False
        try:
            async with asyncio.timeout(timeout_s):
                message = _message(exchange, self._count)
                if self._framed:
                    self._writer.write(len(message).to_bytes(4))
                self._writer.write(message)
                await self._writer.drain()
                reply = await self._answer(exchange)
        except TimeoutError as error:
            raise ChannelError(f"no answer within {timeout_s:g} s", sent=True) from error
        except (OSError, TProtocolException) as error:
            raise ChannelError(f"the connection broke: {error}", sent=True) from error
        else:
            whole = True
            return reply
        finally:
            if not whole:
                self.close()

    async def _answer(self, exchange: Exchange) -> api.Reply:
        come = b""
        while True:
            more = await (self._frame() if self._framed else self._reader.read(_READ_BYTES))
            if not more:
                raise ChannelError("the other side hung up", sent=True)
            come += more
            if len(come) > ANSWER_BYTES_MAX:
                raise ChannelError(f"an answer of more than {ANSWER_BYTES_MAX} bytes", sent=True)
            with contextlib.suppress(EOFError):
                return _read(come, exchange, self._count)

    async def _frame(self) -> bytes:
        try:
            size = int.from_bytes(await self._reader.readexactly(4))
            if size > ANSWER_BYTES_MAX:
                raise ChannelError(f"an answer of more than {ANSWER_BYTES_MAX} bytes", sent=True)
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return b""

    def close(self) -> None:
        self.broken = True
        self._writer.transport.abort()


def _message(exchange: Exchange, number: int) -> bytes:
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.writeMessageBegin(exchange.method, TMessageType.CALL, number)
    exchange.arguments.write(protocol)
    protocol.writeMessageEnd()
    data: bytes = buffer.getvalue()
    return data


def _read(come: bytes, exchange: Exchange, number: int) -> api.Reply:
    transport = _Bytes(come)
    limits = {"string_length_limit": ANSWER_BYTES_MAX, "container_length_limit": ANSWER_BYTES_MAX}
    protocol = TBinaryProtocol(transport, strictRead=True, **limits)
    name, kind, answered = protocol.readMessageBegin()
    if (name, answered) != (exchange.method, number):
        raise TProtocolException(
            message=f"{exchange.method} {number} got the answer to {name} {answered}"
        )
    answer: Any = TApplicationException() if kind == TMessageType.EXCEPTION else exchange.result()
    answer.read(protocol)
    protocol.readMessageEnd()
    if transport.at < len(come):
        raise TProtocolException(message="the answer has extra bytes at its end")
    if kind == TMessageType.EXCEPTION:
        return api.Reply(error=INTERNAL, message=str(answer.message))
    error = error_of(answer)
    if error is not None:
        return api.Reply(error=error.kind, message=error.message)
    return api.Reply(exchange.read(getattr(answer, "success", None)))


class ThriftDoor:
    """Opens Thrift connections; implements `targets.hive.client.connection.Connect`."""

    def __init__(self, env: ClientEnv) -> None:
        self._env = env

    async def __call__(self, address: Address, *, timeout_s: float) -> ThriftConnection:
        """Open a connection and greet the metastore. Raises `ChannelError` with `sent` false."""
        connection: ThriftConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                host, port = self._env.endpoint(address)
                streams = await asyncio.open_connection(host, port)  # determinism: not simulated
                connection = ThriftConnection(*streams)
                await connection.greet(timeout_s=timeout_s)
        except TimeoutError as error:
            message = f"connect to {address} timed out after {timeout_s:g} s"
            raise ChannelError(message, sent=False) from error
        except (OSError, ChannelError) as error:
            raise ChannelError(f"connect to {address} failed: {error}", sent=False) from error
        return connection


async def make_databases(
    connect: Connect, address: Address, names: Iterable[str], *, timeout_s: float
) -> bool:
    """Create missing databases; return whether all databases exist now."""
    replies = [
        await ask_once(connect, address, api.CreateDatabase(name), timeout_s=timeout_s)
        for name in names
        if name != _DEFAULT
    ]
    return all(reply is not None and reply.error in {"", api.ALREADY_EXISTS} for reply in replies)
