"""Connections of a client, either to the bundled metastores or over Thrift to real ones."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from harness.env import Address, Env
from targets.hive import api
from targets.hive.channel import Channel, ChannelError

_reply: Final = msgspec.msgpack.Decoder(api.Reply)


class Connection(Protocol):
    """A connection for one call at a time. After an error it is unusable."""

    @property
    def broken(self) -> bool:
        """Whether the connection is unusable."""
        ...

    async def call(self, call: api.ApiCall, *, timeout_s: float) -> api.Reply:
        """Return the answer to a call. Raises `ChannelError` if no answer came."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Connect(Protocol):
    """A function that opens connections to metastores."""

    async def __call__(self, address: Address, *, timeout_s: float) -> Connection:
        """Open a connection to a metastore. Raises `targets.hive.channel.ChannelError`."""
        ...


class Door:
    """Opens connections to bundled metastores; implements `Connect`."""

    def __init__(self, env: Env) -> None:
        self._env = env

    async def __call__(self, address: Address, *, timeout_s: float) -> Connection:
        return _Call(await Channel.open(self._env, address, timeout_s=timeout_s))


class _Call:
    """A connection to a bundled metastore, over a `Channel`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def broken(self) -> bool:
        return self._channel.broken

    async def call(self, call: api.ApiCall, *, timeout_s: float) -> api.Reply:
        return _reply.decode(await self._channel.call(call, timeout_s=timeout_s))

    def close(self) -> None:
        self._channel.close()


async def ask_once(
    connect: Connect, address: Address, call: api.ApiCall, *, timeout_s: float
) -> api.Reply | None:
    """Make one call over a new connection; return its reply, or `None` if no reply came."""
    try:
        connection = await connect(address, timeout_s=timeout_s)
    except ChannelError:
        return None
    try:
        return await connection.call(call, timeout_s=timeout_s)
    except ChannelError:
        return None
    finally:
        connection.close()
