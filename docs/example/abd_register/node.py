"""One replica, which keeps the received value with the highest stamp on disk."""

import asyncio
import contextlib
from typing import Any

import msgspec

from harness.env import Conn, Env

PORT = 7100


async def main(env: Env, config: dict[str, Any]) -> None:
    """Answer `get` with the kept value, and keep the value of a newer `put`."""
    del config
    try:
        kept = msgspec.json.decode(await env.disk.read("register"))
    except FileNotFoundError:
        kept = {"stamp": [0, 0], "value": None}
    lock = asyncio.Lock()

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        async with lock:
            if request["do"] == "put" and request["stamp"] > kept["stamp"]:
                new = {"stamp": request["stamp"], "value": request["value"]}
                await env.disk.replace("register", msgspec.json.encode(new))
                kept.update(new)
            return dict(kept)

    async def serve(conn: Conn) -> None:
        with contextlib.suppress(ConnectionResetError):
            while (frame := await conn.recv()) is not None:
                await conn.send(msgspec.json.encode(await answer(msgspec.json.decode(frame))))

    await env.net.listen(PORT, serve)
    env.event("serving")
    await asyncio.Event().wait()
