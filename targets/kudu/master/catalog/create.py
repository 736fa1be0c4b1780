"""The plan of CreateTable: checks in Kudu's order, then a batch with the table and its tablets.

The new tablets are PREPARING, and the background loop places them. The table is stored as RUNNING
at once, as in Kudu. `IsCreateTableDone` says whether its tablets run. All checks raise
`RefusedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.batches import tablets_limit
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import Plan
from targets.kudu.master.catalog.ranges import bad_ranges
from targets.kudu.master.catalog.records import TableRecord, TableState, TabletRecord, TabletState
from targets.kudu.master.catalog.validation import (
    bad_name,
    bad_partitioning,
    bad_schema,
    unreadable_schema,
    with_ids,
)
from targets.kudu.master.errors import RefusedError, invalid_argument, invalid_schema
from targets.kudu.messages import (
    AppStatus,
    CreateTableRequest,
    MasterErrorCode,
    Partition,
    Schema,
)
from targets.kudu.partitions import partition_count, partitions_of, range_partitions


def _replicas_of(request: CreateTableRequest, flags: Flags) -> int:
    return flags.default_num_replicas if request.num_replicas == -1 else request.num_replicas


def check_create(request: CreateTableRequest, flags: Flags) -> None:
    """Check the request alone, without the catalog: schema, partitioning, replication factor."""
    unreadable = unreadable_schema(request.schema)
    if unreadable is not None:
        raise invalid_argument(unreadable)
    problem = (
        bad_name("table name", request.name, flags)
        or bad_name("owner", request.owner, flags, may_be_empty=True)
        or bad_name("comment", request.comment, flags, may_be_empty=True)
        or bad_schema(request.schema, flags)
        or bad_partitioning(request.partition_schema, request.schema)
        or bad_ranges(request.partition_schema, request.ranges)
    )
    if problem is not None:
        raise invalid_schema(problem)
    tablets, limit = _tablet_count(request), tablets_limit(flags)
    if tablets > limit:  # refuse now: the records would exhaust the leader's memory
        raise invalid_argument(
            f"a table of {tablets} tablets does not fit into one operation, which holds {limit} at "
            "most (flag rpc_max_message_size)"
        )
    check_replicas(_replicas_of(request, flags), flags)


def check_replicas(replicas: int, flags: Flags) -> None:
    """Refuse a replication factor that no table can have."""
    if replicas > flags.max_num_replicas:
        raise RefusedError(
            MasterErrorCode.REPLICATION_FACTOR_TOO_HIGH,
            AppStatus.INVALID_ARGUMENT,
            f"the replication factor {replicas} is above the limit of {flags.max_num_replicas} "
            "(flag max_num_replicas)",
        )
    if replicas < flags.min_num_replicas:
        raise RefusedError(
            MasterErrorCode.ILLEGAL_REPLICATION_FACTOR,
            AppStatus.INVALID_ARGUMENT,
            f"the replication factor {replicas} is below the limit of {flags.min_num_replicas} "
            "(flag min_num_replicas)",
        )
    if replicas % 2 == 0:
        raise RefusedError(
            MasterErrorCode.EVEN_REPLICATION_FACTOR,
            AppStatus.INVALID_ARGUMENT,
            f"the replication factor {replicas} is even; use an odd one",
        )


def check_placement(request: CreateTableRequest, flags: Flags, live_tservers: int) -> None:
    """Check that `live_tservers` tablet servers are enough for the table's replicas.

    The flag `catalog_manager_check_ts_count_for_create_table` turns this check off. After a
    refusal, the caller may check again, because more servers may have registered since.
    """
    replicas = _replicas_of(request, flags)
    if flags.catalog_manager_check_ts_count_for_create_table:
        check_live(replicas, live_tservers)
    tablets = _tablet_count(request)
    limit = flags.max_create_tablets_per_ts * live_tservers
    if replicas > 1 and tablets * replicas > limit:
        raise RefusedError(
            MasterErrorCode.TOO_MANY_TABLETS,
            AppStatus.INVALID_ARGUMENT,
            f"the table would have {tablets * replicas} replicas; the limit for {live_tservers} "
            f"live tablet servers is {limit} (flag max_create_tablets_per_ts)",
        )


def check_live(replicas: int, live_tservers: int) -> None:
    """Refuse more replicas than there are live tablet servers."""
    if replicas > live_tservers:
        raise RefusedError(
            MasterErrorCode.REPLICATION_FACTOR_TOO_HIGH,
            AppStatus.INVALID_ARGUMENT,
            f"not enough live tablet servers for a table with the replication factor {replicas}: "
            f"{live_tservers} tablet servers are alive",
        )


def _tablet_count(request: CreateTableRequest) -> int:
    if request.ranges:
        return sum(each.num_hash_buckets for each in request.ranges)
    return partition_count(request.partition_schema)


def _partitions(request: CreateTableRequest) -> Iterable[Partition]:
    schema = request.partition_schema
    if not request.ranges:
        return partitions_of(schema)
    return (
        partition
        for each in sorted(request.ranges, key=lambda each: each.start)
        for partition in range_partitions(schema, each.start, each.end, each.num_hash_buckets)
    )


def plan_create(
    catalog: Catalog,
    request: CreateTableRequest,
    flags: Flags,
    *,
    new_id: Callable[[], str],
    now_ns: int,
) -> Plan:
    """Plan the records of the table and its tablets, after `check_create` and `check_placement`.

    Raises `RefusedError` if the name is taken.
    """
    catalog.check_name_free(request.name)
    columns = with_ids(request.schema.columns)
    usual = request.partition_schema.num_hash_buckets
    custom = tuple(each for each in request.ranges if each.num_hash_buckets != usual)
    partition_schema = msgspec.structs.replace(request.partition_schema, custom_ranges=custom)
    table = TableRecord(
        id=new_id(),
        name=request.name,
        version=0,
        schema=Schema(columns),
        partition_schema=partition_schema,
        next_column_id=len(columns),
        num_replicas=_replicas_of(request, flags),
        state=TableState.RUNNING,
        create_ns=now_ns,
        owner=request.owner,
        comment=request.comment,
    )
    tablets = tuple(
        TabletRecord(new_id(), table.id, partition, TabletState.PREPARING)
        for partition in _partitions(request)
    )
    return Plan(table.id, 0, (table,), tablets, reserve=request.name)
