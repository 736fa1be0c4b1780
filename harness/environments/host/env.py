"""Implements `Env` in the real world, by TCP, files in a folder, and the machine's clocks.

One class serves a node, in a process or container, and a subclass serves the driver's clients.
Process and link faults come from outside. A node's clock and disk can have faults
(`harness.environments.faulty`), but otherwise look real, so a target cannot tell whether it is
under test. The driver's own clock and disk have no faults.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from harness.case import stream
from harness.cluster import CLIENT
from harness.env import Address, Clock, Disk, PageHandler, PageResponse
from harness.environments.faulty import DiskTrouble, FaultyDisk
from harness.environments.host.disk import RealDisk
from harness.environments.host.network import RealNetwork
from harness.environments.host.pages import get_page, page_server
from harness.environments.pages import PageDoor

MAX_ERROR_NS: Final = 10_000_000
"""The maximum clock error that nodes report, which is that of a good NTP daemon.

The actual error is zero: all nodes of a real run share one machine's clock."""

OnEvent = Callable[[str, dict[str, Any]], None]
OnPanic = Callable[[str, BaseException], None]


class RealClock:
    """The clocks of the machine on which the node runs (`harness.env.Clock`)."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    def max_error_ns(self) -> int:
        return MAX_ERROR_NS


class RealEnv:
    """The `Env` of one run of a node's program (see `harness.env.Env`).

    `on_event` gets the node's events. `on_panic` gets the name of a failed task and its unhandled
    error, and must end the node.
    """

    def __init__(
        self,
        name: str,
        *,
        boot: int,
        seed: int,
        data: Path,
        listen: Mapping[int, tuple[str, int]],
        connect: Mapping[str, tuple[str, int]],
        on_event: OnEvent,
        on_panic: OnPanic,
        clock: Clock | None = None,
        trouble: DiskTrouble | None = None,
        pages: Mapping[str, tuple[str, int]] = MappingProxyType({}),
    ) -> None:
        """Without `clock`, use the machine's clock. Without `trouble`, the disk has no faults.

        `pages` maps `node:port` to the address at which a browser reaches the node's pages.
        """
        self.name = name
        self.boot = boot
        self.clock: Clock = RealClock() if clock is None else clock
        self.net = RealNetwork(name, listen, connect, lambda coro, n: self.spawn(coro, name=n))
        self._folder = RealDisk(data)
        self.disk: Disk = self._folder if trouble is None else FaultyDisk(self._folder, trouble)
        self.random = stream(seed, f"node/{name}/{boot}")
        self._pages = pages
        self._close_pages: Callable[[], None] | None = None
        self._on_event = on_event
        self._on_panic = on_panic
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `coro` in a task. An unhandled error of the task ends the node."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        # the loop has only weak references to tasks, so this set keeps them alive
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_panic(task.get_name(), error)

    def event(self, kind: str, **data: Any) -> None:
        self._on_event(kind, data)

    def point(self, kind: str, **data: Any) -> None:
        self._on_event(kind, data)

    async def serve_pages(self, port: int, handler: PageHandler) -> None:
        if str(Address(self.name, port)) not in self._pages:
            raise ValueError(f"{self.name} may not serve pages on {port}; NodeSpec.pages lacks it")
        host, real_port = self.net.bound(port)
        server = page_server(
            PageDoor(handler, self.event), lambda coro: self.spawn(coro, name=f"page:{port}")
        )
        await server.start(host, real_port)
        self._close_pages = server.close

    def endpoint(self, address: Address) -> tuple[str, int]:
        return self.net.endpoint(address)

    def page_url(self, address: Address) -> str:
        host, port = self._pages.get(str(address), address)
        return f"http://{host}:{port}"

    async def close(self) -> None:
        """Cancel all spawned tasks and wait for them; close the network and the disk."""
        if self._close_pages is not None:
            self._close_pages()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.net.close()
        self._folder.close()


class RealClientEnv(RealEnv):
    """The `Env` of the driver and its clients, which has no ports but can fetch pages."""

    def __init__(
        self,
        *,
        seed: int,
        data: Path,
        connect: Mapping[str, Mapping[str, tuple[str, int]]],
        on_event: OnEvent,
        on_panic: OnPanic,
    ) -> None:
        """`connect` maps each client to the address at which it reaches each `node:port`."""
        super().__init__(
            CLIENT,
            boot=0,
            seed=seed,
            data=data,
            listen={},
            connect=connect[CLIENT],
            on_event=on_event,
            on_panic=on_panic,
        )
        self.net.by_caller = connect

    async def get_page(
        self, address: Address, target: str, *, accept: str = "text/html"
    ) -> PageResponse:
        return await get_page(self.endpoint(address), target, accept=accept)
