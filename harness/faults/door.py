"""The public interface to a cluster: the environment's nodes, and faults through the ledger.

The ledger (`harness.faults.ledger`) is the record of a run's faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.cluster import (
    Bite,
    Capability,
    ClusterEvent,
    Controls,
    Fidelity,
    Link,
    NodeSpec,
    NodeState,
    Spring,
    Usage,
)
from harness.errors import UsageError
from harness.faults.ledger import Ledger
from harness.nodes.faults import Aim, FaultKind, LinkFault


class Door:
    """A cluster on which faults can be injected (see `harness.cluster.Cluster`)."""

    def __init__(self, controls: Controls, ledger: Ledger) -> None:
        """`controls` comes from the environment. `ledger` is the run's ledger on these controls."""
        self._controls = controls
        self._ledger = ledger

    @property
    def environment(self) -> str:
        return self._controls.environment

    @property
    def capabilities(self) -> Mapping[Capability, Fidelity]:
        return self._controls.capabilities

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        return self._controls.nodes

    @property
    def clients(self) -> Sequence[str]:
        return self._controls.clients

    @property
    def aliases(self) -> Mapping[str, str]:
        return self._controls.aliases

    def state(self, node: str) -> NodeState:
        return self._controls.state(node)

    def subscribe(self, callback: Callable[[ClusterEvent], None]) -> None:
        self._controls.subscribe(callback)

    def trap(self, kind: str, spring: Spring) -> Callable[[], None]:
        return self._controls.trap(kind, spring)

    async def start(self, node: str, variant: str | None = None) -> bool:
        return await self._controls.start(node, variant)

    async def stop(self, node: str) -> bool:
        return await self._controls.stop(node)

    async def wipe(self, node: str) -> bool:
        return await self._controls.wipe(node)

    async def wait_ready(self, node: str) -> str | None:
        return await self._controls.wait_ready(node)

    async def alias(self, name: str, node: str) -> None:
        await self._controls.alias(name, node)

    async def usage(self, node: str) -> Usage:
        return await self._controls.usage(node)

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        return await self._controls.logs(node, last_lines=last_lines)

    async def inject(
        self, fault: FaultKind, on: Sequence[str] | Sequence[Link], *, lease_s: float
    ) -> str:
        links = tuple(each for each in on if isinstance(each, Link))
        if len(links) not in {0, len(on)} or bool(links) != isinstance(fault, LinkFault):
            raise UsageError(
                f"{fault} is on {list(on)}; link faults need links, other faults need nodes"
            )
        ends = {end for link in links for end in (link.source, link.destination)}
        nodes = sorted(ends) if links else [str(node) for node in on]
        aim = Aim(what=fault, targets=tuple(nodes), links=links)
        injection = await self._ledger.inject(aim, lease_s=lease_s, groups={})
        if not injection.targets:
            raise UsageError(f"{fault} hit nothing: {injection.note}")
        return injection.id

    async def heal(self, fault: str) -> Bite:
        return await self._ledger.heal(fault)
