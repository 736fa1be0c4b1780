"""The plans of AlterTable and DeleteTable.

One AlterTable may change columns, the name and the number of replicas. All these changes make one
new version of the table. The table is ALTERING until every tablet has reported that version. Until
then, readers see the schema that all tablets have applied. An ALTERING table may be altered again:
the version increases, and readers still see the schema before the first alter. Column ids are never
reused (KUDU-461).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.create import check_replicas
from targets.kudu.master.catalog.plan import DELETED, AlterTablet, DeleteReplica, Plan
from targets.kudu.master.catalog.ranges import KINDS as RANGE_STEPS
from targets.kudu.master.catalog.ranges import change_ranges
from targets.kudu.master.catalog.records import TableRecord, TableState, TabletRecord, TabletState
from targets.kudu.master.catalog.validation import bad_column, bad_name
from targets.kudu.master.errors import invalid_schema
from targets.kudu.messages import (
    AlterStep,
    AlterTableRequest,
    AppStatus,
    Column,
    DeleteTableRequest,
    Schema,
    StepType,
)

_DROPPED: Final = "its range was dropped"


def plan_alter(
    catalog: Catalog,
    request: AlterTableRequest,
    flags: Flags,
    *,
    now_ns: int,
    new_id: Callable[[], str],
    stores_own_hash: bool = False,
) -> Plan:
    """Plan an AlterTable: the altered record, and calls to its tablets. Raises `RefusedError`.

    New ranges get new tablets, with ids from `new_id`. The tablets of dropped ranges are deleted.
    As in Kudu, the plan has no records if the request asks for no change. If the number of replicas
    changes, `rereplication.py` adds or evicts replicas later. `stores_own_hash` is the defect
    KUDU-3723.
    """
    table = catalog.find_running(request.table)
    if not request.steps and request.new_table_name is None and request.num_replicas is None:
        return Plan(table.id, table.version)
    if request.num_replicas is not None:
        check_replicas(request.num_replicas, flags)
    columns, next_column_id = list(table.schema.columns), table.next_column_id
    for step in request.steps:
        if step.type not in RANGE_STEPS:
            columns, next_column_id = _apply(step, columns, next_column_id, flags)
    ranges = change_ranges(
        table,
        catalog.live_tablets(table.id),
        [step for step in request.steps if step.type in RANGE_STEPS],
        new_id=new_id,
        stores_own=stores_own_hash,
    )
    new_name = request.new_table_name
    if new_name is not None:
        _refuse(bad_name("new table name", new_name, flags))
        catalog.check_name_free(new_name)
    gone = {tablet.id for tablet in ranges.dropped}
    tablets = [tablet for tablet in catalog.live_tablets(table.id) if tablet.id not in gone]
    is_altering = bool(tablets or ranges.added)
    altered = msgspec.structs.replace(
        table,
        name=table.name if new_name is None else new_name,
        version=table.version + 1,
        schema=Schema(tuple(columns)),
        partition_schema=ranges.partition_schema,
        next_column_id=next_column_id,
        num_replicas=table.num_replicas if request.num_replicas is None else request.num_replicas,
        state=TableState.ALTERING if is_altering else TableState.RUNNING,
        applied_schema=table.shown_schema if is_altering else None,
        applied_version=table.shown_version if is_altering else table.version + 1,
        alter_ns=now_ns,
    )
    return Plan(
        table.id,
        altered.version,
        tables=(altered,),
        tablets=(
            *ranges.added,
            *(t.buried(TabletState.DELETED, now_ns, _DROPPED) for t in ranges.dropped),
        ),
        reserve=new_name,
        calls=(
            *(AlterTablet(tablet.id) for tablet in tablets),
            *(call for t in ranges.dropped for call in delete_replicas(catalog, t, _DROPPED)),
        ),
    )


def alter_done(table: TableRecord) -> TableRecord:
    """Return the ALTERING `table` in state RUNNING, with its newest schema visible."""
    assert table.state is TableState.ALTERING, f"table {table.id} is {table.state.name}"
    return msgspec.structs.replace(
        table, state=TableState.RUNNING, applied_schema=None, applied_version=table.version
    )


def plan_delete(catalog: Catalog, request: DeleteTableRequest, *, now_ns: int) -> Plan:
    """Plan a DeleteTable: one batch marks the table REMOVED and all its tablets DELETED.

    The plan's calls then delete the replicas. Kudu once wrote the records one by one (KUDU-495),
    and called the tablet servers before the write (ORDER-DELETE). Raises `RefusedError`.
    """
    table = catalog.find(request.table)
    reason = "the table was deleted"
    tablets = catalog.live_tablets(table.id)
    return Plan(
        table.id,
        table.version,
        tables=(table.buried(now_ns, reason),),
        tablets=tuple(t.buried(TabletState.DELETED, now_ns, reason) for t in tablets),
        calls=tuple(call for t in tablets for call in delete_replicas(catalog, t, reason)),
    )


def delete_replicas(
    catalog: Catalog, tablet: TabletRecord, reason: str
) -> tuple[DeleteReplica, ...]:
    """Build the calls that delete every replica of a dead tablet."""
    return tuple(
        DeleteReplica(tablet.id, tablet.table_id, peer.uuid, DELETED, reason)
        for peer in catalog.peers(tablet)
    )


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise invalid_schema(problem)


def _apply(
    step: AlterStep, columns: list[Column], next_column_id: int, flags: Flags
) -> tuple[list[Column], int]:
    match step.type:
        case StepType.ADD_COLUMN:
            return _add(step, columns, next_column_id, flags)
        case StepType.DROP_COLUMN:
            position = _position(columns, step.name)
            if columns[position].is_key:
                raise invalid_schema(f"the key column {step.name!r} cannot be dropped")
            return [*columns[:position], *columns[position + 1 :]], next_column_id
        case StepType.RENAME_COLUMN:
            return _rename(step, columns, flags), next_column_id
        case StepType.ADD_RANGE_PARTITION | StepType.DROP_RANGE_PARTITION:
            raise AssertionError("`change_ranges` applies these steps")


def _add(
    step: AlterStep, columns: list[Column], next_column_id: int, flags: Flags
) -> tuple[list[Column], int]:
    column = step.column
    if column is None:
        raise invalid_schema("the step ADD_COLUMN has no column")
    _refuse(bad_column(column, flags))
    if column.is_key:
        raise invalid_schema(f"the key column {column.name!r} cannot be added to a table")
    _check_free(columns, column.name)
    if len(columns) >= flags.max_num_columns:
        raise invalid_schema(
            f"the table has {len(columns)} columns; no more fit (flag max_num_columns)"
        )
    added = msgspec.structs.replace(column, id=next_column_id)
    return [*columns, added], next_column_id + 1


def _rename(step: AlterStep, columns: list[Column], flags: Flags) -> list[Column]:
    position = _position(columns, step.name)
    _refuse(bad_name("new column name", step.new_name, flags))
    _check_free(columns, step.new_name)
    renamed = list(columns)
    renamed[position] = msgspec.structs.replace(columns[position], name=step.new_name)
    return renamed


def _check_free(columns: list[Column], name: str) -> None:
    if any(column.name == name for column in columns):
        raise invalid_schema(f"The column already exists: {name}", AppStatus.ALREADY_PRESENT)


def _position(columns: list[Column], name: str) -> int:
    for position, column in enumerate(columns):
        if column.name == name:
            return position
    raise invalid_schema(f"The specified column does not exist: {name}", AppStatus.NOT_FOUND)
