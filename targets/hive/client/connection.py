"""The connection of a client: to the bundled metastores here, over Thrift elsewhere."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from harness.env import Address, Env
from targets.hive import api
from targets.hive.channel import Channel

_reply: Final = msgspec.msgpack.Decoder(api.Reply)


class Connection(Protocol):
    """One call at a time; after an error it is of no use."""

    @property
    def broken(self) -> bool:
        """Whether it is of no more use."""
        ...

    async def call(self, call: api.ApiCall, *, timeout_s: float) -> api.Reply:
        """The answer. Raises `targets.hive.channel.ChannelError` where none came."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class Connect(Protocol):
    """Opens connections to metastores."""

    async def __call__(self, address: Address, *, timeout_s: float) -> Connection:
        """One that the metastore has answered on; raises `targets.hive.channel.ChannelError`."""
        ...


class Door:
    """Opens connections to the bundled metastores (a `Connect`)."""

    def __init__(self, env: Env) -> None:
        self._env = env

    async def __call__(self, address: Address, *, timeout_s: float) -> Connection:
        """A connection; raises `ChannelError`."""
        return _Call(await Channel.open(self._env, address, timeout_s=timeout_s))


class _Call:
    """Calls over a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def broken(self) -> bool:
        return self._channel.broken

    async def call(self, call: api.ApiCall, *, timeout_s: float) -> api.Reply:
        return _reply.decode(await self._channel.call(call, timeout_s=timeout_s))

    def close(self) -> None:
        self._channel.close()
