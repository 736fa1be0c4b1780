"""The background loop's plans for one table: place tablets, replace tablets, complete an alter.

PREPARING tablets become CREATING on chosen tablet servers. A tablet that stays CREATING beyond
`tablet_creation_timeout_ms` is REPLACED by a new tablet with the same partition. The timeout counts
from the time in the stored record, so that failovers do not postpone the replacement forever (bug
BG-CLOCK-RESET). If that time is in the future, because another leader's clock ran ahead, the
timeout counts from the start of this leadership.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.alter import alter_done, delete_replicas
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import Call, CreateReplica, Plan
from targets.kudu.master.catalog.records import (
    ConsensusState,
    Origin,
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
)
from targets.kudu.master.tablets.ts_manager import TServer, place_replicas
from targets.kudu.messages import PeerConfig, RaftConfig

ASSIGNED_MAX: Final = 4096
"""Maximum number of tablets in one batch of placements; later batches place the rest."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The clock readings for one decision about timeouts.

    `ready_ns` is the monotonic time at which this leadership began to serve. With
    `counts_own_time_only` (defect BG-CLOCK-RESET), time before `ready_ns` does not count.
    """

    wall_ns: int
    monotonic_ns: int
    ready_ns: int
    counts_own_time_only: bool = False


def tables_with_work(catalog: Catalog) -> list[str]:
    """Return the ids of tables with an unfinished alter or a tablet that does not run, sorted."""
    return sorted(catalog.unsettled)


def plan_assignments(
    catalog: Catalog,
    table: TableRecord,
    alive: Sequence[TServer],
    flags: Flags,
    moment: Moment,
    *,
    rng: random.Random,
    new_id: Callable[[], str],
) -> Plan:
    """Plan the placements and replacements of one table's tablets as one batch.

    The plan has at most `ASSIGNED_MAX` tablets; the next call plans the rest. It is empty if no
    tablet needs a change, or if too few tablet servers are alive.
    """
    changed: list[TabletRecord] = []
    calls: list[Call] = []
    for tablet in catalog.live_tablets(table.id):
        if tablet.state is TabletState.CREATING:
            if not _is_overdue(tablet, flags, moment):
                continue
            fresh = TabletRecord(new_id(), table.id, tablet.partition, TabletState.PREPARING)
            placed = _place(fresh, table, alive, moment, rng)
            if placed is None:
                # No servers are free for a new tablet yet, and the old tablet may still start.
                continue
            reason = f"not created in time; replaced by {placed.id}"
            changed.append(tablet.buried(TabletState.REPLACED, moment.wall_ns, reason))
            calls.extend(delete_replicas(catalog, tablet, reason))
        elif tablet.state is TabletState.PREPARING:
            placed = _place(tablet, table, alive, moment, rng)
            if placed is None:
                continue
        else:
            continue
        changed.append(placed)
        calls.extend(create_replicas(placed))
        if len(changed) >= ASSIGNED_MAX:
            break
    return Plan(table.id, table.version, tablets=tuple(changed), calls=tuple(calls))


def lacks_servers(
    catalog: Catalog, table: TableRecord, alive: Sequence[TServer], flags: Flags, moment: Moment
) -> bool:
    """Whether a tablet of the table is due for placement, but too few tablet servers are alive."""
    return table.num_replicas > len(alive) and any(
        tablet.state is TabletState.PREPARING
        or (tablet.state is TabletState.CREATING and _is_overdue(tablet, flags, moment))
        for tablet in catalog.live_tablets(table.id)
    )


def plan_replacement(catalog: Catalog, tablet_id: str, new_id: str, now_ns: int) -> Plan | None:
    """Plan the replacement of a live tablet by an empty one; `None` if the old one is gone.

    All rows of the old tablet are lost. Operators request this if a majority of the tablet's
    replicas is lost for good.
    """
    tablet = catalog.tablets.get(tablet_id)
    if tablet is None or not tablet.is_live:
        return None
    table = catalog.tables[tablet.table_id]
    reason = f"replaced on request by {new_id}"
    fresh = TabletRecord(new_id, table.id, tablet.partition, TabletState.PREPARING)
    return Plan(
        table.id,
        table.version,
        tablets=(tablet.buried(TabletState.DELETED, now_ns, reason), fresh),
        calls=delete_replicas(catalog, tablet, reason),
    )


def plan_completion(catalog: Catalog, table: TableRecord) -> Plan | None:
    """Plan the end of an alter; `None` unless all tablets have reported the new schema version."""
    if table.state is not TableState.ALTERING or not catalog.is_fully_altered(table):
        return None
    return Plan(table.id, table.version, tables=(alter_done(table),))


def create_replicas(tablet: TabletRecord) -> tuple[CreateReplica, ...]:
    """Build the calls that create every replica of a CREATING tablet."""
    assert tablet.consensus is not None, f"tablet {tablet.id} was not placed"
    return tuple(CreateReplica(tablet.id, peer.uuid) for peer in tablet.consensus.config.peers)


def _is_overdue(tablet: TabletRecord, flags: Flags, moment: Moment) -> bool:
    timeout_ns = flags.tablet_creation_timeout_ms * 1_000_000
    is_old = moment.wall_ns - tablet.created_ns > timeout_ns
    is_old_to_us = moment.monotonic_ns - moment.ready_ns > timeout_ns
    if moment.counts_own_time_only:
        return is_old and is_old_to_us
    from_the_future = tablet.created_ns > moment.wall_ns
    return is_old or (from_the_future and is_old_to_us)


def _place(
    tablet: TabletRecord,
    table: TableRecord,
    alive: Sequence[TServer],
    moment: Moment,
    rng: random.Random,
) -> TabletRecord | None:
    servers = place_replicas(alive, table.num_replicas, rng, moment.monotonic_ns)
    if servers is None:
        return None
    peers = tuple(PeerConfig(server.uuid, server.address) for server in servers)
    return msgspec.structs.replace(
        tablet,
        state=TabletState.CREATING,
        consensus=ConsensusState(0, None, RaftConfig(-1, peers)),
        origin=Origin(table.name, table.schema, table.version),
        created_ns=moment.wall_ns,
    )
