"""SQL: a template is a statement with bound parameters, or a list of them in one transaction.

    read = "select value from register where id = {key}"
    transfer = ["update account set ...", "update account set ..."]
    txn = { r = "select ...", append = "insert ..." }

A placeholder becomes a parameter of the driver: `{key}` as text, any other argument as JSON text,
which also works for numeric columns. `{table:name}` becomes part of the statement. Texts in answers
are JSON, too. A change that affects no row did not happen. In a transaction, everything is then
rolled back. Until `commit` is sent, no part of a transaction can have taken effect.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal

from harness.errors import UsageError, shown
from targets.declared.protocols import (
    FAILURES,
    Answer,
    DeclinedError,
    MalformedError,
    Protocol,
    Session,
    Template,
    checked,
)
from targets.declared.protocols.text import ENCODINGS, PLACEHOLDER, decoded, filled, text_of

__all__ = [
    "NOT_FROM_DRIVERS",
    "Isolation",
    "Result",
    "SqlProtocol",
    "SqlSession",
    "Statement",
    "Statements",
]

Isolation = Literal["serializable", "repeatable read", "read committed", "read uncommitted", ""]
_MOPS: Final = ("r", "append", "w")
_NAME: Final = "name"
_CALL: Final = re.compile(r"\s*select\b(?!.*\bfrom\b)", re.IGNORECASE | re.DOTALL)
NOT_FROM_DRIVERS: Final = (*FAILURES, DeclinedError)
"""Errors that do not come from a driver. A driver may raise anything for a malformed answer."""
ROWS_MAX: Final = 1_000_000


class Result:
    """The rows of a statement, if it returns rows, and the number of affected rows."""

    def __init__(self, rows: Sequence[Sequence[Any]] | None, affected: int) -> None:
        self.rows, self.affected = rows, affected

    @property
    def is_empty(self) -> bool:
        """Whether the statement found or changed nothing."""
        return not self.rows if self.rows is not None else self.affected == 0

    def _raw(self) -> Any:
        if self.rows is None:
            return self.affected
        rows = [[_raw(cell) for cell in row] for row in self.rows]
        return rows[0][0] if len(rows) == 1 and len(rows[0]) == 1 else rows

    def took_effect(self, *, of_call: bool) -> bool:
        """Whether the statement took effect.

        A boolean answer says so itself. If a function was called (`select get_lock({key}, 0)`), 0
        and null mean no. For any other statement, a row means yes.
        """
        cells = self.rows[0] if self.rows else ()
        if len(cells) != 1 or (of_call and cells[0] == ""):  # PostgreSQL's answer for void
            return not self.is_empty
        value = _value(cells[0])
        return bool(value) if of_call or isinstance(value, bool) else True

    def value(self, answer: Answer) -> Any:
        """Return the value for any type of answer except "whether". Raises `MalformedError`."""
        if answer in {"ran", "done"}:
            return None
        if answer == "raw":
            return self._raw()
        if self.rows is None:
            raise MalformedError("the statement returns no rows")
        if answer == "list":
            return [_cell(row) for row in self.rows]
        if answer == "pairs":
            if any(len(row) != 2 for row in self.rows):
                raise MalformedError(f"the rows must have two columns: {shown(self.rows[0])}")
            return [[_value(name), _value(number)] for name, number in self.rows]
        if len(self.rows) > 1:
            raise MalformedError(f"{len(self.rows)} rows where one value was asked for")
        return checked(_cell(self.rows[0]), answer) if self.rows else None


class Statement(Template):
    """One statement in the driver's style, with the names of its parameters."""

    def __init__(self, text: str) -> None:
        """Parse a statement. Its placeholders must not be inside quotes."""
        self.written = text
        self.calls = _CALL.match(text) is not None
        """Whether it calls a function and reads no table."""
        self._parameters: list[tuple[str, str | None]] = []
        self._text = PLACEHOLDER.sub(self._parameter, text.replace("%", "%%"))

    def _parameter(self, match: re.Match[str]) -> str:
        name, encoding = match.groups()
        if encoding == _NAME:  # this placeholder is part of the statement
            return match[0]
        self._parameters.append((name, encoding))
        return "%s"

    def text(self, arguments: Mapping[str, Any]) -> str:
        """Return the statement for these arguments."""
        return filled(self._text, arguments)

    def parameters(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the parameters for these arguments."""
        return [
            (ENCODINGS[encoding] if encoding else text_of)(name, arguments[name])
            for name, encoding in self._parameters
        ]


class Statements(Template):
    """One or more statements. Several form one transaction. The last one's rows are the answer."""

    def __init__(self, answer: Answer, *statements: str) -> None:
        self.answer = answer
        self.statements = [Statement(text) for text in statements]


class Transaction(Template):
    """One statement per kind of micro-operation, all run in one transaction per operation.

    The statement for `r` returns one value. With `joined`, it returns the elements of a list,
    separated by commas.
    """

    def __init__(self, statements: Mapping[str, str], *, joined: bool = False) -> None:
        self.statements = {f: Statement(text) for f, text in statements.items()}
        self.joined = joined


class _NoRowError(DeclinedError):
    """A change affected no row."""

    def __init__(self, statement: Statement) -> None:
        super().__init__(f"no row was affected by {shown(statement.written)}")


class SqlProtocol(Protocol):
    """A database with SQL."""

    splits_transactions = True
    example: ClassVar[str] = "select value from register where id = {key}"

    def template(self, where: str, written: object, answer: Answer) -> Template:
        if isinstance(written, Mapping):
            wrong = [f for f in written if f not in _MOPS]
            if wrong or not written:
                raise UsageError(
                    f"{where}: {shown(dict(written))} must have statements by kind of "
                    f"micro-operation; the kinds are {', '.join(_MOPS)}"
                )
            return Transaction({f: _checked(f"{where}.{f}", text) for f, text in written.items()})
        several = list(written) if isinstance(written, list | tuple) else [written]
        if not several:
            raise UsageError(f"{where} is empty: write a statement, such as {self.example!r}")
        return Statements(answer, *(_checked(where, text) for text in several))


class SqlSession(Session):
    """A connection with one statement at a time in progress."""

    @abstractmethod
    async def execute(self, text: str, parameters: Sequence[str]) -> Result:
        """Execute a statement.

        Raises `DeclinedError` if the database reports that nothing happened, and one of `FAILURES`
        if that is unknown.
        """

    @property
    @abstractmethod
    def begin_statements(self) -> Sequence[str]:
        """Return the statements that begin a transaction."""

    async def perform(
        self, template: Template, arguments: Mapping[str, Any], *, changes: bool
    ) -> Any:
        if isinstance(template, Transaction):
            return await self._commit(self._mops(template, arguments["mops"]), changes=changes)
        assert isinstance(template, Statements)
        if len(template.statements) == 1:
            return await self.attempt(self._alone(template, arguments), changes=changes)
        try:
            return await self._commit(self._each(template, arguments), changes=changes)
        except _NoRowError:
            if template.answer == "whether":
                return False
            raise

    async def _commit(self, statements: Coroutine[Any, Any, Any], *, changes: bool) -> Any:
        """Begin a transaction with these statements and commit it. Only the commit is a change.

        If a statement is declined, the transaction is rolled back.
        """
        try:
            value = await self.attempt(statements, changes=False)
            await self.attempt(self.execute("commit", ()), changes=changes)
        except DeclinedError:
            await self.attempt(self.execute("rollback", ()), changes=False)
            raise
        return value

    async def _alone(self, template: Statements, arguments: Mapping[str, Any]) -> Any:
        (statement,) = template.statements
        result = await self.execute(statement.text(arguments), statement.parameters(arguments))
        if template.answer == "whether":
            return result.took_effect(of_call=statement.calls)
        if template.answer == "done" and result.is_empty:
            raise _NoRowError(statement)
        return result.value(template.answer)

    async def _each(self, template: Statements, arguments: Mapping[str, Any]) -> Any:
        await self._begin()
        last = None
        for statement in template.statements:
            result = await self.execute(statement.text(arguments), statement.parameters(arguments))
            if template.answer == "done" and result.is_empty:
                raise _NoRowError(statement)
            if template.answer == "whether" and not result.took_effect(of_call=statement.calls):
                raise _NoRowError(statement)
            last = result if result.rows is not None or last is None else last
        assert last is not None
        return True if template.answer == "whether" else last.value(template.answer)

    async def _mops(self, template: Transaction, mops: Sequence[Any]) -> list[Any]:
        await self._begin()
        answer = []
        for f, key, value in mops:
            statement = template.statements.get(f)
            if statement is None:
                raise DeclinedError(f"there is no statement for the micro-operation {f!r}")
            arguments = {"key": key, "value": value, "mops": mops}
            parameters = statement.parameters(arguments)
            result = await self.execute(statement.text(arguments), parameters)
            if f != "r":
                if result.is_empty:
                    raise _NoRowError(statement)
                answer.append([f, key, value])
            elif template.joined:
                answer.append([f, key, _joined(result)])
            else:
                answer.append([f, key, result.value("value")])
        return answer

    async def _begin(self) -> None:
        for text in self.begin_statements:
            await self.execute(text, ())


def _checked(where: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{where} is {shown(text)}: write a statement of SQL")
    for match in PLACEHOLDER.finditer(text):
        if text.count("'", 0, match.start()) % 2:
            raise UsageError(
                f"{where}: {match[0]} is inside of quotes, in {shown(text)}; remove the quotes, "
                "because it becomes a parameter"
            )
    return text


def _raw(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)


def _cell(row: Sequence[Any]) -> Any:
    if len(row) != 1:
        raise MalformedError(f"a row must have one column: {shown(row)}")
    return _value(row[0])


def _value(cell: Any) -> Any:
    if isinstance(cell, str | bytes):
        return decoded(cell)
    if isinstance(cell, Decimal) and cell.is_finite() and cell == cell.to_integral_value():
        return int(cell)
    if cell is None or isinstance(cell, bool | int):
        return cell
    if isinstance(cell, float) and math.isfinite(cell):
        return cell
    raise MalformedError(f"a column of type {type(cell).__name__} holds no JSON: {shown(cell)}")


def _joined(result: Result) -> list[Any]:
    if result.rows is None or len(result.rows) > 1:
        raise MalformedError("a list must be one row, or none")
    if not result.rows:
        return []
    (text,) = result.rows[0]
    if not isinstance(text, str):
        raise MalformedError(f"a list must be a string of elements: {shown(text)}")
    value = decoded(f"[{text}]")
    assert isinstance(value, list)
    return value
