"""DeleteTable: the table REMOVED and all its tablets DELETED in one batch, then the replicas.

Before 2016 Kudu wrote them one by one (KUDU-495) and told tablet servers first (ORDER-DELETE).
"""

from __future__ import annotations

from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import DELETED, DeleteReplica, Plan
from targets.kudu.master.catalog.records import TabletRecord, TabletState
from targets.kudu.messages import DeleteTableRequest, MasterError


def plan_delete(
    catalog: Catalog, request: DeleteTableRequest, *, now_ns: int
) -> Plan | MasterError:
    """Delete a table and everything of it."""
    table = catalog.find(request.table)
    if isinstance(table, MasterError):
        return table
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
    """Calls that delete every replica of a tablet that is no more."""
    return tuple(
        DeleteReplica(tablet.id, tablet.table_id, peer.uuid, DELETED, reason)
        for peer in catalog.peers(tablet)
    )
