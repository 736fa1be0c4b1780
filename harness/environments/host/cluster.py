"""What `Cluster` is alike over processes and over containers: who is there, and what they say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from harness.cluster import (
    BASE,
    ClusterEvent,
    DiskQuality,
    NodeSpec,
    NodeState,
    Spring,
    known_node,
)
from harness.environments.fuse.disk import FuseDisk
from harness.environments.host.control import NodeControl, gather_all
from harness.environments.host.logs import EventBus, NodeLog
from harness.environments.host.power import PowerCut
from harness.environments.host.readiness import LineWatch
from harness.environments.host.watch import Interference
from harness.timeline import POWER_CUT


class RealNode:
    """A node as the driver knows it, over all of its incarnations."""

    def __init__(
        self,
        spec: NodeSpec,
        log: NodeLog,
        bus: EventBus,
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """`send` tells it a line; raises `InfrastructureError`."""
        self.spec = spec
        self.log = log
        self.state = NodeState.DOWN
        self.turn = asyncio.Lock()  # whoever has it changes the state
        self.boots = 0
        self.variant = BASE  # what it runs as, from its next start on
        self.set_up = False
        self.watch = LineWatch(spec)
        self.ended_by_host = False
        self.power_cut: PowerCut | None = None  # which its next start finds on the disk
        self.disk: FuseDisk | None = None  # one of ours, of a foreign program
        self._bus = bus
        self.control = NodeControl(
            spec,
            turn=self.turn,
            state=lambda: self.state,
            send=send,
            springs_have_run=bus.springs_have_run,
        )
        bus.stop_with_traps(self.control.stop_at)
        if spec.entry is not None:
            log.on_answer = self.control.hear

    def watch_start(self) -> None:
        """An incarnation is about to begin, and may print at once."""
        self.watch = self.log.on_line = LineWatch(self.spec)
        self.ended_by_host = False

    def started(self) -> None:
        """It has begun."""
        self.state = NodeState.RUNNING
        self.control.started(self.boots)
        said = {"variant": self.variant} if self.spec.variants else {}
        self._bus.publish(self.spec.name, "node-started", {"boot": self.boots, **said})
        self.boots += 1
        self.power_cut = None

    def exited(self, code: int, *, expected: bool, by: str, log: list[str]) -> None:
        """It has ended; `by` as in `ClusterEvent`."""
        self.ended_by_host = by == "host"
        data = {"code": code, "expected": expected, "by": by, "log": log}
        self._bus.publish(self.spec.name, "node-exited", data)

    def tell(self, what: str, *, undid: str | None = None) -> None:
        """Publish what the harness or its host did not do for the node; `undid` names the kind of
        fault that was over before its time by that.
        """
        data = {"what": what} | ({} if undid is None else {"undid": undid})
        self._bus.publish(self.spec.name, "infrastructure", data)

    def hurried(self, *, after_s: float = 0.0) -> contextlib.AbstractAsyncContextManager[None]:
        """Let its disk hold nobody up meanwhile, see `FuseDisk.hurried`."""
        return contextlib.nullcontext() if self.disk is None else self.disk.hurried(after_s=after_s)

    async def cut_power(self, cut: PowerCut | None) -> None:
        """Take from a disk of ours what the node, which is dead, has not synced."""
        if self.disk is not None and cut is not None:
            lost = await self.disk.cut_power(torn=cut.torn)
            self._bus.publish(self.spec.name, POWER_CUT, msgspec.structs.asdict(lost))


N = TypeVar("N", bound=RealNode)


class RealCluster(Generic[N]):
    """The nodes of one run."""

    def __init__(self, nodes: Mapping[str, N], clients: Sequence[str], bus: EventBus) -> None:
        """`nodes` are all, in declaration order; what happens to them comes over `bus`."""
        self._nodes = nodes
        self.clients = clients
        self._bus = bus
        self.aliases: dict[str, str] = {}
        self._specs = {name: node.spec for name, node in nodes.items()}

    def stopped_disks(self) -> dict[str, Interference]:
        """By node, the disks of ours whose server another program stopped."""
        stopped = [n for n, each in self._nodes.items() if each.disk and each.disk.stopped]
        return {
            name: Interference(f"the disk of {name} was stopped, and not by the harness")
            for name in stopped
        }

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
        return self._bus.trap(kind, spring)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Have `callback` called in so long, on the driver's loop."""
        asyncio.get_running_loop().call_later(delay_s, callback)

    async def logs(self, node: str, *, last_lines: int = 50) -> list[str]:
        """The end of the node's log."""
        return self._node(node).log.tail(last_lines)

    async def alias(self, name: str, node: str) -> None:
        """From now on the name of one node leads to another; in force on return."""
        self.aliases[self._node(name).spec.name] = self._node(node).spec.name
        await gather_all(each.control.lead(self.aliases) for each in self._nodes.values())

    async def skew(self, node: str, *, offset_ns: int, drift_ppm: int = 0) -> int | None:
        """Make the clock that the node sees wrong; a foreign program's by libfaketime."""
        return await self._node(node).control.skew(offset_ns=offset_ns, drift_ppm=drift_ppm)

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """Make the disk that the node sees bad, which must be ours: `Env`, or `faulty_disk`."""
        entry = self._node(node)
        return await (entry.disk or entry.control).worsen_disk(quality)
