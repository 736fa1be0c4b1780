"""Re-replication: the next call for each tablet with too few or too many replicas.

The leader replica of a tablet reports how it sees its peers. `replacement.decide` chooses the next
step, and this module turns that into a call. Nothing is stored: a new leader of the masters
receives all reports again. A tablet stays in `Catalog.to_review` until its own leader's report
shows it at rest, so a decision that finds no server, or a call that is lost, is repeated.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import ChangeConfig
from targets.kudu.master.catalog.records import TabletState
from targets.kudu.master.tablets.replacement import AddPeer, Decision, Scheme, decide, is_at_rest
from targets.kudu.master.tablets.ts_manager import TServer, place_replicas


def review(catalog: Catalog, tablet_id: str, flags: Flags) -> Decision | None:
    """The next need of a tablet, according to the newest report of its known leader.

    A report of another leader or configuration is ignored, because a newer one is on its way.
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
    return decide(
        stored.config,
        view.leader_uuid,
        view.health,
        num_replicas=table.num_replicas,
        spared=[peer.uuid for peer in peers if catalog.is_in_maintenance(peer.uuid)],
        scheme=Scheme.PREPARE if flags.raft_prepare_replacement_before_eviction else Scheme.EVICT,
    )


def plan_change(
    catalog: Catalog,
    tablet_id: str,
    decision: Decision,
    servers: Sequence[TServer],
    *,
    rng: random.Random,
    now_ns: int,
) -> ChangeConfig | None:
    """The call that carries out `decision`; `None` if all `servers` have a replica."""
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
