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
        """Whether the row meets it; as in SQL, nothing is larger or smaller than null."""
        cell = row[self.column]
        if self.operator == "=":
            return cell == self.value
        if not isinstance(cell, int) or not isinstance(self.value, int):
            return False
        return cell > self.value if self.operator == ">" else cell < self.value


Where = tuple[Condition, ...]


def equal(**columns: Value) -> Where:
    """All these columns have these values."""
    return tuple(Condition(column, "=", value) for column, value in columns.items())


def above(column: str, value: int) -> Where:
    """`column > value`."""
    return (Condition(column, ">", value),)


def below(column: str, value: int) -> Where:
    """`column < value`."""
    return (Condition(column, "<", value),)


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Starts a transaction."""

    isolation: Isolation


class Select(msgspec.Struct, frozen=True, tag="select"):
    """Rows by `order` (a column; else in no promised order), at most `limit`; locks on request."""

    table: str
    where: Where = ()
    order: str = ""
    limit: int | None = None
    for_update: bool = False


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    """One row; answers the value of the table's serial column, or null."""

    table: str
    row: Row


class Update(msgspec.Struct, frozen=True, tag="update"):
    """Answers how many rows it changed."""

    table: str
    values: Row
    where: Where = ()


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Answers how many rows it removed."""

    table: str
    where: Where = ()


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """Answers once everything is durable."""


class Rollback(msgspec.Struct, frozen=True, tag="rollback"):
    """Takes everything back."""


Statement = Begin | Select | Insert | Update | Delete | Commit | Rollback


class SqlError(Exception):
    """An error from the database; `code` is PostgreSQL's SQLSTATE."""

    code: ClassVar[str] = "XX000"


class UniqueKeyError(SqlError):
    """There is a row with this key."""

    code = "23505"


class SerializationError(SqlError):
    """No serial order with the others; the transaction may be run again."""

    code = "40001"


class DeadlockError(SqlError):
    """Transactions waited for each other, and this one gave way; it may be run again."""

    code = "40P01"


class RefusedStatementError(SqlError):
    """There is no transaction, it failed before, or the statement makes no sense."""

    code = "25000"


class ConnectionLostError(SqlError):
    """The connection is lost: an open transaction rolls back, a commit under way may succeed."""

    code = "08006"


_BY_CODE = {
    kind.code: kind
    for kind in (UniqueKeyError, SerializationError, DeadlockError, RefusedStatementError)
}


def error_of(code: str, message: str) -> SqlError:
    """The error with this SQLSTATE."""
    return _BY_CODE.get(code, SqlError)(message)


class Session(Protocol):
    """One connection to the database; one transaction at a time. All raise `SqlError`s."""

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
        """Rows; see `Select`."""
        ...

    async def insert(self, table: str, row: Row) -> int | None:
        """Add a row; the value of the table's serial column."""
        ...

    async def update(self, table: str, values: Row, where: Where) -> int:
        """Change rows; how many."""
        ...

    async def delete(self, table: str, where: Where) -> int:
        """Remove rows; how many."""
        ...

    async def commit(self) -> None:
        """Make it durable and visible."""
        ...

    async def rollback(self) -> None:
        """Take it back; nothing happens where no transaction is open."""
        ...

    def close(self) -> None:
        """End the connection, and with it an open transaction."""
        ...


class Database(Protocol):
    """Opens sessions."""

    async def connect(self) -> Session:
        """A new session. Raises `ConnectionLostError` where the database does not answer."""
        ...
