"""A node in a container: implements the primitives of `host.real_node` by calls to the engine.

An *incarnation* is one run of the node's program. A thread reads the output of each incarnation as
it arrives. When the output ends, the harness learns within milliseconds that the incarnation has
exited (`outputs`). Calls to the engine block, so the node makes them in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from harness.cluster import BASE, NodeSpec, NodeState
from harness.environments.docker.engine.attachment import Attachment
from harness.environments.docker.engine.engine import ContainerState
from harness.environments.docker.engine.outputs import follow
from harness.environments.docker.image.sources import data_folder_of
from harness.environments.docker.node.containers import Containers, DockerClock
from harness.environments.docker.undo import undo_by
from harness.environments.host import exits
from harness.environments.host.exits import Ending
from harness.environments.host.foreignclock import ForeignClock
from harness.environments.host.logs import EventBus, NodeLog
from harness.environments.host.readiness import failed_setup
from harness.environments.host.real_node import RealNode
from harness.environments.warden import Run, Warden
from harness.errors import InfrastructureError

SIGNALLED_CODES: Final = (128 + signal.SIGKILL, 128 + signal.SIGTERM)
EXIT_TIMEOUT_S: Final = 30.0
_STOP_GRACE_S: Final = 10
_LINES_QUEUED_MAX: Final = 1000


def ended_by(
    state: ContainerState, *, expected: bool, on_env: bool, memory_bytes_max: int
) -> Ending:
    """Decide what ended a container, by its final state (see `harness.environments.host.exits`)."""
    oom_kills = int(state.oom_killed)
    ending = exits.ended_by(state.exit_code, expected=expected, on_env=on_env, oom_kills=oom_kills)
    if ending.note is None:
        return ending
    note = f"{ending.note} (memory limit {memory_bytes_max >> 20} MiB)"
    # All processes in the container belong to the node, so an OOM kill affected the node.
    return Ending("host" if oom_kills else ending.by, note)


class Incarnation:
    """One run of a node's program, from its start to its exit."""

    def __init__(self) -> None:
        self.pid: int | None = None  # of the first process; `None` if the engine is remote
        self.ending: frozenset[int] = frozenset()
        self.exited = asyncio.Event()

    def end(self, codes: Iterable[int]) -> None:
        """Expect an exit with one of these codes. The harness is about to cause it."""
        self.ending = frozenset(codes)

    def expects(self, code: int) -> bool:
        """Whether the harness causes an exit with this code; other codes mean an earlier crash."""
        return code in self.ending


class DockerNode(RealNode):
    """One node: all of its containers and incarnations."""

    def __init__(
        self,
        spec: NodeSpec,
        log: NodeLog,
        bus: EventBus,
        warden: Warden,
        containers: Containers,
        in_thread: Callable[..., Awaitable[Any]],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        """`on_lost` ends the run. It is called when the node can no longer be observed."""
        super().__init__(spec, log, bus, warden)
        self._containers = containers
        self._engine = containers.engine
        self._blueprint = containers.blueprint
        place = self._blueprint.places[spec.name]
        self.container = place.container
        self.incarnation: Incarnation | None = None
        self.pages: Mapping[str, tuple[str, int]] = {}
        self.reader: threading.Thread | None = None  # reads the latest incarnation's output
        self._in_thread = in_thread
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._created_as = BASE
        if place.clock:
            clock = DockerClock(spec.name, containers, in_thread)
            self.control.foreign_clock = ForeignClock(spec, clock)

    @property
    def pid(self) -> int | None:
        return None if self.incarnation is None else self.incarnation.pid

    async def create(self) -> dict[str, tuple[str, int]]:
        """Create the node's containers; maps each `node:port` to its published address."""
        name, ports = self.spec.name, self.spec.bound_ports
        published = await self._in_thread(self._containers.keep, name)
        missing = [port for port in ports if port not in published]
        if missing:
            raise InfrastructureError(
                f"docker: the ports {missing} of node {name!r} are not published on 127.0.0.1; "
                f"the engine published {published}"
            )
        await self._in_thread(self._containers.create, name)
        await self._in_thread(self._containers.restore, name)
        return {f"{name}:{port}": ("127.0.0.1", published[port]) for port in ports}

    async def _send(self, line: bytes) -> None:
        await self._in_thread(self._engine.say, self.container, line)

    async def _state(self) -> ContainerState | None:
        state: ContainerState | None = await self._in_thread(self._engine.state, self.container)
        return state

    # --- starting ----------------------------------------------------------------------------

    async def _prepare(self) -> None:
        if self._created_as != self.variant:
            await self._in_thread(self._containers.replace, self.spec.name, self.variant)
            await self._recreated()

    async def _recreated(self) -> None:
        """Limit the CPU of a new container if the node is under a slow-CPU fault."""
        self._created_as = self.variant
        if self.slowed != 1.0:
            await self._set_pace()

    async def _run_setup(self) -> None:
        def take(line: bytes) -> None:
            with contextlib.suppress(RuntimeError):  # the run has ended and its loop is closed
                self._loop.call_soon_threadsafe(self.log.feed, line + b"\n")

        name = self.spec.name
        failed = await self._in_thread(self._containers.set_up, name, self.variant, take)
        if failed is not None:
            failed_setup(self.spec, *failed)

    async def _launch(self) -> None:
        incarnation = Incarnation()
        name, condition = self.spec.name, self.control.condition
        file = self._blueprint.node_file(
            name, self.boots, self.power_cut, condition, self.variant, self.pages
        )
        attachment = await self._in_thread(self._containers.begin, name, file)
        self.incarnation = incarnation
        self._begun()
        self.reader = threading.Thread(
            target=self._read, args=(incarnation, attachment), name=f"log-{name}", daemon=True
        )
        self.reader.start()
        # An error is harmless here: without a pid, only a lack of CPU time is not noticed.
        with contextlib.suppress(InfrastructureError):
            state = await self._state()
            incarnation.pid = None if state is None else state.pid
        disk, pid = self.disk, incarnation.pid
        if disk is not None and pid and not disk.is_seen_by(pid, data_folder_of(self.spec)):
            raise InfrastructureError(
                f"docker: {name} does not see its disk, mounted at {disk.mount}, since the "
                "engine has mounts of its own; run the harness where the engine runs"
            )

    def _read(self, incarnation: Incarnation, attachment: Attachment) -> None:
        """Pass the node's output, and at last its exit, from this thread to the event loop."""
        room = threading.BoundedSemaphore(_LINES_QUEUED_MAX)

        def deliver(line: bytes) -> None:
            room.release()
            self.log.feed(line + b"\n")

        def take(line: bytes) -> None:
            room.acquire()
            self._loop.call_soon_threadsafe(deliver, line)

        def broke_off(why: str) -> None:
            what = f"the output of {self.spec.name} broke off while it ran and was attached again"
            self._loop.call_soon_threadsafe(self.tell, f"{what}: {why}")

        # A RuntimeError means that the run has ended and its loop is closed.
        with contextlib.suppress(RuntimeError):
            try:
                state = follow(self._engine, self.container, attachment, take, broke_off)
            except InfrastructureError as error:
                self._loop.call_soon_threadsafe(self._lost, incarnation, error)
            else:
                self._loop.call_soon_threadsafe(self._exited, incarnation, state)

    def _lost(self, incarnation: Incarnation, error: InfrastructureError) -> None:
        """End the run: without observing the node, no verdict is possible."""
        if self._containers.ending:
            incarnation.exited.set()
            return
        self.tell(str(error))
        self._on_lost(error)

    def _exited(self, incarnation: Incarnation, state: ContainerState) -> None:
        log = self._over()
        incarnation.exited.set()
        expected = incarnation.expects(state.exit_code)
        limit = self._blueprint.container(self.spec.name).memory_bytes_max
        on_env = self.spec.entry is not None
        by, note = ended_by(state, expected=expected, on_env=on_env, memory_bytes_max=limit)
        log += [note] if note else []
        self._publish_exit(state.exit_code, expected=expected, by=by, log=log)

    # --- readiness ---------------------------------------------------------------------------

    async def _ask_port(self, port: int, path: str) -> str | None:
        missing: str | None = await self._in_thread(
            self._containers.port, self.spec.name, port, path
        )
        return missing

    async def _run_beside(self, command: Sequence[str]) -> tuple[int | None, str]:
        try:
            answer: tuple[int | None, str] = await self._in_thread(
                self._containers.command, self.spec.name, command
            )
        except InfrastructureError as error:
            if self.state is not NodeState.DOWN:
                raise
            return None, str(error)  # the container ended before the command
        return answer

    # --- ending, pausing ---------------------------------------------------------------------

    async def _wait_exited(self, incarnation: Incarnation) -> None:
        try:
            async with asyncio.timeout(EXIT_TIMEOUT_S):
                await incarnation.exited.wait()
        except TimeoutError as error:
            raise InfrastructureError(
                f"docker: node {self.spec.name!r} was still running {EXIT_TIMEOUT_S:.0f} s after "
                "it was stopped or killed"
            ) from error

    async def _end(self) -> None:
        incarnation = self.incarnation
        assert incarnation is not None, "a node that is up has one"
        # A foreign program may answer its stop signal with any exit code.
        foreign = self.spec.entry is None
        incarnation.end(range(256) if foreign else (0, *SIGNALLED_CODES))
        if self.state is NodeState.PAUSED:
            await self._resume()
        async with self.hurried(after_s=_STOP_GRACE_S):
            await self._in_thread(self._engine.stop, self.container, grace_s=_STOP_GRACE_S)
            await self._wait_exited(incarnation)

    async def _kill(self) -> None:
        incarnation = self.incarnation
        assert incarnation is not None, "a node that is up has one"
        incarnation.end(SIGNALLED_CODES)
        await self._in_thread(self._engine.kill, self.container)
        await self._wait_exited(incarnation)
        state = await self._state()
        if state is None or state.running:
            raise InfrastructureError(f"docker: {self.container} survived its kill: {state}")

    def _thaw_undo(self) -> Run:
        return undo_by("thaw", self.container)

    async def _freeze(self) -> bool:
        await self._in_thread(self._engine.pause, self.container)
        state = await self._state()
        if state is not None and state.running and not state.paused:
            raise InfrastructureError(f"docker: {self.container} did not freeze: {state}")
        return state is not None and state.running

    async def _thaw(self) -> None:
        await self._in_thread(self._engine.unpause, self.container)
        state = await self._state()
        if state is not None and state.paused:
            raise InfrastructureError(f"docker: {self.container} did not thaw: {state}")

    def close(self) -> None:
        """Expect any exit from now on, since the run is ending."""
        if self.incarnation is not None:
            self.incarnation.end(range(256))
        self._forget_pause(self.state)

    # --- processor, disk ---------------------------------------------------------------------

    async def _set_pace(self) -> None:
        share = self.spec.cpus if self.slowed == 1.0 else 1 / self.slowed
        await self._in_thread(self._engine.limit_processor, self.container, share)

    async def _empty(self) -> bool:
        if self.disk is not None:
            await self.disk.wipe()
        await self._in_thread(self._containers.wipe, self.spec.name, self.variant)
        await self._recreated()
        return True
