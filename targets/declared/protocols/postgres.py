"""PostgreSQL, over psycopg 3 at the endpoint that the environment gives to each client."""

from __future__ import annotations

import asyncio
import contextlib
import socket  # determinism: no node runs this module
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from psycopg import AsyncConnection

__all__ = ["Postgres", "PostgresSession"]

_READ_ONLY: Final = "25006"
_NOTHING_DONE: Final = ("0A", "22", "23", "25", "28", "3", "40", "42", "P0")
"""SQLSTATE classes of errors after which a statement, or a commit, has certainly done nothing."""
_UNKNOWN: Final = "40003"
_UPSERT: Final = (
    "insert into {table} (key, value) values ({key}, {value})"
    " on conflict (key) do update set value = "
)
_ROWS: Final = "create table if not exists harness_{} (key text primary key, value {})"
_ACCOUNT: Final = "insert into harness_bank values ({}, {}) on conflict do nothing"
_TABLES: Final[Mapping[str, Sequence[str]]] = {
    "register": [_ROWS.format("register", "text")],
    "registers": [_ROWS.format("register", "text")],
    "rw-register": [_ROWS.format("register", "text")],
    "list-append": [_ROWS.format("list", "text")],
    "set": ["create table if not exists harness_set (value bigint)"],
    "counter": [_ROWS.format("counter", "bigint")],
    "bank": [
        "create table if not exists harness_bank (id bigint primary key, balance bigint)",
        *(_ACCOUNT.format(id_, balance) for id_, balance in BANK.items()),
    ],
    "lock": [
        "create table if not exists harness_lock (key text primary key, holder text)",
        "insert into harness_lock values ('lock', null) on conflict do nothing",
    ],
    "ids": ["create table if not exists harness_ids (id bigserial primary key)"],
    "inserts": [
        f"create table if not exists harness_{table} (id bigint, key bigint, value bigint)"
        for table in ("a", "b")
    ],
}


def _upsert(table: str, value: str) -> str:
    return _UPSERT.replace("{table}", f"harness_{table}") + value


class PostgresSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `primary`: use only nodes that are not in recovery. `isolation`: of transactions with several
    statements; empty for the server's own default.
    """

    user: str = "postgres"
    password: str = ""
    database: str = "postgres"
    primary: bool = True
    isolation: Isolation = "serializable"


class Postgres(SqlProtocol):
    """PostgreSQL."""

    name, port, knows_leader = "postgres", 5432, True

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            import psycopg  # noqa: F401 - only tests the import
        except ImportError as error:
            raise UsageError(
                f"client.protocol: 'postgres' needs psycopg 3, which cannot be imported: {error}; "
                "install catalog-harness[systems]"
            ) from error
        self.settings = settings_of(PostgresSettings, settings)

    def defaults(self) -> Mapping[str, Mapping[str, Template]]:
        read = "select value from harness_register where key = {key}"
        write = _upsert("register", "excluded.value")
        return {
            "register": {
                "read": Statements("value", read),
                "write": Statements("done", write),
                "cas": Statements(
                    "whether",
                    "update harness_register set value = {new} where key = {key} and value = {old}",
                ),
            },
            "rw-register": {"txn": Transaction({"r": read, "w": write})},
            "list-append": {
                "txn": Transaction(
                    {
                        "r": "select value from harness_list where key = {key}",
                        "append": _upsert("list", "harness_list.value || ',' || excluded.value"),
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
                    _upsert("counter", "harness_counter.value + excluded.value").replace(
                        "{value}", "{amount}"
                    ),
                ),
                "read": Statements("value", "select value from harness_counter where key = {key}"),
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
                    " where key = {key} and holder is null",
                ),
                "release": Statements(
                    "whether",
                    "update harness_lock set holder = null where key = {key} and holder = {client}",
                ),
            },
            "ids": {
                "generate": Statements(
                    "value", "insert into harness_ids default values returning id"
                )
            },
            "inserts": {
                "insert": Statements(
                    "whether",
                    "select count(*) = 0 from harness_a where key = {key} and value % 3 = 0",
                    "select count(*) = 0 from harness_b where key = {key} and value % 3 = 0",
                    "insert into harness_{table:name} values ({id}, {key}, 30)",
                )
            },
        }

    def setup(self, vocabulary: str) -> Sequence[Template]:
        return [Statements("ran", text) for text in _TABLES.get(vocabulary, ())]

    async def open(
        self, env: ClientEnv, address: Address, *, observes: bool = False
    ) -> PostgresSession:
        import psycopg
        from psycopg.types.string import TextLoader

        host, port = env.endpoint(address)
        settings = self.settings
        try:
            connection = await psycopg.AsyncConnection.connect(
                host=host,
                port=port,
                user=settings.user,
                password=settings.password or None,
                dbname=settings.database,
                autocommit=True,
                prepare_threshold=None,  # a prepared statement takes a request of its own
                sslmode="disable",
                gssencmode="disable",
            )
        except psycopg.Error as error:
            raise ConnectionError(str(error).strip()) from error
        for kind in ("json", "jsonb"):  # so that all texts of JSON are decoded in one place
            connection.adapters.register_loader(kind, TextLoader)
        session = PostgresSession(env, address, connection, settings)
        try:
            if settings.primary and not observes:
                await session.check_primary()
        except BaseException:
            await session.close()
            raise
        return session


class PostgresSession(SqlSession):
    """One connection, in autocommit mode."""

    def __init__(
        self,
        env: ClientEnv,
        address: Address,
        connection: AsyncConnection[Any],
        settings: PostgresSettings,
    ) -> None:
        super().__init__(env, address)
        self._connection, self._settings = connection, settings
        self._asked: asyncio.Task[Any] | None = None
        self._closed = False

    @property
    def begin_statements(self) -> Sequence[str]:
        isolation = self._settings.isolation
        return [f"begin isolation level {isolation}" if isolation else "begin"]

    async def leadership(self) -> tuple[bool, int]:
        result = await self.execute(
            "select not pg_is_in_recovery(), timeline_id from pg_control_checkpoint()", ()
        )
        ((leads, timeline),) = result.rows or ((None, None),)
        if not isinstance(leads, bool) or not isinstance(timeline, int):
            raise MalformedError("the server does not say whether it is in recovery")
        return leads, timeline

    async def check_primary(self) -> None:
        """Raise `DeclinedError` if the node is in recovery."""
        leads, _ = await self.leadership()
        if not leads:
            raise DeclinedError("the node is in recovery", elsewhere=True)

    async def execute(self, text: str, parameters: Sequence[str]) -> Result:
        import psycopg

        if self._closed or self._connection.closed:
            raise NotSentError("the connection is closed")
        try:
            return await self._answer(self._execute(text, parameters))
        except psycopg.Error as error:
            raise _translated(error) from error
        except NOT_FROM_DRIVERS:
            raise
        except Exception as error:
            raise MalformedError(f"the driver cannot read the answer: {error!r}") from error

    async def _execute(self, text: str, parameters: Sequence[str]) -> Result:
        cursor = await self._connection.execute(text.encode(), parameters)
        if text == "commit" and cursor.statusmessage != "COMMIT":
            raise DeclinedError(f"the commit answered {cursor.statusmessage}")
        if cursor.description is None:
            return Result(None, cursor.rowcount)
        rows = await cursor.fetchmany(ROWS_MAX + 1)
        if len(rows) > ROWS_MAX:
            raise MalformedError(f"more than {ROWS_MAX} rows")
        return Result(rows, cursor.rowcount)

    async def _answer(self, asking: Coroutine[Any, Any, Result]) -> Result:
        """Await the driver in a task of its own, which is not cancelled: a cancelled driver asks
        the server to stop and waits for its reply, which takes seconds if the link is cut.
        """
        self._asked = asyncio.ensure_future(asking)
        try:
            return await asyncio.shield(self._asked)
        finally:
            if not self._asked.done():
                await self.close()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._asked is None or self._asked.done():
            await self._connection.close()
            return
        # The driver's task still uses the socket, so only shut it down; `_end` closes it.
        self._asked.add_done_callback(self._end)
        with (
            contextlib.suppress(OSError),  # raised if the peer has closed the connection
            socket.fromfd(
                self._connection.pgconn.socket, socket.AF_INET, socket.SOCK_STREAM
            ) as twin,
        ):
            twin.shutdown(socket.SHUT_RDWR)

    def _end(self, asked: asyncio.Task[Any]) -> None:
        if not asked.cancelled():
            asked.exception()  # retrieve the exception, so that asyncio does not log it
        self._connection.pgconn.finish()


def _translated(error: Exception) -> Exception:
    """Return a refusal if the statement did certainly nothing, else an error of the connection."""
    import psycopg

    code, text = getattr(error, "sqlstate", None) or "", str(error).strip()
    if code.startswith(_NOTHING_DONE) and code != _UNKNOWN:
        return DeclinedError(f"{code}: {text}", elsewhere=code == _READ_ONLY)
    if code:
        return MalformedError(f"{code}: {text}")
    if isinstance(error, psycopg.DataError):  # a parameter that the driver does not send
        return DeclinedError(text)
    return ConnectionError(text or type(error).__name__)
