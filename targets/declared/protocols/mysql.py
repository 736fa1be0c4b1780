"""MySQL and MariaDB, over aiomysql at the endpoint that the environment gives to each client."""

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
from targets.declared.protocols.sql import (
    NOT_FROM_DRIVERS,
    ROWS_MAX,
    Isolation,
    Result,
    SqlProtocol,
    SqlSession,
    Statements,
    Transaction,
)
from targets.declared.protocols.updates import BANK

__all__ = ["MySql", "MySqlSession"]

_READ_ONLY: Final = frozenset({1047, 1290, 1792, 1836})
"""A node that takes no writes: `read_only`, or a member of a cluster without a quorum."""
_ROLLED_BACK: Final = frozenset({1205, 1213, 3101})
"""A lock that was not granted in time, a deadlock, a group that refused the transaction."""
_UPSERT: Final = (
    "insert into {table} (`key`, value) values ({key}, {value}) on duplicate key update value = "
)
_ROWS: Final = (
    "create table if not exists harness_{} (`key` varchar(191) primary key, value {})"
    " character set utf8mb4 collate utf8mb4_bin"  # texts that differ are not equal
)
_ACCOUNT: Final = "insert ignore into harness_bank values ({}, {})"
_TABLES: Final[Mapping[str, Sequence[str]]] = {
    "register": [_ROWS.format("register", "longtext")],
    "registers": [_ROWS.format("register", "longtext")],
    "rw-register": [_ROWS.format("register", "longtext")],
    "list-append": [_ROWS.format("list", "longtext")],
    "set": ["create table if not exists harness_set (value bigint)"],
    "counter": [_ROWS.format("counter", "bigint")],
    "bank": [
        "create table if not exists harness_bank (id bigint primary key, balance bigint)",
        *(_ACCOUNT.format(id_, balance) for id_, balance in BANK.items()),
    ],
    "lock": [
        _ROWS.format("lock", "text").replace("value", "holder"),
        "insert ignore into harness_lock values ('lock', null)",
    ],
    "inserts": [
        f"create table if not exists harness_{table} (id bigint, `key` bigint, value bigint)"
        for table in ("a", "b")
    ],
}


def _upsert(table: str, value: str) -> str:
    return _UPSERT.replace("{table}", f"harness_{table}") + value


class MySqlSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `primary`: use only nodes that are not read-only. `isolation`: of transactions with several
    statements; empty for the server's own default.
    """

    user: str = "root"
    password: str = ""
    database: str = "test"
    primary: bool = True
    isolation: Isolation = "serializable"


class MySql(SqlProtocol):
    """MySQL and MariaDB."""

    name, port, knows_leader = "mysql", 3306, True

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
        read = "select value from harness_register where `key` = {key}"
        write = _upsert("register", "values(value)")
        return {
            "register": {
                "read": Statements("value", read),
                "write": Statements("done", write),
                "cas": Statements(
                    "whether",
                    "update harness_register set value = {new}"
                    " where `key` = {key} and value = {old}",
                ),
            },
            "rw-register": {"txn": Transaction({"r": read, "w": write})},
            "list-append": {
                "txn": Transaction(
                    {
                        "r": "select value from harness_list where `key` = {key}",
                        "append": _upsert("list", "concat(value, ',', values(value))"),
                    },
                    joined=True,
                )
            },
            "set": {
                "add": Statements("done", "insert into harness_set values ({value})"),
                "read": Statements("list", "select value from harness_set"),
            },
            "counter": {
                "add": Statements(
                    "done",
                    _upsert("counter", "value + values(value)").replace("{value}", "{amount}"),
                ),
                "read": Statements(
                    "value", "select value from harness_counter where `key` = {key}"
                ),
            },
            "bank": {
                "transfer": Statements(
                    "whether",
                    "update harness_bank set balance = balance - {amount}"
                    " where id = {from} and balance >= {amount}",
                    "update harness_bank set balance = balance + {amount} where id = {to}",
                ),
                "read": Statements("pairs", "select id, balance from harness_bank"),
            },
            "lock": {
                "acquire": Statements(
                    "whether",
                    "update harness_lock set holder = {client}"
                    " where `key` = {key} and holder is null",
                ),
                "release": Statements(
                    "whether",
                    "update harness_lock set holder = null"
                    " where `key` = {key} and holder = {client}",
                ),
            },
            "inserts": {
                "insert": Statements(
                    "whether",
                    "select 'true' from dual where not exists (select 1 from harness_a"
                    " where `key` = {key} and value % 3 = 0)",
                    "select 'true' from dual where not exists (select 1 from harness_b"
                    " where `key` = {key} and value % 3 = 0)",
                    "insert into harness_{table:name} values ({id}, {key}, 30)",
                )
            },
        }

    def setup(self, vocabulary: str) -> Sequence[Template]:
        return [Statements("ran", text) for text in _TABLES.get(vocabulary, ())]

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
                client_flag=CLIENT.FOUND_ROWS,  # an update counts the rows that match
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
        """Use a database; create it if there is none."""
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
                    warnings.simplefilter("ignore", aiomysql.Warning)  # "table exists", ...
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
    """Return a refusal if the statement did certainly nothing, else an error of the connection."""
    import aiomysql

    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"{code}: {error.args[1] if len(error.args) > 1 else error}"
    wrong = (aiomysql.ProgrammingError, aiomysql.IntegrityError, aiomysql.NotSupportedError)
    if isinstance(error, (*wrong, aiomysql.DataError)) or code in _ROLLED_BACK | _READ_ONLY:
        return DeclinedError(text, elsewhere=code in _READ_ONLY)
    return ConnectionError(text) if 2000 <= code < 3000 or not code else MalformedError(text)
