"""What somebody else does to the processes of a run: stops them, or ends a pause of ours.

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
    """What is not as we made it, as a clause; `undid` names the kind of fault that it ended.

    `impostor`: another program may have answered in the node's place.
    """

    what: str
    undid: str | None = None
    impostor: bool = False


def family_stopped(pid: int, *, wanted: NodeState) -> bool:
    """What `interference` asks of a node's first process and its descendants.

    One of them that is stopped is enough to hold up a node that should run, and one that is not to
    keep alive a node that we paused: the first process may be a wrapper.
    """
    running = wanted is NodeState.RUNNING
    return procfs.any_stopped(pid) if running else procfs.all_stopped(pid)


def interference(name: str, *, wanted: NodeState, stopped: bool) -> Interference | None:
    """What somebody did to a process that we want in this state; `None` if nothing."""
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
    """Look until cancelled, and publish what begins and what is over as `infrastructure`.

    `look` answers by node, "" standing for what they all need. Where it cannot, that is told, too.
    """
    known: Mapping[str, Interference] = {}
    while True:
        await asyncio.sleep(interval_s)
        try:
            looks = await look()
        except InfrastructureError as error:
            bus.publish("", "infrastructure", {"what": str(error)})
            continue
        found = {node: each for node, each in looks.items() if each is not None}
        for node in known.keys() - found.keys():
            bus.publish(node, "infrastructure", {"what": "that is over", "over": True})
        for node in sorted(found.keys() - known.keys()):
            what, undid, impostor = found[node]
            data = {"what": what, "lasts": True} | ({} if undid is None else {"undid": undid})
            data |= {"impostor": True} if impostor else {}
            bus.publish(node, "infrastructure", data)
        known = found
