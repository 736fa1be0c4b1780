"""Re-replication: the next call for each tablet with too few or too many replicas.

The leader replica of a tablet reports the health of its peers. `replacement.decide` chooses the
next step, and `plan_change` turns this step into a call. A tablet stays in `Catalog.to_review`
until a report of its leader shows that it needs no change. So the master decides again if no server
was free, or if the call was lost. The reports are not stored: a new leader of the masters receives
all reports again.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from targets.kudu.bugs import Bug
from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import ChangeConfig
from targets.kudu.master.catalog.records import TabletState
from targets.kudu.master.tablets.replacement import (
    AddPeer,
    Decision,
    Scheme,
    StepDownLeader,
    decide,
    is_at_rest,
)
from targets.kudu.master.tablets.ts_manager import TServer, place_replicas


def review(
    catalog: Catalog, tablet_id: str, flags: Flags, bugs: Collection[Bug] = ()
) -> Decision | None:
    """Return a tablet's next step, based on its leader's newest report; `None` if none is needed.

    The report is ignored if the stored record has another leader or another configuration, because
    a newer report will follow.
    """
    tablet, view = catalog.tablets.get(tablet_id), catalog.views.get(tablet_id)
    if tablet is None or tablet.state is not TabletState.RUNNING or view is None:
        return None
    table, stored = catalog.tables[tablet.table_id], tablet.consensus
    if not table.is_running or stored is None or stored.leader_uuid != view.leader_uuid:
        return None
    if stored.config.opid_index != view.opid_index:
        return None
    if is_at_rest(stored.config, view.health, table.num_replicas):
        return None
    peers = stored.config.peers
    decision = decide(
        stored.config,
        view.leader_uuid,
        view.health,
        num_replicas=table.num_replicas,
        spared=[peer.uuid for peer in peers if catalog.is_in_maintenance(peer.uuid)],
        scheme=Scheme.PREPARE if flags.raft_prepare_replacement_before_eviction else Scheme.EVICT,
        evicts_successor=Bug.KUDU_2443 in bugs,
    )
    if Bug.KUDU_3789 in bugs and isinstance(decision, StepDownLeader):
        return None  # Kudu's masters lacked this step until a few weeks after KUDU-3789
    return decision


def plan_change(
    catalog: Catalog,
    tablet_id: str,
    decision: Decision,
    servers: Sequence[TServer],
    *,
    rng: random.Random,
    now_ns: int,
) -> ChangeConfig | None:
    """Return the call that carries out `decision`.

    For an addition, the result is `None` if all `servers` already have a replica of the tablet.
    """
    consensus = catalog.tablets[tablet_id].consensus
    assert consensus is not None, f"tablet {tablet_id} was reviewed before it was placed"
    server = None
    if isinstance(decision, AddPeer):
        members = [peer.uuid for peer in consensus.config.peers]
        free = [server for server in servers if server.uuid not in members]
        chosen = place_replicas(free, 1, rng, now_ns)
        if chosen is None:
            return None
        server = chosen[0].uuid, chosen[0].address
    return ChangeConfig(tablet_id, decision, server, consensus.config.opid_index)
