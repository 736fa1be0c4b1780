"""Machines, and the runs of nodes on them.

A machine has the parts that survive a node's process: disk, clocks, CPU, log. An `Incarnation` is
one run of the node, from a start to its end, with its own loop and `Env`. A kill discards the loop,
and objects that still refer to the dead incarnation have no effect. A node that ends by itself, or
whose spawned task fails, exits like a process: with the event `node-exited`, where `expected` is
false, and the traceback, if there is one.
"""

from __future__ import annotations

import asyncio
import errno
import re
import traceback
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Final

import msgspec

from harness.cluster import BASE, CHECKPOINT, NodeSpec, NodeState
from harness.env import Address, NodeMain, PageHandler, PageResponse
from harness.environments.faulty import DiskTrouble, FaultyDisk
from harness.environments.host.readiness import LineWatch
from harness.environments.pages import PageDoor
from harness.environments.sim.clock import SimClock
from harness.environments.sim.connection import SimConn
from harness.environments.sim.disk import DiskStore, SimDisk
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.network import Fabric, SimListener, SimNetwork
from harness.environments.sim.programs.stream_loop import StreamLoop
from harness.environments.sim.streams import Streams
from harness.environments.sim.world import World
from harness.errors import TargetError, UsageError
from harness.nodes.deployment import as_variant
from harness.nodes.program import is_program
from harness.run.announcements import NODE_EXITED, NODE_STARTED, check_announced

_TRACEBACK_LINES_MAX: Final = 60
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")
_SHOWN_PATH_PARTS: Final = 3
_encode: Final = msgspec.json.Encoder().encode


class Machine:
    """The machine of one node, or of the driver, over all runs of the node.

    `entries` has the node's entry for each variant. It is empty for the driver's machine.
    """

    def __init__(
        self,
        world: World,
        name: str,
        *,
        streams: Streams,
        clock: SimClock,
        disk: DiskStore,
        cost_ns: int,
        spec: NodeSpec | None = None,
        entries: Mapping[str, NodeMain] = MappingProxyType({}),
        loop_kind: type[NodeLoop] = NodeLoop,
    ) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.disk = disk
        self.trouble = DiskTrouble(streams.open(f"disk-trouble/{name}"), f"{streams.seed}/{name}")
        self.spec = spec
        self.ports = () if spec is None else spec.ports
        self.boots = 0
        self.variant = BASE  # for the next start
        self.incarnation: Incarnation | None = None
        self.machines: Mapping[str, Machine]
        self._fabric: Fabric
        self._publish: Callable[[str, str, bytes, bool], None]
        self._spring: Callable[[str, str, bytes, bool], None]
        self.loop_kind = loop_kind
        self._streams = streams
        self._entries = entries
        self._cost_ns = cost_ns
        self._slow_factor = 1.0

    def plug_in(
        self,
        fabric: Fabric,
        machines: Mapping[str, Machine],
        publish: Callable[[str, str, bytes, bool], None],
        spring: Callable[[str, str, bytes, bool], None],
    ) -> None:
        """Connect the machine to the network and to the other machines.

        `publish` gets the machine's events. `spring` gets points of the node's code (`Env.point`),
        and runs the callbacks of traps.
        """
        self._spring = spring
        self._fabric = fabric
        self.machines = machines
        self._publish = publish

    @property
    def state(self) -> NodeState:
        if self.incarnation is None:
            return NodeState.DOWN
        return NodeState.PAUSED if self.incarnation.loop.paused else NodeState.RUNNING

    def boot(self) -> Incarnation:
        """Start the node, on the machine's existing disk."""
        assert self.incarnation is None, f"{self.name} already runs"
        incarnation = Incarnation(self, self.boots)
        self.boots += 1
        self.incarnation = incarnation
        label = self.name if self.spec is None else f"node/{self.name}/{incarnation.boot}"
        kind = SimClientEnv if self.spec is None else SimEnv
        incarnation.env = kind(incarnation, self._fabric, self._streams.open(label))
        if isinstance(incarnation.loop, StreamLoop):
            incarnation.loop.plug_in(incarnation, self._fabric)
        if self.spec is not None:
            form = as_variant(self.spec, self.variant)
            variant = {"variant": self.variant} if self.spec.variants else {}
            self.emit(NODE_STARTED, {"boot": incarnation.boot, **variant}, by_driver=True)
            # Each start copies the config, since nodes in one process must share no objects.
            config = msgspec.json.decode(msgspec.json.encode(form.config))
            incarnation.run_main(self._entries[self.variant](incarnation.env, config))
        return incarnation

    def reach(self, kind: str, data: dict[str, Any]) -> None:
        """Log a point that the node's code has reached, and run the callbacks of traps there."""
        encoded = _encode(data)
        self.world.log(self.name, kind, encoded)
        self._spring(self.name, kind, encoded, False)

    def emit(self, kind: str, data: dict[str, Any], *, by_driver: bool) -> None:
        # Encoded at once, so that later changes of the object do not change the event.
        encoded = _encode(data)
        self.world.note(self.name, kind, encoded)
        if kind != CHECKPOINT:  # a log would be full of checkpoints
            self.world.log(self.name, kind, encoded)
        self._publish(self.name, kind, encoded, by_driver)

    def exit(
        self,
        code: int,
        *,
        expected: bool,
        log: list[str],
        lose_unsynced: bool = False,
        torn: bool = False,
    ) -> None:
        """End the current incarnation for any reason: crash its disk and publish its exit."""
        incarnation = self.incarnation
        assert incarnation is not None, f"{self.name} does not run"
        self.incarnation = None
        incarnation.loop.die()
        for end in list(incarnation.ends.values()):
            end.die()
        self.disk.crash(lose_unsynced=lose_unsynced, torn=torn)
        for line in log:
            self.world.log(self.name, line)
        data = {"code": code, "expected": expected, "log": log}
        self.emit(NODE_EXITED, data, by_driver=True)
        for waiter in incarnation.exit_waiters:
            if not waiter.done():
                waiter.set_result(None)

    def set_slow(self, factor: float) -> None:
        self._slow_factor = factor
        if self.incarnation is not None:
            self.incarnation.loop.cost_ns = self.cost_ns

    @property
    def cost_ns(self) -> int:
        return round(self._cost_ns * self._slow_factor)


class Incarnation:
    """One run of a node on its machine, from a start to its end."""

    env: SimEnv

    def __init__(self, machine: Machine, boot: int) -> None:
        self.machine = machine
        self.name = machine.name
        self.boot = boot
        self.loop: NodeLoop = machine.world.new_loop(
            machine.name, machine.clock, cost_ns=machine.cost_ns, kind=machine.loop_kind
        )
        # called with each line that a program prints
        self.watch = None if machine.spec is None else LineWatch(machine.spec)
        self.on_stop: Callable[[], None] | None = None  # called to stop the node gracefully
        self.listeners: dict[int, SimListener] = {}
        self.pages: PageDoor | None = None
        self.ends: dict[int, SimConn] = {}
        # futures that get the result `None` when the node ends
        self.exit_waiters: list[asyncio.Future[Any]] = []
        self.stopping = False
        self._main: asyncio.Task[None] | None = None

    def run_main(self, coro: Coroutine[Any, Any, None]) -> None:
        """Run the node's entry in a task; the node ends when the entry ends."""
        self.loop.on_callback_error = lambda error: self._panic("a callback", error)
        self._main = self.loop.create_task(coro, name="main")
        self._main.add_done_callback(self._main_done)

    def cancel_main(self) -> None:
        self.stopping = True
        if self.on_stop is not None:
            self.on_stop()
        elif self._main is not None:
            self._main.cancel()

    def check_alive(self) -> None:
        if not self.loop.alive:
            raise asyncio.CancelledError(f"{self.name} is dead and cannot use its Env")

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = self.loop.create_task(coro, name=name)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._panic(f"the task {task.get_name()!r}", error)

    def _main_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            if self.stopping:
                self._exit(0, [])
            else:
                self._exit(1, ["main was cancelled without a request to stop"])
            return
        error = task.exception()
        if error is not None:
            self._panic("main", error)
        else:
            self._exit(0, ["main returned"])

    def _panic(self, what: str, error: BaseException) -> None:
        if self._main is None:
            # only the driver has no main task, and its failure ends the run
            self.machine.world.fail(error)
        else:
            self._exit(1, [f"{what} failed:", *_traceback_lines(error)])

    def _exit(self, code: int, log: list[str]) -> None:
        if self.loop.alive:
            self.machine.exit(code, expected=self.stopping, log=log)


class SimEnv:
    """The `Env` of one run of a node (see `harness.env.Env`).

    Every method with an effect checks whether this run of the node is still alive. If it is not, a
    call has no effect or raises `CancelledError`.
    """

    def __init__(self, owner: Incarnation, fabric: Fabric, random: Random) -> None:
        machine = owner.machine
        self.owner = owner
        self.name = owner.name
        self.boot = owner.boot
        self.random = random
        self.clock = machine.clock
        self.net = SimNetwork(fabric, owner, machine.ports)
        self._fabric = fabric
        self.disk = FaultyDisk(SimDisk(machine.disk, owner.loop), machine.trouble)

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        return self.owner.spawn(coro, name=name)

    async def serve_pages(self, port: int, handler: PageHandler) -> None:
        owner = self.owner
        owner.check_alive()
        spec = owner.machine.spec
        if spec is None or port != spec.pages:
            raise ValueError(f"{owner.name} may not serve pages on {port}; NodeSpec.pages lacks it")
        if owner.pages is not None:
            raise OSError(errno.EADDRINUSE, f"{owner.name} already serves pages")
        owner.pages = PageDoor(handler, self.event)

    def endpoint(self, address: Address) -> tuple[str, int]:
        machine = self.owner.machine.machines.get(address.node)
        spec = None if machine is None else machine.spec
        if spec is None or not is_program(spec):
            raise UsageError(
                f"{address} has no TCP endpoint in simulation; a client of a foreign protocol runs "
                "with --env process or --env docker"
            )
        return self._fabric.names.address(address.node), address.port

    def page_url(self, address: Address) -> str:
        return f"http://{address}"

    def event(self, kind: str, **data: Any) -> None:
        if not self.owner.loop.alive:
            return
        machine = self.owner.machine
        try:
            check_announced(self.name, kind, data)
        except TargetError as error:  # a node must not report this kind, so the run ends
            machine.world.fail(error)
        else:
            machine.emit(kind, data, by_driver=machine.spec is None)

    def point(self, kind: str, **data: Any) -> None:
        if self.owner.loop.alive:
            self.owner.machine.reach(kind, data)


class SimClientEnv(SimEnv):
    """The driver's `Env` (`harness.env.ClientEnv`)."""

    async def get_page(
        self, address: Address, target: str, *, accept: str = "text/html"
    ) -> PageResponse:
        """Run the node's page handler on the node's loop, so that it is as slow as the node."""
        machine = self.owner.machine.machines.get(address.node)
        node = None if machine is None else machine.incarnation
        door = None if node is None else node.pages
        if node is None or door is None or node.machine.spec is None:
            raise ConnectionRefusedError(f"{address.node} serves no pages")
        if node.machine.spec.pages != address.port:
            raise ConnectionRefusedError(f"{address} has no listener")
        answered: asyncio.Future[PageResponse | None] = self.owner.loop.create_future()
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


def _traceback_lines(error: BaseException) -> list[str]:
    """Return a traceback as lines, without object addresses and install paths (they vary)."""
    lines: list[str] = []
    summary = traceback.TracebackException.from_exception(error)
    for chunk in summary.format():
        lines += chunk.rstrip("\n").split("\n")
    lines = [_ADDRESS.sub("0x...", _shorten(line)) for line in lines]
    if len(lines) > _TRACEBACK_LINES_MAX:
        cut = len(lines) - _TRACEBACK_LINES_MAX
        lines = [f"... {cut} lines were cut", *lines[-_TRACEBACK_LINES_MAX:]]
    return lines


def _shorten(line: str) -> str:
    match = re.match(r'(\s*File ")([^"]+)(".*)', line)
    if match is None:
        return line
    parts = match[2].split("/")[-_SHOWN_PATH_PARTS:]
    return f"{match[1]}{'/'.join(parts)}{match[3]}"
