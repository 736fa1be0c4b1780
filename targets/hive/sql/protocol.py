"""The protocol between a metastore and its database: SQL as structs instead of text.

A statement is a struct; `Session` has a method for each. The guarantees are those of PostgreSQL,
which is one of the databases behind this protocol:

* **read committed**: each statement sees the commits before its start, and the transaction's own
  writes. An update or delete that meets a locked row waits, then checks the row's newest version:
  a row that is gone or no longer matches is skipped, and not counted.
* **serializable**: the transaction sees the snapshot of its first statement. If another commit
  makes that impossible, it fails with `SerializationError` and may run again.
* a statement waits for a unique key that another open transaction takes or releases.
* any error except a lost connection ends the transaction: only `rollback` is accepted.

`ConnectionLostError` at a commit says nothing about whether it took place.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import msgspec

Value = int | str | None
Row = dict[str, Value]


class Isolation(enum.StrEnum):
    """Isolation levels of transactions."""

    READ_COMMITTED = "read committed"
    SERIALIZABLE = "serializable"


class Condition(msgspec.Struct, frozen=True, array_like=True):
    """`column operator value`, where the operator is `=`, `>` or `<`."""

    column: str
    operator: str
    value: Value

    def holds(self, row: Mapping[str, Value]) -> bool:
        """Whether the row satisfies the condition; as in SQL, no order holds for null."""
        cell = row[self.column]
        if self.operator == "=":
            return cell == self.value
        if not isinstance(cell, int) or not isinstance(self.value, int):
            return False
        return cell > self.value if self.operator == ">" else cell < self.value


Where = tuple[Condition, ...]


def equal(**columns: Value) -> Where:
    """The condition that all these columns have these values."""
    return tuple(Condition(column, "=", value) for column, value in columns.items())


def above(column: str, value: int) -> Where:
    """The condition `column > value`."""
    return (Condition(column, ">", value),)


def below(column: str, value: int) -> Where:
    """The condition `column < value`."""
    return (Condition(column, "<", value),)


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Starts a transaction."""

    isolation: Isolation


class Select(msgspec.Struct, frozen=True, tag="select"):
    """Answers at most `limit` rows, sorted by the column `order`; locks them on request."""

    table: str
    where: Where = ()
    order: str = ""
    limit: int | None = None
    for_update: bool = False


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    """Inserts one row; answers the value of the table's serial column, or null."""

    table: str
    row: Row


class Update(msgspec.Struct, frozen=True, tag="update"):
    """Answers the number of changed rows."""

    table: str
    values: Row
    where: Where = ()


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Answers the number of removed rows."""

    table: str
    where: Where = ()


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """Answers once all changes are durable."""


class Rollback(msgspec.Struct, frozen=True, tag="rollback"):
    """Undoes all changes of the transaction."""


Statement = Begin | Select | Insert | Update | Delete | Commit | Rollback


class SqlError(Exception):
    """An error from the database; `code` is PostgreSQL's SQLSTATE."""

    code: ClassVar[str] = "XX000"


class UniqueKeyError(SqlError):
    """Another row has this key."""

    code = "23505"


class SerializationError(SqlError):
    """The transaction fits no serial order; it may be retried."""

    code = "40001"


class DeadlockError(SqlError):
    """Transactions waited for each other, and this one was aborted; it may be retried."""

    code = "40P01"


class RefusedStatementError(SqlError):
    """No transaction is open, it failed before, or the statement is invalid."""

    code = "25000"


class ConnectionLostError(SqlError):
    """The connection is lost. An open transaction rolls back; a commit in progress may succeed."""

    code = "08006"


_BY_CODE = {
    kind.code: kind
    for kind in (UniqueKeyError, SerializationError, DeadlockError, RefusedStatementError)
}


def error_of(code: str, message: str) -> SqlError:
    """The error for this SQLSTATE."""
    return _BY_CODE.get(code, SqlError)(message)


class Session(Protocol):
    """One connection to the database; one transaction at a time. All methods raise `SqlError`s."""

    async def begin(self, isolation: Isolation) -> None:
        """Start a transaction."""
        ...

    async def select(
        self,
        table: str,
        where: Where = (),
        *,
        order: str = "",
        limit: int | None = None,
        for_update: bool = False,
    ) -> Sequence[Row]:
        """The selected rows; see `Select`."""
        ...

    async def insert(self, table: str, row: Row) -> int | None:
        """Add a row; returns the value of the table's serial column."""
        ...

    async def update(self, table: str, values: Row, where: Where) -> int:
        """Change rows; returns their number."""
        ...

    async def delete(self, table: str, where: Where) -> int:
        """Remove rows; returns their number."""
        ...

    async def commit(self) -> None:
        """Commit: make the changes durable and visible."""
        ...

    async def rollback(self) -> None:
        """Roll back; does nothing if no transaction is open."""
        ...

    def close(self) -> None:
        """Close the connection, which rolls back an open transaction."""
        ...


class Database(Protocol):
    """A database that opens sessions."""

    async def connect(self) -> Session:
        """A new session. Raises `ConnectionLostError` if the database does not answer."""
        ...
