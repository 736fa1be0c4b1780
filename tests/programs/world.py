"""Programs as nodes, and helpers to run them."""

import asyncio
from typing import Any

from harness.cluster import NodeSpec
from harness.env import Address
from tests.sim.toy import run

PORT = 8080


def program(name: str, place: str, *arguments: str, **fields: Any) -> NodeSpec:
    """Return a node that runs a callable in `tests.programs.apps`, such as `counter:main`."""
    command = (f"python:tests.programs.apps.{place}", *arguments)
    return NodeSpec(name=name, role="node", ports=(PORT,), command=command, **fields)


def server(name: str = "n1", **fields: Any) -> NodeSpec:
    return program(name, "counter:main", "{port:8080}", **fields)


def printed(lines: list[str]) -> list[str]:
    """Return the lines of a log without times and without events."""
    texts = [line.partition(" ")[2] for line in lines]
    return [text for text in texts if not text.startswith("node-")]


async def logs(session: Any, name: str) -> list[str]:
    return printed(await session.cluster.logs(name))


async def ask(session: Any, node: str, word: str) -> bytes:
    """Send a word to the counter on a node, as a client of the harness."""
    endpoint = session.env.endpoint(Address(node, PORT))
    reader, writer = await asyncio.open_connection(*endpoint)
    writer.write(word.encode() + b"\n")
    try:
        return await reader.readline()
    finally:
        writer.close()


__all__ = ["PORT", "ask", "logs", "printed", "program", "run", "server"]
