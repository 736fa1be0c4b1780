"""The states of links, clocks, processors and disks that result from all active faults together.

Offsets, drifts and delays add up, limited to the possible maximum. Factors multiply. Probabilities
of errors combine as independent events. A link is cut while any fault cuts it. Each change sets the
whole state of a node or link, so the order in which faults end does not matter.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from harness.cluster import (
    DRIFT_PPM_MAX,
    DRIFT_PPM_MIN,
    Bite,
    Controls,
    DiskQuality,
    Link,
    LinkQuality,
    StreamQuality,
)
from harness.env import ClientEnv
from harness.errors import UsageError
from harness.nodes.faults import Clock, Condition, Cpu, Cut, Disk, Shape, Stream
from harness.ops import NS_PER_MS

_MS_PER_S: Final = 1000
_PPM: Final = 1_000_000


class _OnLinks:
    """One fault, with the links on which it is active."""

    def __init__(self, quality: LinkQuality | StreamQuality | None, links: Iterable[Link]) -> None:
        self.quality = quality  # `None` for a cut
        self.links = frozenset(links)
        self.bite = Bite(0, "")

    def add(self, bite: Bite) -> None:
        unmeasured = self.bite.count is None or bite.count is None
        count = None if unmeasured else (self.bite.count or 0) + (bite.count or 0)
        self.bite = Bite(count, bite.unit, undone=self.bite.undone or bite.undone)


class Links:
    """The links of one run, with the faults on them."""

    def __init__(self, controls: Controls) -> None:
        self._controls = controls
        self._laid: dict[str, _OnLinks] = {}

    async def lay(
        self, fault_id: str, what: Cut | Shape | Stream, links: Iterable[Link], lease_s: float
    ) -> None:
        """Apply the fault `what`, a cut or a quality, to `links`."""
        quality = None if isinstance(what, Cut) else what.quality
        laid = _OnLinks(quality, links)
        if not laid.links:
            raise UsageError("a link fault needs at least one link")
        if quality is not None:
            quality.check()
            if quality == type(quality)():
                raise UsageError(f"{quality} has no effect on the links; set delay_ms, ...")
        self._laid[fault_id] = laid
        try:
            await self._settle(laid.links, lease_s)
        except BaseException as error:
            del self._laid[fault_id]
            # a `UsageError` is raised before anything changes
            if not isinstance(error, UsageError):
                await self._settle(laid.links, lease_s)
            raise

    async def lift(self, fault_id: str) -> Bite:
        laid = self._laid[fault_id]
        await self._take_off(laid, laid.links)
        del self._laid[fault_id]
        return laid.bite

    async def relieve(self, ends: Collection[str]) -> None:
        """Make all links among these ends work normally. Faults stay active on other links."""
        for laid in list(self._laid.values()):
            inside = [each for each in laid.links if {each.source, each.destination} <= {*ends}]
            await self._take_off(laid, frozenset(inside))

    async def _take_off(self, laid: _OnLinks, links: frozenset[Link]) -> None:
        laid.links -= links
        try:
            await self._settle(links, 0.0)
        except BaseException:
            laid.links |= links  # a later attempt must restore these links, too
            raise

    async def _settle(self, links: Iterable[Link], lease_s: float) -> None:
        """Set `links` to the combined state of all faults, and record what the faults affected."""
        wanted = {
            link: {name: each.quality for name, each in self._laid.items() if link in each.links}
            for link in sorted(links)
        }
        bites = await self._controls.set_links(wanted, lease_s=lease_s) if wanted else {}
        for fault_id, bite in bites.items():
            if fault_id in self._laid:
                self._laid[fault_id].add(bite)


class _Laid:
    """One fault, with the nodes on which it is active."""

    def __init__(self, what: Condition, nodes: Sequence[str], now_ns: int) -> None:
        self.what = what
        self.nodes = list(nodes)
        self.hit = self.unmeasured = len(nodes)
        self.since_ns = now_ns
        self.touched = 0.0  # affected disk requests, or ms by which wall clocks jumped
        self.new = True  # not applied yet, so earlier disk requests do not count
        self.dark = False  # a strobing clock has no offset at the moment
        self.strobe: asyncio.Task[None] | None = None


class Conditions:
    """The clocks, processors and disks of one run's nodes, with the faults on them."""

    def __init__(self, controls: Controls, env: ClientEnv) -> None:
        """Start with no fault on any node. Strobe faults run as tasks of `env`."""
        self._controls = controls
        self._env = env
        self._laid: dict[str, _Laid] = {}
        self._offsets_ms: dict[str, float] = {}
        self._measured: set[str] = set()  # nodes that report the measured effect of a drift
        self._turn = asyncio.Lock()

    async def lay(self, fault_id: str, what: Condition, nodes: Sequence[str]) -> None:
        laid = self._laid[fault_id] = _Laid(what, nodes, self._env.clock.monotonic_ns())
        try:
            await self._settle(laid, nodes)
        except BaseException:
            del self._laid[fault_id]
            raise
        laid.unmeasured = sum(node not in self._measured for node in nodes)
        laid.new = False
        if isinstance(what, Clock) and what.strobe_ms:
            flashes = self._flash(laid, what.strobe_ms / _MS_PER_S)
            laid.strobe = self._env.spawn(flashes, name=f"strobe-{fault_id}")

    async def lift(self, fault_id: str) -> Bite:
        laid = self._laid.pop(fault_id)
        if laid.strobe is not None:
            async with self._turn:  # wait for the end of a change in progress
                laid.strobe.cancel()
        try:
            await self._settle(laid, laid.nodes)
        except BaseException:
            self._laid[fault_id] = laid  # so that a later attempt can lift the fault
            raise
        match laid.what:
            case Clock():
                lasted_ms = (self._env.clock.monotonic_ns() - laid.since_ns) / NS_PER_MS
                drifted_ms = abs(laid.what.drift_ppm) * lasted_ms / _PPM * laid.unmeasured
                return Bite(math.ceil(laid.touched + drifted_ms), "ms")
            case Disk():
                return Bite(int(laid.touched), "requests")
            case _:
                return Bite(laid.hit, "processes")

    async def relieve(self, nodes: Iterable[str]) -> None:
        """Restore the clocks, processors and disks of these nodes, although faults are active."""
        wanted = set(nodes)
        # Processors first: a slow node might fail before it learns of the other changes.
        for laid in sorted(self._laid.values(), key=lambda each: not isinstance(each.what, Cpu)):
            relieved = [node for node in laid.nodes if node in wanted]
            laid.nodes = [node for node in laid.nodes if node not in wanted]
            await self._settle(laid, relieved)

    async def _settle(self, changed: _Laid, nodes: Sequence[str]) -> None:
        """Set the part of these nodes that `changed` affects: clocks, processors or disks."""
        async with self._turn:
            for node in nodes:
                await self._settle_node(changed, node)

    async def _settle_node(self, changed: _Laid, node: str) -> None:
        """Apply all faults of `changed`'s kind to a node, and add up what each of them affected."""
        laid = [each for each in self._laid.values() if node in each.nodes]
        concerned = [*laid, *([] if changed in laid else [changed])]
        kind = type(changed.what)
        if kind is Clock:
            clocks = [(each, each.what) for each in laid if isinstance(each.what, Clock)]
            offset_ms = sum(clock.offset_ms for each, clock in clocks if not each.dark)
            drifts_ppm = sum(clock.drift_ppm for _, clock in clocks)
            drift_ppm = max(DRIFT_PPM_MIN, min(drifts_ppm, DRIFT_PPM_MAX))
            offset_ns = round(offset_ms * NS_PER_MS)
            felt_ms = await self._controls.skew(node, offset_ns=offset_ns, drift_ppm=drift_ppm)
            touched = abs(offset_ms - self._offsets_ms.get(node, 0.0))
            self._offsets_ms[node] = offset_ms
            if felt_ms is not None:
                touched = felt_ms
                self._measured.add(node)
        elif kind is Cpu:
            factors = [each.what.factor for each in laid if isinstance(each.what, Cpu)]
            await self._controls.slow(node, factor=math.prod(factors))
            return
        else:
            disks = [each.what.quality for each in laid if isinstance(each.what, Disk)]
            touched = await self._controls.worsen_disk(node, DiskQuality.together(disks).bounded())
        for each in concerned:
            if type(each.what) is kind and not (kind is Disk and each.new):
                each.touched += touched

    async def _flash(self, laid: _Laid, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            # Changing and measuring a real clock takes part of the time between two changes.
            due_s = max(due_s + wait_s, loop.time())
            await asyncio.sleep(due_s - loop.time())
            laid.dark = not laid.dark
            await self._settle(laid, laid.nodes)
