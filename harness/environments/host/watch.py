"""Watches for other programs that stop processes of a run, or end pauses that the harness began.

A stopped process looks like a hanging process, and a pause that ended early tested nothing. The
cause may be a user, a debugger, a supervisor or a clean-up program, and the target is not to blame.
So the history records such interference from its detection until its end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from harness.cluster import NodeState
from harness.environments import procfs
from harness.environments.host.logs import EventBus
from harness.errors import InfrastructureError

_FREE_BYTES_MIN: Final = 1024 * 1024
"""With less free space, a disk counts as full: it fills up between two looks."""


class Interference(NamedTuple):
    """A change that the harness did not make, described by the clause `what`.

    `undid` is the kind of the fault that the change ended, if any. `impostor` means that another
    program may have answered in the node's place. `full` means that the disk with the nodes' data
    has no room, so that their writes may have failed.
    """

    what: str
    undid: str | None = None
    impostor: bool = False
    full: bool = False


def family_stopped(pid: int, *, wanted: NodeState) -> bool:
    """Whether a node with the first process `pid` counts as stopped, for `interference`.

    The first process may be a wrapper, so its descendants count as well. A node that should run is
    stopped if any of them is stopped. A node that should be paused is stopped only if all of them
    are.
    """
    running = wanted is NodeState.RUNNING
    return procfs.any_stopped(pid) if running else procfs.all_stopped(pid)


def interference(name: str, *, wanted: NodeState, stopped: bool) -> Interference | None:
    """Return the interference with a node that should be in the state `wanted`, or `None`."""
    if wanted is NodeState.RUNNING and stopped:
        return Interference(f"{name} was stopped, and not by the harness")
    if wanted is NodeState.PAUSED and not stopped:
        return Interference(f"the pause of {name} was ended, and not by the harness", "pause")
    return None


def full_disk(folder: Path) -> Interference | None:
    """Return the interference with all nodes if the disk that holds `folder` is full."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    bytes_free, files_free = disk.f_bavail * disk.f_frsize, disk.f_favail
    if bytes_free >= _FREE_BYTES_MIN and (files_free or not disk.f_files):
        return None
    what = f"the disk with the nodes' data in {folder} was full; free some space, or set TMPDIR"
    return Interference(what, full=True)


async def watch(
    look: Callable[[], Awaitable[Mapping[str, Interference | None]]],
    bus: EventBus,
    *,
    interval_s: float,
) -> None:
    """Poll `look` until cancelled, and publish when interference begins and ends.

    The events have the kind `infrastructure`. `look` returns the interference by node; the node ""
    means the parts that all nodes share. A failure of `look` is published as well.
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
            bus.publish(node, "infrastructure", {"what": "the interference ended", "over": True})
        for node in sorted(interferences.keys() - active.keys()):
            what, undid, impostor, full = interferences[node]
            data = {"what": what, "lasts": True} | ({} if undid is None else {"undid": undid})
            data |= ({"impostor": True} if impostor else {}) | ({"full": True} if full else {})
            bus.publish(node, "infrastructure", data)
        active = interferences
