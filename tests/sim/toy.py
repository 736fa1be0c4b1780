"""Small nodes written against `Env`, and a helper that runs a driver among them."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from harness.cluster import CLIENT, NodeSpec
from harness.env import Address, Conn, Env
from harness.environments.sim import SimEnvironment
from harness.plugins import DeploymentPlan

PORT = 7000
LEASE_S = 1000.0


def specs(*names: str, entry: str = "echo", **config: Any) -> tuple[NodeSpec, ...]:
    return tuple(
        NodeSpec(
            name=name,
            role="node",
            ports=(PORT,),
            entry=entry if ":" in entry else f"tests.sim.toy:{entry}",
            config={"peers": sorted(names), **config},
        )
        for name in names
    )


def run(
    main: Callable[[Any], Coroutine[Any, Any, Any]],
    nodes: tuple[NodeSpec, ...] = (),
    *,
    seed: int = 1,
    folder: Path | None = None,
    ends: tuple[str, ...] = (CLIENT,),
    **knobs: Any,
) -> Any:
    plan = DeploymentPlan(
        run_id="test", nodes=nodes, seed=seed, knobs=knobs, folder=folder, ends=ends
    )
    return SimEnvironment().execute(plan, main)


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


# --- nodes ----


async def echo(env: Env, config: dict[str, Any]) -> None:
    """Run a node that answers each frame with the frame, `@` and its own name."""

    async def serve(conn: Conn) -> None:
        while (frame := await conn.recv()) is not None:
            env.event("served", size=len(frame))
            await conn.send(frame + b"@" + env.name.encode())
        conn.close()

    await env.net.listen(PORT, serve)
    await forever()


async def sink(env: Env, config: dict[str, Any]) -> None:
    """Run a node that reads and never answers."""

    async def serve(conn: Conn) -> None:
        while await conn.recv() is not None:
            env.event("swallowed")

    await env.net.listen(PORT, serve)
    await forever()


async def ticker(env: Env, config: dict[str, Any]) -> None:
    """Run a node that announces `tick` every second of its own clock."""
    count = 0
    while True:
        await asyncio.sleep(1)
        count += 1
        env.event("tick", count=count, wall=env.clock.wall_ns(), loop=env.clock.monotonic_ns())


async def stubborn(env: Env, config: dict[str, Any]) -> None:
    """Run a node that ignores a graceful stop."""
    while True:
        try:
            await forever()
        except asyncio.CancelledError:
            env.event("refused-to-stop")


async def scribe(env: Env, config: dict[str, Any]) -> None:
    """Run a node that appends numbered records forever, and syncs after every fourth one."""
    file = await env.disk.open("log")
    count = 0
    while True:
        await file.append(b"%07d\n" % count)
        count += 1
        env.event("appended", count=count)
        if count % 4 == 0:
            await file.sync()
            env.event("synced", count=count)


# --- the driver's calls ----


async def call(env: Env, node: str, frame: bytes, *, timeout_s: float = 5.0) -> bytes | None:
    async with asyncio.timeout(timeout_s):
        conn = await env.net.connect(Address(node, PORT))
        try:
            await conn.send(frame)
            return await conn.recv()
        finally:
            conn.close()


async def connect(env: Env, node: str) -> Conn:
    return await env.net.connect(Address(node, PORT))


async def within(seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        return "timeout"
