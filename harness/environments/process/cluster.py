"""`Cluster` over local processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.cluster import (
    STREAMS,
    Bite,
    Capability,
    Fidelity,
    Link,
    LinkQuality,
    StreamQuality,
    Usage,
    check_links,
    known_ends,
    unsupported,
)
from harness.environments.host.capabilities import EVERYWHERE
from harness.environments.host.cluster import RealCluster
from harness.environments.host.logs import EventBus
from harness.environments.process.links import LinkFaults
from harness.environments.process.node import ProcessNode

ENVIRONMENT: Final = "process"
CAPABILITIES: Final[Mapping[Capability, Fidelity]] = MappingProxyType(
    dict.fromkeys((*EVERYWHERE, Capability.DELAY, Capability.THROTTLE, *STREAMS), Fidelity.EXACT)
    | {Capability.SLOW_CPU: Fidelity.APPROXIMATE}  # at full speed for a part of each tenth of a s
)
_APPROXIMATE_BY_REAL_TOXIPROXY: Final = (
    Capability.PARTITION,  # the end of a connection gets through a cut
    Capability.PARTITION_ONE_WAY,
    Capability.RESET,  # an orderly end, and new connections are refused for a moment
)
_HAVE_PACKETS: Final = ("sim", "docker")


class ProcessCluster(RealCluster[ProcessNode]):
    """The nodes of one run and the links between them."""

    environment = ENVIRONMENT

    def __init__(
        self,
        nodes: Mapping[str, ProcessNode],
        clients: Sequence[str],
        links: LinkFaults,
        bus: EventBus,
        *,
        real_toxiproxy: bool,
    ) -> None:
        super().__init__(nodes, clients, bus)
        self._links = links
        self._capabilities = dict(CAPABILITIES)
        if real_toxiproxy:
            self._capabilities |= dict.fromkeys(
                _APPROXIMATE_BY_REAL_TOXIPROXY, Fidelity.APPROXIMATE
            )

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        """`CAPABILITIES`; some are only approximate by a real Toxiproxy."""
        return self._capabilities

    async def usage(self, node: str) -> Usage:
        """What the node's process and its data folder hold now, and what the process has written.

        What its children hold and write is not counted.
        """
        return await asyncio.to_thread(self._node(node).usage)

    def data_place(self, node: str) -> str:
        """Where the data of a node are, for people."""
        return str(self._node(node).data_folder)

    async def save_data(self, node: str, folder: Path) -> None:
        """Copy the data of a node that is down to a new folder."""
        await asyncio.to_thread(shutil.copytree, self._node(node).data_folder, folder)

    # --- links -------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link], *, lease_s: float) -> str:
        """Swallow everything on these links."""
        check_links(links, self._nodes, self.clients)
        return await self._links.cut(links, lease_s)

    async def shape(
        self, links: Sequence[Link], quality: LinkQuality | StreamQuality, *, lease_s: float
    ) -> str:
        """Delay, throttle or stall these links; slice or reset the streams on them."""
        for capability in (Capability.DROP, Capability.DUPLICATE, Capability.REORDER):
            if getattr(quality, capability.value, 0) > 0:
                raise unsupported(ENVIRONMENT, capability, _HAVE_PACKETS)
        check_links(links, self._nodes, self.clients)
        return await self._links.shape(links, quality, lease_s)

    async def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links; returns how many."""
        check_links(links, self._nodes, self.clients)
        return await self._links.reset(links)

    async def heal(self, fault: str) -> Bite:
        """Undo one link fault and say what it did."""
        return await self._links.heal(fault)

    async def heal_among(self, nodes: Iterable[str]) -> None:
        """Make every link among these nodes (and the clients) whole."""
        await self._links.heal_within(known_ends(nodes, self._nodes, self.clients))

    async def heal_all(self) -> None:
        """Undo every fault of links, processors, clocks and disks and thaw every node."""
        await self._links.heal_within(None)
        await self.mend_nodes()
