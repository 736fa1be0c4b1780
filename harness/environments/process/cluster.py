"""Carries out faults on nodes that are local processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.cluster import (
    STREAMS,
    Bite,
    Capability,
    Fidelity,
    Link,
    LinkState,
    Usage,
    check_links,
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
    # a slowed node runs at full speed for part of each 0.1 s
    | {Capability.SLOW_CPU: Fidelity.APPROXIMATE}
)
_APPROXIMATE_BY_REAL_TOXIPROXY: Final = (
    Capability.PARTITION,  # during a cut, connections can still be closed
    Capability.PARTITION_ONE_WAY,
    # the proxy closes connections instead of resetting them, and refuses new ones for a moment
    Capability.RESET,
)
_HAVE_PACKETS: Final = ("sim", "docker")


class ProcessCluster(RealCluster[ProcessNode]):
    """Carries out faults on the processes of one run and on their links (see `Controls`)."""

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
        return self._capabilities

    async def usage(self, node: str) -> Usage:
        """Return the memory use of the node's first process, and the size of its data folder."""
        return await asyncio.to_thread(self._node(node).usage)

    def data_place(self, node: str) -> str:
        return str(self._node(node).data_folder)

    async def save_data(self, node: str, folder: Path) -> None:
        await asyncio.to_thread(shutil.copytree, self._node(node).data_folder, folder)

    # --- links -------------------------------------------------------------------------------

    async def set_links(
        self, wanted: Mapping[Link, LinkState], *, lease_s: float
    ) -> Mapping[str, Bite]:
        check_links(wanted, self._nodes, self.clients)
        for quality in (each for state in wanted.values() for each in state.values()):
            for capability in (Capability.DROP, Capability.DUPLICATE, Capability.REORDER):
                if getattr(quality, capability.value, 0) > 0:
                    raise unsupported(ENVIRONMENT, capability, _HAVE_PACKETS)
        return await self._links.set_links(wanted, lease_s)

    async def reset(self, links: Sequence[Link]) -> int:
        check_links(links, self._nodes, self.clients)
        return await self._links.reset(links)
