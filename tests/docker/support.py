"""Helpers for tests with a Docker engine, which deploy echo nodes and call them."""

import asyncio
import secrets
from typing import Any

import msgspec

from harness.cluster import NodeSpec
from harness.env import Address
from harness.plugins import DeploymentPlan, Session
from tests.docker.echo import PORT
from tests.faults.door import door
from tests.support.waiting import LIMIT_S


def echo_nodes(count: int) -> tuple[NodeSpec, ...]:
    return tuple(
        NodeSpec(
            name=f"n{index}",
            role="echo",
            ports=(PORT,),
            entry="tests.docker.echo:main",
            config={"greeting": "hello"},
        )
        for index in range(1, count + 1)
    )


def plan_of(nodes, folder=None, run_id=None, clocks=(), **more) -> DeploymentPlan:
    run_id = run_id or f"test-{secrets.token_hex(4)}"
    return DeploymentPlan(
        run_id=run_id,
        nodes=tuple(nodes),
        seed=7,
        knobs={},
        folder=folder,
        clocks=frozenset(clocks),
        **more,
    )


async def ask(session: Session, node: str, *request: Any, timeout_s: float = LIMIT_S) -> Any:
    """Send one request over a new connection. Raises `TimeoutError` or `OSError`."""
    async with asyncio.timeout(timeout_s):
        conn = await session.env.net.connect(Address(node, PORT))
        try:
            await conn.send(msgspec.json.encode(request))
            frame = await conn.recv()
        finally:
            conn.close()
    if frame is None:
        raise ConnectionResetError(f"{node} hung up")
    return msgspec.json.decode(frame)


async def silence(session: Session, source: str, peer: str) -> str:
    """Ask `source` up to three times whether `peer` is silent, as one request may be late."""
    heard = {await ask(session, source, "ask", peer, 0.5) for _ in range(3)}
    return "TimeoutError" if heard == {"TimeoutError"} else str(heard)


async def wait_answering(session: Session, *nodes: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        for node in nodes:
            while True:
                try:
                    await ask(session, node, "who")
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    break


def in_turn(*checks):
    """Return a `main` that runs `checks` in turn, each on a cluster without faults."""

    async def main(session: Session) -> None:
        for check in checks:
            await door(session).heal_all()
            for node in session.cluster.nodes:
                await session.cluster.start(node)
            await wait_answering(session, *session.cluster.nodes)
            try:
                await check(session)
            except BaseException as error:
                error.add_note(f"in {check}")
                raise

    return main
