"""The HTTP/1.1 client reads responses of every form."""

import asyncio

import pytest

from harness.support.http1 import Response, fetch

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
        return response, lives_on

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
        response, lives_on = fetched(raw)
        assert (response.status, response.body, lives_on) == expected
    else:
        with pytest.raises(expected):
            fetched(raw)


@pytest.mark.parametrize(
    ("raw", "cut"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n12", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n12", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (b'HTTP/1.0 200 OK\r\n\r\n{"value": 12}', False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n12", False),
        (b"HTTP/1.0 204 No\r\n\r\n", False),
        (b"HTTP/1.0 304 No\r\n\r\n", False),
        (CHUNKED, False),
    ],
)
def test_a_response_says_whether_it_may_be_cut(raw, cut):
    assert fetched(raw)[0].may_be_cut() is cut


@pytest.mark.parametrize(
    "text", ["123", "-1.5", "[1, 2]", '{"a": 12}', '"12"', "true", "null", " 12\n", "[" * 9999]
)
def test_no_beginning_of_an_unframed_answer_is_taken_for_the_whole(text):
    """A text counts as whole only if nothing but blanks could follow it."""
    for size in range(len(text) if len(text) < 99 else 0):
        beginning = Response(200, text[:size].encode(), framed=False)
        assert beginning.may_be_cut()
        assert beginning.may_be_cut(text=True)
    whole = Response(200, text.encode(), framed=False)
    assert whole.may_be_cut() is (text.strip(" \n-").startswith(("1", "[[")))
    assert whole.may_be_cut(text=True)
