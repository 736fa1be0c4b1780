"""The pages that all nodes have: metrics, flags and health."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec

from harness.env import Address
from harness.support.exposition import Family
from targets.kudu.context import NodeContext
from targets.kudu.flags import RANGES, Flags
from targets.kudu.pages import Dump
from targets.kudu.pages.metrics import metrics_page
from targets.kudu.pages.parts import DASH, Html, badge, code, join, table, tag
from targets.kudu.pages.site import Identity, Page, Plain, Query, Route, Site


class NodePages(ABC):
    """The pages of one node, served on its page port once `serve` has been called."""

    KIND: ClassVar[str]
    PORT: ClassVar[int]

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._env = node.env
        self._flags = node.flags
        common = [
            Route("/metrics", "Metrics", "numbers for Prometheus", self._metrics_page, "Metrics"),
            Route("/varz", "Flags", "every flag, with its default", self._flags_page, "Flags"),
            Route(
                "/healthz", "Health", "200 if this node serves, otherwise 503", self._health_page
            ),
        ]
        self._site = Site(self._identity, [*self._routes(), *common])

    async def serve(self) -> None:
        await self._env.serve_pages(self.PORT, self._site.answer)

    @abstractmethod
    def _routes(self) -> list[Route]:
        """Return the pages that only this kind of node has."""

    @abstractmethod
    def _role(self) -> str: ...

    @abstractmethod
    def _metrics(self) -> list[Family]: ...

    @abstractmethod
    def _health(self) -> Dump: ...

    def _identity(self) -> Identity:
        return Identity(self._env.name, self.KIND, self._role(), self._env.clock.wall_ns())

    def _page_of(self, address: str, port: int) -> str:
        name = Address(address.rpartition(":")[0], port)
        return self._env.page_url(self._env.net.resolve(name))

    async def _metrics_page(self, _: Query) -> Plain:
        return metrics_page(self._metrics())

    async def _flags_page(self, _: Query) -> Page:
        return flags_page(self._flags)

    async def _health_page(self, _: Query) -> Plain:
        return health_page(self._health())


def flags_page(flags: Flags) -> Page:
    """Build the page of all flags, with defaults and ranges; changed flags come first."""
    usual = msgspec.to_builtins(Flags())
    rows = [
        {
            "name": name,
            "value": value,
            "default": usual[name],
            "is_default": value == usual[name],
            "range": list(RANGES[name]) if name in RANGES else None,
        }
        for name, value in msgspec.to_builtins(flags).items()
    ]
    rows.sort(key=lambda row: (row["is_default"], row["name"]))
    cells = (
        (
            code(row["name"]),
            tag("strong", _flag(row["value"])) if not row["is_default"] else _flag(row["value"]),
            _flag(row["default"]),
            None if row["range"] is None else f"{row['range'][0]} to {row['range'][1]}",
            badge("default") if row["is_default"] else badge("changed", "wait"),
        )
        for row in rows
    )
    body = table(None, ["Flag", "#Value", "#Default", "#Range", ""], cells, empty="none")
    return Page({"flags": rows}, body)


def _flag(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def health_page(data: Mapping[str, Any]) -> Plain:
    """Build the page of a node's health for monitoring: `OK` and 200, or the problem and 503."""
    is_ok = data["status"] == "ok"
    status = HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Plain(data, "OK\n" if is_ok else f"{data['status']}\n", status=status)


def partition_text(start: str, end: str) -> Html:
    """Return a tablet's key range: encoded partition keys `[start, end)` in hexadecimal."""
    if not start and not end:
        return tag("span", "all rows", class_="muted")
    return join(
        code(f"0x{start}" if start else "first"),
        " ",
        DASH,
        " ",
        code(f"0x{end}" if end else "last"),
    )


def columns_table(columns: list[Mapping[str, Any]]) -> Html:
    """Return the columns of a schema, keys first."""
    # dumps of tablet servers have only the ids and names of columns
    typed = any("type" in column for column in columns)
    rows = (
        (
            column["name"],
            *([join(str(column["type"]).lower(), _key(column))] if typed else []),
            str(column["id"]),
        )
        for column in columns
    )
    names = ["Name", "Type", "Id"] if typed else ["Name", "Id"]
    return table("Columns", names, rows, empty="It has no columns.")


def _key(column: Mapping[str, Any]) -> Html | None:
    return join(" ", badge("key", "lead")) if column.get("is_key") else None
