"""Transactions over the store: snapshots, locks on rows and keys, and serial commits.

The level "read committed" works as `protocol` describes. The level "serializable" is optimistic:
all reads of a transaction see the snapshot of its first statement. The commit fails if one of the
reads would now return another result (backward validation; Kung and Robinson 1981), so the serial
order is the order of commits. Some transactions that fail here would succeed in PostgreSQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import NoReturn

from targets.hive.sql.locks import Locks
from targets.hive.sql.protocol import (
    Begin,
    Commit,
    Delete,
    Insert,
    Isolation,
    RefusedStatementError,
    Rollback,
    Row,
    Select,
    SerializationError,
    SqlError,
    Statement,
    UniqueKeyError,
    Update,
    Where,
)
from targets.hive.sql.schema import SCHEMA
from targets.hive.sql.store import Change, Place, Store, keys_of, matches

Answer = list[Row] | int | None
READS_MAX = 10_000


class _Transaction:
    def __init__(self, number: int, isolation: Isolation) -> None:
        self.number = number
        self.serializable = isolation is Isolation.SERIALIZABLE
        self.moment: int | None = None  # a serializable transaction's snapshot, once taken
        self.writes: dict[Place, Change] = {}
        self.reads: list[tuple[str, Where]] = []
        self.failed = False


def _check_names(statement: Select | Insert | Update | Delete) -> None:
    table = SCHEMA.get(statement.table)
    if table is None:
        raise RefusedStatementError(f"relation {statement.table!r} does not exist")
    named: list[str] = []
    if isinstance(statement, Insert):
        named += statement.row
    else:
        named += [condition.column for condition in statement.where]
    if isinstance(statement, Update):
        named += statement.values
    if isinstance(statement, Select) and statement.order:
        named.append(statement.order)
    for column in named:
        if column not in table.columns:
            raise RefusedStatementError(f"column {column!r} of {statement.table} does not exist")


class SessionState:
    """The state of a session: its open transaction, or `None`."""

    def __init__(self) -> None:
        self.transaction: _Transaction | None = None


class Engine:
    """Executes the statements of many sessions; each session sends one statement at a time.

    The callback `write` makes the changes of a commit durable before any session sees them.
    """

    def __init__(
        self, store: Store, write: Callable[[tuple[Change, ...]], Awaitable[None]]
    ) -> None:
        self._store = store
        self._write = write
        self._locks = Locks()
        self._committing = asyncio.Lock()
        self._count = 0
        self._moments: dict[int, int] = {}  # snapshots of open serializable transactions
        self.committed = 0
        self.aborted = 0

    async def execute(self, session: SessionState, statement: Statement) -> Answer:
        """Execute one statement and return its answer. A `SqlError` ends the transaction."""
        transaction = session.transaction
        if isinstance(statement, Begin):
            if transaction is not None:
                raise RefusedStatementError("there is already a transaction in progress")
            self._count += 1
            session.transaction = _Transaction(self._count, statement.isolation)
            return None
        if isinstance(statement, Rollback):
            self.abort(session)
            return None
        if transaction is None:
            raise RefusedStatementError("there is no transaction in progress")
        if transaction.failed:
            raise RefusedStatementError("current transaction is aborted")
        try:
            if isinstance(statement, Commit):
                await self._commit(transaction)
                session.transaction = None
                return None
            return await self._run(transaction, statement)
        except SqlError:
            self._end(transaction)
            transaction.failed = True
            self.aborted += 1
            raise

    def abort(self, session: SessionState) -> None:
        """Roll back the session's open transaction, if it has one."""
        transaction, session.transaction = session.transaction, None
        if transaction is not None and not transaction.failed:
            self._end(transaction)
            self.aborted += 1

    def _end(self, transaction: _Transaction) -> None:
        self._locks.release(transaction.number)
        self._moments.pop(transaction.number, None)
        self._store.forget(min(self._moments.values(), default=self._store.commits))

    # --- statements --------------------------------------------------------------------------

    async def _run(
        self, transaction: _Transaction, statement: Select | Insert | Update | Delete
    ) -> Answer:
        _check_names(statement)
        if transaction.serializable and transaction.moment is None:
            transaction.moment = self._store.commits
            self._moments[transaction.number] = transaction.moment
        match statement:
            case Select():
                return await self._select(transaction, statement)
            case Insert():
                return await self._insert(transaction, statement)
            case _:
                count = 0
                for number, row in await self._locked(
                    transaction, statement.table, statement.where
                ):
                    new = {**row, **statement.values} if isinstance(statement, Update) else None
                    await self._put(transaction, (statement.table, number), row, new)
                    count += 1
                return count

    async def _select(self, transaction: _Transaction, statement: Select) -> list[Row]:
        if statement.for_update:
            matching = await self._locked(transaction, statement.table, statement.where)
        else:
            matching = list(self._visible_rows(transaction, statement.table, statement.where))
        rows = [row for _, row in matching]
        if statement.order:
            rows.sort(key=lambda row: row[statement.order])  # type: ignore[arg-type,return-value]
        return rows if statement.limit is None else rows[: statement.limit]

    async def _insert(self, transaction: _Transaction, statement: Insert) -> int | None:
        table = SCHEMA[statement.table]
        row = dict(statement.row)
        if table.serial and table.serial not in row:
            row[table.serial] = self._store.next_serial(statement.table)
        if len(row) != len(table.columns):
            raise RefusedStatementError(f"{statement.table} needs {', '.join(table.columns)}")
        place = (statement.table, self._store.next_number(statement.table))
        await self._put(transaction, place, None, row)
        serial = row[table.serial] if table.serial else None
        return serial if isinstance(serial, int) else None

    async def _put(
        self, transaction: _Transaction, place: Place, old: Row | None, new: Row | None
    ) -> None:
        table = place[0]
        before = [] if old is None else list(keys_of(table, old))
        after = [] if new is None else list(keys_of(table, new))
        for key in dict.fromkeys([*before, *after]):
            if key in before and key in after:
                continue
            await self._locks.acquire(transaction.number, key)
            if key in after:
                self._check_free(transaction, key)
        first = transaction.writes.get(place)
        committed = self._store.rows[table].get(place[1]) if first is None else first.old
        transaction.writes[place] = Change(place, committed, new)

    def _check_free(
        self, transaction: _Transaction, key: tuple[str, int, tuple[object, ...]]
    ) -> None:
        table = key[0]
        for (of, number), change in transaction.writes.items():
            if of == table and change.new is not None and key in keys_of(table, change.new):
                self._refuse_twice(transaction, key, number)
        number_committed = self._store.holder(key)
        if number_committed is not None and (table, number_committed) not in transaction.writes:
            self._refuse_twice(transaction, key, number_committed)

    def _refuse_twice(
        self, transaction: _Transaction, key: tuple[str, int, tuple[object, ...]], number: int
    ) -> NoReturn:
        if self._is_newer(transaction, (key[0], number)):
            raise SerializationError("could not serialize access due to concurrent update")
        columns = ", ".join(SCHEMA[key[0]].unique[key[1]])
        raise UniqueKeyError(
            f"duplicate key value violates unique constraint of {key[0]} ({columns})"
        )

    # --- reading -----------------------------------------------------------------------------

    def _visible_rows(
        self, transaction: _Transaction, table: str, where: Where
    ) -> Iterator[tuple[int, Row]]:
        if transaction.serializable:
            if len(transaction.reads) >= READS_MAX:
                raise RefusedStatementError(f"more than {READS_MAX} reads in a transaction")
            transaction.reads.append((table, where))
        older: dict[int, Row | None] = {}
        if transaction.moment is not None:
            for change in self._store.since(transaction.moment):
                if change.place[0] == table:
                    older.setdefault(change.place[1], change.old)
        written = [number for of, number in transaction.writes if of == table]
        for number in sorted({*self._store.find(table, where), *older, *written}):
            row: Row | None
            if (table, number) in transaction.writes:
                row = transaction.writes[table, number].new
            elif number in older:
                row = older[number]
            else:
                row = self._store.rows[table].get(number)
            if row is not None and matches(row, where):
                yield number, row

    def _is_newer(self, transaction: _Transaction, place: Place) -> bool:
        moment = transaction.moment
        return moment is not None and any(
            change.place == place for change in self._store.since(moment)
        )

    async def _locked(
        self, transaction: _Transaction, table: str, where: Where
    ) -> list[tuple[int, Row]]:
        visible = []
        for number, _ in list(self._visible_rows(transaction, table, where)):
            place = (table, number)
            await self._locks.acquire(transaction.number, ("row", table, number))
            if self._is_newer(transaction, place):
                raise SerializationError("could not serialize access due to concurrent update")
            change = transaction.writes.get(place)
            row = self._store.rows[table].get(number) if change is None else change.new
            if row is not None and matches(row, where):
                visible.append((number, row))
        return visible

    # --- the end -----------------------------------------------------------------------------

    async def _commit(self, transaction: _Transaction) -> None:
        changes = tuple(
            change
            for change in transaction.writes.values()
            if change.old is not None or change.new is not None
        )
        if changes:
            async with self._committing:
                self._validate(transaction)
                await self._write(changes)
                # Open snapshots exclude this commit, so the store keeps its changes for them.
                self._store.commit(changes, keep=bool(self._moments))
        self.committed += 1
        self._end(transaction)

    def _validate(self, transaction: _Transaction) -> None:
        """Raise `SerializationError` if a later commit changed what the transaction has read.

        A read-only transaction needs no check: in the serial order, it belongs at its snapshot.
        """
        if transaction.moment is None:
            return
        for change in self._store.since(transaction.moment):
            for table, where in transaction.reads:
                if change.place[0] == table and any(
                    row is not None and matches(row, where) for row in (change.old, change.new)
                ):
                    raise SerializationError(
                        "could not serialize access due to read/write dependencies"
                    )
