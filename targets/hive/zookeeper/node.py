"""The node `zk1`: a small bundled ZooKeeper, a single server that handles one call at a time.

The server saves all znodes to disk (`targets.checked_file`) before it answers a write, so every
value that a client reads is durable and current. The only key of `config` is `port`.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

import msgspec

from harness.env import Env
from targets import checked_file
from targets.hive.channel import configured, listening, serve, until_stopped
from targets.hive.zookeeper.protocol import Call, Children, Get, ZooKeeperError
from targets.hive.zookeeper.remote import Reply
from targets.hive.zookeeper.tree import Tree

_PATH: Final = "znodes"
_MAGIC: Final = b"HIVEZK01"
_call: Final = msgspec.msgpack.Decoder(Call)
_BAD_ARGUMENTS: Final = -8
SESSIONS_MAX: Final = 60
"""Maximum number of connections, like ZooKeeper's `maxClientCnxns`."""


class ZooKeeperConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of the node `zk1`."""

    port: int


class _Server:
    """The server's znodes, and the file in which they are saved."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._alone = asyncio.Lock()
        self.tree = Tree()

    async def open(self) -> None:
        """Read the znodes from the file, if it exists. Raises `DamagedFileError`."""
        try:
            body = await checked_file.read(self._env.disk, _PATH, _MAGIC)
        except FileNotFoundError:
            return
        self.tree = Tree.decode(body)

    async def answer(self, body: msgspec.Raw) -> Reply:
        try:
            call = _call.decode(body)
        except msgspec.MsgspecError as error:
            return Reply(None, _BAD_ARGUMENTS, f"not a call: {error}")
        async with self._alone:
            try:
                answer = self.tree.apply(call)
            except ZooKeeperError as error:
                return Reply(None, error.code, str(error))
            if not isinstance(call, Get | Children):
                await checked_file.write(self._env.disk, _PATH, _MAGIC, self.tree.encode())
        return Reply(answer)


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run the server until it is cancelled. Raises `UsageError` for a bad `config`."""
    settings = configured(ZooKeeperConfig, config, "ZooKeeper")
    server = _Server(env)
    await server.open()
    converse = functools.partial(serve, handle=server.answer)
    async with listening(env, settings.port, converse, sessions_max=SESSIONS_MAX):
        env.event("zookeeper-started", znodes=len(server.tree))
        await until_stopped()
