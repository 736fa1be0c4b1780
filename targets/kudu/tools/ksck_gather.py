"""Collects the data for a cluster check (Kudu's `tools/ksck_remote.cc`).

The leading master reports tables and replicas, as it does to any client. Then each tablet server
reports its own replicas. The result also shows which servers did not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from targets.kudu import messages as m
from targets.kudu.consensus.messages import GetConsensusStateRequest
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.rpc import RpcError
from targets.kudu.tools.admin import LOCATIONS_MAX, Admin, ToolError, state_of
from targets.kudu.tools.ksck_judge import Observed, ObservedTable, ObservedTablet
from targets.kudu.tools.ksck_results import (
    ChecksumResults,
    ConfigType,
    ConsensusState,
    MasterConsensusState,
    ReplicaChecksum,
    ReplicaSummary,
    ServerHealth,
    ServerSummary,
    TabletChecksum,
)

_UNKNOWN: Final = "<unknown>"
_Hosted = Mapping[str, m.HostedTablet]


async def gather(admin: Admin, *, checksum: bool = False) -> Observed:
    """Collect the input of `judge`; with `checksum`, add checksums of all replicas' rows."""
    asked = await admin.all_of(admin.masters, lambda address: _master(admin, address))
    masters = tuple(server for server, _ in asked)
    states = tuple(
        MasterConsensusState(uuid=server.uuid, consensus_state=state)
        for server, state in asked
        if state is not None
    )
    try:
        leader = await admin.leader()
        registered = await admin.ask_master(leader, m.ListTabletServersRequest())
        listed = await admin.ask_master(leader, m.ListTablesRequest())
    except ToolError:
        return Observed(masters=masters, master_states=states)
    hosted = await admin.all_of(registered.servers, lambda entry: _tserver(admin, entry))
    tservers = tuple(server for server, _ in hosted)
    replicas = _Replicas(admin, {server.uuid: (server, held) for server, held in hosted})
    tables = [await replicas.table(leader, table) for table in listed.tables]
    gathered = tuple(table for table in tables if table is not None)
    return Observed(
        masters=masters,
        master_states=states,
        tservers=tservers,
        tserver_states={entry.uuid: state_of(entry) for entry in registered.servers},
        tables=gathered,
        unread=tuple(replicas.unread),
        checksums=await replicas.checksums(gathered) if checksum else None,
    )


async def _master(admin: Admin, address: str) -> tuple[ServerSummary, ConsensusState | None]:
    try:
        who = await admin.ask(address, m.GetMasterRegistrationRequest())
        uuid = who.meta.master_uuid
        state = await _consensus_state(admin, address, uuid, SYSTEM_TABLET_ID)
    except RpcError as error:
        return _unavailable(_UNKNOWN, address, error), None
    return _healthy(uuid, address, who.software_version), state


def _healthy(uuid: str, address: str, version: str) -> ServerSummary:
    return ServerSummary(
        uuid=uuid, address=address, health=ServerHealth.HEALTHY, version=version or None
    )


def _unavailable(uuid: str, address: str, error: RpcError) -> ServerSummary:
    status = f"Network error: {error}"
    return ServerSummary(uuid=uuid, address=address, health=ServerHealth.UNAVAILABLE, status=status)


async def _tserver(admin: Admin, entry: m.TabletServerEntry) -> tuple[ServerSummary, _Hosted]:
    try:
        answer = await admin.ask(entry.address, m.ListTabletsRequest())
    except RpcError as error:
        return _unavailable(entry.uuid, entry.address, error), {}
    if answer.ts_uuid != entry.uuid:
        other = ServerSummary(
            uuid=entry.uuid,
            address=entry.address,
            health=ServerHealth.WRONG_SERVER_UUID,
            status=f"Remote error: the server there is {answer.ts_uuid}",
        )
        return other, {}
    held = {tablet.tablet_id: tablet for tablet in answer.tablets}
    return _healthy(entry.uuid, entry.address, answer.software_version), held


async def _consensus_state(
    admin: Admin, address: str, uuid: str, tablet_id: str
) -> ConsensusState | None:
    answer = await admin.ask(address, GetConsensusStateRequest(uuid, tablet_id))
    config = answer.active_config
    if answer.error is not None or config is None:
        return None
    kind = ConfigType.COMMITTED if answer.pending_config is None else ConfigType.PENDING
    return ConsensusState(
        type=kind,
        term=answer.current_term,
        opid_index=config.opid_index,
        leader_uuid=answer.leader_uuid,
        voter_uuids=tuple(sorted(p.uuid for p in config.peers if p.member_type == "VOTER")),
        non_voter_uuids=tuple(sorted(p.uuid for p in config.peers if p.member_type != "VOTER")),
    )


class _Replicas:
    """Reads tables from the leading master, and their replicas from tablet servers."""

    def __init__(self, admin: Admin, servers: Mapping[str, tuple[ServerSummary, _Hosted]]) -> None:
        self._admin = admin
        self._servers = servers
        self.unread: list[str] = []

    async def table(self, leader: str, listed: m.ListedTable) -> ObservedTable | None:
        """Read a table; return `None` if it was just deleted or cannot be read."""
        identifier = m.TableIdentifier(table_id=listed.id)
        locations = m.GetTableLocationsRequest(
            identifier, max_returned_locations=LOCATIONS_MAX, any_replica=True
        )
        try:
            schema, located = await asyncio.gather(
                self._admin.ask_master(leader, m.GetTableSchemaRequest(identifier)),
                self._admin.ask_master(leader, locations),
            )
        except ToolError as error:
            if not str(error).startswith("Not found"):
                self.unread.append(f"the table {listed.name!r} cannot be read: {error}")
            return None
        tablets = await self._admin.all_of(located.tablets, self._tablet)
        return ObservedTable(
            id=listed.id,
            name=listed.name,
            replication_factor=schema.num_replicas,
            tablets=tuple(tablets),
        )

    async def _tablet(self, tablet: m.TabletLocations) -> ObservedTablet:
        def uuids(*, voters: bool) -> tuple[str, ...]:
            return tuple(
                sorted(r.ts_uuid for r in tablet.replicas if (r.member_type == "VOTER") == voters)
            )

        leader = next((r.ts_uuid for r in tablet.replicas if r.role == "LEADER"), None)
        record = ConsensusState(
            type=ConfigType.MASTER,
            leader_uuid=leader,
            voter_uuids=uuids(voters=True),
            non_voter_uuids=uuids(voters=False),
        )
        replicas = [await self._replica(tablet.tablet_id, r) for r in tablet.replicas]
        return ObservedTablet(id=tablet.tablet_id, master_cstate=record, replicas=tuple(replicas))

    async def _replica(self, tablet_id: str, location: m.ReplicaLocation) -> ReplicaSummary:
        server, held = self._servers.get(location.ts_uuid, (None, {}))
        healthy = server is not None and server.health is ServerHealth.HEALTHY
        hosted, state = held.get(tablet_id), None
        if healthy and hosted is not None and hosted.data_state == "READY":
            try:
                state = await _consensus_state(
                    self._admin, location.address, location.ts_uuid, tablet_id
                )
            except RpcError:
                healthy = False
        return ReplicaSummary(
            ts_uuid=location.ts_uuid,
            ts_address=location.address,
            ts_healthy=healthy,
            is_leader=location.role == "LEADER",
            is_voter=location.member_type == "VOTER",
            state=None if hosted is None or not healthy else hosted.state,
            data_state=None if hosted is None else hosted.data_state,
            consensus_state=state,
        )

    async def checksums(self, tables: Sequence[ObservedTable]) -> ChecksumResults:
        """Return checksums of all replicas' rows, at a timestamp from each tablet's leader."""
        return ChecksumResults(
            tables={
                table.name: tuple(await self._admin.all_of(table.tablets, self._checksum))
                for table in tables
            }
        )

    async def _checksum(self, tablet: ObservedTablet) -> TabletChecksum:
        leader_first = sorted(tablet.replicas, key=lambda replica: not replica.is_leader)
        results: list[ReplicaChecksum] = []
        timestamp = 0
        for replica in leader_first:
            status, checksum = "OK", None
            try:
                request = m.ChecksumRequest(tablet.id, timestamp)
                answer = await self._admin.ask(str(replica.ts_address), request)
            except RpcError as error:
                status = f"Network error: {error}"
            else:
                if answer.error is not None:
                    status = f"{answer.error.code.name}: {answer.error.message}"
                else:
                    checksum, timestamp = answer.checksum, timestamp or answer.snap_timestamp
            results.append(
                ReplicaChecksum(
                    ts_uuid=replica.ts_uuid,
                    ts_address=str(replica.ts_address),
                    status=status,
                    checksum=checksum,
                )
            )
        distinct = {replica.checksum for replica in results if replica.checksum is not None}
        return TabletChecksum(
            tablet_id=tablet.id, mismatch=len(distinct) > 1, replica_checksums=tuple(results)
        )
