"""The protocol between a metastore and its database: SQL as structs instead of text.

A statement is a struct, and `Session` has one method per kind of statement. The guarantees are the
same as in PostgreSQL, one of the databases behind this protocol:

* **read committed**: each statement sees the commits before its start, and the transaction's own
  writes. An update or delete that meets a locked row waits, then checks the row's newest version.
  If the row was deleted or no longer matches, the statement skips it and does not count it.
* **serializable**: the transaction sees the snapshot of its first statement. If it fits into no
  serial order with other commits, it fails with `SerializationError` and may run again.
* A statement waits for a unique key that another open transaction takes or releases.
* Any error except a lost connection ends the transaction: only `rollback` is accepted.

After a `ConnectionLostError`, a commit may or may not have taken place.
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
    """A condition `column operator value`; the operator is `=`, `>` or `<`."""

    column: str
    operator: str
    value: Value

    def holds(self, row: Mapping[str, Value]) -> bool:
        """Whether the row satisfies the condition; `>` and `<` hold only between numbers."""
        cell = row[self.column]
        if self.operator == "=":
            return cell == self.value
        if not isinstance(cell, int) or not isinstance(self.value, int):
            return False
        return cell > self.value if self.operator == ">" else cell < self.value


Where = tuple[Condition, ...]


def equal(**columns: Value) -> Where:
    """Return the conditions `column = value` for all these columns."""
    return tuple(Condition(column, "=", value) for column, value in columns.items())


def above(column: str, value: int) -> Where:
    """Return the condition `column > value`."""
    return (Condition(column, ">", value),)


def below(column: str, value: int) -> Where:
    """Return the condition `column < value`."""
    return (Condition(column, "<", value),)


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Start a transaction at this isolation level."""

    isolation: Isolation


class Select(msgspec.Struct, frozen=True, tag="select"):
    """Read at most `limit` matching rows, sorted by column `order`; lock them if `for_update`."""

    table: str
    where: Where = ()
    order: str = ""
    limit: int | None = None
    for_update: bool = False


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    """Insert one row; the answer is the value of the table's serial column, or null."""

    table: str
    row: Row


class Update(msgspec.Struct, frozen=True, tag="update"):
    """Set columns of all matching rows to `values`; the answer is the number of rows."""

    table: str
    values: Row
    where: Where = ()


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Delete all matching rows; the answer is the number of rows."""

    table: str
    where: Where = ()


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """Commit the transaction; the answer comes once all its changes are durable."""


class Rollback(msgspec.Struct, frozen=True, tag="rollback"):
    """Undo all changes of the transaction, and end it."""


Statement = Begin | Select | Insert | Update | Delete | Commit | Rollback


class SqlError(Exception):
    """An error from the database; `code` is PostgreSQL's SQLSTATE."""

    code: ClassVar[str] = "XX000"


class UniqueKeyError(SqlError):
    """Another row has the same unique key."""

    code = "23505"


class SerializationError(SqlError):
    """The transaction fits into no serial order; it may be retried."""

    code = "40001"


class DeadlockError(SqlError):
    """Transactions waited for each other, and this one was aborted; it may be retried."""

    code = "40P01"


class RefusedStatementError(SqlError):
    """A statement is invalid, or is not allowed now."""

    code = "25000"


class ConnectionLostError(SqlError):
    """The connection is lost. An open transaction rolls back; a commit in progress may succeed."""

    code = "08006"


_BY_CODE = {
    kind.code: kind
    for kind in (UniqueKeyError, SerializationError, DeadlockError, RefusedStatementError)
}


def error_of(code: str, message: str) -> SqlError:
    """Build the `SqlError` for this SQLSTATE."""
    return _BY_CODE.get(code, SqlError)(message)


class Session(Protocol):
    """A connection to the database for one transaction at a time. Its methods raise `SqlError`."""

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
        """Return the matching rows, as `Select` describes."""
        ...

    async def insert(self, table: str, row: Row) -> int | None:
        """Add a row; return the value of the table's serial column, or `None`."""
        ...

    async def update(self, table: str, values: Row, where: Where) -> int:
        """Change all matching rows; return their number."""
        ...

    async def delete(self, table: str, where: Where) -> int:
        """Delete all matching rows; return their number."""
        ...

    async def commit(self) -> None:
        """Commit the transaction: make its changes durable and visible."""
        ...

    async def rollback(self) -> None:
        """Roll back the open transaction, if there is one."""
        ...

    def close(self) -> None:
        """Close the connection, which rolls back an open transaction."""
        ...


class Database(Protocol):
    """A database that opens sessions."""

    async def connect(self) -> Session:
        """Open a session. Raises `ConnectionLostError` if the database does not answer."""
        ...
