"""`Cluster` over containers: kills and pauses by the engine, cuts by rules in namespaces.

Every verb looks afterwards whether it took. The driver ends leases itself, on time; the warden does
it a little later if the driver cannot. What a node prints is read as it comes by one thread a
container, which is also how an exit is noticed, within milliseconds (`outputs`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Final, TypeVar

from harness.cluster import (
    CLIENT,
    ENV_NODES_ONLY,
    Bite,
    Capability,
    ClusterEvent,
    DiskQuality,
    Fidelity,
    Link,
    LinkQuality,
    NodeSpec,
    NodeState,
    Spring,
    unsupported,
)
from harness.environments.docker import undo
from harness.environments.docker.deploy import Blueprint
from harness.environments.docker.engine import Attachment, ContainerState, Engine
from harness.environments.docker.links import LinkFaults
from harness.environments.docker.node import DockerNode, Incarnation
from harness.environments.docker.outputs import follow
from harness.environments.real.exits import EXIT_HOST, is_foreign
from harness.environments.real.logs import EventBus, NodeLog
from harness.environments.real.power import power_cut
from harness.environments.real.traps import Traps
from harness.environments.warden import Warden
from harness.errors import InfrastructureError, UsageError

__all__ = ["CAPABILITIES", "ENVIRONMENT", "DockerCluster"]

ENVIRONMENT: Final = "docker"
CAPABILITIES: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    dict.fromkeys(
        (
            Capability.START,
            Capability.STOP,
            Capability.KILL,
            Capability.PAUSE,
            Capability.WIPE,
            Capability.PARTITION,
            Capability.PARTITION_ONE_WAY,
            Capability.RESET,
            Capability.AIM_AT_EVENTS,
            *ENV_NODES_ONLY,
        ),
        Fidelity.EXACT,
    )
)
_STOP_GRACE_S: Final = 10
_EXIT_TIMEOUT_S: Final = 30.0
_EXIT_LOG_LINES: Final = 20
_LINES_QUEUED_MAX: Final = 1000
_THREADS_MAX: Final = 16
_SIGNALLED_CODES: Final = (128 + signal.SIGKILL, 128 + signal.SIGTERM)
_MIB: Final = 1024 * 1024
_WARDEN_GRACE_S: Final = 1.0
"""The warden's deadline is this much later, so that it acts only where the driver did not."""

_log = logging.getLogger(__name__)
T = TypeVar("T")


class DockerCluster:
    """The containers of one run."""

    def __init__(
        self,
        engine: Engine,
        blueprint: Blueprint,
        warden: Warden,
        bus: EventBus,
        logs: Logs,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` is told when a node is lost sight of for good: the run must end."""
        self._on_failure = on_failure
        self._closing = False
        self._engine = engine
        self._blueprint = blueprint
        self._warden = warden
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="docker")
        self._readers: list[threading.Thread] = []
        self._nodes = {
            name: DockerNode(logs(name), blueprint.places[name].container, spec, bus, self._say)
            for name, spec in blueprint.specs.items()
        }
        self._traps = Traps(bus, [node.control for node in self._nodes.values()])
        self._tasks: set[asyncio.Task[Any]] = set()
        self._links = LinkFaults(blueprint, engine, self._in_thread)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run a blocking call of the engine; a cancelled caller does not undo what has begun."""
        work = functools.partial(call, *arguments, **named)
        return await self._loop.run_in_executor(self._pool, work)

    async def _say(self, container: str, line: bytes) -> None:
        await self._in_thread(self._engine.say, container, line)

    # --- what there is -----------------------------------------------------------------------

    @property
    def environment(self) -> str:
        """`docker`."""
        return ENVIRONMENT

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """`CAPABILITIES`."""
        return CAPABILITIES

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """All declared nodes, in declaration order."""
        return self._blueprint.specs

    def state(self, node: str) -> NodeState:
        """What the node is doing now."""
        return self._node(node).state

    def idle(self) -> set[tuple[str, str, NodeState]]:
        """Node, container and state of those that no verb is at work on."""
        free = {name: node for name, node in self._nodes.items() if not node.lock.locked()}
        return {(name, node.container, node.state) for name, node in free.items()}

    def pids(self) -> dict[str, int]:
        """The first process of each node that is up, where the engine runs on this machine."""
        up = {
            n: node.incarnation
            for n, node in self._nodes.items()
            if node.state is not NodeState.DOWN
        }
        return {name: run.pid for name, run in up.items() if run is not None and run.pid}

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Have every event delivered on the driver's loop."""
        self._bus.subscribe(callback)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Have `spring` run at an event of this kind; the node stands still meanwhile."""
        return self._traps.set(kind, spring)

    async def memory_bytes(self, node: str) -> int | None:
        """What the processes in the node's container hold now."""
        return await self._in_thread(self._engine.memory_bytes, self._node(node).container)

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """The end of the node's log."""
        return self._node(node).log.tail(last_lines)

    def _node(self, name: str) -> DockerNode:
        if name not in self._nodes:
            raise UsageError(f"there is no node {name!r}; there are: {', '.join(self._nodes)}")
        return self._nodes[name]

    # --- deployment --------------------------------------------------------------------------

    async def deploy(self) -> dict[str, tuple[str, int]]:
        """Create and start everything; returns where clients reach each declared port."""
        # Not a TaskGroup: the first failure must not be answered before the others have ended,
        # or the engine would still be creating what the teardown is removing.
        deploys = (self._deploy_node(name) for name in self._nodes)
        answers = await asyncio.gather(*deploys, return_exceptions=True)
        endpoints: dict[str, tuple[str, int]] = {}
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            endpoints |= answer
        return endpoints

    async def _deploy_node(self, name: str) -> dict[str, tuple[str, int]]:
        place = self._blueprint.places[name]

        def keep() -> dict[int, int]:
            self._engine.create(self._blueprint.keeper(name))
            self._engine.start(place.keeper)
            state = self._engine.state(place.keeper)
            return state.ports if state is not None and state.running else {}

        published = await self._in_thread(keep)
        missing = [port for port in self.nodes[name].ports if port not in published]
        if missing:
            raise InfrastructureError(
                f"docker: the ports {missing} of node {name!r} are not published on 127.0.0.1; "
                f"the engine published {published}"
            )
        await self._in_thread(self._create, name)
        await self.start(name)
        return {f"{name}:{port}": ("127.0.0.1", published[port]) for port in self.nodes[name].ports}

    def _create(self, name: str) -> None:
        """Create the node's container with its code and an empty data folder."""
        container = self._nodes[name].container
        self._engine.create(self._blueprint.container(name))
        self._engine.put_archive(container, "/", self._blueprint.code)
        folder = self._blueprint.data_folder(name)
        if folder is not None:
            self._engine.put_archive(container, "/", folder)

    # --- start, stop, kill -------------------------------------------------------------------

    async def start(self, node: str) -> bool:
        """Start a node that is down, on the disk it left behind."""
        entry = self._node(node)
        async with entry.lock:
            if entry.state is not NodeState.DOWN:
                return False
            incarnation = Incarnation(entry.boots)

            def start() -> Attachment:
                condition = entry.control.condition
                file = self._blueprint.node_file(node, incarnation.boot, entry.power_cut, condition)
                self._engine.put_archive(entry.container, "/", file)
                attachment = self._engine.attach(entry.container)
                try:
                    self._engine.start(entry.container)
                except InfrastructureError:
                    attachment.close()
                    raise
                return attachment

            attachment = await self._in_thread(start)
            entry.boots += 1
            entry.power_cut = None
            entry.incarnation = incarnation
            entry.state = NodeState.RUNNING
            entry.control.started(incarnation.boot)
            self._bus.publish(node, "node-started", {"boot": incarnation.boot})
            reader = threading.Thread(
                target=self._read,
                args=(node, incarnation, attachment),
                name=f"log-{node}",
                daemon=True,
            )
            self._readers = [thread for thread in self._readers if thread.is_alive()]
            self._readers.append(reader)
            reader.start()
            with contextlib.suppress(InfrastructureError):  # then nobody looks whether it starves
                state = await self._in_thread(self._engine.state, entry.container)
                incarnation.pid = None if state is None else state.pid
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

        # A RuntimeError is a loop that is closed: the run is over and nobody listens.
        with contextlib.suppress(RuntimeError):
            try:
                state = follow(self._engine, entry.container, attachment, take, broke_off)
            except InfrastructureError as error:
                self._loop.call_soon_threadsafe(self._lost, node, incarnation, error)
            else:
                self._loop.call_soon_threadsafe(self._exited, node, incarnation, state)

    def _attached_again(self, node: str, why: str) -> None:
        what = f"the output of {node} broke off while it ran and was attached again: {why}"
        self._bus.publish(node, "infrastructure", {"what": what})

    def _lost(self, node: str, incarnation: Incarnation, error: InfrastructureError) -> None:
        """Nobody knows what the node does: nothing can be judged any more."""
        if self._closing:
            incarnation.exited.set()
            return
        self._bus.publish(node, "infrastructure", {"what": str(error)})
        self._on_failure(error)

    def _exited(self, node: str, incarnation: Incarnation, state: ContainerState) -> None:
        entry = self._nodes[node]
        entry.state = NodeState.DOWN
        entry.control.let_go()
        self._end_lease(node)
        entry.log.end_incarnation()
        incarnation.exited.set()
        log = entry.log.tail(_EXIT_LOG_LINES)
        expected = incarnation.expects(state.exit_code)
        by = "nemesis" if expected else "itself"
        if self.nodes[node].entry is not None and state.exit_code == EXIT_HOST:
            by = "host"
        elif not expected and (state.oom_killed or is_foreign(state.exit_code - 128)):
            by = "host" if state.oom_killed or state.exit_code in _SIGNALLED_CODES else "unknown"
            limit = self._blueprint.container(node).memory_bytes_max // _MIB
            oom = "acted" if state.oom_killed else "did not act"
            log.append(
                f"harness: ended from outside: the harness sent no signal; the kernel's OOM killer "
                f"{oom} (memory limit {limit} MiB)"
            )
        data = {"code": state.exit_code, "expected": expected, "by": by, "log": log}
        self._bus.publish(node, "node-exited", data)

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
        """SIGTERM, then SIGKILL after ten seconds; a paused node is thawed first."""
        entry = self._node(node)
        async with entry.lock:
            if entry.state is NodeState.DOWN or entry.incarnation is None:
                return False
            # Foreign programs answer SIGTERM with whatever code they like.
            foreign = self.nodes[node].entry is None
            entry.incarnation.end(range(256) if foreign else (0, *_SIGNALLED_CODES))
            if entry.state is NodeState.PAUSED:
                await self._thaw(node)
            await self._in_thread(self._engine.stop, entry.container, grace_s=_STOP_GRACE_S)
            await self._wait_exited(node, entry.incarnation)
            return True

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        """SIGKILL to everything in the container, verified dead on return.

        What a power cut takes, also of a node that is down, is gone when it starts again.
        """
        entry = self._node(node)
        cut = power_cut(self.nodes[node], lose_unsynced=lose_unsynced, torn=torn)
        async with entry.lock:
            entry.power_cut = cut or entry.power_cut
            if entry.state is NodeState.DOWN or entry.incarnation is None:
                return False
            entry.incarnation.end(_SIGNALLED_CODES)
            await self._in_thread(self._engine.kill, entry.container)
            await self._wait_exited(node, entry.incarnation)
            state = await self._in_thread(self._engine.state, entry.container)
            if state is None or state.running:
                raise InfrastructureError(f"docker: {entry.container} survived its kill: {state}")
            return True

    async def wipe(self, node: str) -> bool:
        """Replace the container of a node that is down by a fresh one."""
        entry = self._node(node)
        async with entry.lock:
            if entry.state is not NodeState.DOWN:
                raise UsageError(
                    f"node {node!r} is {entry.state.value}; only the disk of a node that is down "
                    "can be wiped: kill or stop it first"
                )

            def replace() -> None:
                self._engine.remove(entry.container)
                self._create(node)

            await self._in_thread(replace)
            return True

    # --- pause -------------------------------------------------------------------------------

    async def pause(self, node: str, *, lease_s: float) -> bool:
        """Freeze the container, verified frozen on return."""
        entry = self._node(node)
        async with entry.lock:
            if entry.state is not NodeState.RUNNING:
                return False
            self._warden.guard(
                f"pause:{node}",
                undo.thaw_undo(entry.container),
                deadline_s=lease_s + _WARDEN_GRACE_S,
            )
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
            entry.lease = self._loop.call_later(lease_s, self._expire, self.resume, node)
            return True

    async def resume(self, node: str) -> bool:
        """Thaw a paused node."""
        entry = self._node(node)
        async with entry.lock:
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
            entry.state = NodeState.RUNNING
        self._end_lease(node)
        if entry.state is NodeState.RUNNING:
            await entry.control.catch_up()

    def _end_lease(self, node: str) -> None:
        entry = self._nodes[node]
        if entry.lease is not None:
            entry.lease.cancel()
            entry.lease = None
            self._warden.release(f"pause:{node}")

    def _expire(self, heal: Callable[[str], Any], what: str) -> None:
        """A lease has ended: undo it now; the warden tries as well if we fail."""

        async def run() -> None:
            try:
                await heal(what)
            except InfrastructureError as error:
                text = f"the lease of {what} ended, but it could not be undone: {error}"
                self._bus.publish("", "infrastructure", {"what": text})

        task = self._loop.create_task(run(), name=f"lease:{what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- links -------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link], *, lease_s: float) -> str:
        """Drop every packet on these links; returns the fault's id."""
        fault = self._links.plan(links)
        self._warden.guard(
            f"cut:{fault}",
            undo.heal_undo(fault, self._links.keepers(fault)),
            deadline_s=lease_s + _WARDEN_GRACE_S,
        )
        try:
            await self._links.cut(fault)
        except InfrastructureError:
            await self.heal(fault)
            raise
        self._links.set_lease(fault, self._loop.call_later(lease_s, self._expire, self.heal, fault))
        return fault

    async def heal(self, fault: str) -> Bite:
        """Delete the rules of one fault; the bite is the packets they dropped."""
        dropped = await self._links.heal(fault)
        self._warden.release(f"cut:{fault}")
        return Bite(dropped, "packets")

    async def heal_among(self, nodes: Iterable[str]) -> None:
        """Make every link among these nodes and the clients whole."""
        among = {CLIENT, *nodes}
        for name in sorted(among - {CLIENT}):
            self._node(name)
        for fault in await self._links.heal_among(among):
            self._warden.release(f"cut:{fault}")

    async def heal_all(self) -> None:
        """Heal every cut, clock and disk and thaw every node; starts nothing."""
        for fault in self._links.active():
            await self.heal(fault)
        for node in self._nodes:
            await self.resume(node)
        await asyncio.gather(*(entry.control.mend() for entry in self._nodes.values()))

    async def reset(self, links: Sequence[Link]) -> int:
        """Abort the TCP connections between the ends of these links."""
        return await self._links.reset(links)

    async def shape(
        self,
        links: Sequence[Link],  # noqa: ARG002 - the protocol's signature
        quality: LinkQuality,
        *,
        lease_s: float,  # noqa: ARG002
    ) -> str:
        """Not here; raises `UsageError` that names the environments that can."""
        asked = {
            Capability.DELAY: quality.delay_ms or quality.jitter_ms,
            Capability.DROP: quality.drop,
            Capability.DUPLICATE: quality.duplicate,
            Capability.REORDER: quality.reorder,
            Capability.THROTTLE: quality.rate_kb_s,
            Capability.STALL: quality.stall,
        }
        wanted = next((name for name, value in asked.items() if value), Capability.DELAY)
        frames_only = wanted in {Capability.DROP, Capability.DUPLICATE, Capability.REORDER}
        raise unsupported(ENVIRONMENT, wanted, ["sim"] if frames_only else ["sim", "process"])

    # --- clocks, disks and CPU ---------------------------------------------------------------

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> None:
        """Make the clock that the node sees wrong; only that of a node on `Env` is ours."""
        await self._node(node).control.skew(offset_ns=offset_ns, drift_ppm=drift_ppm)

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Make the disk that the node sees bad; only that of a node on `Env` is ours."""
        return await self._node(node).control.worsen_disk(quality)

    async def slow(self, node: str, *, factor: float) -> None:  # noqa: ARG002
        """Not here; raises `UsageError`."""
        raise unsupported(ENVIRONMENT, Capability.SLOW_CPU, ["sim"])

    # --- the end -----------------------------------------------------------------------------

    async def close(self, remove: Callable[[], object]) -> None:
        """Take everything away by `remove` and wait until all threads have ended."""
        self._closing = True
        self._links.close()
        for name, entry in self._nodes.items():
            if entry.incarnation is not None:
                entry.incarnation.end(range(256))
            self._end_lease(name)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            # What is under way in the engine ends first, or it would make what was just removed.
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
            await asyncio.to_thread(remove)
            for thread in self._readers:
                await asyncio.to_thread(thread.join, _EXIT_TIMEOUT_S)
            await asyncio.sleep(0)  # let what the threads posted last be delivered
        finally:
            for entry in self._nodes.values():
                entry.log.close()


Logs = Callable[[str], NodeLog]
"""Makes the log of a node."""
