"""Pages over HTTP/1.1: the protocol is h11's, and so are its limits; here are sockets and times.

GET and HEAD, without bodies worth reading. h11 is imported when the first browser comes: nodes
start often, and most never show a page. What is served is for whoever reaches the port, which is
one of the loopback device unless the deployment says otherwise; nothing from elsewhere may run in
it, frame it, or read it under a name that was made to lead here (`harness.support.loopback`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from harness.env import PageResponse
from harness.environments.pages import PageDoor, refusal
from harness.support.dialing import dial
from harness.support.httpreply import REPLY_BYTES_MAX, read_reply
from harness.support.loopback import is_loopback, names_loopback, names_neighbour

if TYPE_CHECKING:
    import h11

CONNECTIONS_MAX: Final = 32
"""Further ones are closed at once."""
HEAD_BYTES_MAX: Final = 16 * 1024
_BODY_BYTES_MAX: Final = 64 * 1024
_REQUEST_S: Final = 30.0
"""From one answer to the whole next request, so that whoever sends by drips keeps nobody out."""
_ANSWER_S: Final = 30.0
_READ_BYTES: Final = 16 * 1024
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    (
        "Content-Security-Policy",
        (
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        ),
    ),
)


class PageServer:
    """One listening port. `spawn` runs a connection in a task of the node."""

    def __init__(
        self, door: PageDoor, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._door = door
        self._spawn = spawn
        self._names_us: Callable[[str | None], bool] = names_loopback
        self._server: asyncio.Server | None = None
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._accepted_count = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `OSError`."""
        self._names_us = names_loopback if is_loopback(host) else names_neighbour
        self._server = await asyncio.start_server(self._accepted, host, port)

    def close(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers.values():
            writer.transport.abort()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._accepted_count += 1
        self._writers[self._accepted_count] = writer
        self._spawn(self._converse(self._accepted_count, reader, writer))

    async def _converse(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        import h11

        try:
            connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
            while await self._exchange(connection, reader, writer):
                connection.start_next_cycle()
        except (OSError, TimeoutError):
            return  # the browser hung up, or said nothing for too long
        finally:
            del self._writers[number]
            writer.close()
            with contextlib.suppress(OSError):  # or asyncio complains later of what nobody asked
                await writer.wait_closed()

    async def _exchange(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; whether the connection lives on."""
        import h11

        request = None
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await _read_request(connection, reader)
        except h11.RemoteProtocolError as error:
            if connection.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
                return False
            status = HTTPStatus(error.error_status_hint)
            response = refusal(status, str(error))
        else:
            if request is None:
                return False
            response = await self._answer(request)
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            *_HEADERS,
        ]
        if request is None:
            headers.append(("Connection", "close"))
        writer.write(_sent(connection, h11.Response(status_code=response.status, headers=headers)))
        if request is None or request.method != b"HEAD":
            writer.write(_sent(connection, h11.Data(data=response.body)))
        writer.write(_sent(connection, h11.EndOfMessage()))
        async with asyncio.timeout(_ANSWER_S):
            await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _answer(self, request: h11.Request) -> PageResponse:
        if request.method not in {b"GET", b"HEAD"}:
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "pages are for GET and HEAD")
        if not self._names_us(_header(request, b"host")):
            return refusal(HTTPStatus.FORBIDDEN, "a node answers to its address or localhost only")
        foreign = _header(request, b"sec-fetch-site") in {"cross-site", "same-site"}
        if foreign and _header(request, b"sec-fetch-mode") != "navigate":
            return refusal(HTTPStatus.FORBIDDEN, "pages from elsewhere cannot use those of a node")
        target = request.target.decode("latin-1")
        return await self._door.answer(target, accept=_header(request, b"accept") or "")


def _header(request: h11.Request, name: bytes) -> str | None:
    values = [value.decode("latin-1") for given, value in request.headers if given == name]
    return ",".join(values) if values else None


def _sent(connection: h11.Connection, event: Any) -> bytes:
    data: bytes = connection.send(event) or b""
    return data


async def _read_request(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> h11.Request | None:
    """The next request, its body thrown away; `None` where the caller is done."""
    import h11

    request, body_bytes = None, 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body_bytes += len(event.data)
            if body_bytes > _BODY_BYTES_MAX:
                return None
        elif isinstance(event, h11.EndOfMessage):
            return request
        else:
            return None


async def get_page(endpoint: tuple[str, int], target: str, *, accept: str) -> PageResponse:
    """GET a page on a connection of its own; see `harness.env.ClientEnv.get_page`."""
    host, port = endpoint
    try:
        reader, writer = await dial(host, port, limit=REPLY_BYTES_MAX)
    except OSError as error:
        raise ConnectionRefusedError(f"{host}:{port}: {error}") from error
    try:
        writer.write(
            f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: {accept}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        status, headers, body = await read_reply(reader)
    except (OSError, EOFError) as error:
        raise ConnectionResetError(f"{host}:{port} hung up before its page: {error}") from error
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return PageResponse(status, headers.get("content-type", ""), body)
