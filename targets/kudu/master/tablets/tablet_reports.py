"""Tablet reports: merges a tablet server's report on its replicas into the catalog.

The rules are Kudu's (`ProcessTabletReport` in `master/catalog_manager.cc`). A replica of a tablet
that the catalog does not know is ignored (with the defect FENCE-ORPHAN, deleted). A replica of a
deleted tablet is deleted. A replica outside its tablet's configuration is tombstoned, by a
compare-and-set on the configuration's index (KUDU-1129). A leader's report on its peers' health is
kept in memory, for `rereplication.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from targets.kudu.master.catalog.catalog_state import Catalog, LeaderView
from targets.kudu.master.catalog.plan import (
    COPYING,
    DELETED,
    TOMBSTONED,
    AlterTablet,
    Call,
    CreateReplica,
    DeleteReplica,
)
from targets.kudu.master.catalog.records import ConsensusState, TabletRecord, TabletState
from targets.kudu.messages import RaftConfig, ReportedTablet


@dataclass(slots=True)
class ReportPlan:
    """The consequences of a tablet report.

    A plan has the tablet records to write, the reported schema versions by tablet id, the calls to
    make, the leaders' reports on their peers' health by tablet id, and alarms.
    """

    tablets: list[TabletRecord] = field(default_factory=list)
    versions: list[tuple[str, int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    views: list[tuple[str, LeaderView]] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)


def is_first_member(config: RaftConfig, ts_uuid: str) -> bool:
    """Whether `config` is a tablet's first configuration and has `ts_uuid` as a member.

    CreateTablet is allowed only for such a member, because its replica has never voted or stored
    data. Members of later configurations get their data by tablet copy.
    """
    return config.opid_index == -1 and _has_peer(config, ts_uuid)


def plan_missing(
    catalog: Catalog, ts_uuid: str, reported: Sequence[ReportedTablet]
) -> list[CreateReplica]:
    """Return calls that create the replicas that are missing in a full report of `ts_uuid`."""
    held = {replica.tablet_id for replica in reported}
    return [
        CreateReplica(tablet_id, ts_uuid)
        for tablet_id, tablet in sorted(catalog.tablets.items())
        if tablet.is_live
        and tablet_id not in held
        and tablet.consensus is not None
        and is_first_member(tablet.consensus.config, ts_uuid)
    ]


def plan_report(
    catalog: Catalog,
    ts_uuid: str,
    reported: Sequence[ReportedTablet],
    *,
    deletes_unknown: bool = False,
) -> ReportPlan:
    """Plan the consequences of a report by `ts_uuid` on its replicas.

    `deletes_unknown` is the defect FENCE-ORPHAN.
    """
    plan = ReportPlan()
    merged: dict[str, TabletRecord] = {}
    for replica in reported:
        tablet = merged.get(replica.tablet_id) or catalog.tablets.get(replica.tablet_id)
        if tablet is None and deletes_unknown:
            plan.calls.append(DeleteReplica(replica.tablet_id, "", ts_uuid, DELETED, "unknown"))
            continue
        if tablet is None:
            plan.alarms.append(f"tablet {replica.tablet_id} is unknown; ignored")
            continue
        changed = _judge(catalog, ts_uuid, replica, tablet, plan)
        if changed is not None and changed != tablet:
            merged[tablet.id] = changed
    plan.tablets.extend(merged.values())
    return plan


def _judge(
    catalog: Catalog, ts_uuid: str, replica: ReportedTablet, tablet: TabletRecord, plan: ReportPlan
) -> TabletRecord | None:
    """Return the tablet's new record after this report; `None` if the record does not change.

    Calls, versions, views and alarms are added to `plan`.
    """
    table = catalog.tables.get(tablet.table_id)
    if not tablet.is_live or table is None or not table.is_live:
        if replica.data_state != DELETED and table is not None:
            reason = tablet.state_msg or "the table was deleted"
            plan.calls.append(DeleteReplica(tablet.id, tablet.table_id, ts_uuid, DELETED, reason))
        return None
    config, stored = replica.committed_config, tablet.consensus
    if replica.data_state == COPYING and config is None:
        return None  # the replica does not know its configuration yet, but may be a member: keep it
    if stored is None or _is_stray(ts_uuid, replica, stored.config):
        if stored is not None and replica.data_state != TOMBSTONED:
            plan.calls.append(_tombstone(tablet, ts_uuid, stored.config.opid_index))
        return None
    if replica.error is not None or config is None or replica.data_state != "READY":
        return None
    plan.versions.append((tablet.id, replica.schema_version))
    if replica.schema_version != table.version:
        plan.calls.append(AlterTablet(tablet.id))
    leader = replica.leader_uuid if _has_peer(config, replica.leader_uuid) else None
    state = tablet.state
    if state is TabletState.CREATING and replica.state == "RUNNING" and leader is not None:
        # A tablet with a leader runs. A tablet without one stays CREATING (otherwise: bug
        # CREATE-MINORITY).
        state = TabletState.RUNNING
    consensus = _merge(stored, replica, config, leader, ts_uuid, plan)
    if leader == ts_uuid and replica.peer_health and not replica.has_pending_config:
        view = LeaderView(ts_uuid, config.opid_index, replica.peer_health)
        plan.views.append((tablet.id, view))
    # tombstone the replicas that the new configuration evicted
    if consensus.config.opid_index > stored.config.opid_index:
        plan.calls.extend(
            _tombstone(tablet, peer.uuid, stored.config.opid_index)
            for peer in stored.config.peers
            if not _has_peer(consensus.config, peer.uuid)
        )
    if state is tablet.state and consensus is stored:
        return None
    return msgspec.structs.replace(tablet, state=state, consensus=consensus)


def _merge(
    stored: ConsensusState,
    replica: ReportedTablet,
    config: RaftConfig,
    leader: str | None,
    ts_uuid: str,
    plan: ReportPlan,
) -> ConsensusState:
    """Return the tablet's consensus state after a report.

    The reported configuration, term and leader are accepted only if they are newer.
    """
    leader_before = stored.leader_uuid
    both_known = leader is not None and leader_before is not None
    if replica.term == stored.term and both_known and leader != leader_before:
        plan.alarms.append(
            f"tablet {replica.tablet_id} has two leaders in term {stored.term}: "
            f"{leader_before} and, according to {ts_uuid}, {leader}; ignored"
        )
        return stored
    newer_config = config.opid_index > stored.config.opid_index
    newer_leader = leader is not None and (
        replica.term > stored.term or (stored.leader_uuid is None and replica.term == stored.term)
    )
    if not newer_config and not newer_leader:
        return stored
    config = config if newer_config else stored.config
    # The reported configuration may be newer, but the reported leader is not.
    if replica.term < stored.term:
        leader = leader_before if _has_peer(config, leader_before) else None
        return ConsensusState(stored.term, leader, config)
    if leader is None and replica.term == stored.term and leader_before != ts_uuid:
        # A new follower may not know its leader yet, which does not mean that there is none
        # (KUDU-1069).
        leader = leader_before if _has_peer(config, leader_before) else None
    return ConsensusState(replica.term, leader, config)


def _is_stray(ts_uuid: str, replica: ReportedTablet, stored: RaftConfig) -> bool:
    """Whether a replica is outside the stored configuration and knows no newer configuration.

    A replica that knows the configuration by which it was evicted is a stray too. Kudu keeps such a
    replica.
    """
    if _has_peer(stored, ts_uuid):
        return False
    config = replica.committed_config
    return config is None or config.opid_index <= stored.opid_index


def _tombstone(tablet: TabletRecord, ts_uuid: str, opid_index: int) -> DeleteReplica:
    reason = f"not in the committed configuration of index {opid_index}"
    return DeleteReplica(tablet.id, tablet.table_id, ts_uuid, TOMBSTONED, reason, opid_index)


def _has_peer(config: RaftConfig, uuid: str | None) -> bool:
    return uuid is not None and uuid in [peer.uuid for peer in config.peers]
