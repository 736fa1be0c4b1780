"""`Env` in simulation: what node code may touch, one object an incarnation.

Every part of it tests whether its incarnation is alive: what still runs of a dead one gets
`CancelledError`, or is ignored, and reaches nothing.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from harness.env import Address, PageHandler, PageResponse
from harness.environments.faulty import FaultyDisk
from harness.environments.pages import PageDoor
from harness.environments.sim.disk import SimDisk
from harness.environments.sim.network import Fabric, SimNetwork
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.environments.sim.machine import Incarnation


class SimEnv:
    """A node's door to the world (`harness.env.Env`); one an incarnation."""

    def __init__(self, owner: Incarnation, fabric: Fabric, random: Random) -> None:
        machine = owner.machine
        self._owner = owner
        self._fabric = fabric
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

    async def serve_pages(self, port: int, handler: PageHandler) -> None:
        """Have the driver find the handler; there is nothing between them."""
        owner = self._owner
        owner.check_alive()
        spec = owner.machine.spec
        if spec is None or port != spec.pages:
            raise ValueError(f"{owner.name} may not show pages on {port}: see NodeSpec.pages")
        if owner.pages is not None:
            raise OSError(errno.EADDRINUSE, f"{owner.name} shows pages already")
        owner.pages = PageDoor(handler, self.event)

    def endpoint(self, address: Address) -> tuple[str, int]:
        """There are no sockets here: raises `UsageError`."""
        raise UsageError(
            f"{address} has no TCP endpoint in simulation; a client of a foreign protocol runs "
            "with --env process or --env docker"
        )

    def page_url(self, address: Address) -> str:
        """What it would be where node names are hosts."""
        return f"http://{address}"

    def event(self, kind: str, **data: Any) -> None:
        """Trace `kind` with plain JSON `data`."""
        if self._owner.loop.alive:
            self._owner.machine.announce(kind, data)


class SimClientEnv(SimEnv):
    """The driver's door (`harness.env.ClientEnv`)."""

    async def get_page(
        self, address: Address, target: str, *, accept: str = "text/html"
    ) -> PageResponse:
        """Run the node's handler on its own loop: it takes the node's time, and freezes with it."""
        node = self._fabric.incarnation(address.node)
        door = None if node is None else node.pages
        if node is None or door is None or node.machine.spec is None:
            raise ConnectionRefusedError(f"{address.node} shows no pages")
        if node.machine.spec.pages != address.port:
            raise ConnectionRefusedError(f"nobody listens on {address}")
        answered: asyncio.Future[PageResponse | None] = self._owner.loop.create_future()
        node.exit_waiters.append(answered)

        async def ask(door: PageDoor) -> None:
            response = await door.answer(target, accept=accept)
            if not answered.done():
                answered.set_result(response)

        task = node.env.spawn(ask(door), name=f"page:{address.port}")
        try:
            response = await answered
        finally:
            node.exit_waiters.remove(answered)
            task.cancel()
        if response is None:
            raise ConnectionResetError(f"{address.node} ended before it answered")
        return response
