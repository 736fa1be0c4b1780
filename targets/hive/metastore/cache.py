"""Switch CACHED-STORE: all tables in the memory of one metastore, reloaded periodically.

Hive's CachedStore updates itself from the log of events, every minute by default. A change made
through this metastore is visible here at once.
"""

from __future__ import annotations

import asyncio

from harness.env import Env
from targets.hive.api import MetaTable
from targets.hive.metastore.reads import read_tables
from targets.hive.metastore.transactions import Transactions
from targets.hive.sql.protocol import Isolation

REFRESH_S = 1.0


class Cache:
    """All tables by database and name, as they were at the last load."""

    def __init__(self, env: Env, transactions: Transactions) -> None:
        """Start empty; the first use loads the tables."""
        self._env = env
        self._transactions = transactions
        self._tables: dict[tuple[str, str], MetaTable] | None = None
        self._read_s = 0.0

    async def tables(self) -> dict[tuple[str, str], MetaTable]:
        """All tables, at most `REFRESH_S` old."""
        now_s = asyncio.get_running_loop().time()
        if self._tables is None or now_s - self._read_s > REFRESH_S:
            tables = await self._transactions.run(Isolation.SERIALIZABLE, read_tables)
            self._tables = {(table.database, table.name): table for table in tables}
            self._read_s = now_s
        return self._tables

    def forget(self) -> None:
        """Drop the cached tables after a change through this metastore."""
        self._tables = None
