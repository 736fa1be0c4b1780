"""The HTTP/1.1 client reads responses of every form."""

import asyncio

import pytest

from harness.support.http1 import fetch

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\n[1, \r\n3\r\n2]\n\r\n0\r\n\r\n"
)


def fetched(raw):
    """Read a response; return status, body, and whether the connection remains open."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    async def body():
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            streams = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                response, lives_on = await fetch(*streams, "GET", "/x", [("Host", "x")])
            finally:
                streams[1].close()
        return response.status, response.body, lives_on

    return asyncio.run(body())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", (200, b"ab", True)),
        (CHUNKED, (200, b"[1, 2]\n", True)),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", (204, b"", True)),
        (b"HTTP/1.1 204 No\r\nConnection: close\r\n\r\n", (204, b"", False)),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", (200, b"to the end", False)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", (200, b"a", False)),
        (b"SSH-2.0\r\n\r\n", ValueError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", ValueError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + bytes(20_000_000), ValueError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", EOFError),
        (b"", EOFError),
    ],
)
def test_responses_are_read_as_the_protocol_says(raw, expected):
    if isinstance(expected, tuple):
        assert fetched(raw) == expected
    else:
        with pytest.raises(expected):
            fetched(raw)
