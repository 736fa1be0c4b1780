"""A small HTTP/1.1 server on asyncio streams: what a control API needs and no more.

Keep-alive, bodies with a Content-Length, bounded lines, headers, bodies and times (RFC 9112). No
chunked requests (411), no upgrades, no TLS. On the loopback device it answers to names of that only
(`harness.support.loopback`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from harness.support.loopback import is_loopback, names_loopback

HEAD_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
READ_TIMEOUT_S: Final = 10.0
IDLE_TIMEOUT_S: Final = 600.0
HANDLER_TIMEOUT_S: Final = 25.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """One response."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"


Handler = Callable[[Request], Awaitable[Response]]


class _BadRequestError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.response = Response(status, text.encode() + b"\n", "text/plain; charset=utf-8")


class HttpServer:
    """Serves one handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._loopback = False
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address that was bound. Raises `OSError`."""
        self._server = await asyncio.start_server(self._accepted, host, port, limit=HEAD_BYTES_MAX)
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        self._loopback = is_loopback(bound_host)
        return bound_host, bound_port

    async def close(self) -> None:
        """Stop listening and drop the connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            return  # the caller hung up, or said nothing for too long
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; whether the connection lives on."""
        try:
            request = await _read_request(reader)
        except _BadRequestError as error:
            await _write_response(writer, error.response, keep_alive=False)
            return False
        if request is None:
            return False
        keep_alive = request.headers.get("connection", "").lower() != "close"
        try:
            async with asyncio.timeout(HANDLER_TIMEOUT_S):
                response = await self._answer(request)
        except TimeoutError:
            response = Response(503)
        except Exception:  # noqa: BLE001 - a crash of one request is its answer, and logged
            _log.exception("%s %s", request.method, request.path)
            response = Response(500, b"internal error\n", "text/plain; charset=utf-8")
        await _write_response(writer, response, keep_alive=keep_alive)
        return keep_alive

    async def _answer(self, request: Request) -> Response:
        if self._loopback and not names_loopback(request.headers.get("host")):
            text = b"this server answers to localhost only; its address is in Host\n"
            return Response(403, text, "text/plain; charset=utf-8")
        return await self._handler(request)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request; `None` where the caller closed between two."""
    async with asyncio.timeout(IDLE_TIMEOUT_S):
        first = await reader.read(1)
    if not first:
        return None
    async with asyncio.timeout(READ_TIMEOUT_S):
        try:
            head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise _BadRequestError(431, f"the head is over {HEAD_BYTES_MAX} bytes") from error
        method, path, headers = _parse_head(head)
        return Request(method, path, headers, await _read_body(reader, headers))


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    request_line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _BadRequestError(400, f"the request line {request_line[:100]!r} is not HTTP/1")
    method, target, version = parts
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise _BadRequestError(400, f"the header {line[:100]!r} has no name")
        if (key := name.lower()) == "host" and key in headers:
            raise _BadRequestError(400, "there is more than one Host")
        headers[key] = value.strip()
    if version == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return method, target.partition("?")[0], headers


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise _BadRequestError(411, "chunked requests are not served; send a Content-Length")
    length = headers.get("content-length", "0")
    if not length.isdigit():
        raise _BadRequestError(400, f"the Content-Length {length[:100]!r} is not a number")
    if int(length) > BODY_BYTES_MAX:
        raise _BadRequestError(413, f"the body is over {BODY_BYTES_MAX} bytes")
    return await reader.readexactly(int(length))


async def _write_response(
    writer: asyncio.StreamWriter, response: Response, *, keep_alive: bool
) -> None:
    reason = HTTPStatus(response.status).phrase
    lines = [f"HTTP/1.1 {response.status} {reason}"]
    if response.status != HTTPStatus.NO_CONTENT:
        lines += [
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
        ]
    if not keep_alive:
        lines.append("Connection: close")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + response.body)
    with contextlib.suppress(ConnectionResetError):
        await writer.drain()
