"""Parses requests for a node's web pages, limits them, and calls the node's handler.

All environments use this module. Pages are for people, so they must never end a node: an error of
the handler only causes the status 500 and an event `page-failed`. Real environments serve pages
over HTTP (`host.pages`), and the simulation calls `PageDoor` directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from harness.env import PageHandler, PageRequest, PageResponse

IN_FLIGHT_MAX: Final = 8
"""How many page requests a node handles at once. Further requests get the status 503."""
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
PAGE_TIMEOUT_S: Final = 10.0
_QUERY_FIELDS_MAX: Final = 32
_ERROR_CHARACTERS_MAX: Final = 500


def refusal(status: HTTPStatus, why: str) -> PageResponse:
    """Return a response that refuses a page request, with this status and reason."""
    text = f"{status} {status.phrase}: {why}\n"
    return PageResponse(status, "text/plain; charset=utf-8", text.encode())


class PageDoor:
    """Passes page requests on to the handler of one node."""

    def __init__(self, handler: PageHandler, on_event: Callable[..., None]) -> None:
        """`handler` makes the node's pages, and `on_event` is the node's `Env.event`."""
        self.handler = handler
        self._on_event = on_event
        self._in_flight = 0

    async def answer(self, target: str, *, accept: str) -> PageResponse:
        """Return the page at `target`, a path that may have a query, or an error response."""
        if self._in_flight >= IN_FLIGHT_MAX:
            return refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{IN_FLIGHT_MAX} pages are in progress; try again"
            )
        try:
            request = _parse(target, accept)
        except ValueError as error:
            return refusal(HTTPStatus.BAD_REQUEST, str(error))
        self._in_flight += 1
        try:
            async with asyncio.timeout(PAGE_TIMEOUT_S):
                response = await self.handler(request)
        except TimeoutError:
            return self._failed(request, f"it took more than {PAGE_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001 - it becomes this page's answer
            return self._failed(request, f"{type(error).__name__}: {error}")
        finally:
            self._in_flight -= 1
        if len(response.body) > PAGE_BYTES_MAX:
            size = len(response.body)
            return self._failed(request, f"{size} bytes; the limit is {PAGE_BYTES_MAX}")
        return response

    def _failed(self, request: PageRequest, why: str) -> PageResponse:
        why = why[:_ERROR_CHARACTERS_MAX]
        data: dict[str, Any] = {"path": request.path[:_ERROR_CHARACTERS_MAX], "error": why}
        self._on_event("page-failed", **data)
        return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, why)


def _parse(target: str, accept: str) -> PageRequest:
    """Parse a request; raises `ValueError` unless `target` is a path, maybe with a query."""
    parts = urlsplit(target)
    if not parts.path.startswith("/") or parts.netloc:
        raise ValueError("a target is a path that begins with '/'")
    query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
    asks_json = "application/json" in accept and "text/html" not in accept
    return PageRequest(unquote(parts.path), dict(query), asks_json)
