"""Derives the results of a cluster check from the servers' answers (Kudu's `tools/ksck.cc`).

The functions are pure. The first matching rule gives the health of a tablet:

1. a replica is being copied: RECOVERING;
2. fewer voters run than a majority needs: UNAVAILABLE;
3. fewer voters run than the tablet has: UNDER_REPLICATED;
4. there are fewer voters than the table wants: UNDER_REPLICATED;
5. the master knows no leader: UNAVAILABLE;
6. a replica's active configuration has another leader or other members than the master's:
   CONSENSUS_MISMATCH;
7. otherwise: HEALTHY.

Masters must agree on type, term, leader and members of their own group. If a single master does not
answer, the check fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from targets.kudu.tools.ksck_results import (
    ChecksumResults,
    ConsensusState,
    CountSummary,
    Health,
    KsckResults,
    MasterConsensusState,
    ReplicaSummary,
    ServerHealth,
    ServerSummary,
    TableSummary,
    TabletSummary,
    VersionSummary,
)

_BY_WORST: Final = tuple(Health)


class ObservedTablet(msgspec.Struct, frozen=True, kw_only=True):
    """A live tablet as the leading master records it, with its replicas as servers report them."""

    id: str
    master_cstate: ConsensusState
    replicas: tuple[ReplicaSummary, ...]


class ObservedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A live table as the leading master records it, with its tablets."""

    id: str
    name: str
    replication_factor: int
    tablets: tuple[ObservedTablet, ...]


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all servers. `tables` is `None` if no leading master answered."""

    masters: tuple[ServerSummary, ...]
    master_states: tuple[MasterConsensusState, ...]
    tservers: tuple[ServerSummary, ...] = ()
    tserver_states: dict[str, str] = {}
    """Maintenance states of tablet servers by uuid. As in Kudu's JSON, the results lack them."""
    tables: tuple[ObservedTable, ...] | None = None
    unread: tuple[str, ...] = ()
    """The reasons why tables could not be checked, one sentence each."""
    checksums: ChecksumResults | None = None


def judge(seen: Observed) -> KsckResults:
    """Derive the results of a cluster check from the servers' answers."""
    errors = list(_server_errors("masters", seen.masters))
    conflict = _in_conflict(seen)
    if conflict:
        errors.append("Corruption: master consensus error: there are master consensus conflicts")
    results = KsckResults(
        master_summaries=_by_health(seen.masters),
        master_uuids=tuple(sorted(server.uuid for server in seen.masters)),
        master_consensus_conflict=conflict,
        master_consensus_states=seen.master_states,
    )
    if seen.tables is None:
        errors.append("Not found: no leader master was found")
        return msgspec.structs.replace(results, errors=tuple(errors))
    errors += _server_errors("tablet servers", seen.tservers)
    tablets = [_tablet(table, tablet) for table in seen.tables for tablet in table.tablets]
    tables = sorted(
        (_table(table, [t for t in tablets if t.table_id == table.id]) for table in seen.tables),
        key=lambda table: (table.health is not Health.HEALTHY, table.name),
    )
    bad = sum(table.health is not Health.HEALTHY for table in tables)
    if bad:
        errors.append(
            f"Corruption: table consistency check error: {bad} out of {len(tables)} "
            f"{'table is' if bad == 1 else 'tables are'} not healthy"
        )
    errors += [f"Corruption: table consistency check error: {why}" for why in seen.unread]
    errors += _checksum_errors(seen.checksums)
    counts = CountSummary(
        masters=len(seen.masters),
        tservers=len(seen.tservers),
        tables=len(tables),
        tablets=len(tablets),
        replicas=sum(len(tablet.replica_infos) for tablet in tablets),
    )
    versions = _versions([*seen.masters, *seen.tservers])
    warnings = ["version check error: the servers do not all run one version"] * (len(versions) > 1)
    return msgspec.structs.replace(
        results,
        errors=tuple(errors),
        warnings=tuple(warnings),
        tserver_summaries=_by_health(seen.tservers),
        tablet_summaries=tuple(tablets),
        table_summaries=tuple(tables),
        checksum_results=seen.checksums,
        version_summaries=versions,
        count_summaries=(counts,),
    )


def _server_errors(what: str, servers: Sequence[ServerSummary]) -> Iterable[str]:
    bad = sum(server.health is not ServerHealth.HEALTHY for server in servers)
    if bad:
        yield (
            f"Network error: error fetching info from {what}: failed to gather info from all "
            f"{what}: {bad} of {len(servers)} had errors"
        )


def _in_conflict(seen: Observed) -> bool:
    states = {state.uuid: state.consensus_state for state in seen.master_states}
    if any(server.uuid not in states for server in seen.masters):
        return True
    first = next(iter(states.values()), None)
    return first is not None and not all(first.agrees_with(other) for other in states.values())


def _by_health(servers: Sequence[ServerSummary]) -> tuple[ServerSummary, ...]:
    order = tuple(ServerHealth)
    return tuple(sorted(servers, key=lambda s: (order.index(s.health), s.uuid, s.address)))


def _versions(servers: Sequence[ServerSummary]) -> tuple[VersionSummary, ...]:
    by_version: dict[str, list[str]] = {}
    for server in servers:
        if server.version is not None:
            by_version.setdefault(server.version, []).append(f"{server.uuid}({server.address})")
    return tuple(
        VersionSummary(version=version, servers=tuple(sorted(names)))
        for version, names in sorted(by_version.items())
    )


def _tablet(table: ObservedTable, tablet: ObservedTablet) -> TabletSummary:
    health, why = _health(table, tablet)
    status = f"Tablet {tablet.id} of table '{table.name}' is {why}"
    return TabletSummary(
        id=tablet.id,
        table_id=table.id,
        table_name=table.name,
        health=health,
        status=status,
        master_cstate=tablet.master_cstate,
        replica_infos=tablet.replicas,
    )


def _health(table: ObservedTable, tablet: ObservedTablet) -> tuple[Health, str]:
    master, replicas = tablet.master_cstate, tablet.replicas
    voters = [replica for replica in replicas if replica.is_voter]
    running = sum(replica.is_running for replica in voters)
    majority = len(voters) // 2 + 1
    copying = sum(replica.data_state == "COPYING" for replica in replicas)
    if copying:
        return Health.RECOVERING, f"recovering: {copying} on-going tablet copies"
    not_running = f"{len(voters) - running} replica(s) not RUNNING"
    if running < majority:
        return Health.UNAVAILABLE, f"unavailable: {not_running}"
    if running < len(voters):
        return Health.UNDER_REPLICATED, f"under-replicated: {not_running}"
    if len(voters) < table.replication_factor:
        return Health.UNDER_REPLICATED, (
            f"under-replicated: configuration has {len(voters)} replicas vs desired "
            f"{table.replication_factor}"
        )
    if master.leader_uuid is None:
        return Health.UNAVAILABLE, "unavailable: expected one LEADER replica, the master knows none"
    conflicts = [
        replica
        for replica in replicas
        if replica.consensus_state is not None and not replica.consensus_state.agrees_with(master)
    ]
    if conflicts:
        return Health.CONSENSUS_MISMATCH, (
            f"conflicted: {len(conflicts)} replicas' active configs disagree with the leader "
            "master's"
        )
    return Health.HEALTHY, "healthy."


def _table(table: ObservedTable, tablets: Sequence[TabletSummary]) -> TableSummary:
    counts = {health: sum(t.health is health for t in tablets) for health in Health}
    worst = max((t.health for t in tablets), key=_BY_WORST.index, default=Health.HEALTHY)
    return TableSummary(
        id=table.id,
        name=table.name,
        health=worst,
        replication_factor=table.replication_factor,
        total_tablets=len(tablets),
        healthy_tablets=counts[Health.HEALTHY],
        recovering_tablets=counts[Health.RECOVERING],
        underreplicated_tablets=counts[Health.UNDER_REPLICATED],
        unavailable_tablets=counts[Health.UNAVAILABLE],
        consensus_mismatch_tablets=counts[Health.CONSENSUS_MISMATCH],
    )


def _checksum_errors(checksums: ChecksumResults | None) -> Iterable[str]:
    if checksums is None:
        return
    tablets = [tablet for of_table in checksums.tables.values() for tablet in of_table]
    mismatches = sum(tablet.mismatch for tablet in tablets)
    if mismatches:
        yield f"Corruption: checksum scan error: {mismatches} tablet(s) had checksum mismatches"
    failed = sum(
        checksum.checksum is None for tablet in tablets for checksum in tablet.replica_checksums
    )
    if failed:
        yield f"Aborted: checksum scan error: {failed} replica(s) gave no checksum"
