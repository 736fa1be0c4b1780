"""The simulated environment: a whole cluster and its clients in one thread, in virtual time.

A plan and its seed determine a run. Random streams are derived from the seed by label (`net`,
`disk/<node>`, `node/<name>/<boot>`, `client`, `clock`), and time is integer nanoseconds. The design
follows FoundationDB's simulator (Zhou et al., SIGMOD 2021, section 4) and madsim. A simulation
replaces asyncio, TCP and the file system, so only processes and containers can test those.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from harness.cluster import CLIENT, Capability, Fidelity, NodeSpec
from harness.env import NodeMain, load_entry
from harness.environments.sim.clock import SimClock
from harness.environments.sim.cluster import CAPABILITIES, SimCluster
from harness.environments.sim.disk import DiskStore
from harness.environments.sim.knobs import draw_knobs, parse_knobs
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.machine import Machine, SimClientEnv
from harness.environments.sim.network import Fabric
from harness.environments.sim.programs.folder import FolderStore
from harness.environments.sim.programs.life import program_main
from harness.environments.sim.programs.modules import forget_types
from harness.environments.sim.programs.program_loop import ProgramLoop
from harness.environments.sim.programs.stream_loop import StreamLoop
from harness.environments.sim.streams import Streams
from harness.environments.sim.trace import TraceWriter
from harness.environments.sim.world import World
from harness.errors import UsageError
from harness.nodes.deployment import (
    check_nodes,
    forms_of,
    refuse_in_simulation,
    start_in_order,
    start_layers,
)
from harness.nodes.program import is_program
from harness.plugins import DeploymentPlan, Environment, Session, override
from harness.support.interrupts import raise_interrupt

T = TypeVar("T")
_log = logging.getLogger(__name__)

_EPOCH_NS_MIN: Final = 1_700_000_000_000_000_000  # runs start within a year after this time
_YEAR_NS: Final = 365 * 24 * 3600 * 1_000_000_000
_DRIVER_COST_NS: Final = 0  # the driver's callbacks take no virtual time
_MS: Final = 1_000_000


class SimSession(Session):
    """The driver's access to a simulated deployment (see `harness.plugins.Session`)."""

    def __init__(
        self,
        world: World,
        cluster: SimCluster,
        env: SimClientEnv,
        streams: Streams,
        *,
        patience: float,
    ) -> None:
        self._world = world
        self._patience = patience
        self._streams = streams
        self.cluster = cluster
        self.env = env
        self.interrupted = asyncio.Event()

    @property
    def events(self) -> int:
        return self._world.events

    @override
    def adopt(self, label: str, random: random.Random) -> random.Random:
        return self._streams.adopt(label, random)

    @property
    @override
    def patience(self) -> float:
        return self._patience

    @override
    def trace_digest(self) -> str:
        """Return a digest of all messages, events, writes and faults so far, for comparing runs."""
        return self._world.trace_digest()


class SimEnvironment(Environment, owns_programs=True):
    """Deploys nodes written against `Env` in a simulated world."""

    api_version = 1
    name = "sim"
    doc = "a simulation in one process and in virtual time, in which a seed repeats a run exactly"
    capabilities: Mapping[Capability, Fidelity] = CAPABILITIES

    @override
    def check_knobs(self, knobs: Mapping[str, Any]) -> None:
        parse_knobs(knobs)

    @override
    def draw_knobs(self, rng: random.Random) -> dict[str, Any]:
        return draw_knobs(rng)

    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Run `main` in a new world with all nodes started; returns the result of `main`.

        Raises `UsageError` for nodes without an `entry` and for unknown knobs, `InternalError` for
        a deadlock, `TargetError` if a node livelocks or bypasses `Env`, and `InfrastructureError`
        if a run reaches its limit of events or virtual time.
        """
        deployment = Deployment(plan)
        try:
            return deployment.run(main)
        finally:
            deployment.tear_down()


class Deployment:
    """One run of a plan: a world, its network, its machines and the driver."""

    def __init__(self, plan: DeploymentPlan) -> None:
        self._plan = plan
        self._knobs = parse_knobs(plan.knobs)
        knobs = self._knobs
        refuse_in_simulation(plan.nodes)
        specs = {spec.name: spec for spec in plan.nodes}
        entries = {
            spec.name: {name: _entry(form, specs) for name, form in forms_of(spec).items()}
            for spec in plan.nodes
        }
        if len(entries) != len(plan.nodes) or CLIENT in entries:
            names = [spec.name for spec in plan.nodes]
            raise UsageError(f"node names must differ from each other and {CLIENT!r}: {names}")
        check_nodes(plan.nodes)
        self.world = World(
            events_max=knobs.events_max, virtual_ns_max=int(knobs.virtual_s_max * 1e9)
        )
        if knobs.trace is not None:
            self.world.trace = TraceWriter(Path(knobs.trace))
        self.machines: dict[str, Machine] = {}
        self._streams = Streams(plan.seed)
        if knobs.reseed_at_s is not None:
            at_ns = round(knobs.reseed_at_s * 1e9)
            self.world.schedule(at_ns, self._streams.switch, knobs.reseed)
        self._wall_clocks = self._streams.open("clock")
        self._wall_base_ns = _EPOCH_NS_MIN + self._wall_clocks.randrange(_YEAR_NS)
        self._add_machine(CLIENT, None, {})
        for spec in plan.nodes:
            self._add_machine(spec.name, spec, entries[spec.name])
        self.fabric = Fabric(self.world, self.machines, knobs, self._streams.open("net"), plan.ends)
        self.cluster = SimCluster(self.world, self.fabric, self.machines, stop_s=knobs.stop_s)
        for machine in self.machines.values():
            machine.plug_in(self.fabric, self.machines, self.cluster.publish, self.cluster.spring)

    def _add_machine(
        self, name: str, spec: NodeSpec | None, entries: Mapping[str, NodeMain]
    ) -> None:
        knobs, world = self._knobs, self.world
        program = spec is not None and is_program(spec)
        # The loops lack methods of the abstract base class that asyncio does not need.
        kind: type[NodeLoop] = ProgramLoop if program else NodeLoop  # type: ignore[type-abstract]
        if spec is None:
            kind = StreamLoop  # type: ignore[type-abstract]
        store = FolderStore if program else DiskStore
        error_ns = int(knobs.clock_error_ms * _MS)
        off_ns = self._wall_clocks.randrange(error_ns + 1) - error_ns // 2
        self.machines[name] = Machine(
            world,
            name,
            streams=self._streams,
            clock=SimClock(world, wall_base_ns=self._wall_base_ns + off_ns, max_error_ns=error_ns),
            disk=store(
                world,
                self._streams.open(f"disk/{name}"),
                latency_ns=(int(knobs.disk_ms_min * _MS), int(knobs.disk_ms_max * _MS)),
                append_ns_max=int(knobs.append_us_max * 1000),
            ),
            cost_ns=_DRIVER_COST_NS if spec is None else round(knobs.cpu_us * 1000),
            spec=spec,
            entries=entries,
            loop_kind=kind,
        )

    def run(self, main: Callable[[Session], Coroutine[Any, Any, T]], *, graceful: bool = True) -> T:
        """Start the nodes and run `main`; the first Ctrl-C only asks a `graceful` run to end."""
        world = self.world
        driver = self.machines[CLIENT].boot()
        assert isinstance(driver.env, SimClientEnv)
        session = SimSession(
            world, self.cluster, driver.env, self._streams, patience=self._knobs.patience
        )
        nodes = self.cluster.nodes
        if any(spec.ready is not None for spec in nodes.values()):
            body = self._start_and_run(main, session)
        else:
            for layer in start_layers(nodes.values()):
                for name in layer:
                    self.machines[name].boot()
            body = main(session)
        task = driver.loop.create_task(body, name="driver")
        task.add_done_callback(lambda _: world.stop())
        with _interruptible(world, session.interrupted) if graceful else contextlib.nullcontext():
            world.run()
        return task.result()

    async def _start_and_run(
        self, main: Callable[[Session], Coroutine[Any, Any, T]], session: SimSession
    ) -> T:
        """Start each node once the nodes before it are ready, and then run `main`."""
        cluster = self.cluster
        await start_in_order(cluster.nodes, cluster.start, cluster.require_ready)
        return await main(session)

    def tear_down(self) -> None:
        """Discard the world, and write logs and the trace. A failed write is only logged."""
        for unseen in self.world.discard():
            _log.warning("no code retrieved the failure of a task: %s", unseen)
        try:
            if self.world.trace is not None:
                self.world.trace.close()
            if self._plan.folder is not None:
                logs = self._plan.folder / "logs"
                logs.mkdir(parents=True, exist_ok=True)
                for name in self.cluster.nodes:
                    lines = self.world.log_lines(name)
                    text = "".join(f"{line}\n" for line in lines)
                    (logs / f"{name}.log").write_text(text, encoding="utf-8")
        except OSError as error:
            _log.warning("cannot write the logs of the simulated nodes: %s", error)
        if any(is_program(spec) for spec in self._plan.nodes):
            forget_types()
        # breaks reference cycles without the garbage collector
        self.machines.clear()


def _entry(form: NodeSpec, specs: Mapping[str, NodeSpec]) -> NodeMain:
    """Return the function that runs a node: its entry, or the program in its command."""
    if is_program(form):
        return program_main(form, specs)
    return load_entry(form.entry or "", form.name)


@contextlib.contextmanager
def _interruptible(world: World, interrupted: asyncio.Event) -> Iterator[None]:
    """Handle Ctrl-C inside this context: the first sets `interrupted`, the second ends the run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, raise_interrupt)
        world.schedule(world.now_ns, lambda _: interrupted.set())

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
