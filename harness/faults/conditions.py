"""What clocks, processors and disks feel: all faults that are on them at once.

Offsets, drifts and delays add up to what is possible, factors multiply, and of independent errors
any is one. Each
change sets what the node then has as a whole, so nothing depends on the order in which faults go.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Final

from harness.cluster import DRIFT_PPM_MAX, DRIFT_PPM_MIN, Bite, Cluster, DiskQuality
from harness.env import ClientEnv
from harness.nodes.faults import Clock, Condition, Cpu, Disk

_MS_PER_S: Final = 1000
_NS_PER_MS: Final = 1_000_000
_PPM: Final = 1_000_000


class _Laid:
    """One fault on some nodes."""

    def __init__(self, what: Condition, nodes: Sequence[str], now_ns: int) -> None:
        self.what = what
        self.nodes = list(nodes)
        self.hit = self.unmeasured = len(nodes)
        self.since_ns = now_ns
        self.touched = 0.0  # requests of disks, or ms by which wall clocks jumped
        self.new = True  # what happened so far was before it
        self.dark = False  # the offset of a strobe between two flashes
        self.strobe: asyncio.Task[None] | None = None


class Conditions:
    """The clocks, processors and disks of one run's nodes."""

    def __init__(self, cluster: Cluster, env: ClientEnv) -> None:
        """All are well. Strobes are tasks of `env`."""
        self._cluster = cluster
        self._env = env
        self._laid: dict[str, _Laid] = {}
        self._offsets_ms: dict[str, float] = {}
        self._measured: set[str] = set()  # nodes of which it is said what they felt of a drift
        self._turn = asyncio.Lock()

    async def lay(self, fault_id: str, what: Condition, nodes: Sequence[str]) -> None:
        """Make it worse for these nodes."""
        laid = self._laid[fault_id] = _Laid(what, nodes, self._env.clock.monotonic_ns())
        try:
            await self._settle(laid, nodes)
        except BaseException:
            del self._laid[fault_id]  # nobody would heal it
            raise
        laid.unmeasured = sum(node not in self._measured for node in nodes)
        laid.new = False
        if isinstance(what, Clock) and what.strobe_ms:
            flashes = self._flash(laid, what.strobe_ms / _MS_PER_S)
            laid.strobe = self._env.spawn(flashes, name=f"strobe-{fault_id}")

    async def lift(self, fault_id: str) -> Bite:
        """Take one fault away and say what it did."""
        laid = self._laid.pop(fault_id)
        if laid.strobe is not None:
            async with self._turn:  # a change that is under way comes to its end
                laid.strobe.cancel()
        try:
            await self._settle(laid, laid.nodes)
        except BaseException:
            self._laid[fault_id] = laid  # still there, for whoever tries again
            raise
        match laid.what:
            case Clock():
                lasted_ms = (self._env.clock.monotonic_ns() - laid.since_ns) / _NS_PER_MS
                drifted_ms = abs(laid.what.drift_ppm) * lasted_ms / _PPM * laid.unmeasured
                return Bite(math.ceil(laid.touched + drifted_ms), "ms")
            case Disk():
                return Bite(int(laid.touched), "requests")
            case _:
                return Bite(laid.hit, "processes")

    async def relieve(self, nodes: Iterable[str]) -> None:
        """Make all well for these nodes, whatever fault is on them."""
        wanted = set(nodes)
        # Processors first: a node that is slow may not live to hear of the rest in time.
        for laid in sorted(self._laid.values(), key=lambda each: not isinstance(each.what, Cpu)):
            those = [node for node in laid.nodes if node in wanted]
            laid.nodes = [node for node in laid.nodes if node not in wanted]
            await self._settle(laid, those)

    async def _settle(self, changed: _Laid, nodes: Sequence[str]) -> None:
        """Set what these nodes have now of the sort that has changed."""
        async with self._turn:
            for node in nodes:
                await self._settle_node(changed, node)

    async def _settle_node(self, changed: _Laid, node: str) -> None:
        """A fault that comes or goes has felt, or feels, this change as well."""
        laid = [one for one in self._laid.values() if node in one.nodes]
        concerned = [*laid, *([] if changed in laid else [changed])]
        kind = type(changed.what)
        if kind is Clock:
            clocks = [(one, one.what) for one in laid if isinstance(one.what, Clock)]
            offset_ms = sum(clock.offset_ms for one, clock in clocks if not one.dark)
            drifts_ppm = sum(clock.drift_ppm for _, clock in clocks)
            drift_ppm = max(DRIFT_PPM_MIN, min(drifts_ppm, DRIFT_PPM_MAX))
            offset_ns = round(offset_ms * _NS_PER_MS)
            felt_ms = await self._cluster.skew(node, offset_ns=offset_ns, drift_ppm=drift_ppm)
            touched = abs(offset_ms - self._offsets_ms.get(node, 0.0))
            self._offsets_ms[node] = offset_ms
            if felt_ms is not None:
                touched = felt_ms
                self._measured.add(node)
        elif kind is Cpu:
            factors = [one.what.factor for one in laid if isinstance(one.what, Cpu)]
            await self._cluster.slow(node, factor=math.prod(factors))
            return
        else:
            disks = [one.what.quality for one in laid if isinstance(one.what, Disk)]
            touched = await self._cluster.worsen_disk(node, DiskQuality.together(disks).bounded())
        for one in concerned:
            if type(one.what) is kind and not (kind is Disk and one.new):
                one.touched += touched

    async def _flash(self, laid: _Laid, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            # To change a real clock and to measure it takes a part of the time between two flashes.
            due_s = max(due_s + wait_s, loop.time())
            await asyncio.sleep(due_s - loop.time())
            laid.dark = not laid.dark
            await self._settle(laid, laid.nodes)
