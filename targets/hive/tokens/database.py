"""Hive's `DBTokenStore`: tokens and keys in two tables of the metastores' shared database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from harness.env import Env
from targets.hive.api import MetastoreError
from targets.hive.metastore.transactions import Transactions
from targets.hive.sql.protocol import Isolation, Row, Session, UniqueKeyError, equal
from targets.hive.sql.schema import MASTER_KEYS, TOKENS
from targets.hive.tokens.store import MasterKey, StoredToken, decode_key, decode_token, encode

R = TypeVar("R")


class DatabaseTokens:
    """A `TokenStore` in the database. Each call is a transaction with a single statement."""

    def __init__(self, env: Env, transactions: Transactions) -> None:
        self._env = env
        self._transactions = transactions

    async def _run(self, body: Callable[[Session], Awaitable[R]]) -> R:
        return await self._transactions.run(Isolation.READ_COMMITTED, body)

    async def _write(self, body: Callable[[Session], Awaitable[R]]) -> R:
        async def run(session: Session) -> R:
            result = await body(session)
            self._env.event("change-written", of="tokens")
            return result

        return await self._run(run)

    async def add_key(self, key: MasterKey) -> int:
        row: Row = {"MASTER_KEY": encode(key).decode()}
        number = await self._write(lambda session: session.insert(MASTER_KEYS, row))
        assert number is not None, "keys have a serial column"
        return number

    async def remove_key(self, number: int) -> None:
        await self._write(lambda session: session.delete(MASTER_KEYS, equal(KEY_ID=number)))

    async def keys(self) -> Mapping[int, MasterKey]:
        rows = await self._run(lambda session: session.select(MASTER_KEYS, order="KEY_ID"))
        return {_number(row): decode_key(str(row["MASTER_KEY"])) for row in rows}

    async def add(self, ident: str, token: StoredToken) -> None:
        row: Row = {"TOKEN_IDENT": ident, "TOKEN": encode(token).decode()}
        try:
            await self._write(lambda session: session.insert(TOKENS, row))
        except MetastoreError as error:
            if not isinstance(error.__cause__, UniqueKeyError):
                raise

    async def get(self, ident: str) -> StoredToken | None:
        where = equal(TOKEN_IDENT=ident)
        rows = await self._run(lambda session: session.select(TOKENS, where))
        return decode_token(str(rows[0]["TOKEN"])) if rows else None

    async def replace(self, ident: str, token: StoredToken) -> bool:
        row: Row = {"TOKEN": encode(token).decode()}
        where = equal(TOKEN_IDENT=ident)
        return await self._write(lambda session: session.update(TOKENS, row, where)) > 0

    async def remove(self, ident: str, only: StoredToken | None = None) -> bool:
        where = equal(TOKEN_IDENT=ident)
        if only is not None:
            where += equal(TOKEN=encode(only).decode())
        return await self._write(lambda session: session.delete(TOKENS, where)) > 0

    async def all(self) -> Mapping[str, StoredToken]:
        rows = await self._run(lambda session: session.select(TOKENS))
        return {str(row["TOKEN_IDENT"]): decode_token(str(row["TOKEN"])) for row in rows}


def _number(row: Row) -> int:
    number = row["KEY_ID"]
    assert isinstance(number, int), "numbers of keys are numbers"
    return number
