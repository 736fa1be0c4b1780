"""The nemesis's door to the simulated world: every verb acts at once, in virtual time.

Nothing here outlives the harness, so `lease_s` is of no use: leases are the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    NodeSpec,
    NodeState,
    Spring,
    StreamQuality,
    Usage,
    check_clock,
    check_links,
    known_ends,
    known_node,
    unsupported,
)
from harness.environments.sim.loop import begin
from harness.environments.sim.machine import Machine
from harness.environments.sim.network import Fabric
from harness.environments.sim.world import World
from harness.errors import UsageError
from harness.nodes.deployment import as_variant

CAPABILITIES: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    {what: Fidelity.EXACT for what in Capability if what not in STREAMS}  # frames come whole
)
_KILLED: Final = -9  # as subprocess.Popen.returncode has it
_SLOW_FACTOR_MAX: Final = 1e6


class SimCluster:
    """The deployed nodes (`harness.cluster.Cluster`)."""

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
        self._faults = 0
        self._traps: dict[str, list[Spring]] = {}

    @property
    def environment(self) -> str:
        """The name of the environment."""
        return "sim"

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """Everything, exactly."""
        return CAPABILITIES

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """All declared nodes, in declaration order."""
        return {name: m.spec for name, m in self._machines.items() if m.spec is not None}

    @property
    def aliases(self) -> Mapping[str, str]:
        """Names of nodes that lead to another node now, and to which."""
        return self._fabric.aliases

    def state(self, node: str) -> NodeState:
        """What the node is doing now."""
        return self._machine(node).state

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Have every event delivered on the driver's loop."""
        self._subscribers.append(callback)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Have `spring` run at every event of this kind, inside the node's own callback.

        A node that it kills or cuts off reaches nothing from there on, and one that it freezes
        waits before its next effect. What waits in `spring` goes on as a task of the driver.
        """
        springs = self._traps.setdefault(kind, [])
        springs.append(spring)
        return lambda: springs.remove(spring)

    def _spring(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> None:
        driver = self._driver.incarnation
        if driver is None:
            return
        for spring in tuple(self._traps.get(kind, ())):
            event = self._event(node, kind, encoded, by_driver)
            with self._world.inside(driver.loop):  # the harness's own code, not the node's
                begin(spring(event), lambda rest: driver.env.spawn(rest, name=f"trap-{kind}"))

    def publish(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> None:
        """Hand an event of a node to the driver."""
        driver = self._driver.incarnation
        if self._subscribers and driver is not None:
            driver.loop.call_soon(self._deliver, node, kind, encoded, by_driver)
        if self._traps:
            self._spring(node, kind, encoded, by_driver)

    def _deliver(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> None:
        event = self._event(node, kind, encoded, by_driver)
        for callback in self._subscribers:
            callback(event)

    def _event(self, node: str, kind: str, encoded: bytes, by_driver: bool) -> ClusterEvent:
        time_ns, data = self._driver.clock.monotonic_ns(), msgspec.json.decode(encoded)
        return ClusterEvent(time_ns, node, kind, data, by_driver=by_driver)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Have `callback` called in so long, by the world."""
        self._world.schedule(self._world.now_ns + int(delay_s * 1e9), lambda _: callback())

    # --- nodes ------------------------------------------------------------------------------

    async def start(self, node: str, variant: str | None = None) -> bool:
        """Start a node that is down, on the disk it left behind."""
        machine = self._machine(node)
        if variant is not None and machine.spec is not None:
            as_variant(machine.spec, variant)  # refuses one that is not declared
        if machine.state is not NodeState.DOWN:
            return False
        machine.variant = variant or machine.variant
        machine.boot()
        return True

    async def wait_ready(self, node: str) -> str | None:
        """A simulated node is ready when it runs: it has no probe."""
        runs = self._machine(node).state is not NodeState.DOWN
        return None if runs else f"node {node!r} is down"

    async def stop(self, node: str) -> bool:
        """Cancel the node's main; kill the node if that has not ended it within `stop_s`."""
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
        """Kill a node at once; see `harness.environments.sim.disk` for what its disk keeps.

        A power cut also hits the page cache that a node which is down left behind.
        """
        machine = self._machine(node)
        if machine.incarnation is None:
            machine.disk.crash(lose_unsynced=lose_unsynced, torn=torn)
            return False
        self._note("kill", node, lose_unsynced=lose_unsynced, torn=torn)
        machine.exit(_KILLED, expected=True, log=[], lose_unsynced=lose_unsynced, torn=torn)
        return True

    async def pause(self, node: str, *, lease_s: float) -> bool:
        """Freeze a node."""
        del lease_s
        incarnation = self._machine(node).incarnation
        if incarnation is None or incarnation.loop.paused:
            return False
        self._note("pause", node)
        incarnation.loop.pause()
        return True

    async def resume(self, node: str) -> bool:
        """Thaw a paused node."""
        incarnation = self._machine(node).incarnation
        if incarnation is None or not incarnation.loop.paused:
            return False
        self._note("resume", node)
        incarnation.loop.resume()
        return True

    async def wipe(self, node: str) -> bool:
        """Empty the disk of a node that is down."""
        machine = self._machine(node)
        if machine.incarnation is not None:
            raise UsageError(f"cannot wipe the disk of {node!r}: it runs; kill or stop it first")
        self._note("wipe", node)
        return machine.disk.wipe()

    # --- links ------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link], *, lease_s: float) -> str:
        """Swallow everything on these links; returns the fault's id."""
        del lease_s
        return self._lay("cut", links, None)

    async def shape(
        self, links: Sequence[Link], quality: LinkQuality | StreamQuality, *, lease_s: float
    ) -> str:
        """Worsen these links, which carry frames and no streams; returns the fault's id."""
        del lease_s
        if isinstance(quality, StreamQuality):
            what = Capability.SLICE if quality.slice_bytes else Capability.RESET_AFTER
            raise unsupported("sim", what, ("process", "docker"))
        quality.check()
        return self._lay("shape", links, quality)

    def _lay(self, verb: str, links: Sequence[Link], quality: LinkQuality | None) -> str:
        check_links(links, self._machines, self.clients)
        self._faults += 1
        fault_id = f"{verb}-{self._faults}"
        self._note(verb, CLIENT, id=fault_id, links=_shown(links))
        self._fabric.lay(fault_id, links, quality)
        return fault_id

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links, in either direction; returns how many."""
        check_links(links, self._machines, self.clients)
        self._note("reset", CLIENT, links=_shown(links))
        return self._fabric.reset(links)

    async def heal(self, fault: str) -> Bite:
        """Undo one link fault and say what it did; a second call returns the same."""
        self._note("heal", CLIENT, id=fault)
        return self._fabric.heal(fault)

    async def heal_among(self, nodes: Iterable[str]) -> None:
        """Make every link among these nodes (and the clients) whole; other cuts stay."""
        names = known_ends(nodes, self._machines, self.clients)
        self._note("heal-among", CLIENT, nodes=names)
        self._fabric.heal_within(names)

    async def heal_all(self) -> None:
        """Undo every fault of links, clocks, processors and disks, thaw every node; start none."""
        self._note("heal-all", CLIENT)
        self._fabric.heal_within(None)
        for machine in self._machines.values():
            self._adjust_clock(machine, skew_ns=0, drift_ppm=0)
            machine.set_slow(1.0)
            machine.trouble.set(DiskQuality())
            await self.resume(machine.name)

    async def alias(self, name: str, node: str) -> None:
        """From now on the name of one node leads to another."""
        self._fabric.aliases[self._machine(name).name] = self._machine(node).name
        self._note("alias", name, to=node)

    # --- clocks, processors, logs -----------------------------------------------------------

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> None:
        """Set a node's wall clock off by `offset_ns` and its clocks drifting by `drift_ppm`."""
        machine = self._machine(node)
        check_clock(offset_ns=offset_ns, drift_ppm=drift_ppm)
        self._note("skew", node, offset_ns=offset_ns, drift_ppm=drift_ppm)
        self._adjust_clock(machine, skew_ns=offset_ns, drift_ppm=drift_ppm)

    def _adjust_clock(self, machine: Machine, *, skew_ns: int, drift_ppm: int) -> None:
        machine.clock.adjust(skew_ns=skew_ns, drift_ppm=drift_ppm)
        self._world.rekey_timers(machine.clock)

    async def slow(self, node: str, *, factor: float) -> None:
        """Make the node's processor slower by `factor` (1.0 = normal)."""
        machine = self._machine(node)
        if not 0 < factor <= _SLOW_FACTOR_MAX:
            raise UsageError(f"factor is {factor}; it must be above 0 and at most 1e6")
        self._note("slow", node, factor=factor)
        machine.set_slow(factor)

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Set how bad the node's disk is; returns how many requests were touched since before."""
        machine = self._machine(node)
        quality.check()
        self._note("worsen-disk", node, **msgspec.to_builtins(quality))
        return machine.trouble.set(quality)

    async def usage(self, node: str) -> Usage:
        """Of its disk. Nobody tells of its memory: all nodes share one process."""
        disk = self._machine(node).disk
        return Usage(disk_bytes=disk.held_bytes(), written_bytes=disk.written_bytes)

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """The end of the node's log."""
        return self._world.log_lines(self._machine(node).name, last_lines=last_lines)

    # --- checks -----------------------------------------------------------------------------

    def _machine(self, node: str) -> Machine:
        return known_node(self._machines, node)

    def _note(self, verb: str, node: str, **data: object) -> None:
        self._world.note(node, f"cluster {verb}", msgspec.json.encode(data))


def _shown(links: Sequence[Link]) -> list[str]:
    return sorted(f"{link.source}>{link.destination}" for link in links)
