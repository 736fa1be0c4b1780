"""The pages of a tablet server."""

from __future__ import annotations

from collections.abc import Callable

from harness.support.exposition import Family
from targets.kudu.context import NodeContext
from targets.kudu.pages import TSERVER_PAGES_PORT, Dump, tserver_data, tserver_views
from targets.kudu.pages.metrics import tserver_metrics
from targets.kudu.pages.shared import NodePages
from targets.kudu.pages.site import Page, Query, Route, missing
from targets.kudu.rpc import RpcServer


class TServerPages(NodePages):
    """The pages of a tablet server."""

    KIND = "tablet server"
    PORT = TSERVER_PAGES_PORT

    def __init__(
        self,
        node: NodeContext,
        *,
        masters: Callable[[], tuple[str, ...]],
        start_ns: int,
        tablets: Callable[[], Dump],
        server: RpcServer,
    ) -> None:
        """Serve pages; `masters` returns the masters' addresses, `tablets` the tablets' dumps."""
        super().__init__(node)
        self._masters = masters
        self._start_ns = start_ns
        self._tablets_dump = tablets
        self._server = server

    def _routes(self) -> list[Route]:
        return [
            Route("/", "Tablet server", "this server's state", self._overview, tab="Overview"),
            Route("/tablets", "Tablets", "every replica on this server", self._tablets, "Tablets"),
            Route("/tablet", "Tablet", "one replica: its schema and Raft group", self._tablet),
        ]

    def _role(self) -> str:
        return "RUNNING" if self._server.is_listening else "STARTING"

    def _metrics(self) -> list[Family]:
        return tserver_metrics(self._dump(), self._start_ns)

    def _health(self) -> Dump:
        return tserver_data.health(self._dump())

    def _dump(self) -> Dump:
        calls = dict(sorted(self._server.calls.items()))
        return {**self._tablets_dump(), "calls": calls, "serving": self._server.is_listening}

    # --- pages -------------------------------------------------------------------------------

    async def _overview(self, _: Query) -> Page:
        data = tserver_data.overview(
            self._dump(), self._masters(), self._node.address, self._start_ns, self._page_of
        )
        return Page(data, tserver_views.overview(data, self._site.overview()), thing=self._env.name)

    async def _tablets(self, _: Query) -> Page:
        data = tserver_data.tablets(self._dump())
        return Page(data, tserver_views.tablets(data))

    async def _tablet(self, query: Query) -> Page:
        data = tserver_data.tablet(self._dump(), query.get("id"), self._page_of)
        return (
            missing("tablet", query)
            if data is None
            else Page(data, tserver_views.tablet(data), thing=f"of {data['table_name']}")
        )
