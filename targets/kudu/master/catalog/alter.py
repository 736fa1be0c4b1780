"""AlterTable: column steps, a new name, another number of replicas: one new version of the table.

The table is ALTERING until the highest version reported for every tablet has reached it; readers
are shown the fully applied schema meanwhile. Altering an ALTERING table is allowed: the version
goes on, the applied schema stays that of before the first. Column ids are never used again
(KUDU-461).
"""

from __future__ import annotations

import msgspec

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.create import check_replicas
from targets.kudu.master.catalog.plan import AlterTablet, Plan
from targets.kudu.master.catalog.records import TableRecord, TableState
from targets.kudu.master.catalog.validation import bad_column, bad_name, invalid_schema
from targets.kudu.messages import (
    AlterStep,
    AlterTableRequest,
    AppStatus,
    Column,
    MasterError,
    Schema,
    StepType,
)


def plan_alter(
    catalog: Catalog, request: AlterTableRequest, flags: Flags, *, now_ns: int
) -> Plan | MasterError:
    """The altered table. Without any change it succeeds and does nothing, as in Kudu.

    Replicas follow a new number by themselves (`rereplication.py`).
    """
    table = catalog.find_running(request.table)
    if isinstance(table, MasterError):
        return table
    if not request.steps and request.new_table_name is None and request.num_replicas is None:
        return Plan(table.id, table.version)
    if request.num_replicas is not None:
        error = check_replicas(request.num_replicas, flags)
        if error is not None:
            return error
    columns, next_column_id = list(table.schema.columns), table.next_column_id
    for step in request.steps:
        changed = _apply(step, columns, next_column_id, flags)
        if isinstance(changed, MasterError):
            return changed
        columns, next_column_id = changed
    new_name = request.new_table_name
    if new_name is not None:
        problem = bad_name("new table name", new_name, flags)
        if problem is not None:
            return invalid_schema(problem)
        taken = catalog.name_taken(new_name)
        if taken is not None:
            return taken
    tablets = catalog.live_tablets(table.id)
    altered = msgspec.structs.replace(
        table,
        name=table.name if new_name is None else new_name,
        version=table.version + 1,
        schema=Schema(tuple(columns)),
        next_column_id=next_column_id,
        num_replicas=table.num_replicas if request.num_replicas is None else request.num_replicas,
        state=TableState.ALTERING if tablets else TableState.RUNNING,
        applied_schema=table.shown_schema if tablets else None,
        applied_version=table.shown_version if tablets else table.version + 1,
        alter_ns=now_ns,
    )
    return Plan(
        table.id,
        altered.version,
        tables=(altered,),
        reserve=new_name,
        calls=tuple(AlterTablet(tablet.id) for tablet in tablets),
    )


def alter_done(table: TableRecord) -> TableRecord:
    """The table RUNNING, with its newest schema shown."""
    assert table.state is TableState.ALTERING, f"table {table.id} is {table.state.name}"
    return msgspec.structs.replace(
        table, state=TableState.RUNNING, applied_schema=None, applied_version=table.version
    )


def _apply(
    step: AlterStep, columns: list[Column], next_column_id: int, flags: Flags
) -> tuple[list[Column], int] | MasterError:
    match step.type:
        case StepType.ADD_COLUMN:
            return _add(step, columns, next_column_id, flags)
        case StepType.DROP_COLUMN:
            position = _position(columns, step.name)
            if isinstance(position, MasterError):
                return position
            if columns[position].is_key:
                return invalid_schema(f"the key column {step.name!r} cannot be dropped")
            return [*columns[:position], *columns[position + 1 :]], next_column_id
        case StepType.RENAME_COLUMN:
            return _rename(step, columns, next_column_id, flags)


def _add(
    step: AlterStep, columns: list[Column], next_column_id: int, flags: Flags
) -> tuple[list[Column], int] | MasterError:
    column = step.column
    if column is None:
        return invalid_schema("the step ADD_COLUMN has no column")
    problem = bad_column(column, flags)
    if problem is not None:
        return invalid_schema(problem)
    if column.is_key:
        return invalid_schema(f"the key column {column.name!r} cannot be added to a table")
    if _has(columns, column.name):
        return invalid_schema(
            f"the column {column.name!r} already exists", AppStatus.ALREADY_PRESENT
        )
    if len(columns) >= flags.max_num_columns:
        return invalid_schema(
            f"the table has {len(columns)} columns; no more fit (flag max_num_columns)"
        )
    added = msgspec.structs.replace(column, id=next_column_id)
    return [*columns, added], next_column_id + 1


def _rename(
    step: AlterStep, columns: list[Column], next_column_id: int, flags: Flags
) -> tuple[list[Column], int] | MasterError:
    position = _position(columns, step.name)
    if isinstance(position, MasterError):
        return position
    problem = bad_name("new column name", step.new_name, flags)
    if problem is not None:
        return invalid_schema(problem)
    if _has(columns, step.new_name):
        return invalid_schema(
            f"the column {step.new_name!r} already exists", AppStatus.ALREADY_PRESENT
        )
    renamed = list(columns)
    renamed[position] = msgspec.structs.replace(columns[position], name=step.new_name)
    return renamed, next_column_id


def _has(columns: list[Column], name: str) -> bool:
    return any(column.name == name for column in columns)


def _position(columns: list[Column], name: str) -> int | MasterError:
    for position, column in enumerate(columns):
        if column.name == name:
            return position
    return invalid_schema(f"the column {name!r} does not exist", AppStatus.NOT_FOUND)
