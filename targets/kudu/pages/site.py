"""Selects a page and its format: HTML, JSON or text.

`/tables?format=json`, `/tables.json` and `Accept: application/json` all return the page's data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from harness.env import PageRequest, PageResponse
from targets.kudu.pages.parts import Html, join, link, moment, state_badge, table, tag
from targets.kudu.pages.style import ICON, STYLE

_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"


class Page(NamedTuple):
    """The contents of a page: its data, its HTML, and the name of the object that it shows."""

    data: Any
    body: Html
    status: int = 200
    thing: str = ""


class Plain(NamedTuple):
    """A page in a text format for programs. `data` is its JSON."""

    data: Any
    text: str
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200

    @staticmethod
    def json(data: Any) -> Plain:
        return Plain(data, _indented(data), _JSON)


Query = Mapping[str, str]
Maker = Callable[[Query], Awaitable[Page | Plain]]


class Route(NamedTuple):
    """A page of a node. A page without a `tab` has no entry in the navigation."""

    path: str
    title: str
    what: str
    make: Maker
    tab: str | None = None


class Identity(NamedTuple):
    """The node that a page describes, as shown in the page's header."""

    name: str
    kind: str  # "master", "tablet server"
    role: str
    now_ns: int  # time of the node's wall clock


class Site:
    """The pages of one node; the method `answer` is a `PageHandler`."""

    def __init__(self, identity: Callable[[], Identity], routes: list[Route]) -> None:
        self._identity = identity
        self._routes = {route.path: route for route in routes}

    async def answer(self, request: PageRequest) -> PageResponse:
        """Answer a request with its page, or with a 404 that lists the existing pages."""
        path, wants_json = request.path, request.accepts_json
        if path.endswith(".json"):
            path, wants_json = path.removesuffix(".json") or "/", True
        wants_json |= request.query.get("format") == "json"
        route = self._routes.get(path) or self._routes.get(path.rstrip("/"))
        if route is None:
            page: Page | Plain = self._no_page(path)
        else:
            page = await route.make(request.query)
        if wants_json:
            return PageResponse(page.status, _JSON, _indented(page.data).encode())
        if isinstance(page, Plain):
            return PageResponse(page.status, page.content_type, page.text.encode())
        title = "No such page" if route is None else f"{route.title} {page.thing}".strip()
        document = self._document(route, title, page.body, path, request.query)
        return PageResponse(page.status, _HTML, document.encode())

    def overview(self) -> Html:
        rows = [
            (
                link(route.path, route.path),
                route.what,
                link("JSON", route.path, format="json"),
            )
            for route in self._routes.values()
            if route.path != "/" and not route.what.startswith("one ")
        ]
        return table("Pages", ["Page", "What it shows", ""], rows, empty="none")

    def _no_page(self, path: str) -> Page:
        data = {"error": f"there is no page {path}", "pages": list(self._routes)}
        return Page(
            data, join(tag("p", f"There is no page {path}.", class_="empty"), self.overview()), 404
        )

    def _document(
        self, route: Route | None, title: str, body: Html, path: str, query: Mapping[str, str]
    ) -> Html:
        who = self._identity()
        tabs = (
            tag("a", r.tab, href=r.path, aria_current="page" if r is route else None)
            for r in self._routes.values()
            if r.tab is not None
        )
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{title} · {who.name}"),
            tag("link", rel="icon", href=ICON),
            tag("style", STYLE),
        )
        header = tag(
            "header",
            tag("a", "kudu ", tag("span", who.name), class_="brand", href="/"),
            tag("nav", *tabs, aria_label="pages"),
            tag("span", who.kind, state_badge(who.role), class_="self"),
        )
        footer = tag(
            "footer",
            "as of ",
            moment(who.now_ns),
            " · ",
            link("this page as JSON", path, **{**query, "format": "json"}),
        )
        content = tag("main", tag("h1", title), body, id="main")
        skip = tag("a", "to the content", class_="skip", href="#main")
        page = tag("html", head, tag("body", skip, header, content, footer), lang="en")
        return join(Html("<!doctype html>\n"), page, Html("\n"))


def _indented(data: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def missing(what: str, query: Mapping[str, str]) -> Page:
    """Return the page for a missing or an unknown `id` in the query."""
    asked = query.get("id")
    why = f"add an id: /{what}?id=..." if asked is None else f"no {what} has the id {asked}"
    return Page({"error": why}, tag("p", why, class_="empty"), 400 if asked is None else 404)
