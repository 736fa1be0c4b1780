"""Frames over TCP, with limits, closed connections, cancellation and unknown callers."""

import asyncio
import struct
import tempfile
from pathlib import Path

import pytest

from harness.env import FRAME_BYTES_MAX, Address
from harness.environments.host.env import RealEnv
from tests.async_tests import on

PORT = 7000


class Pair:
    """Two nodes on ports that the kernel chooses."""

    def __init__(self, folder: Path) -> None:
        self.panics: list[BaseException] = []
        self.connect: dict[str, tuple[str, int]] = {}
        self.server = self._env("server", folder)
        self.client = self._env("client", folder)

    def _env(self, name: str, folder: Path) -> RealEnv:
        return RealEnv(
            name,
            boot=0,
            seed=1,
            data=folder / name,
            listen={PORT: ("127.0.0.1", 0)},
            connect=self.connect,
            on_event=lambda kind, data: None,
            on_panic=lambda task, error: self.panics.append(error),
        )

    async def listen(self, on_connect):
        listener = await self.server.net.listen(PORT, on_connect)
        self.connect[f"server:{PORT}"] = listener.sockets[0].getsockname()
        return listener

    async def close(self) -> None:
        await self.client.close()
        await self.server.close()


def drive(body):
    async def main(folder):
        pair = Pair(folder)
        try:
            async with asyncio.timeout(20):
                await body(pair)
        finally:
            await pair.close()
        assert pair.panics == []

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


async def echo(conn):
    while (frame := await conn.recv()) is not None:
        await conn.send(frame)


@on(drive)
async def test_try_send_stops_where_send_waits(pair):
    release = asyncio.Event()
    sizes = []

    async def read_late(conn):
        await release.wait()
        while (frame := await conn.recv()) is not None:
            sizes.append(len(frame))

    await pair.listen(read_late)
    conn = await pair.client.net.connect(Address("server", PORT))
    sent = 0
    while conn.try_send(bytes(1_000_000)):
        sent += 1
        await asyncio.sleep(0)
        assert sent < 1000, "no back-pressure"
    assert sent >= 1
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await conn.send(bytes(1_000_000))
    sent += 1  # the whole frame was queued
    release.set()
    await conn.send(b"last")
    assert conn.try_send(b"very last")
    conn.close()
    with pytest.raises(ConnectionResetError):
        conn.try_send(b"late")
    while sizes[-1:] != [9]:  # noqa: ASYNC110 - another node's list
        await asyncio.sleep(0.01)
    assert sizes == [1_000_000] * sent + [4, 9]


@on(drive)
async def test_a_cancelled_recv_loses_nothing(pair):
    release = asyncio.Event()

    async def slowly(conn):
        conn._writer.write(struct.pack(">I", 5) + b"he")
        await release.wait()
        conn._writer.write(b"llo")
        await conn.send(b"next")

    await pair.listen(slowly)
    conn = await pair.client.net.connect(Address("server", PORT))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await conn.recv()
    release.set()
    assert await conn.recv() == b"hello"
    assert await conn.recv() == b"next"


@on(drive)
async def test_ends_are_orderly_or_not(pair):
    async def leave(conn):
        if await conn.recv() == b"in order":
            conn.close()
        else:
            conn._writer.write(struct.pack(">I", 5) + b"he")
            await conn._writer.drain()
            conn._writer.close()

    await pair.listen(leave)
    conn = await pair.client.net.connect(Address("server", PORT))
    await conn.send(b"in order")
    assert await conn.recv() is None
    assert await conn.recv() is None
    with pytest.raises(ConnectionResetError):
        await conn.send(b"late")
    conn = await pair.client.net.connect(Address("server", PORT))
    await conn.send(b"torn")
    with pytest.raises(ConnectionResetError, match="server"):
        await conn.recv()


@on(drive)
async def test_limits(pair):
    async def boast(conn):
        conn._writer.write(struct.pack(">I", FRAME_BYTES_MAX + 1))
        await conn.recv()

    await pair.listen(boast)
    conn = await pair.client.net.connect(Address("server", PORT))
    with pytest.raises(ValueError, match="FRAME_BYTES_MAX"):
        await conn.send(bytes(FRAME_BYTES_MAX + 1))
    with pytest.raises(ConnectionResetError, match="announced a frame of"):
        await conn.recv()


@on(drive)
async def test_a_port_without_a_listener_refuses(pair):
    listener = await pair.listen(echo)
    listener.close()
    with pytest.raises(ConnectionRefusedError, match="server:7000"):
        await pair.client.net.connect(Address("server", PORT))
    with pytest.raises(ConnectionRefusedError, match="knows no address 'nobody:1'"):
        await pair.client.net.connect(Address("nobody", 1))
    with pytest.raises(ValueError, match=r"\[7000\]"):
        await pair.client.net.listen(1, echo)


@on(drive)
async def test_a_proxy_that_hangs_up_is_a_refusal_and_one_that_says_nothing_is_silence(pair):
    silent = []

    async def hang_up(reader, writer):
        writer.close()

    async def say_nothing(reader, writer):
        silent.append(writer)

    for behaviour, error, for_s in [
        (hang_up, ConnectionRefusedError, 60.0),
        (say_nothing, TimeoutError, 0.1),
    ]:
        server = await asyncio.start_server(behaviour, "127.0.0.1", 0)
        pair.connect[f"server:{PORT}"] = server.sockets[0].getsockname()
        with pytest.raises(error):
            async with asyncio.timeout(for_s):
                await pair.client.net.connect(Address("server", PORT))
        while behaviour is say_nothing and not silent:  # noqa: ASYNC110 - it comes late
            await asyncio.sleep(0.01)
        server.close()
    for writer in silent:
        writer.close()


@on(drive)
async def test_strangers_are_turned_away_and_lost_connections_do_not_panic(pair):
    served = []

    async def serve(conn):
        served.append(conn.peer)
        await conn.recv()
        raise ConnectionResetError

    await pair.listen(serve)
    for raw in (b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 5) + b"hello", b"\0"):
        reader, writer = await asyncio.open_connection(*pair.connect[f"server:{PORT}"])
        writer.write(raw)
        writer.write_eof()
        assert await _end_of(reader)
        writer.close()
    assert served == []
    conn = await pair.client.net.connect(Address("server", PORT))
    await conn.send(b"x")
    assert await conn.recv() is None
    assert served == ["client"]


async def _end_of(reader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True
