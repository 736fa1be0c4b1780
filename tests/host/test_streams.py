"""The reason why a connection ended is raised at its next use, and is never printed."""

import asyncio
import gc
import socket
import struct

import pytest

from harness.environments.host.network import RealConn
from harness.environments.toxiproxy.client import ToxiproxyClient, ToxiproxyError

RESET = struct.pack("ii", 1, 0)


async def reset(reader, writer):
    await reader.readexactly(1)
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def a_node(host, port, protocols):
    conn = RealConn(*await asyncio.open_connection(host, port), on_close=lambda _: None)
    protocols.append(conn._writer._protocol)
    await conn.send(b"x")
    with pytest.raises(ConnectionResetError):
        await conn.recv()


async def a_link_proxy(host, port, protocols):
    client = ToxiproxyClient(f"http://{host}:{port}")
    opened = client._exchange_once

    async def watched(*request):
        try:
            return await opened(*request)
        finally:
            protocols.append(client._streams[1]._protocol)

    client._exchange_once = watched
    with pytest.raises(ToxiproxyError):
        await client.version()


async def nobody(host, port, protocols):
    reader, writer = await asyncio.open_connection(host, port)
    protocols.append(writer._protocol)
    writer.write(b"x")
    with pytest.raises(ConnectionResetError):
        await reader.read()


@pytest.mark.parametrize(
    ("callers", "complaints"), [((a_node, a_link_proxy), 0), ((nobody,), 1)], ids=["ours", "nobody"]
)
def test_the_end_of_a_connection_is_not_said_twice(callers, complaints, caplog):
    async def main():
        protocols = []
        server = await asyncio.start_server(reset, "127.0.0.1", 0)
        for asks in callers:
            await asks(*server.sockets[0].getsockname(), protocols)
        await asyncio.sleep(0)
        server.close()
        for protocol in protocols:
            # The garbage collector frees the future before the stream.
            protocol._closed = asyncio.get_running_loop().create_future()
        assert len(protocols) >= len(callers)
        del protocols, protocol
        gc.collect()

    asyncio.run(main())
    assert len([record for record in caplog.records if record.name == "asyncio"]) == complaints
