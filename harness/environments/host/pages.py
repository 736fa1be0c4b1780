"""Serves nodes' web pages over HTTP (`harness.support.http1`); only GET and HEAD are allowed.

Any program that can reach the port can read the pages; by default the port is on loopback. A page
runs no scripts from elsewhere, and no other site can embed it in a frame. Nor can a site read it
through a host name that an attacker maps to this address (DNS rebinding).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harness.env import PageResponse
from harness.environments.pages import PageDoor
from harness.support.http1 import (
    HttpServer,
    Limits,
    Request,
    Response,
    Spawn,
    fetch,
    hang_up,
    refusal,
)
from harness.support.loopback import dial

LIMITS: Final = Limits(64 * 1024, connections_max=32, request_s=30.0, handler_s=30.0)
_HEADERS: Final = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": (
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        ),
    }
)


def page_server(door: PageDoor, spawn: Spawn) -> HttpServer:
    """Return an HTTP server for a node's pages; `spawn` runs each connection in a task."""

    async def answer(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return refusal(405, "pages are for GET and HEAD")
        headers = request.headers
        foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            return refusal(403, "pages from elsewhere cannot use a node's pages")
        page = await door.answer(request.target, accept=headers.get("accept", ""))
        return Response(page.status, page.body, page.content_type, _HEADERS)

    return HttpServer(answer, LIMITS, spawn=spawn)


async def get_page(endpoint: tuple[str, int], target: str, *, accept: str) -> PageResponse:
    """Fetch a page by GET on a new connection (see `harness.env.ClientEnv.get_page`)."""
    host, port = endpoint
    try:
        reader, writer = await dial(host, port)
    except OSError as error:
        raise ConnectionRefusedError(f"{host}:{port}: {error}") from error
    headers = [("Host", f"{host}:{port}"), ("Accept", accept), ("Connection", "close")]
    try:
        response, _ = await fetch(reader, writer, "GET", target, headers)
    except (OSError, EOFError) as error:
        raise ConnectionResetError(
            f"{host}:{port} closed before it sent the page: {error}"
        ) from error
    finally:
        await hang_up(writer)
    return PageResponse(response.status, response.content_type, response.body)
