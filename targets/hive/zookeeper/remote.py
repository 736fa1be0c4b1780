"""A session with the bundled ZooKeeper server, over the network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harness.env import Address, Env
from targets.hive.channel import Channel, ChannelError
from targets.hive.zookeeper.protocol import (
    Call,
    Children,
    ConnectionLossError,
    Create,
    Delete,
    Get,
    SetData,
    Znode,
    error_of,
)


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The reply to a call: its answer, or its error as code and text."""

    answer: Any = None
    code: int = 0
    message: str = ""


_reply: Final = msgspec.msgpack.Decoder(Reply)


class RemoteZooKeeper:
    """A session (`targets.hive.zookeeper.protocol.ZooKeeper`) that connects when necessary."""

    def __init__(
        self, env: Env, address: Address, *, connect_s: float = 2.0, answer_s: float = 5.0
    ) -> None:
        """Connect within `connect_s`. A call without an answer within `answer_s` fails."""
        self._env = env
        self._address = address
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._channel: Channel | None = None
        self._alone = asyncio.Lock()

    async def _do(self, call: Call) -> Any:
        try:
            async with self._alone:
                if self._channel is None or self._channel.broken:
                    self._channel = await Channel.open(
                        self._env, self._address, timeout_s=self._connect_s
                    )
                raw = await self._channel.call(call, timeout_s=self._answer_s)
        except ChannelError as error:
            raise ConnectionLossError(str(error)) from error
        reply = _reply.decode(raw)
        if reply.code:
            raise error_of(reply.code, reply.message)
        return reply.answer

    async def create(self, path: str, data: bytes, *, sequential: bool = False) -> str:
        return str(await self._do(Create(path, data, sequential)))

    async def get(self, path: str) -> Znode:
        return Znode(*await self._do(Get(path)))

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        return int(await self._do(SetData(path, data, version)))

    async def delete(self, path: str, version: int | None = None) -> None:
        await self._do(Delete(path, version))

    async def children(self, path: str) -> Sequence[str]:
        names: list[str] = await self._do(Children(path))
        return names

    async def fence(self) -> None:
        """Do nothing: a single server always answers with the current data."""

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
