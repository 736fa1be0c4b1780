"""The deployed real metastores, as the harness observes them during a run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.env import Address, ClientEnv
from harness.plugins import (
    Convergence,
    NodeRole,
    Restart,
    RestartingOperation,
    Roles,
    System,
    override,
)
from targets.apache_hive.connection import ThriftDoor
from targets.apache_hive.database import read_rows
from targets.apache_hive.kdc import KDC_NODE
from targets.apache_hive.tokens import Token
from targets.hive import api
from targets.hive.bugs import Bug
from targets.hive.channel import ChannelError
from targets.hive.client import MetastoreClient
from targets.hive.client.connection import Connect
from targets.hive.members import ADD, REMOVE, Members
from targets.hive.system import (
    DATABASE,
    DATABASE_NODE,
    SERVICE,
    ZOOKEEPER,
    Layout,
    snapshot_of,
)
from targets.hive.zookeeper.ensemble import SILENCE_S

_ASK_S: Final = 5.0
_START_S: Final = 50.0
"""The time that an administrator waits for an added metastore to serve; Java starts slowly."""
_DEFAULT: Final = "default"
_NO_TOKEN: Final = Token(b"\0" + b"\6nobody" * 2 + bytes(5), b"none").text
"""An invalid token in the right format, so that a metastore looks it up in the store."""


class ApacheHiveSystem(System):
    """The metastores and the database of one deployment."""

    def __init__(self, env: ClientEnv, layout: Layout, *, kdc: bool = False) -> None:
        """Create without any request."""
        self._env = env
        self._layout = layout
        self._door: Connect = ThriftDoor(env)
        if kdc:
            from targets.apache_hive.sasl import KerberosDoor

            self._door = KerberosDoor(env)
        self._zookeepers = tuple(address.node for address in layout.zookeepers)
        self._kdc = (KDC_NODE,) if kdc else ()
        self._others = (DATABASE_NODE, *self._kdc, *self._zookeepers)
        self._has_databases = False
        self._members = Members(layout.metastores, layout.spares, self._serves, start_s=_START_S)

    def client(self, process: int) -> MetastoreClient:
        """A client with its own connection, like a separate process.

        These metastores ignore request ids, in any profile.
        """
        layout, members = self._layout, self._members
        return MetastoreClient(
            self._env,
            members.listed,
            layout.client,
            process=process,
            bugs=layout.bugs | {Bug.NO_REQUEST_IDS},
            connect=self._door,
            listed=(lambda: members.listed) if layout.spares else None,
        )

    def core(self, rng: random.Random) -> Sequence[str]:
        """The nodes that must keep working: all indispensable ones, and one metastore.

        One metastore suffices, since clients have time to try two.
        """
        names = [address.node for address in self._members.listed]
        core = rng.sample(names, max(1, len(names) - 1))
        return [*(name for name in names if name in core), *self._others]

    @override
    def restarting(self) -> Mapping[str, RestartingOperation]:
        return {ADD: self._members.add, REMOVE: self._members.remove}

    @override
    async def restore(self, restart: Restart) -> None:
        await self._members.restore(restart)

    async def groups(self) -> Mapping[str, Roles]:
        """The database leads if it answers. All metastores follow, and are equivalent."""
        listed = self._members.listed
        alive = await asyncio.gather(*map(self._is_alive, listed))
        active = {node: NodeRole("follower") for node in alive if node is not None}
        leads = {DATABASE_NODE: NodeRole("leader")} if await self._rows() is not None else {}
        every = tuple(address.node for address in listed)
        groups = {
            SERVICE: Roles({**active, **leads}, (*every, *self._others)),
            DATABASE: Roles(leads, (DATABASE_NODE,)),
        }
        beside = {ZOOKEEPER: self._zookeepers, KDC_NODE: self._kdc}
        return groups | {name: Roles({}, nodes) for name, nodes in beside.items() if nodes}

    async def ready(self) -> Convergence:
        """Ask whether every metastore reaches the database, and read the database.

        The first call creates the databases of the workload.
        """
        if not self._has_databases:
            wanted = [name for name in self._layout.databases if name != _DEFAULT]
            made = [await self._made(name) for name in wanted]
            self._has_databases = all(made)
        return await self.converged()

    async def converged(self) -> Convergence:
        """Ask like `ready`, without creating databases."""
        answers = await self._ask_all(api.GetTableMeta())
        pending = [f"{name} does not answer" for name, a in answers.items() if a is None]
        rows = await self._rows()
        if rows is None:
            pending.append("the database does not answer")
        if not self._has_databases:
            pending.append("the databases are not made yet")
        if self._zookeepers and not pending:
            pending += await self._without_tokens()
        at = None if pending or rows is None else {"event": rows["next_event"] - 1}
        return Convergence(ok=not pending, pending=tuple(pending), at=at)

    async def snapshot(self) -> dict[str, Any]:
        """A snapshot in the form of the bundled metastores (`targets.hive.system`)."""
        snapshot = await snapshot_of(
            self._layout,
            self._members.listed,
            dump=self._rows,
            show=lambda: self._ask_all(api.GetTableMeta()),
        )
        if self._zookeepers:
            snapshot["tokens"]["stale_ms"] = SILENCE_S * 1000
        return snapshot

    async def _rows(self) -> dict[str, Any] | None:
        return await read_rows(self._env, timeout_s=_ASK_S)

    # --- calls -------------------------------------------------------------------------------

    async def _is_alive(self, address: Address) -> str | None:
        """The metastore's name, if it accepts a connection."""
        try:
            (await self._door(address, timeout_s=_ASK_S)).close()
        except ChannelError:
            return None
        return address.node

    async def _without_tokens(self) -> list[str]:
        """A message for each metastore that cannot recognise an invalid token."""
        every = self._members.listed
        replies = await asyncio.gather(
            *(self._reply(address, api.Authenticate(_NO_TOKEN)) for address in every)
        )
        return [
            f"{address.node} does not reach ZooKeeper"
            for address, reply in zip(every, replies, strict=True)
            if reply is None or reply.error != api.INVALID_TOKEN
        ]

    async def _serves(self, address: Address) -> bool:
        """Whether the metastore reaches the database, and so may be listed."""
        reply = await self._reply(address, api.GetCurrentEventId())
        return reply is not None and not reply.error

    async def _made(self, database: str) -> bool:
        """Create a database; returns whether it exists now."""
        address = self._members.listed[0]
        reply = await self._reply(address, api.CreateDatabase(database))
        return reply is not None and reply.error in {"", api.ALREADY_EXISTS}

    async def _ask_all(self, call: api.ApiCall) -> dict[str, Any]:
        """The answer of each metastore; `None` if it fails."""
        every = self._members.listed
        replies = await asyncio.gather(*(self._reply(address, call) for address in every))
        return {
            address.node: None if reply is None or reply.error else reply.result
            for address, reply in zip(every, replies, strict=True)
        }

    async def _reply(self, address: Address, call: api.ApiCall) -> api.Reply | None:
        try:
            connection = await self._door(address, timeout_s=_ASK_S)
        except ChannelError:
            return None
        try:
            return await connection.call(call, timeout_s=_ASK_S)
        except ChannelError:
            return None
        finally:
            connection.close()
