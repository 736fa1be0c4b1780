"""HTTP/1.1, based on h11: the server for APIs and pages, and `fetch` for clients.

h11 implements the protocol and most of its limits. This module adds sockets, timeouts and size
limits. A server on the loopback device accepts only requests whose `Host` header names that device.
Other servers also accept addresses, and names without a dot (`harness.support.loopback`). h11 is
imported at the first connection: nodes start often, and most never serve a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from harness.support.loopback import is_loopback, names_loopback, names_neighbour

if TYPE_CHECKING:
    import h11

HEAD_BYTES_MAX: Final = 16 * 1024
REPLY_BYTES_MAX: Final = 16 * 1024 * 1024
_REPLY_HEAD_BYTES_MAX: Final = 64 * 1024
_READ_BYTES: Final = 16 * 1024
_ANSWER_S: Final = 30.0
_FRAMES: Final = frozenset({"content-length", "transfer-encoding"})
_BODYLESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
TEXT: Final = "text/plain; charset=utf-8"

_log = logging.getLogger(__name__)
Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request. Header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response. Header names of a received response are in lower case."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None
    framed: bool = True
    """Whether a length or a last chunk marks the end of the body. If not, only the end of the
    connection does."""

    def may_be_cut(self, *, text: bool = False) -> bool:
        """Whether a broken connection may have cut the body.

        An unframed body is whole if it is JSON, except for a number: `12` may be a part of `123`.
        Plain `text` may always be cut, because any part of it is valid text, too.
        """
        if self.framed:
            return False
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return True
        return text or (isinstance(value, int | float) and not isinstance(value, bool))


Handler = Callable[[Request], Awaitable[Response]]


def refusal(status: int, why: str) -> Response:
    """Return a response that refuses a request for the reason `why`."""
    text = f"{int(status)} {HTTPStatus(status).phrase}: {why}\n"
    return Response(status, text.encode(), TEXT)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server."""

    body_bytes_max: int
    connections_max: int
    request_s: float  # the maximum time from one answer to the end of the next request
    handler_s: float


class HttpServer:
    """A server on one port with one handler; `spawn` starts a task per connection."""

    def __init__(self, handler: Handler, limits: Limits, *, spawn: Spawn | None = None) -> None:
        self._handler = handler
        self._limits = limits
        self._spawn = spawn or self._spawn_here
        self._names_us: Callable[[str | None], bool] = names_loopback
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _spawn_here(self, coro: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen on `host` and `port`; returns the address that was bound.

        Raises `OSError` if the server cannot listen there.
        """
        self._server = await asyncio.start_server(self._accepted, host, port)
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        self._names_us = names_loopback if is_loopback(bound_host) else names_neighbour
        return bound_host, bound_port

    def close(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= self._limits.connections_max:
            writer.transport.abort()
            return
        self._writers.add(writer)
        self._spawn(self._converse(reader, writer))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import h11

        try:
            connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
            while await self._exchange(connection, reader, writer):
                connection.start_next_cycle()
        except (OSError, TimeoutError):
            return  # the client hung up, or was silent for too long
        finally:
            self._writers.discard(writer)
            await hang_up(writer, abort=False)

    async def _exchange(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; returns whether the connection stays open."""
        import h11

        request = None
        try:
            async with asyncio.timeout(self._limits.request_s):
                request = await self._read_request(connection, reader)
        except h11.RemoteProtocolError as error:
            if connection.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
                return False
            response = refusal(error.error_status_hint, str(error))
        else:
            if request is None:
                return False
            response = await self._answer(request)
        headers = [*(response.headers or {}).items()]
        if response.status != HTTPStatus.NO_CONTENT:
            headers.append(("Content-Type", response.content_type))
            headers.append(("Content-Length", str(len(response.body))))
        if request is None:
            headers.append(("Connection", "close"))
        writer.write(_sent(connection, h11.Response(status_code=response.status, headers=headers)))
        if request is None or request.method != "HEAD":
            writer.write(_sent(connection, h11.Data(data=response.body)))
        writer.write(_sent(connection, h11.EndOfMessage()))
        async with asyncio.timeout(_ANSWER_S):
            await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _read_request(
        self, connection: h11.Connection, reader: asyncio.StreamReader
    ) -> Request | None:
        """Return the next request, or `None` if the client hung up.

        Raises `h11.RemoteProtocolError` for an invalid request.
        """
        import h11

        head, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    raise h11.RemoteProtocolError("leave out the header `Expect`", 417)
                connection.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Request):
                head = event
                self._check_size(int(_headers(head).get("content-length", 0)))
            elif isinstance(event, h11.Data):
                body += event.data
                self._check_size(len(body))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                method, target = head.method.decode(), head.target.decode("latin-1")
                return Request(method, target, _headers(head), body)
            else:
                return None

    def _check_size(self, size: int) -> None:
        import h11

        limit = self._limits.body_bytes_max
        if size > limit:
            raise h11.RemoteProtocolError(f"the body exceeds {limit} bytes", 413)

    async def _answer(self, request: Request) -> Response:
        if not self._names_us(request.headers.get("host")):
            return refusal(403, "this server answers to its own address or localhost only")
        try:
            async with asyncio.timeout(self._limits.handler_s):
                return await self._handler(request)
        except TimeoutError:
            return refusal(503, f"no answer within {self._limits.handler_s:g} s")
        except Exception:  # noqa: BLE001 - a crash is logged and becomes the answer
            _log.exception("%s %s", request.method, request.target)
            return refusal(500, "internal error")


def _headers(message: h11.Request | h11.Response) -> dict[str, str]:
    """Map each header's name, in lower case, to its value; repeated values are joined."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in message.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _sent(connection: h11.Connection, event: Any) -> bytes:
    data: bytes = connection.send(event) or b""
    return data


async def hang_up(writer: asyncio.StreamWriter, *, abort: bool = True) -> None:
    """Close a connection and retrieve its error, so that asyncio does not log it later."""
    if abort:
        writer.transport.abort()
    else:
        writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def unread(reader: asyncio.StreamReader) -> bytes | None:
    """Take the bytes that have already arrived: `None` without any, `b""` at the stream's end.

    Bytes that arrive after a whole answer belong to no request, but the next request would take
    them as its answer. No public method looks into the buffer without waiting, so this function
    runs a single step of `read`.
    """
    step = reader.read(_READ_BYTES)
    try:
        step.send(None)
    except StopIteration as done:
        data: bytes = done.value
        return data
    except OSError:
        return b""
    step.close()
    return None


async def fetch(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
) -> tuple[Response, bool]:
    """Send a request; returns its response, and whether the connection can be used again.

    `headers` must have a Host. Raises `OSError`, `EOFError` for a response that ends early, and
    `ValueError` for a response that is malformed or too long.
    """
    import h11

    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_REPLY_HEAD_BYTES_MAX)
    fields = [*headers, ("Content-Length", str(len(body)))]
    try:
        head = h11.Request(method=method, target=target, headers=fields)
        data = _sent(connection, head) + _sent(connection, h11.Data(data=body))
        writer.write(data + _sent(connection, h11.EndOfMessage()))
        await writer.drain()
        response = await _read_response(connection, reader)
    except h11.ProtocolError as error:
        if reader.at_eof():
            raise EOFError(f"the response ended early: {error}") from error
        raise ValueError(f"not a valid HTTP exchange: {error}") from error
    lives_on = connection.our_state is h11.DONE and connection.their_state is h11.DONE
    return response, lives_on and not connection.trailing_data[0]


async def _read_response(connection: h11.Connection, reader: asyncio.StreamReader) -> Response:
    import h11

    head, pieces, size = None, [], 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            pieces.append(event.data)
            size += len(event.data)
            if size > REPLY_BYTES_MAX:
                raise ValueError(f"the response exceeds {REPLY_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = _headers(head)
            content_type = headers.get("content-type", "")
            framed = head.status_code in _BODYLESS or not headers.keys().isdisjoint(_FRAMES)
            return Response(
                head.status_code, b"".join(pieces), content_type, headers, framed=framed
            )
        elif isinstance(event, h11.ConnectionClosed):
            raise EOFError("the server hung up without a response")
