"""Carries out faults on containers: the engine kills and pauses nodes, packet rules break links.

Each operation on a node verifies its effect before it returns. One thread per container reads the
node's output as it arrives. When the output ends, the harness learns within milliseconds that the
container has exited (`outputs`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from harness.cluster import Bite, Capability, Fidelity, Link, LinkState, NodeState, Usage
from harness.environments.docker.capabilities import CAPABILITIES, ENVIRONMENT
from harness.environments.docker.deploy import Blueprint
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.image.sources import data_folder_of
from harness.environments.docker.network.links import LinkFaults
from harness.environments.docker.network.outsiders import Watched
from harness.environments.docker.node.containers import Containers
from harness.environments.docker.node.disks import Disks
from harness.environments.docker.node.node import EXIT_TIMEOUT_S, DockerNode
from harness.environments.host.cluster import RealCluster
from harness.environments.host.control import gather_all, prove_clocks
from harness.environments.host.logs import EventBus, Logs
from harness.environments.warden import Warden
from harness.nodes.deployment import start_in_order

_THREADS_MAX: Final = 16

_log = logging.getLogger(__name__)
T = TypeVar("T")


class DockerCluster(RealCluster[DockerNode]):
    """Carries out faults, such as kills and pauses, on the containers of one run (`Controls`)."""

    environment = ENVIRONMENT

    def __init__(
        self,
        engine: Engine,
        blueprint: Blueprint,
        warden: Warden,
        bus: EventBus,
        logs: Logs,
        on_failure: Callable[[BaseException], None],
        disks: Disks,
    ) -> None:
        """Make a cluster without containers. `on_failure` ends the run; it is called when a node
        can no longer be observed.
        """
        self._engine = engine
        self._disks = disks
        self._blueprint = blueprint
        self._pool = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="docker")
        self._containers = Containers(engine, blueprint)
        nodes = {
            name: DockerNode(
                spec, logs(name), bus, warden, self._containers, self._in_thread, on_failure
            )
            for name, spec in blueprint.specs.items()
        }
        for name, disk in disks.mounted.items():
            nodes[name].disk = disk
        super().__init__(nodes, blueprint.clients, bus)
        self._links = LinkFaults(
            blueprint,
            engine,
            self._in_thread,
            warden,
            lambda node, what, undid: self._nodes[node].tell(what, undid=undid),
            self._containers.provide_proxy,
        )
        self._missing: Mapping[Capability, str] = {}

    async def _in_thread(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run a blocking call to the engine in a thread; a cancelled caller does not stop it."""
        work = functools.partial(call, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # --- looking -----------------------------------------------------------------------------

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """The faults in `CAPABILITIES` that the engine's kernel supports."""
        return {what: how for what, how in CAPABILITIES.items() if what not in self._missing}

    def idle(self) -> set[Watched]:
        return {
            Watched(name, node.container, node.state, node.pid)
            for name, node in self._nodes.items()
            if not node.turn.locked()
        }

    def pids(self) -> dict[str, int]:
        """Map each running node to the pid of its first process, for measuring CPU starvation.

        A remote engine has no pids here. A node under a slow-CPU fault is left out, because it
        waits for a CPU on purpose.
        """
        up = {
            n: node.incarnation
            for n, node in self._nodes.items()
            if node.state is not NodeState.DOWN and node.slowed == 1.0
        }
        return {name: run.pid for name, run in up.items() if run is not None and run.pid}

    async def usage(self, node: str) -> Usage:
        """Return the memory and disk use of the node's processes; the volume does not count."""
        return await self._in_thread(self._engine.usage, self._node(node).container)

    def data_place(self, node: str) -> str:
        where = self._disks.paths().get(node)
        return f"volume {self._blueprint.places[node].volume}" if where is None else where

    async def save_data(self, node: str, folder: Path) -> None:
        owner = self._node(node)
        place = data_folder_of(owner.spec)
        await self._in_thread(self._engine.copy_out, owner.container, place, folder)

    # --- deployment --------------------------------------------------------------------------

    async def deploy(self) -> dict[str, tuple[str, int]]:
        endpoints: dict[str, tuple[str, int]] = {}
        # Wait for all `create` calls, even if one fails: a container that is created late would be
        # left behind.
        for answer in await gather_all(node.create() for node in self._nodes.values()):
            endpoints |= answer
        pages = (f"{name}:{spec.pages}" for name, spec in self.nodes.items() if spec.pages)
        published = {address: endpoints[address] for address in pages}
        for node in self._nodes.values():
            node.pages = published
        self._missing = await self._links.missing()
        for what, why in self._missing.items():
            _log.warning("docker: the engine's kernel cannot do %r: %s", what.value, why)
        await start_in_order(self.nodes, self.start, lambda name: self._nodes[name].require_ready())
        await prove_clocks((node.control for node in self._nodes.values()), self.wait_ready)
        return endpoints

    # --- links -------------------------------------------------------------------------------

    async def set_links(
        self, wanted: Mapping[Link, LinkState], *, lease_s: float
    ) -> Mapping[str, Bite]:
        return await self._links.set_links(wanted, lease_s)

    async def reset(self, links: Sequence[Link]) -> int:
        return await self._links.reset(links)

    # --- the end -----------------------------------------------------------------------------

    async def close(self, remove: Callable[[], object]) -> None:
        """Call `remove` to remove all containers, and wait until all threads have ended."""
        self._containers.ending = True
        for entry in self._nodes.values():
            entry.close()
        try:
            # Pending engine calls must end first, or they would create containers again.
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
            await asyncio.to_thread(remove)
            for reader in (entry.reader for entry in self._nodes.values()):
                if reader is not None:
                    await asyncio.to_thread(reader.join, EXIT_TIMEOUT_S)
            await asyncio.sleep(0)  # run the callbacks that threads have passed to the loop
        finally:
            for entry in self._nodes.values():
                entry.log.close()
