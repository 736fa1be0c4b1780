"""Small nodes against `Env` for tests of the simulation."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.cluster import NodeSpec
from harness.env import Address, Conn, Env

PORT = 7000


def specs(*names: str, entry: str = "echo", **config: Any) -> tuple[NodeSpec, ...]:
    return tuple(
        NodeSpec(
            name=name,
            role="node",
            ports=(PORT,),
            entry=f"tests.sim.toy:{entry}",
            config={"peers": sorted(names), **config},
        )
        for name in names
    )


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def serve_echo(env: Env, conn: Conn) -> None:
    while (frame := await conn.recv()) is not None:
        await conn.send(frame + b"@" + env.name.encode())
    conn.close()


async def echo(env: Env, config: dict[str, Any]) -> None:
    await env.net.listen(PORT, lambda conn: serve_echo(env, conn))
    await forever()


async def call(env: Env, node: str, frame: bytes, timeout_s: float = 5.0) -> bytes | None:
    async with asyncio.timeout(timeout_s):
        conn = await env.net.connect(Address(node, PORT))
        try:
            await conn.send(frame)
            return await conn.recv()
        finally:
            conn.close()
