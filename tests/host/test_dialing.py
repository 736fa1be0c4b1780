"""A connection of a caller to itself is refused."""

import asyncio
import functools
import socket

import pytest

from harness.support import loopback


def test_a_connection_to_oneself_is_refused(monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own_end = functools.partial(asyncio.open_connection, local_addr=("127.0.0.1", port))
    monkeypatch.setattr(loopback.asyncio, "open_connection", own_end)
    with pytest.raises(ConnectionRefusedError, match="connected to itself"):
        asyncio.run(loopback.dial("127.0.0.1", port))


def test_another_is_reached():
    async def body():
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1") as it:
            port = it.sockets[0].getsockname()[1]
            _, writer = await loopback.dial("127.0.0.1", port)
            reached = writer.get_extra_info("peername")
            writer.close()
            await writer.wait_closed()
        assert reached == ("127.0.0.1", port)

    asyncio.run(body())
