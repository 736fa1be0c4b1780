"""Administrative operations, scheduled like faults: restarts, and operations that a system defines.

Operations are not faults, but they can fail while faults are active. Each has a time limit, because
during a partition there may be no node that can carry it out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from harness.cluster import Deployed
from harness.nodes.faults import ROLLING_RESTART, Operate
from harness.plugins import System

OPERATION_BOUND_S: Final = 60.0
READY_BOUND_S: Final = 10.0
READY_POLL_S: Final = 0.2


async def do_operation(
    what: Operate, nodes: Sequence[str], cluster: Deployed, system: System
) -> str | None:
    """Carry out the operation `what` on `nodes`.

    Returns a description of its effect, or `None` if the operation was refused or took too long.
    """
    if asyncio.current_task() is None:
        # In simulation a trap may run outside of any task. This wait moves the trap into a task,
        # because only a task can set a time limit.
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(OPERATION_BOUND_S):
            if what.name == ROLLING_RESTART:
                return await _rolling_restart(what, nodes, cluster, system)
            restarting = system.restarting()
            if what.name in restarting:
                return await restarting[what.name](nodes, partial(_restart, cluster))
            return await system.operations()[what.name](nodes)
    except TimeoutError:
        return None


async def restore(cluster: Deployed, system: System) -> None:
    """Let the system undo its operations. If this fails, the convergence check will show it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(OPERATION_BOUND_S):
            await system.restore(partial(_restart, cluster))


async def _restart(cluster: Deployed, node: str, variant: str) -> bool:
    return await cluster.stop(node) and await cluster.start(node, variant)


async def _rolling_restart(
    what: Operate, nodes: Sequence[str], cluster: Deployed, system: System
) -> str | None:
    """Restart the nodes gracefully, one after the other.

    They start as the variant `what.variant`, if one is given. The next node follows when the system
    is ready again, or after a time limit: an impatient administrator continues even if a fault
    keeps the system from becoming ready. A node that is down is skipped.
    """
    done = []
    for node in nodes:
        if await cluster.stop(node):
            await cluster.start(node, what.variant or None)
            done.append(node)
            await _until_ready(node, cluster, system)
    if not done:
        return None
    as_what = f" as {what.variant}" if what.variant else ""
    return f"restarted {', '.join(done)} in turn{as_what}"


async def _until_ready(node: str, cluster: Deployed, system: System) -> None:
    try:
        async with asyncio.timeout(READY_BOUND_S):
            await cluster.wait_ready(node)
            while not (await system.ready()).ok:  # noqa: ASYNC110 - remote state
                await asyncio.sleep(READY_POLL_S)
    except TimeoutError:
        return
