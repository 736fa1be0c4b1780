"""`Env` in simulation: what node code may touch, one object an incarnation.

Every part of it tests whether its incarnation is alive: what still runs of a dead one gets
`CancelledError`, or is ignored, and reaches nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from harness.env import Address
from harness.environments.faulty import FaultyDisk
from harness.environments.sim.disk import SimDisk
from harness.environments.sim.network import Fabric, SimNetwork
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.environments.sim.machine import Incarnation

__all__ = ["SimClientEnv", "SimEnv"]


class SimEnv:
    """A node's door to the world (`harness.env.Env`); one an incarnation."""

    def __init__(self, owner: Incarnation, fabric: Fabric, random: Random) -> None:
        machine = owner.machine
        self._owner = owner
        self.name = owner.name
        self.boot = owner.boot
        self.random = random
        self.clock = machine.clock
        self.net = SimNetwork(fabric, owner, machine.ports)
        self.disk = FaultyDisk(SimDisk(machine.disk, owner.loop), machine.trouble)

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `coro` in a task that dies with the node; an unhandled error panics the node."""
        task = self._owner.loop.create_task(coro, name=name)
        task.add_done_callback(self._owner.task_done)
        return task

    def event(self, kind: str, **data: Any) -> None:
        """Trace `kind` with plain JSON `data`."""
        if self._owner.loop.alive:
            self._owner.machine.emit(kind, data)


class SimClientEnv(SimEnv):
    """The driver's door (`harness.env.ClientEnv`)."""

    def endpoint(self, address: Address) -> tuple[str, int]:
        """There are no sockets here: raises `UsageError`."""
        raise UsageError(
            f"{address} has no TCP endpoint in simulation; a client of a foreign protocol runs "
            "with --env process or --env docker"
        )
