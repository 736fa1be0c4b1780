"""Waits until a simulated program is ready: a port listens, a page answers, or a log line matches.

A page is requested on the node itself, so that link faults do not delay readiness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from harness.cluster import NodeSpec, NodeState
from harness.environments.host.readiness import LineWatch, wait_ready

if TYPE_CHECKING:
    from harness.environments.sim.machine import Incarnation, Machine

_PROBE_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 4096


async def wait_for_program(machine: Machine, spec: NodeSpec) -> str | None:
    """Wait until a program is ready. Returns `None`, or why it is not: it ended or was too slow."""
    incarnation = machine.incarnation
    if incarnation is None:
        return f"node {machine.name!r} is down"

    def runs() -> bool:
        return machine.incarnation is incarnation and machine.state is not NodeState.DOWN

    async def ask_port(port: int, path: str) -> str | None:
        if port not in incarnation.listeners:
            return f"nothing listens on {port}"
        return await _ask_page(incarnation, port, path) if path else None

    async def no_command(_: Sequence[str]) -> tuple[int | None, str]:
        return None, ""

    return await wait_ready(spec, incarnation.watch or LineWatch(spec), runs, ask_port, no_command)


async def _ask_page(node: Incarnation, port: int, path: str) -> str | None:
    """Request a page on the node's own loop; returns the reason if its status is not 200."""
    answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        reason: str | None = "no answer"
        try:
            async with asyncio.timeout(_PROBE_S):
                reason = await _status("127.0.0.1", port, path)
        except OSError as error:
            reason = str(error)
        finally:
            if not answered.done():
                answered.set_result(reason)

    task = node.env.spawn(ask(), name=f"ready:{port}")
    node.exit_waiters.append(answered)
    try:
        return await answered
    finally:
        node.exit_waiters.remove(answered)
        task.cancel()


async def _status(host: str, port: int, path: str) -> str | None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        status = (await reader.readline())[:_ANSWER_BYTES_MAX].decode("latin-1").strip()
    finally:
        writer.close()
    return None if status.split()[1:2] == ["200"] else f"the answer was {status!r}"
