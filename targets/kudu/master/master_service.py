"""The RPC handlers of MasterService.

In the profile `strict`, a read has three steps: check that this master leads and is ready; wait
until a majority confirms the leadership and all operations committed by then are applied; compute
the answer in one synchronous step. A read that answers with an error takes the same steps, because
"not found" is an observation as well.

If a handler raises `RefusedError`, `MasterService` sends its error as the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from targets.kudu import messages as m
from targets.kudu.bugs import Bug
from targets.kudu.context import SOFTWARE_VERSION, NodeContext
from targets.kudu.master import reads
from targets.kudu.master.admin import Admin
from targets.kudu.master.catalog.catalog_manager import Ddl
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import Reply
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.dump import dump_entities, master_status
from targets.kudu.master.errors import RefusedError, not_initialized
from targets.kudu.master.follower_reads import FollowerReads
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.leadership import Leadership
from targets.kudu.master.membership import Membership
from targets.kudu.master.tablets.cleanup import plan_cleanup
from targets.kudu.master.tablets.heartbeats import Heartbeats
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import Meta
from targets.kudu.rpc import Call, RpcServer
from targets.kudu.rpc.server import request_type_of

_TORN_S: Final = 0.001
"""The pause, in seconds, before `_list_torn` reads a table. In Kudu, other threads run then."""

Request = TypeVar("Request", bound=Call[m.MasterResponse])
Response = TypeVar("Response", bound=m.MasterResponse)


class MasterService:
    """The handlers of a master's calls. `register` registers them with an RPC server."""

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
        self._calls = server.calls
        changes: tuple[Callable[[Epoch, Any], Awaitable[Reply]], ...]
        changes = (self._ddl.create, self._ddl.alter, self._ddl.delete)
        for change in changes:
            handler = partial(self._answer, partial(self._change, change))
            server.serve(handler, request_type_of(change, 1))
        for evaluate in (
            reads.is_create_table_done,
            reads.is_alter_table_done,
            reads.get_table_schema,
            self._locate,
        ):
            handler = partial(self._answer, partial(self._read, evaluate))
            server.serve(handler, request_type_of(evaluate, 1))
        for operation in (
            self.list_tables,
            self.replace_tablet,
            self.change_tserver_state,
            self.add_master,
            self.remove_master,
            self.list_masters,
        ):
            server.serve(partial(self._answer, operation), request_type_of(operation))
        server.serve(self.connect_to_master)
        server.serve(self.get_master_registration)
        server.serve(self.list_tablet_servers)
        server.serve(self.dump_entities)
        server.serve(self._heartbeats.handle)

    async def _answer(
        self, handler: Callable[[Any], Awaitable[m.MasterResponse]], request: Any, _peer: str
    ) -> m.MasterResponse:
        try:
            return await handler(request)
        except RefusedError as refusal:
            answer: Callable[..., m.MasterResponse] = request.answer_type
            return answer(self._meta(), error=refusal.error)

    # --- changes -----------------------------------------------------------------------------

    async def _change(
        self, operation: Callable[[Epoch, Request], Awaitable[Reply]], request: Request
    ) -> m.MasterResponse:
        answer: Callable[..., m.MasterResponse] = request.answer_type
        epoch = self._leadership.ready()
        try:
            reply = await operation(epoch, request)
        except RefusedError as refusal:
            return answer(self._meta(epoch), error=refusal.error)
        meta = Meta(self._uuid, reply.term, reply.index)
        return answer(meta, table_id=reply.table_id, schema_version=reply.schema_version)

    async def replace_tablet(self, request: m.ReplaceTabletRequest) -> m.ReplaceTabletResponse:
        epoch = self._leadership.ready()
        new_id = await self._admin.replace_tablet(epoch, request)
        return m.ReplaceTabletResponse(self._meta(epoch), replacement_tablet_id=new_id)

    async def change_tserver_state(
        self, request: m.ChangeTServerStateRequest
    ) -> m.ChangeTServerStateResponse:
        epoch = self._leadership.ready()
        await self._admin.change_tserver_state(epoch, request)
        return m.ChangeTServerStateResponse(self._meta(epoch))

    async def add_master(self, request: m.AddMasterRequest) -> m.AddMasterResponse:
        await self._membership.add(request)
        return m.AddMasterResponse(self._meta())

    async def remove_master(self, request: m.RemoveMasterRequest) -> m.RemoveMasterResponse:
        await self._membership.remove(request)
        return m.RemoveMasterResponse(self._meta())

    # --- reads -------------------------------------------------------------------------------

    async def list_tables(self, request: m.ListTablesRequest) -> m.ListTablesResponse:
        if Bug.LIST_TORN in self._node.bugs and request.max_staleness_ms is None:
            return await self._list_torn(request)
        return await self._read(reads.list_tables, request)

    async def _list_torn(self, request: m.ListTablesRequest) -> m.ListTablesResponse:
        """List the names at once, then read one table after another (defect LIST-TORN)."""
        epoch = self._leadership.ready()
        await epoch.confirm()
        meta, tables = self._meta(epoch), []
        for table_id in [table_id for _, table_id in sorted(epoch.catalog.by_name.items())]:
            await asyncio.sleep(_TORN_S)
            epoch.check()
            tables.append(epoch.catalog.tables[table_id])
        return reads.list_of(tables, request, meta)

    def _locate(
        self, catalog: Catalog, request: m.GetTableLocationsRequest, meta: Meta
    ) -> m.GetTableLocationsResponse:
        return reads.get_table_locations(catalog, self._tservers, self._node.flags, request, meta)

    async def _read(
        self, evaluate: Callable[[Catalog, Request, Meta], Response], request: Request
    ) -> Response:
        def answer(catalog: Catalog, meta: Meta) -> Response:
            try:
                return evaluate(catalog, request, meta)
            except RefusedError as refusal:
                refused: Callable[..., Response] = request.answer_type
                return refused(meta, error=refusal.error)

        max_staleness_ms: int | None = getattr(request, "max_staleness_ms", None)
        if max_staleness_ms is not None:
            return await self._follower_reads.read(max_staleness_ms, answer)
        epoch = self._leadership.ready()
        await epoch.confirm()
        return answer(epoch.catalog, self._meta(epoch))

    # --- the cluster -------------------------------------------------------------------------

    def connect_to_master(
        self, _request: m.ConnectToMasterRequest, _peer: str
    ) -> m.ConnectToMasterResponse:
        """Answer ConnectToMaster. The role in the answer is LEADER only if this master is ready."""
        replica = self._leadership.replica
        if replica is None:
            return m.ConnectToMasterResponse(self._meta(), error=not_initialized().error)
        return m.ConnectToMasterResponse(
            self._meta(),
            role="FOLLOWER" if self._leadership.epoch is None else "LEADER",
            master_addresses=tuple(member.address for member in replica.config.peers),
            cluster_id=self._rows.cluster_id or "",
        )

    def get_master_registration(
        self, _request: m.GetMasterRegistrationRequest, _peer: str
    ) -> m.GetMasterRegistrationResponse:
        """Answer GetMasterRegistration with this master's Raft role.

        A master that is still starting also answers, with its uuid, so that masters find each other
        before the first configuration exists.
        """
        replica = self._leadership.replica
        if replica is None:
            return m.GetMasterRegistrationResponse(
                self._meta(),
                error=not_initialized().error,
                address=self._node.address,
                told_masters=self._membership.told_masters,
                software_version=SOFTWARE_VERSION,
            )
        types = [peer.member_type for peer in replica.config.peers if peer.uuid == self._uuid]
        return m.GetMasterRegistrationResponse(
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

    async def list_masters(self, _request: m.ListMastersRequest) -> m.ListMastersResponse:
        """Answer ListMasters on any master; only a ready leader adds a revision to the answer."""
        if self._leadership.replica is None:
            raise not_initialized()
        meta, epoch = self._meta(), self._leadership.epoch
        if epoch is not None:
            with contextlib.suppress(RefusedError):
                await epoch.confirm()
                meta = self._meta(epoch)
        return m.ListMastersResponse(meta, masters=await self._membership.list())

    def list_tablet_servers(
        self, _request: m.ListTabletServersRequest, _peer: str
    ) -> m.ListTabletServersResponse:
        """Answer ListTabletServers with the tablet servers known to this master, in any role."""
        now_ns = self._node.env.clock.monotonic_ns()
        servers = tuple(
            m.TabletServerEntry(
                server.uuid,
                server.address,
                (now_ns - server.heard_ns) // 1_000_000,
                server.num_live_tablets,
                maintenance is not None and maintenance.in_maintenance,
            )
            for server in self._tservers
            for maintenance in (self._rows.tservers.get(server.uuid),)
        )
        return m.ListTabletServersResponse(self._meta(), servers=servers)

    async def dump_entities(self, _request: m.DumpEntitiesRequest, _peer: str) -> m.DumpResponse:
        """Answer DumpEntities with the applied rows and the state of the Raft replica."""
        files = len(await self._node.env.disk.list())
        hms = {} if self._hms is None else {"hms": self._hms()}
        return m.DumpResponse({**dump_entities(**self._parts()), "files": files, **hms})

    def status(self) -> dict[str, Any]:
        """Return the state that this master's web pages show."""
        return master_status(**self._parts())

    def _parts(self) -> dict[str, Any]:
        return {
            "uuid": self._uuid,
            "leadership": self._leadership,
            "rows": self._rows,
            "tservers": self._tservers,
            "now_ns": self._node.env.clock.monotonic_ns(),
            "calls": self._calls,
            "late_rows": self._late_rows(),
        }

    def _late_rows(self) -> int:
        epoch = self._leadership.epoch
        if epoch is None:
            return 0
        rows = plan_cleanup(
            epoch.catalog,
            self._tservers,
            epoch.tasks.tablets(),
            self._node.flags,
            self._node.env.clock.wall_ns(),
            is_late=True,
        )
        return len(rows.tables) + len(rows.tablets)

    def _meta(self, epoch: Epoch | None = None) -> Meta:
        if epoch is not None:
            return Meta(self._uuid, epoch.term, epoch.catalog.revision)
        replica = self._leadership.replica
        return Meta(self._uuid, 0 if replica is None else replica.term)
