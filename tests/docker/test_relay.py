"""The relay forwards data from each client's own address, and forwards resets as resets."""

import asyncio
import contextlib
import socket
import struct

import pytest

from harness.environments.docker.network import relay

SOURCE = "127.0.0.9"


@contextlib.asynccontextmanager
async def through(peer, *, listening=True):
    """Open a client's streams through a relay to a server that runs `peer`."""
    ends = []

    async def answered(reader, writer):
        ends.append(writer)
        await peer(reader, writer)

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    route = relay.Route(0, SOURCE, *server.sockets[0].getsockname()[:2])
    if not listening:
        server.close()

    async def accepted(reader, writer):
        ends.append(writer)
        await relay._pass_on(route, reader, writer)

    front = await asyncio.start_server(accepted, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*front.sockets[0].getsockname()[:2])
    try:
        async with asyncio.timeout(30):
            yield reader, writer
    finally:
        for each in (writer, *ends):
            each.transport.abort()
            with contextlib.suppress(OSError):
                await each.wait_closed()
        for each in (server, front):
            each.close()
            await each.wait_closed()


async def echo(reader, writer):
    host, _ = writer.get_extra_info("peername")
    writer.write(host.encode() + b"\n" + await reader.read())
    writer.close()


async def reset(reader, writer):
    await reader.readline()
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


def test_it_calls_from_the_address_of_the_client_and_passes_on_ends():
    async def go():
        async with through(echo) as (reader, writer):
            writer.write(b"x" * 300_000)
            writer.write_eof()
            return await reader.read()

    assert asyncio.run(go()) == SOURCE.encode() + b"\n" + b"x" * 300_000


@pytest.mark.parametrize(("peer", "listening"), [(reset, True), (echo, False)])
async def test_a_reset_and_a_refusal_are_resets_for_the_client(peer, listening):
    async with through(peer, listening=listening) as (reader, writer):
        writer.write(b"x\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_reset_of_the_client_is_one_for_the_node():
    arrived, heard = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def listen(reader, writer):
        try:
            await reader.readline()
            arrived.set()
            heard.set_result(await reader.read())
        except ConnectionResetError as error:
            heard.set_result(error)

    async with through(listen) as (_, writer):
        writer.write(b"x\n")
        await arrived.wait()
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        assert isinstance(await heard, ConnectionResetError)


def test_a_route_reads_as_it_is_written():
    route = relay.Route(10_000, "10.1.2.110", "10.1.2.10", 7051)
    assert relay.Route.parse(str(route)) == route
    with pytest.raises(ValueError, match="unpack"):
        relay.Route.parse("1:2:3")
