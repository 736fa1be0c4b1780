"""MasterService: from requests to answers.

In profile `strict` a read is three steps: this master leads and is ready; a majority confirms it
and everything committed by then is applied; the answer is computed in one synchronous step. The
error answers of reads go the same way, since "not found" is an observation as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from targets.kudu.bugs import Bug
from targets.kudu.context import SOFTWARE_VERSION, NodeContext
from targets.kudu.master import reads
from targets.kudu.master.admin import Admin
from targets.kudu.master.catalog.catalog_manager import Ddl
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.dump import dump_entities, master_status
from targets.kudu.master.errors import RefusedError, not_initialized
from targets.kudu.master.follower_reads import FollowerReads
from targets.kudu.master.leader_term import Epoch, Outcome
from targets.kudu.master.leadership import Leadership
from targets.kudu.master.membership import Membership
from targets.kudu.master.tablets.heartbeats import Heartbeats
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import (
    METHODS,
    AddMasterRequest,
    AddMasterResponse,
    AlterTableRequest,
    AlterTableResponse,
    ChangeTServerStateRequest,
    ChangeTServerStateResponse,
    ConnectToMasterRequest,
    ConnectToMasterResponse,
    CreateTableRequest,
    CreateTableResponse,
    DeleteTableRequest,
    DeleteTableResponse,
    DumpEntitiesRequest,
    DumpResponse,
    GetMasterRegistrationRequest,
    GetMasterRegistrationResponse,
    GetTableLocationsRequest,
    GetTableLocationsResponse,
    GetTableSchemaRequest,
    GetTableSchemaResponse,
    IsAlterTableDoneRequest,
    IsAlterTableDoneResponse,
    IsCreateTableDoneRequest,
    IsCreateTableDoneResponse,
    ListMastersRequest,
    ListMastersResponse,
    ListTablesRequest,
    ListTablesResponse,
    ListTabletServersRequest,
    ListTabletServersResponse,
    MasterError,
    Meta,
    RemoveMasterRequest,
    RemoveMasterResponse,
    ReplaceTabletRequest,
    ReplaceTabletResponse,
    TabletServerEntry,
)
from targets.kudu.rpc import RpcServer

_TORN_S: Final = 0.001
"""What a master needs for one table of a list, about, when others work beside it."""

Request = TypeVar("Request", bound=msgspec.Struct)
Response = TypeVar("Response", bound=msgspec.Struct)
DdlRequest = TypeVar("DdlRequest", CreateTableRequest, AlterTableRequest, DeleteTableRequest)


class MasterService:
    """The handlers; `register` puts them on a server."""

    def __init__(
        self,
        node: NodeContext,
        *,
        rows: SystemTablet,
        leadership: Leadership,
        tservers: TServerMap,
        ddl: Ddl,
        admin: Admin,
        heartbeats: Heartbeats,
        follower_reads: FollowerReads,
        membership: Membership,
        hms: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.start_ns = node.env.clock.wall_ns()
        self._node = node
        self._uuid = node.uuid
        self._rows = rows
        self._leadership = leadership
        self._tservers = tservers
        self._ddl = ddl
        self._admin = admin
        self._heartbeats = heartbeats
        self._follower_reads = follower_reads
        self._membership = membership
        self._hms = hms
        self._calls: Mapping[str, int] = {}

    def register(self, server: RpcServer) -> None:
        """Serve every `MasterService.*` method."""
        self._calls = server.calls
        handlers: dict[str, Callable[[Any, str], Awaitable[msgspec.Struct] | msgspec.Struct]] = {
            "CreateTable": self.create_table,
            "AlterTable": self.alter_table,
            "DeleteTable": self.delete_table,
            "IsCreateTableDone": self.is_create_table_done,
            "IsAlterTableDone": self.is_alter_table_done,
            "GetTableSchema": self.get_table_schema,
            "ListTables": self.list_tables,
            "GetTableLocations": self.get_table_locations,
            "ConnectToMaster": self.connect_to_master,
            "GetMasterRegistration": self.get_master_registration,
            "AddMaster": self.add_master,
            "RemoveMaster": self.remove_master,
            "ListMasters": self.list_masters,
            "ListTabletServers": self.list_tablet_servers,
            "ReplaceTablet": self.replace_tablet,
            "ChangeTServerState": self.change_tserver_state,
            "TSHeartbeat": self._heartbeats.handle,
            "DumpEntities": self.dump_entities,
        }
        for name, handler in handlers.items():
            method = f"MasterService.{name}"
            server.register(method, handler, METHODS[method][0])

    # --- DDL ---------------------------------------------------------------------------------

    async def create_table(self, request: CreateTableRequest, _peer: str) -> CreateTableResponse:
        """`MasterService.CreateTable`."""
        meta, outcome = await self._change(self._ddl.create, request)
        if isinstance(outcome, MasterError):
            return CreateTableResponse(meta, error=outcome)
        return CreateTableResponse(
            meta, table_id=outcome.table_id, schema_version=outcome.schema_version
        )

    async def alter_table(self, request: AlterTableRequest, _peer: str) -> AlterTableResponse:
        """`MasterService.AlterTable`."""
        meta, outcome = await self._change(self._ddl.alter, request)
        if isinstance(outcome, MasterError):
            return AlterTableResponse(meta, error=outcome)
        return AlterTableResponse(
            meta, table_id=outcome.table_id, schema_version=outcome.schema_version
        )

    async def delete_table(self, request: DeleteTableRequest, _peer: str) -> DeleteTableResponse:
        """`MasterService.DeleteTable`."""
        meta, outcome = await self._change(self._ddl.delete, request)
        if isinstance(outcome, MasterError):
            return DeleteTableResponse(meta, error=outcome)
        return DeleteTableResponse(
            meta, table_id=outcome.table_id, schema_version=outcome.schema_version
        )

    async def _change(
        self, operation: Callable[[Epoch, DdlRequest], Awaitable[Outcome]], request: DdlRequest
    ) -> tuple[Meta, Outcome]:
        try:
            epoch = self._leadership.ready()
            outcome = await operation(epoch, request)
        except RefusedError as refusal:
            return self._meta(), refusal.error
        if isinstance(outcome, MasterError):
            return self._meta(epoch), outcome
        return Meta(self._uuid, outcome.term, outcome.index), outcome

    async def replace_tablet(
        self, request: ReplaceTabletRequest, _peer: str
    ) -> ReplaceTabletResponse:
        """`MasterService.ReplaceTablet`."""
        try:
            epoch = self._leadership.ready()
            new_id = await self._admin.replace_tablet(epoch, request)
        except RefusedError as refusal:
            return ReplaceTabletResponse(self._meta(), error=refusal.error)
        return ReplaceTabletResponse(self._meta(epoch), replacement_tablet_id=new_id)

    async def change_tserver_state(
        self, request: ChangeTServerStateRequest, _peer: str
    ) -> ChangeTServerStateResponse:
        """`MasterService.ChangeTServerState`."""
        try:
            epoch = self._leadership.ready()
            await self._admin.change_tserver_state(epoch, request)
        except RefusedError as refusal:
            return ChangeTServerStateResponse(self._meta(), error=refusal.error)
        return ChangeTServerStateResponse(self._meta(epoch))

    # --- reads -------------------------------------------------------------------------------

    async def is_create_table_done(
        self, request: IsCreateTableDoneRequest, _peer: str
    ) -> IsCreateTableDoneResponse:
        """`MasterService.IsCreateTableDone`."""
        return await self._read(reads.is_create_table_done, request, IsCreateTableDoneResponse)

    async def is_alter_table_done(
        self, request: IsAlterTableDoneRequest, _peer: str
    ) -> IsAlterTableDoneResponse:
        """`MasterService.IsAlterTableDone`."""
        return await self._read(reads.is_alter_table_done, request, IsAlterTableDoneResponse)

    async def get_table_schema(
        self, request: GetTableSchemaRequest, _peer: str
    ) -> GetTableSchemaResponse:
        """`MasterService.GetTableSchema`."""
        return await self._read(
            reads.get_table_schema, request, GetTableSchemaResponse, request.max_staleness_ms
        )

    async def list_tables(self, request: ListTablesRequest, _peer: str) -> ListTablesResponse:
        """`MasterService.ListTables`."""
        if Bug.LIST_TORN in self._node.bugs and request.max_staleness_ms is None:
            return await self._list_torn(request)
        return await self._read(
            reads.list_tables, request, ListTablesResponse, request.max_staleness_ms
        )

    async def _list_torn(self, request: ListTablesRequest) -> ListTablesResponse:
        """Switch LIST-TORN: the names are copied, then one table after the other is read."""
        try:
            epoch = self._leadership.ready()
            await epoch.confirm()
            meta, found = self._meta(epoch), []
            for table_id in [table_id for _, table_id in sorted(epoch.catalog.by_name.items())]:
                await asyncio.sleep(_TORN_S)
                epoch.check()
                found.append(epoch.catalog.tables[table_id])
        except RefusedError as refusal:
            return ListTablesResponse(self._meta(), error=refusal.error)
        return reads.list_of(found, request, meta)

    async def get_table_locations(
        self, request: GetTableLocationsRequest, _peer: str
    ) -> GetTableLocationsResponse:
        """`MasterService.GetTableLocations`."""

        def locate(
            catalog: Catalog, request: GetTableLocationsRequest, meta: Meta
        ) -> GetTableLocationsResponse:
            return reads.get_table_locations(
                catalog, self._tservers, self._node.flags, request, meta
            )

        return await self._read(locate, request, GetTableLocationsResponse)

    async def _read(
        self,
        evaluate: Callable[[Catalog, Request, Meta], Response],
        request: Request,
        response_type: Callable[..., Response],
        max_staleness_ms: int | None = None,
    ) -> Response:
        try:
            if max_staleness_ms is not None:
                return await self._follower_reads.read(
                    max_staleness_ms, lambda catalog, meta: evaluate(catalog, request, meta)
                )
            epoch = self._leadership.ready()
            await epoch.confirm()
        except RefusedError as refusal:
            return response_type(self._meta(), error=refusal.error)
        return evaluate(epoch.catalog, request, self._meta(epoch))

    # --- the cluster -------------------------------------------------------------------------

    def connect_to_master(
        self, _request: ConnectToMasterRequest, _peer: str
    ) -> ConnectToMasterResponse:
        """`MasterService.ConnectToMaster`: the role as the catalog sees it."""
        replica = self._leadership.replica
        if replica is None:
            return ConnectToMasterResponse(self._meta(), error=not_initialized())
        return ConnectToMasterResponse(
            self._meta(),
            role="FOLLOWER" if self._leadership.epoch is None else "LEADER",
            master_addresses=tuple(member.address for member in replica.config.peers),
            cluster_id=self._rows.cluster_id or "",
        )

    def get_master_registration(
        self, _request: GetMasterRegistrationRequest, _peer: str
    ) -> GetMasterRegistrationResponse:
        """`MasterService.GetMasterRegistration`: the raw Raft role.

        The uuid is in the answer of a starting master as well: that is how masters learn of one
        another before the first configuration exists.
        """
        replica = self._leadership.replica
        if replica is None:
            return GetMasterRegistrationResponse(
                self._meta(),
                error=not_initialized(),
                address=self._node.address,
                told_masters=self._membership.told_masters,
                software_version=SOFTWARE_VERSION,
            )
        types = [m.member_type for m in replica.config.peers if m.uuid == self._uuid]
        return GetMasterRegistrationResponse(
            self._meta(),
            address=self._node.address,
            role=replica.role,
            member_type=types[0] if types else "NON_PARTICIPANT",
            start_ns=self.start_ns,
            committed_config=replica.committed_config,
            active_index=replica.config.opid_index,
            told_masters=self._membership.told_masters,
            software_version=SOFTWARE_VERSION,
        )

    async def add_master(self, request: AddMasterRequest, _peer: str) -> AddMasterResponse:
        """`MasterService.AddMaster`."""
        try:
            await self._membership.add(request)
        except RefusedError as refusal:
            return AddMasterResponse(self._meta(), error=refusal.error)
        return AddMasterResponse(self._meta())

    async def remove_master(self, request: RemoveMasterRequest, _peer: str) -> RemoveMasterResponse:
        """`MasterService.RemoveMaster`."""
        try:
            await self._membership.remove(request)
        except RefusedError as refusal:
            return RemoveMasterResponse(self._meta(), error=refusal.error)
        return RemoveMasterResponse(self._meta())

    async def list_masters(self, _request: ListMastersRequest, _peer: str) -> ListMastersResponse:
        """`MasterService.ListMasters`, on every master alike; a revision only from the leader."""
        if self._leadership.replica is None:
            return ListMastersResponse(self._meta(), error=not_initialized())
        meta, epoch = self._meta(), self._leadership.epoch
        if epoch is not None:
            with contextlib.suppress(RefusedError):
                await epoch.confirm()
                meta = self._meta(epoch)
        return ListMastersResponse(meta, masters=await self._membership.list())

    def list_tablet_servers(
        self, _request: ListTabletServersRequest, _peer: str
    ) -> ListTabletServersResponse:
        """`MasterService.ListTabletServers`: this master's own view, whatever its role."""
        now_ns = self._node.env.clock.monotonic_ns()
        servers = tuple(
            TabletServerEntry(
                server.uuid,
                server.address,
                (now_ns - server.heard_ns) // 1_000_000,
                server.num_live_tablets,
                maintenance is not None and maintenance.in_maintenance,
            )
            for server in self._tservers
            for maintenance in (self._rows.tservers.get(server.uuid),)
        )
        return ListTabletServersResponse(self._meta(), servers=servers)

    async def dump_entities(self, _request: DumpEntitiesRequest, _peer: str) -> DumpResponse:
        """`MasterService.DumpEntities`: applied rows and the replica's own account."""
        files = len(await self._node.env.disk.list())
        hms = {} if self._hms is None else {"hms": self._hms()}
        return DumpResponse({**dump_entities(**self._parts()), "files": files, **hms})

    def status(self) -> dict[str, Any]:
        """What its pages are made of."""
        return master_status(**self._parts())

    def _parts(self) -> dict[str, Any]:
        return {
            "uuid": self._uuid,
            "leadership": self._leadership,
            "rows": self._rows,
            "tservers": self._tservers,
            "now_ns": self._node.env.clock.monotonic_ns(),
            "calls": self._calls,
        }

    def _meta(self, epoch: Epoch | None = None) -> Meta:
        if epoch is not None:
            return Meta(self._uuid, epoch.term, epoch.catalog.revision)
        replica = self._leadership.replica
        return Meta(self._uuid, 0 if replica is None else replica.term)
