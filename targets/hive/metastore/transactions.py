"""Transactions over pooled database sessions, retried after conflicts.

Sessions are pooled, as in Hive's HikariCP. If a session is dead, and its transaction has done
nothing yet, another session replaces it. If the database is unreachable, the caller gets a
MetaException whose text has the word JDO, which makes clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from harness.env import Env
from targets.hive.api import META, MetastoreError
from targets.hive.sql.protocol import (
    ConnectionLostError,
    Database,
    DeadlockError,
    Isolation,
    SerializationError,
    Session,
    SqlError,
)

R = TypeVar("R")
IDLE_MAX: Final = 10  # HikariCP's pool size
ATTEMPTS_MAX: Final = 50
"""Maximum number of tries of a transaction before it fails with a MetaException."""
BACKOFF_S_MAX: Final = 0.02


class Transactions:
    """A metastore's access to the database; `run` runs all its transactions."""

    def __init__(self, env: Env, database: Database) -> None:
        self._env = env
        self._database = database
        self._idle: list[Session] = []
        self.retried = 0

    async def run(self, isolation: Isolation, body: Callable[[Session], Awaitable[R]]) -> R:
        """Run `body` in a transaction, commit it, and return the result of `body`.

        Any exception rolls the transaction back. After a deadlock or a serialization failure,
        `body` runs again in a new transaction. Raises `MetastoreError`.
        """
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                self.retried += 1
                await asyncio.sleep(self._env.random.random() * BACKOFF_S_MAX)
            try:
                return await self._once(isolation, body)
            except (SerializationError, DeadlockError) as error:
                last: SqlError = error
            except SqlError as error:
                raise MetastoreError(META, f"JDODataStoreException: {error}") from error
        message = f"JDODataStoreException: gave up after {ATTEMPTS_MAX} attempts: {last}"
        raise MetastoreError(META, message)

    async def _once(self, isolation: Isolation, body: Callable[[Session], Awaitable[R]]) -> R:
        session = await self._begin(isolation)
        is_clean = False
        try:
            try:
                result = await body(session)
                await session.commit()
            except (SqlError, MetastoreError):
                await session.rollback()
                is_clean = True
                raise
            is_clean = True
        except ConnectionLostError:
            is_clean = False
            raise
        finally:
            if is_clean and len(self._idle) < IDLE_MAX:
                self._idle.append(session)
            else:
                session.close()
        return result

    async def _begin(self, isolation: Isolation) -> Session:
        while self._idle:
            session = self._idle.pop()
            try:
                await session.begin(isolation)
            except ConnectionLostError:
                session.close()
            else:
                return session
        session = await self._database.connect()
        await session.begin(isolation)
        return session

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
