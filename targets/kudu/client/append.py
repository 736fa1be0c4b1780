"""The vocabulary `append`: a table's columns as a list that transactions append to and read.

A transaction is a list of micro-operations on one table. It is a single RPC, since nothing larger
is atomic in a catalog:

* `[["append", table, column], ...]` is one AlterTable, which adds the columns in this order,
  atomically.
* `[["r", table, null]]` is one GetTableSchema, whose answer has the columns.

Other transactions are refused: two tables need two RPCs, and the answer of an AlterTable contains
no columns to read. Tables are created by `create`, as in the vocabulary `ddl`.

Two answers need an explanation. First, a table that does not exist reads as the empty list. Tables
are created once and never deleted, so before the creation nothing can have been appended, and a
later "not found" means a lost table. Second, Kudu answers with the schema that all tablets have
*applied*, which lags behind the committed schema while the table is being altered. Such an answer
says nothing about columns committed since, so the read is repeated until the two schemas agree,
just as Kudu's own client waits for an alter. Each repetition is an attempt in the history. At the
deadline, the read fails.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.errors import UsageError
from harness.plugins import Request
from targets.kudu import messages as m
from targets.kudu.client.calls import Call

MicroOps = list[list[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Transaction(Call):
    """A transaction as one AlterTable or GetTableSchema; its value is a list of micro-ops."""

    micro_ops: MicroOps = dataclasses.field(default_factory=list)

    def answered_value(self, response: m.MasterResponse) -> MicroOps:
        if not isinstance(response, m.GetTableSchemaResponse):
            return self.micro_ops
        return self._read([column.name for column in response.schema.columns if not column.is_key])

    def refused_value(self, response: m.MasterResponse) -> None:
        del response

    def absence_value(self, response: m.MasterResponse) -> MicroOps | None:
        """Let a table that does not exist read as the empty list."""
        return None if Call.absence_value(self, response) is None else self._read([])

    def unsettled(self, response: m.MasterResponse) -> str | None:
        if not isinstance(response, m.GetTableSchemaResponse):
            return None
        applied, committed = response.applied_schema_version, response.schema_version
        if applied == committed >= 0:
            return None
        return f"ALTERING: version {committed} is committed, but {applied} is shown"

    def _read(self, columns: list[str]) -> MicroOps:
        ((f, table, _),) = self.micro_ops
        return [[f, table, columns]]


def plan_transaction(request: Request, request_id: m.RequestId) -> Call:
    """Return the call for a transaction. Raises `UsageError` if one RPC cannot carry it out."""
    micro_ops = request.value
    if not _are_micro_ops(micro_ops):
        raise UsageError(
            f"the transaction {micro_ops!r} is not a list of ['append', table, column] and "
            "['r', table, null]; see the vocabulary 'append'"
        )
    kinds = {f for f, _, _ in micro_ops}
    tables = {table for _, table, _ in micro_ops}
    if len(tables) != 1 or (kinds != {"append"} and len(micro_ops) != 1):
        raise UsageError(
            f"the transaction {micro_ops!r} would take more than one RPC and so not be atomic; "
            "give it appends to one table, or a single read"
        )
    name = min(tables)  # the only table
    table = m.TableIdentifier(table_name=name)
    if kinds == {"r"}:
        return _Transaction(m.GetTableSchemaRequest(table=table), False, micro_ops=micro_ops)
    steps = tuple(
        m.AlterStep(m.StepType.ADD_COLUMN, column=m.Column(id=0, name=column))
        for _, _, column in micro_ops
    )
    alter = m.AlterTableRequest(table=table, request_id=request_id, steps=steps)
    return _Transaction(alter, True, micro_ops=micro_ops)


def _are_micro_ops(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    for micro_op in value:
        if not isinstance(micro_op, list) or len(micro_op) != 3:
            return False
        f, table, column = micro_op
        if not isinstance(table, str) or f not in ("append", "r"):
            return False
        if not (isinstance(column, str) if f == "append" else column is None):
            return False
    return True
