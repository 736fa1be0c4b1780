"""Answers to reads: pure functions of the catalog, each evaluated in one synchronous step.

All functions raise `RefusedError`.
"""

from __future__ import annotations

from collections.abc import Sequence

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.ranges import check_ranges
from targets.kudu.master.catalog.records import TableRecord, TableState, TabletRecord, TabletState
from targets.kudu.master.errors import RefusedError, invalid_argument
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import (
    AppStatus,
    GetTableLocationsRequest,
    GetTableLocationsResponse,
    GetTableSchemaRequest,
    GetTableSchemaResponse,
    IsAlterTableDoneRequest,
    IsAlterTableDoneResponse,
    IsCreateTableDoneRequest,
    IsCreateTableDoneResponse,
    ListedTable,
    ListTablesRequest,
    ListTablesResponse,
    MasterErrorCode,
    Meta,
    ReplicaLocation,
    TableIdentifier,
    TabletLocations,
)


def is_create_table_done(
    catalog: Catalog, request: IsCreateTableDoneRequest, meta: Meta
) -> IsCreateTableDoneResponse:
    """Answer whether all live tablets of a table run."""
    table = _find_readable(catalog, request.table)
    tablets = catalog.live_tablets(table.id)
    done = table.is_running and all(t.state is TabletState.RUNNING for t in tablets)
    return IsCreateTableDoneResponse(meta, table_id=table.id, done=done)


def is_alter_table_done(
    catalog: Catalog, request: IsAlterTableDoneRequest, meta: Meta
) -> IsAlterTableDoneResponse:
    """Answer whether all tablets of a table have applied its newest schema."""
    table = _find_readable(catalog, request.table)
    done = table.state is not TableState.ALTERING
    return IsAlterTableDoneResponse(
        meta, table_id=table.id, schema_version=table.version, done=done
    )


def get_table_schema(
    catalog: Catalog, request: GetTableSchemaRequest, meta: Meta
) -> GetTableSchemaResponse:
    """Answer with the schema that readers see: during alters, the one before the alters."""
    table = _find_readable(catalog, request.table)
    check_ranges(table.partition_schema)
    return GetTableSchemaResponse(
        meta,
        table_id=table.id,
        name=table.name,
        schema=table.shown_schema,
        schema_version=table.version,
        applied_schema_version=table.shown_version,
        partition_schema=table.partition_schema,
        num_replicas=table.num_replicas,
        owner=table.owner,
        comment=table.comment,
        state=table.state.name,
    )


def list_tables(catalog: Catalog, request: ListTablesRequest, meta: Meta) -> ListTablesResponse:
    """Answer with all live tables whose name contains the filter, sorted by name."""
    tables = [catalog.tables[table_id] for _, table_id in sorted(catalog.by_name.items())]
    return list_of(tables, request, meta)


def list_of(
    tables: Sequence[TableRecord], request: ListTablesRequest, meta: Meta
) -> ListTablesResponse:
    """Answer with the live tables in `tables` whose name contains the filter, sorted by name."""
    named = {table.name: table for table in tables if table.is_live}
    listed = tuple(
        ListedTable(table.id, name, table.state.name, table.version)
        for name, table in sorted(named.items())
        if request.name_filter in name
    )
    return ListTablesResponse(meta, tables=listed)


def get_table_locations(
    catalog: Catalog,
    tservers: TServerMap,
    flags: Flags,
    request: GetTableLocationsRequest,
    meta: Meta,
) -> GetTableLocationsResponse:
    """Answer with the tablets of a key range, and their replicas in the stored configurations."""
    table = _find_readable(catalog, request.table)
    limit, start, end = request.max_returned_locations, request.key_start, request.key_end
    problem = None
    if limit < 1:
        problem = f"max_returned_locations is {limit}; it must be at least 1"
    elif end and end <= start:
        problem = f"the key range [{start.hex()}, {end.hex()}) is empty; start must be below end"
    if problem is not None:
        raise invalid_argument(problem)
    in_range = [
        tablet
        for tablet in catalog.live_tablets(table.id)
        if (not tablet.partition.end or tablet.partition.end > start)
        and (not end or tablet.partition.start < end)
    ][:limit]
    for tablet in in_range:
        if tablet.state is not TabletState.RUNNING:
            raise RefusedError(
                MasterErrorCode.TABLET_NOT_RUNNING,
                AppStatus.SERVICE_UNAVAILABLE,
                f"the tablet {tablet.id} is not running: {tablet.state.name}",
            )
    return GetTableLocationsResponse(
        meta,
        table_id=table.id,
        schema_version=table.version,
        tablets=tuple(
            _locate(catalog, tablet, tservers, any_replica=request.any_replica)
            for tablet in in_range
        ),
        ttl_ms=flags.table_locations_ttl_ms,
    )


def _find_readable(catalog: Catalog, identifier: TableIdentifier) -> TableRecord:
    """Return the running table that matches `identifier`. Raises `RefusedError`.

    A table in state UNKNOWN, which only the defect ORDER-CREATE publishes, can be read as well:
    when Kudu had this defect, its reads ignored the state.
    """
    table = catalog.find(identifier)
    return table if table.state is TableState.UNKNOWN else catalog.find_running(identifier)


def _locate(
    catalog: Catalog, tablet: TabletRecord, tservers: TServerMap, *, any_replica: bool
) -> TabletLocations:
    consensus = tablet.consensus
    assert consensus is not None, f"the running tablet {tablet.id} has no configuration"
    replicas = []
    for peer in catalog.peers(tablet):
        server = tservers.get(peer.uuid)
        if peer.member_type != "VOTER":
            if not any_replica:
                continue
            role = "LEARNER"
        else:
            role = "LEADER" if peer.uuid == consensus.leader_uuid else "FOLLOWER"
        address = peer.address if server is None else server.address
        replicas.append(ReplicaLocation(peer.uuid, address, role, peer.member_type))
    return TabletLocations(tablet.id, tablet.partition, tuple(replicas))
