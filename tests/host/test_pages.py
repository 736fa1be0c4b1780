"""The limits and refusals of the page server, tested by raw requests."""

import asyncio
import contextlib
import subprocess
import sys
from dataclasses import replace

import h11
import pytest

from harness.env import PageResponse
from harness.environments.host import pages
from harness.environments.host.pages import get_page, page_server
from harness.environments.pages import PageDoor
from harness.support import http1


@contextlib.asynccontextmanager
async def served(handler=None, *, bound="127.0.0.1"):
    async def hello(request):
        return PageResponse(200, "text/html", request.path.encode())

    tasks = set()

    def spawn(coro):
        tasks.add(asyncio.ensure_future(coro))

    server = page_server(PageDoor(handler or hello, lambda *_, **__: None), spawn)
    _, port = await server.start(bound, 0)
    try:
        yield port
    finally:
        server.close()
        await asyncio.gather(*tasks)


async def exchange(port, *requests):
    """Return the responses to raw bytes on one connection; `None` means it was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for request in requests:
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        try:
            connection = h11.Connection(h11.CLIENT)
            connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
            answers.append(await http1._read_response(connection, reader))
        except (EOFError, ConnectionError, h11.RemoteProtocolError):
            answers.append(None)
    writer.transport.abort()
    return answers


async def test_a_connection_lives_on():
    async with served() as port:
        first, second = await exchange(
            port,
            b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        )
        assert [first.status, first.body, second.body] == [200, b"/a", b"/b"]
        assert "default-src 'none'" in first.headers["content-security-policy"]


async def test_a_head_has_no_body():
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HEAD /abc HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.transport.abort()
        assert b"content-length: 4" in answer.lower()
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"DELETE /a HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"harness/1 m1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),  # the header Host is missing
        (
            b"GET /" + b"a" * (3 * http1.HEAD_BYTES_MAX) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            431,
        ),
        (b"GET nonsense HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET //evil/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (
            b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70000,
            413,
        ),
    ],
)
async def test_only_get_is_allowed(request_bytes, status):
    async with served() as port:
        [answer] = await exchange(port, request_bytes)
        assert answer.status == status
        assert (await get_page(("127.0.0.1", port), "/after", accept="*/*")).status == 200


@pytest.mark.parametrize(
    ("bound", "lines", "status"),
    [
        ("127.0.0.1", "Host: 127.0.0.1:8051", 200),
        ("127.0.0.1", "Host: evil.example", 403),
        ("127.0.0.1", "Host: m1", 403),
        ("127.0.0.1", "Host: [::1]evil.example", 403),
        ("0.0.0.0", "Host: 172.18.0.4:8051", 200),
        ("0.0.0.0", "Host: m1:8051", 200),
        ("0.0.0.0", "Host: localhost", 200),
        ("0.0.0.0", "Host: evil.example:8051", 403),
        ("0.0.0.0", "Host: [::1]evil.example", 403),
        ("127.0.0.1", "Host: localhost\r\nSec-Fetch-Site: cross-site", 403),
        (
            "127.0.0.1",
            "Host: localhost\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate",
            200,
        ),
    ],
)
async def test_names_that_lead_here_from_elsewhere_are_refused(bound, lines, status):
    async with served(bound=bound) as port:
        [answer] = await exchange(port, f"GET /a HTTP/1.1\r\n{lines}\r\n\r\n".encode())
        assert answer.status == status


async def test_connections_are_bounded(monkeypatch):
    monkeypatch.setattr(pages, "LIMITS", replace(pages.LIMITS, connections_max=2))
    async with served() as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        with pytest.raises(ConnectionResetError):
            await get_page(("127.0.0.1", port), "/", accept="*/*")
        for _, writer in idle:
            writer.transport.abort()
        while True:
            with contextlib.suppress(ConnectionResetError):
                assert (await get_page(("127.0.0.1", port), "/", accept="*/*")).status == 200
                return


async def test_a_slow_request_ends(monkeypatch):
    monkeypatch.setattr(pages, "LIMITS", replace(pages.LIMITS, request_s=0.01))
    async with served() as port:
        assert await exchange(port, b"GET / HT") == [None]


def test_a_node_that_shows_no_page_does_not_import_the_library():
    code = "import harness.environments.host.node, sys; sys.exit('h11' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
