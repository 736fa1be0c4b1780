"""The deployed real metastores, as the harness observes them during a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from harness.env import Address, ClientEnv
from harness.plugins import Convergence, override
from targets.apache_hive.connection import ThriftDoor, make_databases
from targets.apache_hive.database import read_rows
from targets.apache_hive.kdc import KDC_NODE
from targets.apache_hive.tokens import Token
from targets.hive import api
from targets.hive.bugs import Bug
from targets.hive.channel import ChannelError
from targets.hive.client.connection import Connect
from targets.hive.system import Layout, MetastoreSystem
from targets.hive.zookeeper.ensemble import SILENCE_S

_START_S: Final = 50.0
"""The time limit, in seconds, for an added metastore to serve, because Java starts slowly."""


class ApacheHiveSystem(MetastoreSystem):
    """The deployed real metastores, which do not use request ids.

    An operation has time to try only two metastores, so at most one of them may be down.
    """

    ask_s = 5.0
    outside_max = 1
    bugs = frozenset({Bug.NO_REQUEST_IDS})
    no_token = Token(b"\0" + b"\6nobody" * 2 + bytes(5), b"none").text

    def __init__(self, env: ClientEnv, layout: Layout, *, kdc: bool = False) -> None:
        door: Connect = ThriftDoor(env)
        if kdc:
            from targets.apache_hive.sasl import KerberosDoor

            door = KerberosDoor(env)
        groups = {KDC_NODE: (KDC_NODE,)} if kdc else {}
        super().__init__(env, layout, door, more_groups=groups, start_s=_START_S)
        self._has_databases = False

    async def ready(self) -> Convergence:
        """Create the workload's databases if they are missing, then check as `converged` does."""
        if not self._has_databases:
            first, names = self._members.listed[0], self._layout.databases
            made = await make_databases(self._connect, first, names, timeout_s=self.ask_s)
            self._has_databases = made
        return await self.converged()

    async def converged(self) -> Convergence:
        """Check that all metastores and the database answer, and that all databases exist."""
        answers = await self._ask_all(api.GetTableMeta())
        pending = [f"{name} does not answer" for name, a in answers.items() if a is None]
        rows = await self._dump()
        if rows is None:
            pending.append("the database does not answer")
        if not self._has_databases:
            pending.append("the databases do not exist yet")
        if self._layout.zookeepers and not pending:
            pending += await self._without_tokens()
        at = None if pending or rows is None else {"event": rows["next_event"] - 1}
        return Convergence(ok=not pending, pending=tuple(pending), at=at)

    @override
    async def snapshot(self) -> dict[str, Any]:
        snapshot = await super().snapshot()
        if self._layout.zookeepers:
            snapshot["tokens"]["stale_ms"] = SILENCE_S * 1000
        return snapshot

    @override
    async def _dump(self) -> dict[str, Any] | None:
        return await read_rows(self._env, timeout_s=self.ask_s)

    @override
    async def _database_answers(self) -> bool:
        return await self._dump() is not None

    @override
    async def _alive(self) -> Sequence[str]:
        alive = await asyncio.gather(*map(self._is_alive, self._members.listed))
        return [node for node in alive if node is not None]

    async def _is_alive(self, address: Address) -> str | None:
        try:
            (await self._connect(address, timeout_s=self.ask_s)).close()
        except ChannelError:
            return None
        return address.node
