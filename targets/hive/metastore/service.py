"""The server side of a metastore's calls. All state except some tokens is in the database.

In the profile `strict`, a change carries a request id, and its transaction also stores the outcome
under that id. A later copy of the request gets the stored answer from any metastore.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from harness.env import Env
from targets.hive.api import (
    ALREADY_EXISTS,
    INVALID_OPERATION,
    NO_SUCH_OBJECT,
    AlterTable,
    ApiCall,
    CreateDatabase,
    CreateTable,
    DropDatabase,
    DropTable,
    GetAllDatabases,
    GetAllTables,
    GetCurrentEventId,
    GetEventsCount,
    GetNextEvents,
    GetStatus,
    GetTable,
    GetTableMeta,
    GetTableObjects,
    MetastoreError,
    MetaTable,
    Reply,
    TokenCall,
)
from targets.hive.bugs import Bug
from targets.hive.metastore.ddl import Changed, Ddl
from targets.hive.metastore.events import Events, now_ms
from targets.hive.metastore.reads import (
    has_database,
    read_databases,
    read_names,
    read_table,
    read_tables,
)
from targets.hive.metastore.transactions import Transactions
from targets.hive.metastore.warehouse import has_directory, make_directory, remove_directory
from targets.hive.sql.protocol import Isolation, Row, Session, UniqueKeyError, equal
from targets.hive.sql.schema import DATABASES, REQUESTS, TABLES
from targets.hive.tokens.manager import TokenManager

_call: Final = msgspec.msgpack.Decoder(ApiCall)
EVENTS_MAX: Final = 1000
_REFRESH_S: Final = 1.0
_WITHOUT_REQUEST_IDS: Final = frozenset({Bug.NO_REQUEST_IDS, Bug.HIVE_25144})

Change = CreateTable | AlterTable | DropTable


class _Outcome(msgspec.Struct, frozen=True):
    error: str = ""
    message: str = ""


_outcome: Final = msgspec.json.Decoder(_Outcome)


class Service:
    """Executes the calls of clients on one metastore."""

    def __init__(
        self,
        env: Env,
        transactions: Transactions,
        tokens: TokenManager,
        bugs: frozenset[Bug],
        *,
        kudu: bool = False,
    ) -> None:
        """Serve with the defects in `bugs`; with `kudu`, Kudu's plug-in checks each change."""
        self._env = env
        self._transactions = transactions
        self._tokens = tokens
        self._bugs = bugs
        self._events = Events(env, transactions, bugs)
        self._ddl = Ddl(self._events, bugs, kudu=kudu)
        self._cache = _Cache(transactions) if Bug.CACHED_STORE in bugs else None

    async def answer(self, body: msgspec.Raw) -> Reply:
        """Execute an encoded request and return the answer. The request may be malformed."""
        try:
            call = _call.decode(body)
        except msgspec.MsgspecError as error:
            return Reply(None, "TApplicationException", f"unknown method: {error}")
        try:
            return Reply(await self._do(call))
        except MetastoreError as error:
            return Reply(None, error.kind, error.message)

    async def _do(self, call: ApiCall) -> Any:
        match call:
            case CreateTable() | AlterTable() | DropTable():
                return await self._change(call)
            case GetStatus():
                return "ALIVE"
            case CreateDatabase() | DropDatabase():
                return await self._change_database(call)
            case _ if isinstance(call, TokenCall):
                return await self._tokens.do(call)
            case _ if self._cache is not None and isinstance(call, GetTable | GetTableMeta):
                return await self._read_cached(self._cache, call)
            case _:

                async def read(session: Session) -> Any:
                    return await self._read(session, call)

                return await self._transactions.run(Isolation.SERIALIZABLE, read)

    # --- reads -------------------------------------------------------------------------------

    async def _read(self, session: Session, call: ApiCall) -> Any:
        match call:
            case GetTable():
                record = _found(await read_table(session, call.database, call.name), call)
                there = await has_directory(session, record.full_name)
                return msgspec.structs.replace(record, directory=there)
            case GetTableMeta():
                return await read_names(session)
            case GetTableObjects():
                every = [await read_table(session, call.database, name) for name in call.names]
                return [table for table in every if table is not None]
            case GetAllTables():
                return [name for _, name in await read_names(session, equal(DB_NAME=call.database))]
            case GetAllDatabases():
                return await read_databases(session)
            case GetCurrentEventId():
                return await self._events.current_id(session)
            case GetNextEvents():
                most = max(0, min(call.max_events, EVENTS_MAX))
                return await self._events.after(session, call.last_event, most)
            case GetEventsCount():
                return len(await self._events.after(session, call.from_event, None))
            case _:
                raise AssertionError(f"{call!r} is not a read")

    async def _read_cached(self, cache: _Cache, call: GetTable | GetTableMeta) -> Any:
        tables = await cache.tables()
        if isinstance(call, GetTableMeta):
            return sorted(tables)
        return _found(tables.get((call.database, call.name)), call)

    # --- changes -----------------------------------------------------------------------------

    async def _change(self, call: Change) -> None:
        if Bug.HIVE_26016 in self._bugs and isinstance(call, CreateTable):

            async def look(session: Session) -> None:
                await self._ddl.check_free(session, call.table)

            await self._transactions.run(Isolation.SERIALIZABLE, look)
        apart = Bug.HIVE_21640 in self._bugs
        try:
            if apart and not isinstance(call, AlterTable):
                await self._change_and_directory(call)
            else:
                await self._change_once(call)
        except MetastoreError as error:
            lost = Bug.HIVE_15424 in self._bugs and error.kind == ALREADY_EXISTS
            if lost and isinstance(call, CreateTable):
                await self._roll_back(call)
            raise
        finally:
            if self._cache is not None:
                self._cache.forget()

    async def _change_and_directory(self, call: CreateTable | DropTable) -> None:
        """Run a change, and make or remove the directory in another transaction (HIVE-21640)."""
        is_create = isinstance(call, CreateTable)
        if isinstance(call, CreateTable):
            path = call.table.full_name
        else:
            path = f"{call.database}.{call.name}"

        async def make(session: Session) -> bool:
            return await make_directory(session, path)

        async def remove(session: Session) -> None:
            await remove_directory(session, path)

        made = is_create and await self._transactions.run(Isolation.SERIALIZABLE, make)
        try:
            await self._change_once(call)
        except MetastoreError:
            if made:
                await self._transactions.run(Isolation.SERIALIZABLE, remove)
            raise
        if not is_create:
            await self._transactions.run(Isolation.SERIALIZABLE, remove)

    async def _roll_back(self, call: CreateTable) -> None:
        async def undo(session: Session) -> None:
            await self._ddl.undo_create(session, call.table)

        await self._transactions.run(Isolation.SERIALIZABLE, undo)

    async def _change_once(self, call: Change) -> None:
        """Run a change. If a copy of its request was executed before, repeat that outcome."""
        isolation = self._ddl.isolation(call)
        if not call.request_id or _WITHOUT_REQUEST_IDS & self._bugs:

            async def run(session: Session) -> Changed | None:
                return await self._ddl.run(session, call)

            await self._tell(await self._transactions.run(isolation, run))
            return

        async def run_once(session: Session) -> tuple[_Outcome, Changed | None]:
            changed = None
            earlier = await session.select(REQUESTS, equal(REQUEST_ID=call.request_id))
            if earlier:
                return _outcome.decode(str(earlier[0]["OUTCOME"])), None
            outcome = _Outcome()
            try:
                changed = await self._ddl.run(session, call)
            except MetastoreError as error:
                if isinstance(error.__cause__, UniqueKeyError):
                    raise  # the transaction has failed, so it cannot store its outcome
                outcome = _Outcome(error.kind, error.message)
            row: Row = {
                "REQUEST_ID": call.request_id,
                "MADE_AT": now_ms(self._env),
                "OUTCOME": msgspec.json.encode(outcome).decode(),
            }
            await session.insert(REQUESTS, row)
            return outcome, changed

        outcome, changed = await self._transactions.run(isolation, run_once)
        await self._tell(changed)
        if outcome.error:
            raise MetastoreError(outcome.error, outcome.message)

    async def _tell(self, changed: Changed | None) -> None:
        if changed is None:
            return

        async def add(session: Session) -> None:
            await self._events.add(session, *changed)

        await self._transactions.run(Isolation.READ_COMMITTED, add)

    async def _change_database(self, call: CreateDatabase | DropDatabase) -> None:
        async def run(session: Session) -> None:
            there = await has_database(session, call.name)
            if isinstance(call, CreateDatabase):
                if there:
                    raise MetastoreError(ALREADY_EXISTS, f"Database {call.name} already exists")
                await session.insert(DATABASES, {"NAME": call.name})
                return
            if not there:
                raise MetastoreError(NO_SUCH_OBJECT, f"no such database {call.name}")
            if await session.select(TABLES, equal(DB_NAME=call.name), limit=1):
                message = f"Database {call.name} is not empty. One or more tables exist."
                raise MetastoreError(INVALID_OPERATION, message)
            await session.delete(DATABASES, equal(NAME=call.name))

        await self._transactions.run(Isolation.SERIALIZABLE, run)


class _Cache:
    """One metastore's copy of all tables, reloaded periodically (defect CACHED-STORE).

    Hive's CachedStore updates itself from the log of events, by default every minute. A change
    through this metastore is visible in its own copy at once.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._tables: dict[tuple[str, str], MetaTable] | None = None
        self._read_s = 0.0

    async def tables(self) -> dict[tuple[str, str], MetaTable]:
        """Return each table by `(database, name)`; the copy is at most `_REFRESH_S` old."""
        now_s = asyncio.get_running_loop().time()
        if self._tables is None or now_s - self._read_s > _REFRESH_S:
            tables = await self._transactions.run(Isolation.SERIALIZABLE, read_tables)
            self._tables = {(table.database, table.name): table for table in tables}
            self._read_s = now_s
        return self._tables

    def forget(self) -> None:
        self._tables = None


def _found(table: MetaTable | None, call: GetTable) -> MetaTable:
    if table is None:
        raise MetastoreError(NO_SUCH_OBJECT, f"{call.database}.{call.name} table not found")
    return table
