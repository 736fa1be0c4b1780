"""Shapes of connections between nodes on `Env`: what each end does, and what it must see."""

import asyncio
import json

from harness.env import Address, Conn, Env

PORT, LATER = 7000, 7001
WAIT_S = 60.0
IDLE_S = 0.7
FRAME = bytes(range(250)) * 200
FRAMES = 60

SHAPES = (
    *("send-and-close", "ask", "idle", "large-both-ways", "close-together"),
    *("slow-reader", "server-closes-first"),
)
NOTHING, ONE, ALL = [0, "end"], [1, "end"], [FRAMES, "end"]
EXPECTED = {
    # by shape: how many frames the caller receives and the server, and how it ends
    "send-and-close": (None, ONE),
    "ask": (ONE, ONE),
    "idle": ([2, "end"], [2, "end"]),
    "large-both-ways": (ALL, ALL),
    "close-together": (ONE, ONE),
    "slow-reader": (ALL, NOTHING),
    "server-closes-first": (ONE, None),
}


async def receive_all(conn: Conn) -> list[object]:
    """The number of frames, and their end."""
    count = 0
    try:
        while (frame := await conn.recv()) is not None:
            assert frame == FRAME
            count += 1
    except ConnectionResetError:
        return [count, "reset"]
    return [count, "end"]


async def receive(conn: Conn, count: int) -> list[object]:
    """Frames of this number."""
    for number in range(count):
        if await conn.recv() != FRAME:
            return [number, "early"]
    return [count, "end"]


async def send(conn: Conn, count: int) -> None:
    for _ in range(count):
        await conn.send(FRAME)


async def call(shape: str, name: str, conn: Conn) -> list[object] | None:
    """The caller's part; what it saw."""
    await conn.send(json.dumps({"shape": shape, "name": name}).encode())
    match shape:
        case "send-and-close":
            await conn.send(FRAME)
            return None
        case "ask":
            await conn.send(FRAME)
            return await receive(conn, 1)
        case "idle":
            for _ in range(2):
                await conn.send(FRAME)
                await receive(conn, 1)
                await asyncio.sleep(IDLE_S)
            return [2, "end"]
        case "large-both-ways" | "close-together":
            count = 1 if shape == "close-together" else FRAMES
            _, seen = await asyncio.gather(send(conn, count), receive(conn, count))
            return seen
        case "slow-reader":
            await asyncio.sleep(IDLE_S)
            return await receive(conn, FRAMES)
    return await receive_all(conn)


async def answer(shape: str, conn: Conn) -> list[object] | None:
    """The server's part; what it saw."""
    match shape:
        case "ask":
            seen = await receive(conn, 1)
            await conn.send(FRAME)
            return seen if await conn.recv() is None else ["more"]
        case "idle":
            for _ in range(2):
                await receive(conn, 1)
                await conn.send(FRAME)
            return [2, "end"] if await conn.recv() is None else ["more"]
        case "large-both-ways" | "close-together":
            count = 1 if shape == "close-together" else FRAMES
            _, seen = await asyncio.gather(send(conn, count), receive(conn, count))
            return seen
        case "slow-reader":
            await send(conn, FRAMES)
        case "server-closes-first":
            await conn.send(FRAME)
            return None
    return await receive_all(conn)


async def dial(env: Env, address: Address, name: str, shape: str, wait_s: float) -> object:
    try:
        async with asyncio.timeout(wait_s):
            conn = await env.net.connect(address)
            try:
                return await call(shape, name, conn)
            finally:
                conn.close()
    except (OSError, TimeoutError) as error:
        return {"error": type(error).__name__}


async def main(env: Env, config: dict[str, object]) -> None:
    """Serve, remember frames by the name of each connection, and call on request."""
    del config
    seen: dict[str, object] = {}
    began: list[str] = []

    async def obey(command: dict) -> object:
        match command["do"]:
            case "dial":
                address = Address(command["node"], command["port"])
                names, wait_s = command["names"], command["wait_s"]
                if command["at_once"]:
                    calls = [dial(env, address, *each, wait_s) for each in names.items()]
                    return dict(zip(names, await asyncio.gather(*calls), strict=True))
                return {each[0]: await dial(env, address, *each, wait_s) for each in names.items()}
            case "listen":
                await env.net.listen(LATER, serve)
        return {"seen": seen, "began": began}

    async def serve(conn: Conn) -> None:
        first = json.loads(await conn.recv() or b"{}")
        if "do" in first:
            await conn.send(json.dumps(await obey(first)).encode())
        elif first:
            began.append(first["name"])
            seen[first["name"]] = await answer(first["shape"], conn)
        conn.close()

    await env.net.listen(PORT, serve)
    await asyncio.get_running_loop().create_future()


async def ask(env: Env, asked: str, **command: object) -> dict:
    """Have a node carry out a command; its reply."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                conn = await env.net.connect(Address(asked, PORT))
                await conn.send(json.dumps(command).encode())
                reply = await conn.recv()
                conn.close()
            except ConnectionError:
                reply = None  # it is not up yet
            if reply is not None:
                return json.loads(reply)
            await asyncio.sleep(0.05)
