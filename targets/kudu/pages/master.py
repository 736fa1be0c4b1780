"""The pages of a master. Every master serves them; a follower shows its applied state."""

from __future__ import annotations

import asyncio
from typing import Final

from harness.support.exposition import Family
from targets.kudu.context import NodeContext
from targets.kudu.master.leadership import Leadership
from targets.kudu.master.master_service import MasterService
from targets.kudu.messages import GetMasterRegistrationRequest, PeerConfig
from targets.kudu.pages import MASTER_PAGES_PORT, Dump, master_data, master_views
from targets.kudu.pages.master_data import MasterAnswer
from targets.kudu.pages.metrics import master_metrics
from targets.kudu.pages.shared import NodePages
from targets.kudu.pages.site import Page, Plain, Query, Route, missing
from targets.kudu.rpc import RpcError

_ASK_TIMEOUT_S: Final = 1.5


class MasterPages(NodePages):
    """The pages of a master."""

    KIND = "master"
    PORT = MASTER_PAGES_PORT

    def __init__(self, node: NodeContext, leadership: Leadership, service: MasterService) -> None:
        super().__init__(node)
        self._leadership = leadership
        self._service = service

    def _routes(self) -> list[Route]:
        what = "what this master is, and what the cluster has"
        return [
            Route("/", "Master", what, self._overview, tab="Overview"),
            Route("/masters", "Masters", "all masters and their roles", self._masters, "Masters"),
            Route("/tables", "Tables", "every table, its state and size", self._tables, "Tables"),
            Route("/table", "Table", "one table: its columns and tablets", self._table),
            Route(
                "/tablet-servers",
                "Tablet servers",
                "the tablet servers that report to this master",
                self._tservers,
                "Tablet servers",
            ),
            Route("/dump-entities", "Entities", "all rows of the catalog, as JSON", self._entities),
        ]

    def _role(self) -> str:
        replica = self._leadership.replica
        return "STARTING" if replica is None else replica.role

    def _metrics(self) -> list[Family]:
        return master_metrics(self._dump(), self._service.start_ns)

    def _health(self) -> Dump:
        return master_data.health(self._dump())

    def _dump(self) -> Dump:
        return self._service.status()

    # --- pages -------------------------------------------------------------------------------

    async def _overview(self, _: Query) -> Page:
        limit_ms = self._flags.tserver_unresponsive_timeout_ms
        data = master_data.overview(self._dump(), limit_ms, self._page_of)
        return Page(data, master_views.overview(data, self._site.overview()), thing=self._env.name)

    async def _masters(self, _: Query) -> Page:
        replica = self._leadership.replica
        config = None if replica is None else replica.committed_config
        peers = () if config is None else config.peers
        answers = await asyncio.gather(*(self._ask(peer) for peer in peers))
        data = master_data.masters(
            config,
            {peer.uuid: answer for peer, answer in zip(peers, answers, strict=True)},
            self._dump()["cluster_id"],
            self._page_of,
        )
        return Page(data, master_views.masters(data))

    async def _ask(self, peer: PeerConfig) -> MasterAnswer:
        request = GetMasterRegistrationRequest()
        if peer.uuid == self._node.uuid:
            answer = self._service.get_master_registration(request, "")
        else:
            try:
                answer = await self._node.rpc.call(peer.address, request, timeout_s=_ASK_TIMEOUT_S)
            except RpcError as error:
                return MasterAnswer(error=f"unreachable: {error}")
        if answer.error is not None:
            return MasterAnswer(error=answer.error.message)
        uuid, masters = answer.meta.master_uuid, answer.told_masters
        return MasterAnswer(uuid, answer.role, answer.start_ns, told=masters)

    async def _tables(self, _: Query) -> Page:
        data = master_data.tables(self._dump())
        return Page(data, master_views.tables(data))

    async def _table(self, query: Query) -> Page:
        data = master_data.table(self._dump(), query.get("id"), self._page_of)
        return (
            missing("table", query)
            if data is None
            else Page(data, master_views.table_page(data), thing=data["name"])
        )

    async def _tservers(self, _: Query) -> Page:
        limit_ms = self._flags.tserver_unresponsive_timeout_ms
        data = master_data.tservers(self._dump(), limit_ms, self._page_of)
        return Page(data, master_views.tservers(data))

    async def _entities(self, _: Query) -> Plain:
        return Plain.json(master_data.entities(self._dump()))
