"""Sessions with the bundled database over the network, and `database_at`, which opens any kind."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harness.env import Address, Env
from targets.hive.channel import Channel, ChannelError
from targets.hive.sql.protocol import (
    Begin,
    Commit,
    ConnectionLostError,
    Database,
    Delete,
    Insert,
    Isolation,
    Rollback,
    Row,
    Select,
    Statement,
    Update,
    Where,
    error_of,
)


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The reply to a statement: its answer, or its error as SQLSTATE and text."""

    answer: Any = None
    code: str = ""
    message: str = ""


_reply: Final = msgspec.msgpack.Decoder(Reply)


class StoreDatabase:
    """A `Database` on the bundled store; the metastores and the harness connect to it."""

    def __init__(
        self, env: Env, address: Address, *, connect_s: float = 2.0, answer_s: float = 5.0
    ) -> None:
        """A session that gets no answer within `answer_s` is lost."""
        self._env = env
        self._address = address
        self._connect_s = connect_s
        self._answer_s = answer_s

    async def connect(self) -> StoreSession:
        try:
            channel = await Channel.open(self._env, self._address, timeout_s=self._connect_s)
        except ChannelError as error:
            raise ConnectionLostError(str(error)) from error
        return StoreSession(channel, self._answer_s)


class StoreSession:
    """A `Session` over one connection to the node `db`."""

    def __init__(self, channel: Channel, answer_s: float) -> None:
        self._channel = channel
        self._answer_s = answer_s

    async def _do(self, statement: Statement) -> Any:
        if self._channel.broken:
            raise ConnectionLostError("the connection is closed")
        try:
            raw = await self._channel.call(statement, timeout_s=self._answer_s)
        except ChannelError as error:
            raise ConnectionLostError(str(error)) from error
        reply = _reply.decode(raw)
        if reply.code:
            raise error_of(reply.code, reply.message)
        return reply.answer

    async def begin(self, isolation: Isolation) -> None:
        await self._do(Begin(isolation))

    async def select(
        self,
        table: str,
        where: Where = (),
        *,
        order: str = "",
        limit: int | None = None,
        for_update: bool = False,
    ) -> Sequence[Row]:
        rows: list[Row] = await self._do(Select(table, where, order, limit, for_update))
        return rows

    async def insert(self, table: str, row: Row) -> int | None:
        serial: int | None = await self._do(Insert(table, row))
        return serial

    async def update(self, table: str, values: Row, where: Where) -> int:
        return int(await self._do(Update(table, values, where)))

    async def delete(self, table: str, where: Where) -> int:
        return int(await self._do(Delete(table, where)))

    async def commit(self) -> None:
        await self._do(Commit())

    async def rollback(self) -> None:
        await self._do(Rollback())

    def close(self) -> None:
        self._channel.close()


class DatabaseKind(enum.StrEnum):
    """The database programs that the node `db` can run."""

    STORE = "store"
    POSTGRES = "postgres"


def database_at(env: Env, address: Address, kind: DatabaseKind, **bounds: float) -> Database:
    """Return the database at an address. `bounds` are the timeouts `connect_s` and `answer_s`."""
    if kind is DatabaseKind.STORE:
        return StoreDatabase(env, address, **bounds)
    from targets.hive.sql.postgres import PostgresDatabase  # never imported in a simulation

    return PostgresDatabase(env, address, **bounds)
