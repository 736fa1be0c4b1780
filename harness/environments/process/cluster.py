"""`Cluster` over local processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NoReturn

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
    unsupported,
)
from harness.environments.process.links import LinkFaults
from harness.environments.process.node import ProcessNode
from harness.environments.real.capabilities import EVERYWHERE
from harness.environments.real.logs import EventBus
from harness.environments.real.power import power_cut
from harness.environments.real.traps import Traps
from harness.errors import UsageError

__all__ = ["CAPABILITIES", "ENVIRONMENT", "ProcessCluster"]

ENVIRONMENT: Final = "process"
CAPABILITIES: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    dict.fromkeys((*EVERYWHERE, Capability.DELAY, Capability.THROTTLE, *STREAMS), Fidelity.EXACT)
)
_APPROXIMATE_BY_REAL_TOXIPROXY: Final = (
    Capability.PARTITION,  # the end of a connection gets through a cut
    Capability.PARTITION_ONE_WAY,
    Capability.RESET,  # an orderly end, and new connections are refused for a moment
)
_ALTERNATIVES: Final = ("sim",)
_LEASE_S_MAX: Final = 86_400.0


class ProcessCluster:
    """The nodes of one run and the links between them."""

    def __init__(
        self,
        nodes: Mapping[str, ProcessNode],
        links: LinkFaults,
        bus: EventBus,
        *,
        real_toxiproxy: bool,
    ) -> None:
        self._nodes = nodes
        self._specs = {name: node.spec for name, node in nodes.items()}
        self._links = links
        self._bus = bus
        self._traps = Traps(bus, [node.control for node in nodes.values()])
        self._capabilities = dict(CAPABILITIES)
        if real_toxiproxy:
            self._capabilities |= dict.fromkeys(
                _APPROXIMATE_BY_REAL_TOXIPROXY, Fidelity.APPROXIMATE
            )

    @property
    def environment(self) -> str:
        """`process`."""
        return ENVIRONMENT

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """`CAPABILITIES`; some are only approximate by a real Toxiproxy."""
        return self._capabilities

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """All declared nodes, in declaration order."""
        return self._specs

    def _node(self, name: str) -> ProcessNode:
        if name not in self._nodes:
            raise UsageError(f"there is no node {name!r}; there are: {', '.join(self._nodes)}")
        return self._nodes[name]

    def state(self, node: str) -> NodeState:
        """What the node is doing now."""
        return self._node(node).state

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Have every event delivered on the driver's loop."""
        self._bus.subscribe(callback)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Have `spring` run at an event of this kind; the node stands still meanwhile."""
        return self._traps.set(kind, spring)

    async def memory_bytes(self, node: str) -> int | None:
        """What the node's process holds now."""
        return self._node(node).memory_bytes()

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """The end of the node's log."""
        return self._node(node).log.tail(last_lines)

    # --- processes ---------------------------------------------------------------------------

    async def start(self, node: str, variant: str | None = None) -> bool:
        """Start a node that is down, on the disk it left behind."""
        return await self._node(node).start(variant)

    async def wait_ready(self, node: str) -> str | None:
        """Wait until the node is ready; why it is not, if it never is."""
        return await self._node(node).wait_ready()

    async def stop(self, node: str) -> bool:
        """SIGTERM, then SIGKILL after a bound."""
        return await self._node(node).stop()

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        """SIGKILL; what a power cut takes is gone when the node starts again."""
        entry = self._node(node)
        faulty = entry.disk is not None
        cut = power_cut(entry.spec, lose_unsynced=lose_unsynced, torn=torn, faulty_disk=faulty)
        return await entry.kill(cut)

    async def pause(self, node: str, *, lease_s: float) -> bool:
        """SIGSTOP."""
        return await self._node(node).pause(_checked_lease_s(lease_s))

    async def resume(self, node: str) -> bool:
        """SIGCONT."""
        return await self._node(node).resume()

    async def wipe(self, node: str) -> bool:
        """Empty the disk of a node that is down."""
        return await self._node(node).wipe()

    # --- links -------------------------------------------------------------------------------

    def _checked(self, links: Sequence[Link]) -> Sequence[Link]:
        for link in links:
            for end in (link.source, link.destination):
                if end != CLIENT:
                    self._node(end)
            if link.source == link.destination:
                raise UsageError(f"{link} has both ends at one node; a link joins two")
        return links

    async def cut(self, links: Sequence[Link], *, lease_s: float) -> str:
        """Swallow everything on these links."""
        return await self._links.cut(self._checked(links), _checked_lease_s(lease_s))

    async def shape(
        self, links: Sequence[Link], quality: LinkQuality | StreamQuality, *, lease_s: float
    ) -> str:
        """Delay, throttle or stall these links; slice or reset the streams on them."""
        for capability in (Capability.DROP, Capability.DUPLICATE, Capability.REORDER):
            if getattr(quality, capability.value, 0) > 0:
                _refuse(capability)
        return await self._links.shape(self._checked(links), quality, _checked_lease_s(lease_s))

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links; returns how many."""
        return await self._links.reset(self._checked(links))

    async def heal(self, fault: str) -> Bite:
        """Undo one link fault and say what it did."""
        return await self._links.heal(fault)

    async def heal_among(self, nodes: Iterable[str]) -> None:
        """Make every link among these nodes (and the clients) whole."""
        names = {CLIENT, *nodes}
        for name in sorted(names - {CLIENT}):
            self._node(name)
        await self._links.heal_within(names)

    async def heal_all(self) -> None:
        """Undo every fault of links, clocks and disks and thaw every node."""
        await self._links.heal_within(None)
        await asyncio.gather(*(node.resume() for node in self._nodes.values()))
        await asyncio.gather(*(node.control.mend() for node in self._nodes.values()))
        disks = [node.disk for node in self._nodes.values() if node.disk is not None]
        await asyncio.gather(*(disk.mend() for disk in disks))

    # --- clocks, disks, processors -------------------------------------------------------------

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> int | None:
        """Make the clock that the node sees wrong; a foreign program's by libfaketime."""
        return await self._node(node).control.skew(offset_ns=offset_ns, drift_ppm=drift_ppm)

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Make the disk that the node sees bad, which must be ours: `Env`, or `faulty_disk`."""
        entry = self._node(node)
        return await (entry.disk or entry.control).worsen_disk(quality)

    async def slow(self, node: str, *, factor: float) -> None:
        """Not here. Undoing (1.0) is always fine."""
        self._node(node)
        if factor != 1.0:
            _refuse(Capability.SLOW_CPU)


def _refuse(capability: Capability) -> NoReturn:
    packets = capability in {Capability.DROP, Capability.DUPLICATE, Capability.REORDER}
    raise unsupported(ENVIRONMENT, capability, (*_ALTERNATIVES, *(["docker"] if packets else [])))


def _checked_lease_s(lease_s: float) -> float:
    if not 0 < lease_s <= _LEASE_S_MAX:
        raise UsageError(f"a lease of {lease_s} s; it must be above 0 and at most {_LEASE_S_MAX}")
    return lease_s
