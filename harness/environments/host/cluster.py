"""The part of `Controls` that processes and containers share: nodes, events and logs."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from harness.cluster import ClusterEvent, DiskQuality, NodeSpec, NodeState, Spring, known_node
from harness.environments.host.capabilities import check_slow
from harness.environments.host.control import gather_all
from harness.environments.host.logs import EventBus
from harness.environments.host.power import power_cut
from harness.environments.host.real_node import RealNode
from harness.environments.host.watch import Interference

N = TypeVar("N", bound=RealNode)
_LABEL_CHARACTERS_MAX: Final = 40


def label_of(fault: str) -> str:
    """Return a short label for a fault. Packet rules and toxics carry it.

    A label has only letters, digits, `_`, `.` and `-`. The fault's id is its label if it is short
    and has only these characters. Otherwise the label is a shortened id and a digest of the id.
    """
    text = re.sub(r"[^A-Za-z0-9_.-]", "_", fault)
    if text == fault and len(text) <= _LABEL_CHARACTERS_MAX:
        return text
    digest = hashlib.blake2b(fault.encode(), digest_size=4).hexdigest()
    return f"{text[: _LABEL_CHARACTERS_MAX - len(digest) - 1]}-{digest}"


class RealCluster(Generic[N]):
    """Carries out faults on the nodes of one run, in processes or containers."""

    environment: str

    def __init__(self, nodes: Mapping[str, N], clients: Sequence[str], bus: EventBus) -> None:
        """`nodes` has all nodes in declaration order; `bus` delivers their events."""
        self._nodes = nodes
        self.clients = clients
        self._bus = bus
        self.aliases: dict[str, str] = {}
        self._specs = {name: node.spec for name, node in nodes.items()}

    def stopped_disks(self) -> dict[str, Interference]:
        """Return the nodes whose FUSE disk was stopped by another program."""
        stopped = [n for n, each in self._nodes.items() if each.disk and each.disk.stopped]
        return {
            name: Interference(f"the disk of {name} was stopped, and not by the harness")
            for name in stopped
        }

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        return self._specs

    def _node(self, name: str) -> N:
        return known_node(self._nodes, name)

    def state(self, node: str) -> NodeState:
        return self._node(node).state

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        self._bus.subscribe(callback)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        return self._bus.trap(kind, spring)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, callback)

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        return self._node(node).log.tail(last_lines)

    async def alias(self, name: str, node: str) -> None:
        self.aliases[self._node(name).spec.name] = self._node(node).spec.name
        await gather_all(each.control.lead(self.aliases) for each in self._nodes.values())

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> int | None:
        """Set the clock error of a node. On a foreign program, this needs libfaketime."""
        return await self._node(node).control.skew(offset_ns=offset_ns, drift_ppm=drift_ppm)

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Set the faults of a node's disk. A foreign program must declare `faulty_disk`."""
        entry = self._node(node)
        return await (entry.disk or entry.control).worsen_disk(quality)

    async def start(self, node: str, variant: str | None = None) -> bool:
        return await self._node(node).start(variant)

    async def wait_ready(self, node: str) -> str | None:
        return await self._node(node).wait_ready()

    async def stop(self, node: str) -> bool:
        return await self._node(node).stop()

    async def kill(self, node: str, *, lose_unsynced: bool = False, torn: bool = False) -> bool:
        entry = self._node(node)
        faulty = entry.disk is not None
        cut = power_cut(entry.spec, lose_unsynced=lose_unsynced, torn=torn, faulty_disk=faulty)
        return await entry.kill(cut)

    async def pause(self, node: str, *, lease_s: float) -> bool:
        return await self._node(node).pause(lease_s)

    async def resume(self, node: str) -> bool:
        return await self._node(node).resume()

    async def wipe(self, node: str) -> bool:
        return await self._node(node).wipe()

    async def slow(self, node: str, *, factor: float) -> None:
        """Limit a node to 1/`factor` of a CPU; 1.0 ends the limit."""
        entry = self._node(node)
        check_slow(self.environment, factor)
        await entry.slow(factor)

    async def mend(self) -> None:
        nodes = self._nodes.values()
        await gather_all(node.resume() for node in nodes)
        await gather_all(node.slow(1.0) for node in nodes)
        await gather_all(node.control.mend() for node in nodes)
        await gather_all(node.disk.mend() for node in nodes if node.disk is not None)
