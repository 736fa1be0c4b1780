"""Carries out faults, such as kills and pauses, in the simulated world.

No simulated fault outlives the harness, so `lease_s` has no effect here: the ledger ends leases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from harness.cluster import (
    CLIENT,
    STREAMS,
    Bite,
    Capability,
    ClusterEvent,
    DiskQuality,
    Fidelity,
    Link,
    LinkQuality,
    LinkState,
    NodeSpec,
    NodeState,
    Spring,
    StreamQuality,
    Usage,
    check_clock,
    check_links,
    known_node,
    unsupported,
)
from harness.environments.host.readiness import LOG_LINES, not_ready
from harness.environments.sim.loop import begin
from harness.environments.sim.machine import Machine
from harness.environments.sim.network import Fabric
from harness.environments.sim.programs.readiness import wait_for_program
from harness.environments.sim.world import World
from harness.errors import UsageError
from harness.nodes.deployment import as_variant

CAPABILITIES: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    {
        what: Fidelity.EXACT for what in Capability if what not in STREAMS
    }  # links carry frames, not byte streams
)
_KILLED: Final = -9  # the exit code after SIGKILL, as in `subprocess.Popen.returncode`
_SLOW_FACTOR_MAX: Final = 1e6


class SimCluster:
    """Carries out faults on the nodes of a simulated world (see `harness.cluster.Controls`)."""

    def __init__(
        self, world: World, fabric: Fabric, machines: Mapping[str, Machine], *, stop_s: float
    ) -> None:
        self._world = world
        self._fabric = fabric
        self.clients = fabric.clients
        self._driver = machines[CLIENT]
        self._machines = {name: m for name, m in machines.items() if name != CLIENT}
        self._stop_ns = int(stop_s * 1e9)
        self._subscribers: list[Callable[[ClusterEvent], None]] = []
        self._traps: dict[str, list[Spring]] = {}

    @property
    def environment(self) -> str:
        return "sim"

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        return CAPABILITIES

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        return {name: m.spec for name, m in self._machines.items() if m.spec is not None}

    @property
    def aliases(self) -> Mapping[str, str]:
        return self._fabric.aliases

    def state(self, node: str) -> NodeState:
        return self._machine(node).state

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        self._subscribers.append(callback)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Run `spring` at every event of this kind, inside the callback that reports the event.

        If `spring` kills the node or cuts it off, the node has no more effect from this point on.
        If `spring` pauses the node, the node waits before its next effect. If `spring` awaits, its
        rest runs in a task of the driver. Returns a function that removes the trap.
        """
        springs = self._traps.setdefault(kind, [])
        springs.append(spring)
        return lambda: springs.remove(spring)

    def spring(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> None:
        driver = self._driver.incarnation
        if driver is None:
            return
        for spring in tuple(self._traps.get(kind, ())):
            event = self._event(node, kind, encoded, by_driver)
            # `spring` is code of the harness, so it runs outside of the node
            with self._world.inside(driver.loop):
                begin(spring(event), lambda rest: driver.env.spawn(rest, name=f"trap-{kind}"))

    def publish(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> None:
        driver = self._driver.incarnation
        if self._subscribers and driver is not None:
            driver.loop.call_soon(self._deliver, node, kind, encoded, by_driver)
        if self._traps:
            self.spring(node, kind, encoded, by_driver)

    def _deliver(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> None:
        event = self._event(node, kind, encoded, by_driver)
        for callback in self._subscribers:
            callback(event)

    def _event(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> ClusterEvent:
        time_ns, data = self._driver.clock.monotonic_ns(), msgspec.json.decode(encoded)
        return ClusterEvent(time_ns, node, kind, data, by_driver=by_driver)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Schedule `callback` in virtual time, outside of all nodes."""
        self._world.schedule(self._world.now_ns + int(delay_s * 1e9), lambda _: callback())

    # --- nodes ------------------------------------------------------------------------------

    async def start(self, node: str, variant: str | None = None) -> bool:
        machine = self._machine(node)
        if variant is not None and machine.spec is not None:
            # raises `UsageError` for an undeclared variant
            as_variant(machine.spec, variant)
        if machine.state is not NodeState.DOWN:
            return False
        machine.variant = variant or machine.variant
        machine.boot()
        return True

    async def wait_ready(self, node: str) -> str | None:
        """Return why a node is not ready, or `None`. A node on `Env` is ready if it runs."""
        machine = self._machine(node)
        if machine.spec is not None and machine.spec.ready is not None:
            return await wait_for_program(machine, as_variant(machine.spec, machine.variant))
        runs = machine.state is not NodeState.DOWN
        return None if runs else f"node {node!r} is down"

    async def require_ready(self, node: str) -> None:
        """Wait until the node is ready; raises `StartError` if it does not become ready."""
        reason = await self.wait_ready(node)
        if reason is not None:
            log = self._world.log_lines(node, last_lines=LOG_LINES)
            not_ready(node, reason, log, by_host=False)

    async def stop(self, node: str) -> bool:
        """Cancel the node's entry. Kill the node if it still runs after `stop_s`."""
        machine = self._machine(node)
        incarnation = machine.incarnation
        driver = self._driver.incarnation
        if incarnation is None or driver is None:
            return False
        self._note("stop", node)
        gone = driver.loop.create_future()
        incarnation.exit_waiters.append(gone)
        incarnation.cancel_main()

        def kill(_: None) -> None:
            if machine.incarnation is incarnation:
                machine.exit(_KILLED, expected=True, log=["it did not stop in time: killed"])

        self._world.schedule(self._world.now_ns + self._stop_ns, kill)
        await gone
        return True

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        """Kill a node at once; `harness.environments.sim.disk` decides which data its disk keeps.

        If the node is down, a power cut still affects data that it left in the page cache.
        """
        machine = self._machine(node)
        if machine.incarnation is None:
            machine.disk.crash(lose_unsynced=lose_unsynced, torn=torn)
            return False
        self._note("kill", node, lose_unsynced=lose_unsynced, torn=torn)
        machine.exit(_KILLED, expected=True, log=[], lose_unsynced=lose_unsynced, torn=torn)
        return True

    async def pause(self, node: str, *, lease_s: float) -> bool:
        del lease_s
        incarnation = self._machine(node).incarnation
        if incarnation is None or incarnation.loop.paused:
            return False
        self._note("pause", node)
        incarnation.loop.pause()
        return True

    async def resume(self, node: str) -> bool:
        incarnation = self._machine(node).incarnation
        if incarnation is None or not incarnation.loop.paused:
            return False
        self._note("resume", node)
        incarnation.loop.resume()
        return True

    async def wipe(self, node: str) -> bool:
        machine = self._machine(node)
        if machine.incarnation is not None:
            raise UsageError(
                f"cannot wipe the disk of {node!r} while it runs; kill or stop the node first"
            )
        self._note("wipe", node)
        return machine.disk.wipe()

    # --- links ------------------------------------------------------------------------------

    async def set_links(
        self, wanted: Mapping[Link, LinkState], *, lease_s: float
    ) -> Mapping[str, Bite]:
        """Put links into these states (see `Controls.set_links`).

        Raises `UsageError` for stream faults, since simulated links carry frames, not byte streams.
        """
        del lease_s
        check_links(wanted, self._machines, self.clients)
        frames: dict[Link, dict[str, LinkQuality | None]] = {}
        for link, state in wanted.items():
            of_link = frames[link] = {}
            for fault, quality in state.items():
                if isinstance(quality, StreamQuality):
                    what = Capability.SLICE if quality.slice_bytes else Capability.RESET_AFTER
                    raise unsupported("sim", what, ("process", "docker"))
                of_link[fault] = quality
        faults = {_shown(link): list(state) for link, state in wanted.items()}
        self._note("set-links", CLIENT, faults=faults)
        return self._fabric.set_links(frames)

    async def reset(self, links: Sequence[Link]) -> int:
        check_links(links, self._machines, self.clients)
        self._note("reset", CLIENT, links=[_shown(link) for link in sorted({*links})])
        return self._fabric.reset(links)

    async def alias(self, name: str, node: str) -> None:
        self._fabric.aliases[self._machine(name).name] = self._machine(node).name
        self._note("alias", name, to=node)

    # --- clocks, processors, logs -----------------------------------------------------------

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> None:
        machine = self._machine(node)
        check_clock(offset_ns=offset_ns, drift_ppm=drift_ppm)
        self._note("skew", node, offset_ns=offset_ns, drift_ppm=drift_ppm)
        self._adjust_clock(machine, skew_ns=offset_ns, drift_ppm=drift_ppm)

    def _adjust_clock(self, machine: Machine, *, skew_ns: int, drift_ppm: int) -> None:
        machine.clock.adjust(skew_ns=skew_ns, drift_ppm=drift_ppm)
        self._world.rekey_timers(machine.clock)

    async def slow(self, node: str, *, factor: float) -> None:
        machine = self._machine(node)
        if not 0 < factor <= _SLOW_FACTOR_MAX:
            raise UsageError(
                f"the slow-down factor is {factor}; it must be above 0 and at most 1e6"
            )
        self._note("slow", node, factor=factor)
        machine.set_slow(factor)

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        machine = self._machine(node)
        quality.check()
        self._note("worsen-disk", node, **msgspec.to_builtins(quality))
        return machine.trouble.set(quality)

    async def usage(self, node: str) -> Usage:
        """Return a node's disk use. Its memory is unknown, since all nodes share one process."""
        disk = self._machine(node).disk
        return Usage(disk_bytes=disk.held_bytes(), written_bytes=disk.written_bytes)

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        return self._world.log_lines(self._machine(node).name, last_lines=last_lines)

    async def mend(self) -> None:
        self._note("mend", CLIENT)
        for machine in self._machines.values():
            self._adjust_clock(machine, skew_ns=0, drift_ppm=0)
            machine.set_slow(1.0)
            machine.trouble.set(DiskQuality())
            await self.resume(machine.name)

    # --- checks -----------------------------------------------------------------------------

    def _machine(self, node: str) -> Machine:
        return known_node(self._machines, node)

    def _note(self, verb: str, node: str, **data: object) -> None:
        self._world.note(node, f"cluster {verb}", msgspec.json.encode(data))


def _shown(link: Link) -> str:
    return f"{link.source}>{link.destination}"
