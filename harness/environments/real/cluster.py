"""What `Cluster` is alike over processes and over containers: who is there, and what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from harness.cluster import ClusterEvent, NodeSpec, NodeState, Spring, known_node
from harness.environments.real.control import NodeControl
from harness.environments.real.logs import EventBus, NodeLog
from harness.environments.real.traps import Traps

__all__ = ["RealCluster", "RealNode"]


class RealNode(Protocol):
    """A node as the driver knows it, over all of its incarnations."""

    log: NodeLog
    control: NodeControl

    @property
    def state(self) -> NodeState:
        """What it is doing now."""
        ...


N = TypeVar("N", bound=RealNode)


class RealCluster(Generic[N]):
    """The nodes of one run."""

    def __init__(self, nodes: Mapping[str, N], clients: Sequence[str], bus: EventBus) -> None:
        """`nodes` are all, in declaration order; what happens to them comes over `bus`."""
        self._nodes = nodes
        self.clients = clients
        self._bus = bus
        self._specs = {name: node.control.spec for name, node in nodes.items()}
        self._traps = Traps(bus, [node.control for node in nodes.values()])

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """All declared nodes, in declaration order."""
        return self._specs

    def _node(self, name: str) -> N:
        return known_node(self._nodes, name)

    def state(self, node: str) -> NodeState:
        """What the node is doing now."""
        return self._node(node).state

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        """Have every event delivered on the driver's loop."""
        self._bus.subscribe(callback)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        """Have `spring` run at an event of this kind; the node stands still meanwhile."""
        return self._traps.set(kind, spring)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Have `callback` called in so long, on the driver's loop."""
        asyncio.get_running_loop().call_later(delay_s, callback)

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """The end of the node's log."""
        return self._node(node).log.tail(last_lines)

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> int | None:
        """Make the clock that the node sees wrong; a foreign program's by libfaketime."""
        return await self._node(node).control.skew(offset_ns=offset_ns, drift_ppm=drift_ppm)
