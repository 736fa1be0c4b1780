"""`Controls` over containers: kills and pauses by the engine, link faults by rules in namespaces.

Every verb verifies afterwards that it took. One thread per container reads the node's output as it
comes, which is also how an exit is noticed, within milliseconds (`outputs`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from harness.cluster import (
    Bite,
    Capability,
    Fidelity,
    Link,
    LinkState,
    NodeState,
    Usage,
)
from harness.environments.docker.capabilities import CAPABILITIES, ENVIRONMENT
from harness.environments.docker.deploy import Blueprint
from harness.environments.docker.engine.attachment import Attachment
from harness.environments.docker.engine.engine import ContainerState, Engine
from harness.environments.docker.engine.outputs import follow
from harness.environments.docker.image.sources import DATA_FOLDER
from harness.environments.docker.network.links import LinkFaults
from harness.environments.docker.network.outsiders import Watched
from harness.environments.docker.node.clocks import give_clocks
from harness.environments.docker.node.containers import Containers
from harness.environments.docker.node.disks import Disks
from harness.environments.docker.node.node import SIGNALLED_CODES, DockerNode, Incarnation, ended_by
from harness.environments.docker.undo import undo_by
from harness.environments.host.capabilities import check_slow
from harness.environments.host.cluster import RealCluster
from harness.environments.host.control import gather_all, prove_clocks
from harness.environments.host.logs import EventBus, Logs
from harness.environments.host.power import power_cut
from harness.environments.host.readiness import failed_setup, not_ready, wait_ready
from harness.environments.warden import AFTER_LEASE_S, Warden
from harness.errors import InfrastructureError, UsageError
from harness.nodes.deployment import as_variant, start_in_order

__all__ = ["ENVIRONMENT", "DockerCluster"]

_STOP_GRACE_S: Final = 10
_EXIT_TIMEOUT_S: Final = 30.0
_EXIT_LOG_LINES: Final = 20
_LINES_QUEUED_MAX: Final = 1000
_THREADS_MAX: Final = 16

_log = logging.getLogger(__name__)
T = TypeVar("T")


class DockerCluster(RealCluster[DockerNode]):
    """The containers of one run."""

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
        """`on_failure` is called when a node can no longer be observed: the run must end."""
        self._on_failure = on_failure
        self._closing = False
        self._engine = engine
        self._disks = disks
        self._blueprint = blueprint
        self._warden = warden
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="docker")
        self._readers: list[threading.Thread] = []
        nodes = {
            name: DockerNode(spec, logs(name), bus, blueprint.places[name].container, self._say)
            for name, spec in blueprint.specs.items()
        }
        for name, disk in disks.mounted.items():
            nodes[name].disk = disk
        super().__init__(nodes, blueprint.clients, bus)
        self._containers = Containers(engine, blueprint)
        give_clocks(blueprint.clocks, self._nodes, self._containers, self._in_thread)
        self._links = LinkFaults(
            blueprint,
            engine,
            self._in_thread,
            warden,
            lambda node, what, undid: self._nodes[node].tell(what, undid=undid),
            self._containers.provide_proxy,
        )
        self._missing: Mapping[Capability, str] = {}
        self._pages: Mapping[str, tuple[str, int]] = {}

    async def _in_thread(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run a blocking call of the engine; a cancelled caller does not undo what has begun."""
        work = functools.partial(call, *arguments, **named)
        return await self._loop.run_in_executor(self._pool, work)

    async def _say(self, container: str, line: bytes) -> None:
        await self._in_thread(self._engine.say, container, line)

    # --- looking -----------------------------------------------------------------------------

    @property
    def environment(self) -> str:
        return ENVIRONMENT

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """`CAPABILITIES`, less what the engine's kernel does not have."""
        return {what: how for what, how in CAPABILITIES.items() if what not in self._missing}

    def idle(self) -> set[Watched]:
        """The nodes that no verb is working on."""
        return {
            Watched(name, node.container, node.state, node.pid)
            for name, node in self._nodes.items()
            if not node.turn.locked()
        }

    def pids(self) -> dict[str, int]:
        """The first process of each node that is up, where the engine runs on this machine.

        Without nodes that wait for a processor because a fault makes them (`slow`).
        """
        up = {
            n: node.incarnation
            for n, node in self._nodes.items()
            if node.state is not NodeState.DOWN and node.slowed == 1.0
        }
        return {name: run.pid for name, run in up.items() if run is not None and run.pid}

    async def usage(self, node: str) -> Usage:
        """Of the processes in the container; the engine does not measure volumes."""
        return await self._in_thread(self._engine.usage, self._node(node).container)

    def data_place(self, node: str) -> str:
        """The place of a node's data, for people."""
        where = self._disks.paths().get(node)
        return f"volume {self._blueprint.places[node].volume}" if where is None else where

    async def save_data(self, node: str, folder: Path) -> None:
        """Copy the data of a node that is down to a new folder."""
        container = self._node(node).container
        await self._in_thread(self._engine.copy_out, container, DATA_FOLDER, folder)

    # --- deployment --------------------------------------------------------------------------

    async def deploy(self) -> dict[str, tuple[str, int]]:
        """Create everything, then start it in its order, each node once those before are ready.

        Returns where clients reach each declared port. Raises `TargetError` for a node that does
        not get ready, or whose set-up fails.
        """
        endpoints: dict[str, tuple[str, int]] = {}
        # All must have ended, or the engine would still be creating what the teardown is removing.
        for answer in await gather_all(self._create_node(name) for name in self._nodes):
            endpoints |= answer
        pages = (f"{name}:{spec.pages}" for name, spec in self.nodes.items() if spec.pages)
        self._pages = {address: endpoints[address] for address in pages}
        self._missing = await self._links.missing()
        for what, why in self._missing.items():
            _log.warning("docker: the engine's kernel cannot do %r: %s", what.value, why)
        await start_in_order(self.nodes, self.start, self._require_ready)
        await prove_clocks((node.control for node in self._nodes.values()), self.wait_ready)
        return endpoints

    async def _create_node(self, name: str) -> dict[str, tuple[str, int]]:
        published = await self._in_thread(self._containers.keep, name)
        ports = self.nodes[name].bound_ports
        missing = [port for port in ports if port not in published]
        if missing:
            raise InfrastructureError(
                f"docker: the ports {missing} of node {name!r} are not published on 127.0.0.1; "
                f"the engine published {published}"
            )
        await self._in_thread(self._containers.create, name)
        await self._in_thread(self._containers.restore, name)
        return {f"{name}:{port}": ("127.0.0.1", published[port]) for port in ports}

    async def _set_up(self, name: str) -> None:
        """Run the node's set-up commands, and keep what they print in its log."""
        entry = self._nodes[name]

        def take(line: bytes) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                self._loop.call_soon_threadsafe(entry.log.feed, line + b"\n")

        failed = await self._in_thread(self._containers.set_up, name, entry.variant, take)
        if failed is not None:
            failed_setup(self.nodes[name], *failed)
        if entry.disk is not None:
            await entry.disk.make_durable()  # it is long ago, as far as the node knows
        entry.set_up = True

    async def wait_ready(self, node: str) -> str | None:
        entry = self._node(node)
        waited_for = entry.incarnation

        def runs() -> bool:
            return entry.state is not NodeState.DOWN and entry.incarnation is waited_for

        async def ask_port(port: int, path: str) -> str | None:
            return await self._in_thread(self._containers.port, node, port, path)

        async def run_command(command: Sequence[str]) -> tuple[int | None, str]:
            try:
                return await self._in_thread(self._containers.command, node, command)
            except InfrastructureError as error:
                if runs():
                    raise
                return None, str(error)  # one that has just ended can run nothing

        return await wait_ready(self.nodes[node], entry.watch, runs, ask_port, run_command)

    async def _require_ready(self, node: str) -> None:
        reason = await self.wait_ready(node)
        if reason is not None:
            entry = self._nodes[node]
            not_ready(reason, entry.log.tail(_EXIT_LOG_LINES), by_host=entry.ended_by_host)

    # --- start, stop, kill -------------------------------------------------------------------

    async def start(self, node: str, variant: str | None = None) -> bool:
        entry, spec = self._node(node), self.nodes[node]
        if variant is not None:
            as_variant(spec, variant)  # refuses one that is not declared
        async with entry.turn:
            if entry.state is not NodeState.DOWN:
                return False
            entry.variant = variant or entry.variant
            if entry.created_as != entry.variant:
                await self._in_thread(self._containers.replace, node, entry.variant)
                entry.created_as = entry.variant
                await self._limit_processor(entry)
            if not entry.set_up:
                await self._set_up(node)
            incarnation = Incarnation()
            file = self._blueprint.node_file(
                node,
                entry.boots,
                entry.power_cut,
                entry.control.condition,
                entry.variant,
                self._pages,
            )
            entry.watch_start()
            attachment = await self._in_thread(self._containers.begin, node, file)
            entry.incarnation = incarnation
            entry.started()
            reader = threading.Thread(
                target=self._read,
                args=(node, incarnation, attachment),
                name=f"log-{node}",
                daemon=True,
            )
            self._readers = [thread for thread in self._readers if thread.is_alive()]
            self._readers.append(reader)
            reader.start()
            with contextlib.suppress(InfrastructureError):  # then its starvation is not observed
                state = await self._in_thread(self._engine.state, entry.container)
                incarnation.pid = None if state is None else state.pid
            self._disks.check_seen(node, incarnation.pid)
            return True

    def _read(self, node: str, incarnation: Incarnation, attachment: Attachment) -> None:
        """A thread: hand on what the node prints, and then that it has exited."""
        entry = self._nodes[node]
        room = threading.BoundedSemaphore(_LINES_QUEUED_MAX)

        def deliver(line: bytes) -> None:
            room.release()
            entry.log.feed(line + b"\n")

        def take(line: bytes) -> None:
            room.acquire()
            self._loop.call_soon_threadsafe(deliver, line)

        def broke_off(why: str) -> None:
            self._loop.call_soon_threadsafe(self._attached_again, node, why)

        # A RuntimeError is a loop that is closed: the run is over.
        with contextlib.suppress(RuntimeError):
            try:
                state = follow(self._engine, entry.container, attachment, take, broke_off)
            except InfrastructureError as error:
                self._loop.call_soon_threadsafe(self._lost, node, incarnation, error)
            else:
                self._loop.call_soon_threadsafe(self._exited, node, incarnation, state)

    def _attached_again(self, node: str, why: str) -> None:
        what = f"the output of {node} broke off while it ran and was attached again: {why}"
        self._nodes[node].tell(what)

    def _lost(self, node: str, incarnation: Incarnation, error: InfrastructureError) -> None:
        """Fail the run: the state of the node is unknown, so nothing can be judged any more."""
        if self._closing:
            incarnation.exited.set()
            return
        self._nodes[node].tell(str(error))
        self._on_failure(error)

    def _exited(self, node: str, incarnation: Incarnation, state: ContainerState) -> None:
        entry = self._nodes[node]
        self._forget_pause(node, NodeState.DOWN)
        entry.control.let_go()
        entry.log.end_incarnation()
        incarnation.exited.set()
        log = entry.log.tail(_EXIT_LOG_LINES)
        expected = incarnation.expects(state.exit_code)
        limit = self._blueprint.container(node).memory_bytes_max
        on_env = entry.spec.entry is not None
        by, note = ended_by(state, expected=expected, on_env=on_env, memory_bytes_max=limit)
        log += [note] if note else []
        entry.exited(state.exit_code, expected=expected, by=by, log=log)

    async def _wait_exited(self, node: str, incarnation: Incarnation) -> None:
        try:
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                await incarnation.exited.wait()
        except TimeoutError as error:
            raise InfrastructureError(
                f"docker: node {node!r} was still running {_EXIT_TIMEOUT_S:.0f} s after it was "
                "stopped or killed"
            ) from error

    async def stop(self, node: str) -> bool:
        """Ask it to end, then SIGKILL after ten seconds; a paused node is thawed first."""
        entry = self._node(node)
        async with entry.turn:
            if entry.state is NodeState.DOWN or entry.incarnation is None:
                return False
            # Foreign programs exit with any code.
            foreign = self.nodes[node].entry is None
            entry.incarnation.end(range(256) if foreign else (0, *SIGNALLED_CODES))
            if entry.state is NodeState.PAUSED:
                await self._thaw(node)
            async with entry.hurried(after_s=_STOP_GRACE_S):
                await self._in_thread(self._engine.stop, entry.container, grace_s=_STOP_GRACE_S)
                await self._wait_exited(node, entry.incarnation)
            return True

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        """SIGKILL to everything in the container, verified dead on return.

        A power cut, also of a node that is down, takes effect when the node starts again.
        """
        entry = self._node(node)
        faulty = entry.disk is not None
        cut = power_cut(entry.spec, lose_unsynced=lose_unsynced, torn=torn, faulty_disk=faulty)
        async with entry.turn:
            entry.power_cut = cut or entry.power_cut
            killed = await self._kill(node, entry)
            await entry.cut_power(cut)
            return killed

    async def _kill(self, node: str, entry: DockerNode) -> bool:
        if entry.state is NodeState.DOWN or entry.incarnation is None:
            return False
        entry.incarnation.end(SIGNALLED_CODES)
        async with entry.hurried():
            await self._in_thread(self._engine.kill, entry.container)
            await self._wait_exited(node, entry.incarnation)
        state = await self._in_thread(self._engine.state, entry.container)
        if state is None or state.running:
            raise InfrastructureError(f"docker: {entry.container} survived its kill: {state}")
        return True

    async def wipe(self, node: str) -> bool:
        """Empty the data folder of a node that is down, and replace its container."""
        entry = self._node(node)
        async with entry.turn:
            if entry.state is not NodeState.DOWN:
                raise UsageError(
                    f"node {node!r} is {entry.state.value}; only the disk of a node that is down "
                    "can be wiped: kill or stop it first"
                )

            if entry.disk is not None:
                await entry.disk.wipe()
            await self._in_thread(self._containers.wipe, node, entry.variant)
            entry.created_as, entry.set_up = entry.variant, False
            await self._limit_processor(entry)
            return True

    # --- pause -------------------------------------------------------------------------------

    async def pause(self, node: str, *, lease_s: float) -> bool:
        entry = self._node(node)
        async with entry.turn:
            if entry.state is not NodeState.RUNNING:
                return False
            thaw = undo_by("thaw", entry.container)
            self._warden.guard(f"pause:{node}", thaw, deadline_s=lease_s + AFTER_LEASE_S)
            await self._in_thread(self._engine.pause, entry.container)
            state = await self._in_thread(self._engine.state, entry.container)
            if state is None or not state.running:
                self._warden.release(f"pause:{node}")
                return False  # it exited by itself in this very moment
            if not state.paused:
                self._warden.release(f"pause:{node}")
                raise InfrastructureError(f"docker: {entry.container} did not freeze: {state}")
            entry.state = NodeState.PAUSED
            entry.control.let_go()
            return True

    async def resume(self, node: str) -> bool:
        entry = self._node(node)
        async with entry.turn:
            if entry.state is not NodeState.PAUSED:
                return False
            await self._thaw(node)
            return True

    async def _thaw(self, node: str) -> None:
        entry = self._nodes[node]
        await self._in_thread(self._engine.unpause, entry.container)
        state = await self._in_thread(self._engine.state, entry.container)
        if state is not None and state.paused:
            raise InfrastructureError(f"docker: {entry.container} did not thaw: {state}")
        if entry.state is NodeState.PAUSED:  # it may have exited meanwhile
            self._forget_pause(node, NodeState.RUNNING)
            await entry.control.catch_up()

    def _forget_pause(self, node: str, state: NodeState) -> None:
        """From now on the node is in this state, and the warden has nothing to thaw."""
        entry = self._nodes[node]
        was, entry.state = entry.state, state
        if was is NodeState.PAUSED:
            self._warden.release(f"pause:{node}")

    # --- links -------------------------------------------------------------------------------

    async def set_links(
        self, wanted: Mapping[Link, LinkState], *, lease_s: float
    ) -> Mapping[str, Bite]:
        return await self._links.set_links(wanted, lease_s)

    async def mend(self) -> None:
        for node in self._nodes:
            await self.resume(node)
        await asyncio.gather(*(self.slow(node, factor=1.0) for node in self._nodes))
        await asyncio.gather(*(entry.control.mend() for entry in self._nodes.values()))
        await self._disks.mend()

    async def reset(self, links: Sequence[Link]) -> int:
        return await self._links.reset(links)

    # --- processors --------------------------------------------------------------------------

    async def slow(self, node: str, *, factor: float) -> None:
        """Give the node, a foreign one too, 1/`factor` of one processor; 1.0: what it declares."""
        entry = self._node(node)
        check_slow(ENVIRONMENT, factor)
        async with entry.turn:
            if factor != entry.slowed:
                entry.slowed = factor
                await self._limit_processor(entry, always=True)

    async def _limit_processor(self, entry: DockerNode, *, always: bool = False) -> None:
        """Let the container have what it may; a new one has what the node declares."""
        if always or entry.slowed != 1.0:
            share = entry.spec.cpus if entry.slowed == 1.0 else 1 / entry.slowed
            await self._in_thread(self._engine.limit_processor, entry.container, share)

    # --- the end -----------------------------------------------------------------------------

    async def close(self, remove: Callable[[], object]) -> None:
        """Take everything away by `remove` and wait until all threads have ended."""
        self._closing = self._containers.ending = True
        for name, entry in self._nodes.items():
            if entry.incarnation is not None:
                entry.incarnation.end(range(256))
            self._forget_pause(name, entry.state)
        try:
            # Calls under way in the engine end first, or they would create containers again.
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
            await asyncio.to_thread(remove)
            for thread in self._readers:
                await asyncio.to_thread(thread.join, _EXIT_TIMEOUT_S)
            await asyncio.sleep(0)  # let what the threads posted last be delivered
        finally:
            for entry in self._nodes.values():
                entry.log.close()
