"""Sessions with a PostgreSQL server over psycopg 3, which implement `targets.hive.sql.protocol`.

The driver runs inside the metastores and speaks PostgreSQL's own protocol to the node `db`, so a
link fault affects driver and server as in production. The driver needs the address on which the
node listens (`Env.endpoint`). A simulation has no such address, and never imports this module.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, LiteralString

from harness.env import Address, Env
from harness.errors import UsageError
from targets.driver_link import DriverLink
from targets.hive.sql.protocol import (
    ConnectionLostError,
    Isolation,
    RefusedStatementError,
    Row,
    SqlError,
    Where,
    error_of,
)
from targets.hive.sql.schema import SCHEMA

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor
    from psycopg.sql import Composed

USER: Final = "hive"
DATABASE: Final = "postgres"
_NO_SENSE: Final = ("22", "23502", "25", "42")
"""SQLSTATE prefixes of errors for statements that are invalid or not allowed now."""
_BEGIN: Final[dict[Isolation, LiteralString]] = {
    Isolation.READ_COMMITTED: "begin isolation level read committed",
    Isolation.SERIALIZABLE: "begin isolation level serializable",
}


def require_driver() -> None:
    """Raise `UsageError` if psycopg is not installed, or finds no libpq."""
    try:
        import psycopg  # noqa: F401 - only tests the import
    except ImportError as error:
        raise UsageError(
            f"PostgreSQL as the database needs psycopg 3, which cannot be imported: {error}; "
            "install catalog-harness[hive], or use --database store"
        ) from error


class _Status(enum.IntEnum):
    """The status of a connection's transaction in libpq (`PGTransactionStatusType`)."""

    IDLE = 0
    ACTIVE = 1
    OPEN = 2
    FAILED = 3


class PostgresDatabase:
    """A `Database` on a PostgreSQL server; the metastores and the harness connect to it."""

    def __init__(
        self, env: Env, address: Address, *, connect_s: float = 2.0, answer_s: float = 5.0
    ) -> None:
        """A session that gets no answer within `answer_s` is lost."""
        self._env = env
        self._address = address
        self._connect_s = connect_s
        self._answer_s = answer_s

    async def connect(self) -> PostgresSession:
        import psycopg

        host, port = self._env.endpoint(self._env.net.resolve(self._address))
        try:
            async with asyncio.timeout(self._connect_s):
                connection = await psycopg.AsyncConnection.connect(
                    host=host,
                    port=port,
                    user=USER,
                    dbname=DATABASE,
                    autocommit=True,
                    sslmode="disable",  # saves a round trip
                    gssencmode="disable",
                )
        except TimeoutError as error:
            message = f"connect to {self._address} timed out after {self._connect_s:g} s"
            raise ConnectionLostError(message) from error
        except (psycopg.Error, OSError) as error:
            message = f"connect to {self._address} failed: {error}"
            raise ConnectionLostError(message) from error
        return PostgresSession(connection, self._answer_s)


class PostgresSession:
    """A `Session` over psycopg, in autocommit mode: `begin` and `commit` send SQL statements."""

    def __init__(self, connection: AsyncConnection[Any], answer_s: float) -> None:
        self._connection, self._link = connection, DriverLink(connection)
        self._answer_s = answer_s

    # --- statements --------------------------------------------------------------------------

    async def begin(self, isolation: Isolation) -> None:
        if self._status is not _Status.IDLE:
            raise RefusedStatementError("there is already a transaction in progress")
        await self._execute(_BEGIN[isolation])

    async def select(
        self,
        table: str,
        where: Where = (),
        *,
        order: str = "",
        limit: int | None = None,
        for_update: bool = False,
    ) -> Sequence[Row]:
        from psycopg.sql import SQL, Identifier

        query = SQL("select * from {}").format(Identifier(table)) + _matching(where)
        parameters = [condition.value for condition in where]
        if order:
            query += SQL(" order by {}").format(Identifier(order))
        if limit is not None:
            query += SQL(" limit %s")
            parameters.append(limit)
        if for_update:
            query += SQL(" for update")
        cursor = await self._run(query, parameters)
        columns = [column.name for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in await cursor.fetchall()]

    async def insert(self, table: str, row: Row) -> int | None:
        from psycopg.sql import SQL, Identifier

        query = SQL("insert into {} ({}) values ({})").format(
            Identifier(table),
            SQL(", ").join(map(Identifier, row)),
            SQL(", ").join([SQL("%s")] * len(row)),
        )
        serial = SCHEMA[table].serial if table in SCHEMA else ""
        if serial:
            query += SQL(" returning {}").format(Identifier(serial))
        cursor = await self._run(query, [*row.values()])
        inserted = await cursor.fetchone() if serial else None
        return None if inserted is None else int(inserted[0])

    async def update(self, table: str, values: Row, where: Where) -> int:
        from psycopg.sql import SQL, Identifier

        query = SQL("update {} set {}").format(
            Identifier(table),
            SQL(", ").join(SQL("{} = %s").format(Identifier(column)) for column in values),
        )
        parameters = [*values.values(), *(condition.value for condition in where)]
        cursor = await self._run(query + _matching(where), parameters)
        return int(cursor.rowcount)

    async def delete(self, table: str, where: Where) -> int:
        from psycopg.sql import SQL, Identifier

        query = SQL("delete from {}").format(Identifier(table)) + _matching(where)
        cursor = await self._run(query, [condition.value for condition in where])
        return int(cursor.rowcount)

    async def commit(self) -> None:
        if self._status is _Status.FAILED:
            # PostgreSQL would answer this commit with a rollback instead of an error.
            raise RefusedStatementError("current transaction is aborted")
        await self._run("commit", ())

    async def rollback(self) -> None:
        await self._execute("rollback")

    def close(self) -> None:
        self._link.close()

    # --- the driver --------------------------------------------------------------------------

    @property
    def _status(self) -> _Status:
        if self._link.closed:
            raise ConnectionLostError("the connection is closed")
        return _Status(self._connection.info.transaction_status)

    async def _run(
        self, query: LiteralString | Composed, parameters: Sequence[object]
    ) -> AsyncCursor[Any]:
        if self._status is _Status.IDLE:
            raise RefusedStatementError("there is no transaction in progress")
        return await self._execute(query, parameters)

    async def _execute(
        self, query: LiteralString | Composed, parameters: Sequence[object] = ()
    ) -> AsyncCursor[Any]:
        import psycopg

        assert self._status is not _Status.ACTIVE, "a session has one statement at a time"
        try:
            asking = self._connection.execute(query, parameters)
            return await self._link.answer(asking, timeout_s=self._answer_s)
        except TimeoutError as error:
            raise ConnectionLostError(f"no answer within {self._answer_s:g} s") from error
        except psycopg.Error as error:
            if self._connection.closed:
                raise ConnectionLostError(f"the connection broke: {error}") from error
            raise _translated(error) from error


def _matching(where: Where) -> Composed:
    from psycopg.sql import SQL, Composed, Identifier

    operators = {"=": SQL("{} = %s"), ">": SQL("{} > %s"), "<": SQL("{} < %s")}
    conditions = [operators[each.operator].format(Identifier(each.column)) for each in where]
    if not conditions:
        return Composed([])
    return SQL(" where ") + SQL(" and ").join(conditions)


def _translated(error: Exception) -> SqlError:
    code = getattr(error, "sqlstate", None) or RefusedStatementError.code
    mapped = RefusedStatementError.code if code.startswith(_NO_SENSE) else code
    return error_of(mapped, f"{code}: {str(error).strip()}")
