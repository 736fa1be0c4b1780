"""Interference with the processes of a run: another program stops them, or ends a pause of ours.

A stopped process is as silent as a hanging one, and a pause that did not last proves nothing. Who
does such a thing (a user, a debugger, a supervisor, another program that cleans up) is not the
target: it becomes a fact of the history, from when it is seen until it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from harness.cluster import NodeState
from harness.environments import procfs
from harness.environments.host.logs import EventBus
from harness.errors import InfrastructureError


class Interference(NamedTuple):
    """A change that the harness did not make, as a clause; `undid`: the kind of fault it ended.

    `impostor`: another program may have answered in the node's place.
    """

    what: str
    undid: str | None = None
    impostor: bool = False


def family_stopped(pid: int, *, wanted: NodeState) -> bool:
    """The input of `interference`, for a node's first process and its descendants.

    One of them that is stopped is enough to hold up a node that should run, and one that is not to
    keep alive a node that we paused: the first process may be a wrapper.
    """
    running = wanted is NodeState.RUNNING
    return procfs.any_stopped(pid) if running else procfs.all_stopped(pid)


def interference(name: str, *, wanted: NodeState, stopped: bool) -> Interference | None:
    """The interference with a process that we want in this state; `None` if there is none."""
    if wanted is NodeState.RUNNING and stopped:
        return Interference(f"{name} was stopped, and not by the harness")
    if wanted is NodeState.PAUSED and not stopped:
        return Interference(f"the pause of {name} was ended, and not by the harness", "pause")
    return None


async def watch(
    look: Callable[[], Awaitable[Mapping[str, Interference | None]]],
    bus: EventBus,
    *,
    interval_s: float,
) -> None:
    """Look until cancelled, and publish beginnings and ends of interference as `infrastructure`.

    `look` answers by node, with "" for the parts that all need. A failed look is published, too.
    """
    active: Mapping[str, Interference] = {}
    while True:
        await asyncio.sleep(interval_s)
        try:
            looks = await look()
        except InfrastructureError as error:
            bus.publish("", "infrastructure", {"what": str(error)})
            continue
        interferences = {node: each for node, each in looks.items() if each is not None}
        for node in active.keys() - interferences.keys():
            bus.publish(node, "infrastructure", {"what": "that is over", "over": True})
        for node in sorted(interferences.keys() - active.keys()):
            what, undid, impostor = interferences[node]
            data = {"what": what, "lasts": True} | ({} if undid is None else {"undid": undid})
            data |= {"impostor": True} if impostor else {}
            bus.publish(node, "infrastructure", data)
        active = interferences
