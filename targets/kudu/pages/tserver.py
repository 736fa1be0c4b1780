"""The pages of a tablet server."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.env import Address
from targets.kudu.context import NodeContext
from targets.kudu.pages import TSERVER_PAGES_PORT, Dump, tserver_data, tserver_views
from targets.kudu.pages.metrics import metrics_page, tserver_metrics
from targets.kudu.pages.shared import flags_page, health_page
from targets.kudu.pages.site import Identity, Page, Plain, Route, Site, missing
from targets.kudu.rpc import RpcServer

Query = Mapping[str, str]


class TServerPages:
    """`serve` puts them on the node's page port."""

    def __init__(
        self,
        node: NodeContext,
        *,
        masters: Callable[[], tuple[str, ...]],
        start_ns: int,
        tablets: Callable[[], Dump],
        server: RpcServer,
    ) -> None:
        """`masters` are the addresses it heartbeats to now; `tablets` says what it holds now."""
        self._env = node.env
        self._address = node.address
        self._masters = masters
        self._start_ns = start_ns
        self._flags = node.flags
        self._tablets_dump = tablets
        self._server = server
        self._site = Site(self._identity, self._routes())

    async def serve(self) -> None:
        await self._env.serve_pages(TSERVER_PAGES_PORT, self._site.answer)

    def _routes(self) -> list[Route]:
        return [
            Route("/", "Tablet server", "what it is and has", self._overview, tab="Overview"),
            Route("/tablets", "Tablets", "every replica here", self._tablets, "Tablets"),
            Route("/tablet", "Tablet", "one replica: its schema and its group", self._tablet),
            Route("/metrics", "Metrics", "numbers for Prometheus", self._metrics, "Metrics"),
            Route("/varz", "Flags", "every flag, with its default", self._flags_page, "Flags"),
            Route("/healthz", "Health", "whether it serves: 200 or 503", self._health),
        ]

    def _identity(self) -> Identity:
        role = "RUNNING" if self._server.is_listening else "STARTING"
        return Identity(self._env.name, "tablet server", role, self._env.clock.wall_ns())

    def _dump(self) -> Dump:
        calls = dict(sorted(self._server.calls.items()))
        return {**self._tablets_dump(), "calls": calls, "serving": self._server.is_listening}

    def _page_of(self, address: str, port: int) -> str:
        name = Address(address.rpartition(":")[0], port)
        return self._env.page_url(self._env.net.resolve(name))

    # --- pages -------------------------------------------------------------------------------

    async def _overview(self, _: Query) -> Page:
        data = tserver_data.overview(
            self._dump(), self._masters(), self._address, self._start_ns, self._page_of
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

    async def _metrics(self, _: Query) -> Plain:
        return metrics_page(tserver_metrics(self._dump(), self._start_ns))

    async def _flags_page(self, _: Query) -> Page:
        return flags_page(self._flags)

    async def _health(self, _: Query) -> Plain:
        return health_page(tserver_data.health(self._dump()))
