"""PostgreSQL through psycopg 3, at the endpoint that the environment gives to each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from targets.declared.protocols.dialect import Dialect
from targets.declared.protocols.sql import (
    NOT_FROM_DRIVERS,
    ROWS_MAX,
    Isolation,
    Result,
    SqlProtocol,
    SqlSession,
    Statements,
)
from targets.driver_link import DriverLink

if TYPE_CHECKING:
    from psycopg import AsyncConnection

__all__ = ["Postgres", "PostgresSession"]

_READ_ONLY: Final = "25006"
_NOTHING_DONE: Final = ("0A", "22", "23", "25", "28", "3", "40", "42", "P0")
"""SQLSTATE classes of errors after which a statement, or a commit, has certainly done nothing."""
_UNKNOWN: Final = "40003"
_SERVER: Final = (
    "select extract(epoch from pg_postmaster_start_time()), system_identifier"
    " from pg_control_system()"
)
_DIALECT: Final = Dialect(
    key="key",
    key_type="text",
    text_type="text",
    options="",
    conflict="on conflict (key) do update set value = ",
    new="excluded.value",
    sum="TABLE.value + excluded.value",
    joined="TABLE.value || ',' || excluded.value",
    insert_once="insert into {} values {} on conflict do nothing",
    is_empty="select count(*) = 0 from {}",
)
_IDS: Final = Statements("ran", "create table if not exists harness_ids (id bigserial primary key)")
_NEXT_ID: Final = Statements("value", "insert into harness_ids default values returning id")


class PostgresSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a file.

    `primary`: use only nodes that are not in recovery. `isolation`: the isolation level of
    transactions with several statements. If it is empty, the server's default applies.
    """

    user: str = "postgres"
    password: str = ""
    database: str = "postgres"
    primary: bool = True
    isolation: Isolation = "serializable"


class Postgres(SqlProtocol):
    """PostgreSQL."""

    name, port, knows_leader = "postgres", 5432, True
    in_simulation = False

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
        return {**_DIALECT.operations(), "ids": {"generate": _NEXT_ID}}

    def setup(self, vocabulary: str) -> Sequence[Template]:
        return [_IDS] if vocabulary == "ids" else _DIALECT.setup(vocabulary)

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
                prepare_threshold=None,  # preparing takes an extra request
                sslmode="disable",
                gssencmode="disable",
            )
        except psycopg.Error as error:
            raise ConnectionError(str(error).strip()) from error
        for kind in ("json", "jsonb"):  # decode JSON only in `decoded`
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
        self._link = DriverLink(connection)

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

    async def server(self) -> str:
        result = await self.execute(_SERVER, ())
        return str(result.rows)

    async def check_primary(self) -> None:
        """Raise `DeclinedError` if the node is in recovery."""
        leads, _ = await self.leadership()
        if not leads:
            raise DeclinedError("the node is in recovery", elsewhere=True)

    async def execute(self, text: str, parameters: Sequence[str]) -> Result:
        import psycopg

        if self._link.closed:
            raise NotSentError("the connection is closed")
        try:
            return await self._link.answer(self._execute(text, parameters))
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

    async def close(self) -> None:
        self._link.close()


def _translated(error: Exception) -> Exception:
    import psycopg

    code, text = getattr(error, "sqlstate", None) or "", str(error).strip()
    if code.startswith(_NOTHING_DONE) and code != _UNKNOWN:
        return DeclinedError(f"{code}: {text}", elsewhere=code == _READ_ONLY)
    if code:
        return MalformedError(f"{code}: {text}")
    if isinstance(error, psycopg.DataError):  # the driver refused to send a parameter
        return DeclinedError(text)
    return ConnectionError(text or type(error).__name__)
