"""The common part of `Controls` over processes and over containers: nodes, events, logs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

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

_LABEL_CHARACTERS_MAX: Final = 40


def label_of(fault: str) -> str:
    """The id of a fault as rules and toxics can hold it: short, of letters, digits, `_`, `.`, `-`.

    Any other id is shortened and gets a digest of the whole.
    """
    text = re.sub(r"[^A-Za-z0-9_.-]", "_", fault)
    if text == fault and len(text) <= _LABEL_CHARACTERS_MAX:
        return text
    digest = hashlib.blake2b(fault.encode(), digest_size=4).hexdigest()
    return f"{text[: _LABEL_CHARACTERS_MAX - len(digest) - 1]}-{digest}"


class RealNode:
    """A node as the driver sees it, over all of its incarnations."""

    def __init__(
        self,
        spec: NodeSpec,
        log: NodeLog,
        bus: EventBus,
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """`send` hands it a line; raises `InfrastructureError`."""
        self.spec = spec
        self.log = log
        self.state = NodeState.DOWN
        self.turn = asyncio.Lock()  # held by the verb that changes the state
        self.boots = 0
        self.variant = BASE  # of its next start
        self.set_up = False
        self.watch = LineWatch(spec)
        self.ended_by_host = False
        self.power_cut: PowerCut | None = None  # in force at its next start
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
        variant = {"variant": self.variant} if self.spec.variants else {}
        self._bus.publish(self.spec.name, "node-started", {"boot": self.boots, **variant})
        self.boots += 1
        self.power_cut = None

    def exited(self, code: int, *, expected: bool, by: str, log: list[str]) -> None:
        """It has ended; `by` as in `ClusterEvent`."""
        self.ended_by_host = by == "host"
        data = {"code": code, "expected": expected, "by": by, "log": log}
        self._bus.publish(self.spec.name, "node-exited", data)

    def tell(self, what: str, *, undid: str | None = None) -> None:
        """Publish a failure of the harness or its host at the node; `undid` names the kind of fault
        that it ended early.
        """
        data = {"what": what} | ({} if undid is None else {"undid": undid})
        self._bus.publish(self.spec.name, "infrastructure", data)

    def hurried(self, *, after_s: float = 0.0) -> contextlib.AbstractAsyncContextManager[None]:
        """Let its disk hold up no request meanwhile, see `FuseDisk.hurried`."""
        return contextlib.nullcontext() if self.disk is None else self.disk.hurried(after_s=after_s)

    async def cut_power(self, cut: PowerCut | None) -> None:
        """Take the un-synced data of the node, which is dead, from a disk of ours."""
        if self.disk is not None and cut is not None:
            lost = await self.disk.cut_power(torn=cut.torn)
            self._bus.publish(self.spec.name, POWER_CUT, msgspec.structs.asdict(lost))


N = TypeVar("N", bound=RealNode)


class RealCluster(Generic[N]):
    """The nodes of one run."""

    def __init__(self, nodes: Mapping[str, N], clients: Sequence[str], bus: EventBus) -> None:
        """`nodes` are all, in declaration order; their events come over `bus`."""
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
        """Libfaketime does it for a foreign program."""
        return await self._node(node).control.skew(offset_ns=offset_ns, drift_ppm=drift_ppm)

    async def worsen_disk(self, node: str, quality: DiskQuality) -> int:
        """The disk must be ours: of a node on `Env`, or with `faulty_disk`."""
        entry = self._node(node)
        return await (entry.disk or entry.control).worsen_disk(quality)
