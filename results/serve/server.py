"""The HTTP server: sockets, requests, and the protection against foreign pages and other users.

The server shows files of a disk to everyone who can reach its port. So it protects them:

* By default it listens on the loopback device, and only answers requests whose `Host` names the
  loopback device. So a foreign page that points its own host name to 127.0.0.1 (DNS rebinding) gets
  an error.
* It refuses background requests from foreign pages (`Sec-Fetch-Site`).
* It only accepts GET and HEAD, and no request can name a file outside the store (`paths`).
* Every answer has a content security policy that allows nothing from other origins.
* The number of connections, the lengths of addresses and answers, and the time for a whole request
  or answer are limited.
"""

from __future__ import annotations

import contextlib
import http
import io
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec

from harness.support.loopback import is_loopback, names_loopback

CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 20.0
REQUEST_S: Final = 10.0
"""The time limit of a whole request, so that a few slow clients cannot occupy all connections."""
ANSWER_S: Final = 600.0
TARGET_CHARS_MAX: Final = 8_192

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class Request(msgspec.Struct, frozen=True):
    """A request: path and query as received, without percent decoding."""

    path: str
    query: str


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response. `body` is bytes, or pieces whose total length may be unknown."""

    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    body: bytes | Iterable[bytes] = b""
    length: int | None = None
    policy: str = POLICY
    headers: tuple[tuple[str, str], ...] = ()


class Failure(Exception):  # noqa: N818 - an answer like any other
    """Ends a request with a status and one line of text for the user."""

    def __init__(self, status: int, text: str) -> None:
        """Create the failure. `text` may have any characters, because pages escape it."""
        super().__init__(text)
        self.status = status
        self.text = text


Application = Callable[[Request], Response]


class StoreServer(ThreadingHTTPServer):
    """An HTTP server that passes requests to `application`. The constructor starts to listen."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, bind: str, port: int, application: Application) -> None:
        """Bind and listen; raises `OSError`."""
        self.address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self.application = application
        self.loopback = False
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((bind, port), _Handler)
        self.loopback = is_loopback(str(self.server_address[0]))

    def server_bind(self) -> None:
        """Bind without asking a name server for the host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def url(self) -> str:
        """The address of this server for a browser."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, unless there are too many connections."""
        if not self._free.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection, then free its place for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects during an answer."""

    def allows_host(self, host: str | None) -> bool:
        """Whether a `Host` header names this server."""
        return not self.loopback or names_loopback(host)


class _Incoming(io.RawIOBase):
    """The input of a connection. A request must be complete `REQUEST_S` after its first byte."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self._deadline_s: float | None = None

    def begin(self) -> None:
        self._deadline_s = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = IDLE_S if self._deadline_s is None else self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(buffer)
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + REQUEST_S
        return count


class _Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    server: StoreServer
    protocol_version = "HTTP/1.1"
    server_version = "harness"
    sys_version = ""
    timeout = IDLE_S

    def setup(self) -> None:
        """Set up the connection, with a deadline that applies to each request as a whole."""
        super().setup()
        self.rfile.close()
        self._incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """Handle one request. After a `TimeoutError`, the base class closes the connection."""
        self._incoming.begin()
        super().handle_one_request()

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _refuse(self) -> None:
        self.close_connection = True
        failure = Response(
            status=405,
            content_type="text/plain; charset=utf-8",
            body=b"only GET and HEAD are served\n",
            headers=(("Allow", "GET, HEAD"),),
        )
        self._send(failure)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _answer(self) -> None:
        try:
            response = self._respond()
        except Failure as failure:
            response = _plain(failure.status, failure.text)
        except Exception as error:  # noqa: BLE001 - one request fails, the server goes on
            response = _plain(500, f"this is a bug of the server: {type(error).__name__}: {error}")
        self._send(response)

    def _respond(self) -> Response:
        if not self.server.allows_host(self.headers.get("Host")):
            raise Failure(403, "this server only answers requests whose Host names localhost")
        site, mode = self.headers.get("Sec-Fetch-Site"), self.headers.get("Sec-Fetch-Mode")
        if site in {"cross-site", "same-site"} and mode != "navigate":
            raise Failure(403, "other pages cannot use this server")
        if len(self.path) > TARGET_CHARS_MAX:
            raise Failure(414, f"the address has more than {TARGET_CHARS_MAX} characters")
        if not self.path.startswith("/"):
            raise Failure(400, "the address must begin with a slash")
        path, _, query = self.path.partition("?")
        return self.server.application(Request(path, query))

    def _send(self, response: Response) -> None:
        body = response.body
        pieces: Iterable[bytes] = [body] if isinstance(body, bytes) else body
        length = len(body) if isinstance(body, bytes) else response.length
        chunked = length is None and self.request_version == "HTTP/1.1"
        if length is None and not chunked:
            self.close_connection = True
        try:
            self._send_head(response, length, chunked=chunked)
            if self.command != "HEAD":
                self._send_pieces(pieces, length, chunked=chunked)
        except Exception:  # noqa: BLE001 - the head is sent, so no status can report the error
            # The client disconnected, or reading the file failed. Closing the connection shows the
            # client that data is missing.
            self.close_connection = True
        finally:
            if isinstance(pieces, Iterator) and hasattr(pieces, "close"):
                pieces.close()

    def _send_head(self, response: Response, length: int | None, *, chunked: bool) -> None:
        if self.request_version == "HTTP/0.9":
            # For HTTP/0.9, the base class would send no headers, and thus no security policy.
            self.request_version, self.close_connection = "HTTP/1.0", True
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Security-Policy", response.policy)
        for name, value in (*_ALWAYS, *response.headers):
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        elif chunked:
            self.send_header("Transfer-Encoding", "chunked")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _send_pieces(self, pieces: Iterable[bytes], length: int | None, *, chunked: bool) -> None:
        sent = 0
        deadline_s = time.monotonic() + ANSWER_S
        for piece in pieces:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the answer took too long")
            self.connection.settimeout(min(IDLE_S, left_s))
            data = piece if length is None else piece[: length - sent]
            if not data:
                continue
            sent += len(data)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif length is not None and sent < length:
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error of the base class (for a malformed request) as text, with our headers."""
        del explain
        self.close_connection = True
        standard = code in http.HTTPStatus.__members__.values()
        text = message or (http.HTTPStatus(code).phrase if standard else "no request")
        self._send(_plain(code, text))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: requests are private, and stderr is for notes."""


_ALWAYS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
)


def _plain(status: int, text: str) -> Response:
    return Response(
        status=status, content_type="text/plain; charset=utf-8", body=f"{text}\n".encode()
    )
