"""MySQL and MariaDB through aiomysql, at the endpoint that the environment gives to each client."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import UsageError
from targets.declared.protocols import (
    DeclinedError,
    MalformedError,
    NotSentError,
    Template,
    settings_of,
)
from targets.declared.protocols.dialect import Dialect
from targets.declared.protocols.sql import (
    NOT_FROM_DRIVERS,
    ROWS_MAX,
    Isolation,
    Result,
    SqlProtocol,
    SqlSession,
)

__all__ = ["MySql", "MySqlSession"]

_READ_ONLY: Final = frozenset({1047, 1290, 1792, 1836})
"""Errors of a node that accepts no writes: `read_only`, or a cluster member without a quorum."""
_ROLLED_BACK: Final = frozenset({1205, 1213, 3101})
"""Errors after a roll-back: lock timeout, deadlock, or a group that refuses the transaction."""
_DIALECT: Final = Dialect(
    key="`key`",
    key_type="varchar(191)",
    text_type="longtext",
    # With this collation, different strings are never equal.
    options=" character set utf8mb4 collate utf8mb4_bin",
    conflict="on duplicate key update value = ",
    new="values(value)",
    sum="value + values(value)",
    joined="concat(value, ',', values(value))",
    insert_once="insert ignore into {} values {}",
    is_empty="select 'true' from dual where not exists (select 1 from {})",
)


class MySqlSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `primary`: use only nodes that are not read-only. `isolation`: the isolation level of
    transactions with several statements. If it is empty, the server's default applies.
    """

    user: str = "root"
    password: str = ""
    database: str = "test"
    primary: bool = True
    isolation: Isolation = "serializable"


class MySql(SqlProtocol):
    """MySQL and MariaDB."""

    name, port, knows_leader = "mysql", 3306, True
    joins_as_follower = True  # A node joins as read-only, and a group may have several primaries.

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            import aiomysql  # noqa: F401 - only tests the import
        except ImportError as error:
            raise UsageError(
                f"client.protocol: 'mysql' needs aiomysql, which cannot be imported: {error}; "
                "install catalog-harness[systems]"
            ) from error
        self.settings = settings_of(MySqlSettings, settings)
        database = self.settings.database
        if not database or "`" in database:
            raise UsageError(f"client.database is {database!r}: write a name, such as 'test'")

    def defaults(self) -> Mapping[str, Mapping[str, Template]]:
        return _DIALECT.operations()

    def setup(self, vocabulary: str) -> Sequence[Template]:
        return _DIALECT.setup(vocabulary)

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> MySqlSession:
        import aiomysql
        from pymysql.constants import CLIENT

        host, port = env.endpoint(address)
        settings = self.settings
        try:
            connection = await aiomysql.connect(
                host=host,
                port=port,
                user=settings.user,
                password=settings.password,
                charset="utf8mb4",
                autocommit=True,
                # report the rows that an update matched, not the rows that it changed
                client_flag=CLIENT.FOUND_ROWS,
            )
        except aiomysql.Error as error:
            raise ConnectionError(str(error)) from error
        except NOT_FROM_DRIVERS:
            raise
        except Exception as error:
            raise MalformedError(f"the driver cannot read the greeting: {error!r}") from error
        session = MySqlSession(env, address, connection, settings)
        try:
            if not observes:
                await session.enter(settings.database)
            if settings.primary and not observes:
                await session.check_primary()
        except BaseException:
            await session.close()
            raise
        return session


class MySqlSession(SqlSession):
    """One connection, in autocommit mode."""

    def __init__(
        self, env: ClientEnv, address: Address, connection: Any, settings: MySqlSettings
    ) -> None:
        super().__init__(env, address)
        self._connection, self._settings = connection, settings

    @property
    def begin_statements(self) -> Sequence[str]:
        isolation = self._settings.isolation
        level = [f"set transaction isolation level {isolation}"] if isolation else []
        return [*level, "begin"]

    async def leadership(self) -> tuple[bool, int]:
        result = await self.execute("select @@global.read_only", ())
        ((read_only,),) = result.rows or ((None,),)
        if read_only not in (0, 1):
            raise MalformedError("the server does not say whether it is read-only")
        return read_only == 0, 0

    async def enter(self, database: str) -> None:
        """Use a database; create it if it does not exist."""
        try:
            await self.execute(f"use `{database}`", ())
        except MalformedError:
            await self.execute(f"create database if not exists `{database}`", ())
            await self.execute(f"use `{database}`", ())

    async def check_primary(self) -> None:
        """Raise `DeclinedError` if the node is read-only."""
        leads, _ = await self.leadership()
        if not leads:
            raise DeclinedError("the node is read-only", elsewhere=True)

    async def execute(self, text: str, parameters: Sequence[str]) -> Result:
        import aiomysql

        if self._connection.closed:
            raise NotSentError("the connection is closed")
        try:
            async with self._connection.cursor() as cursor:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", aiomysql.Warning)  # such as "table exists"
                    await cursor.execute(text, tuple(parameters))
                if cursor.description is None:
                    return Result(None, cursor.rowcount)
                rows = await cursor.fetchmany(ROWS_MAX + 1)
        except aiomysql.Error as error:
            raise _translated(error) from error
        except NOT_FROM_DRIVERS:
            raise
        except Exception as error:
            raise MalformedError(f"the driver cannot read the answer: {error!r}") from error
        if len(rows) > ROWS_MAX:
            raise MalformedError(f"more than {ROWS_MAX} rows")
        return Result(rows, cursor.rowcount)

    async def close(self) -> None:
        self._connection.close()


def _translated(error: Exception) -> Exception:
    import aiomysql

    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"{code}: {error.args[1] if len(error.args) > 1 else error}"
    wrong = (aiomysql.ProgrammingError, aiomysql.IntegrityError, aiomysql.NotSupportedError)
    if isinstance(error, (*wrong, aiomysql.DataError)) or code in _ROLLED_BACK | _READ_ONLY:
        return DeclinedError(text, elsewhere=code in _READ_ONLY)
    return ConnectionError(text) if 2000 <= code < 3000 or not code else MalformedError(text)
