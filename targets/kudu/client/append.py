"""The vocabulary `append`: transactions append to a table's list of columns, or read the list.

A transaction is a list of micro-operations on one table. It is a single RPC, the largest atomic
unit of a catalog:

* `[["append", table, column], ...]` is one AlterTable, which adds the columns atomically, in this
  order.
* `[["r", table, null]]` is one GetTableSchema, whose answer has the columns.

Other transactions are refused, because they would need several RPCs. `create` creates a table, as
in the vocabulary `ddl`.

**A missing table** reads as the empty list. Tables are created once and never deleted, so nothing
can have been appended before the creation. A later "not found" means that the table was lost.

**A table that is being altered.** Kudu answers with the schema that all tablets have *applied*,
which lags behind the committed schema. Such an answer says nothing about columns that were
committed since. So the client repeats the read until both schemas agree, like Kudu's own client.
Each repetition is an attempt in the history. At the deadline, the read fails.
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
    name = min(tables)
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
