"""Puts link faults on containers as packet rules, and removes them.

A fault is a cut, a quality of links, or a quality of the byte streams on links. Each kind is a set
of packet rules, and all kinds are removed in the same way. One lock serializes all changes, so
counters are never read while rules change.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

from harness.cluster import (
    STREAMS,
    Bite,
    Capability,
    Link,
    LinkQuality,
    LinkState,
    StreamQuality,
    check_links,
    is_client,
)
from harness.environments.docker.capabilities import LINK_QUALITY, check_shape
from harness.environments.docker.deploy import Blueprint
from harness.environments.docker.engine.engine import Engine, ExecResult
from harness.environments.docker.network import netem, rules, streams
from harness.environments.docker.undo import undo_by
from harness.environments.host.cluster import label_of
from harness.environments.host.control import gather_all
from harness.environments.toxiproxy.toxics import toxics_of
from harness.environments.warden import AFTER_LEASE_S, Warden
from harness.errors import InfrastructureError, UsageError, counted
from harness.timeline import CUT, SHAPE

_ENDED: Final = {
    rules.Table.SHAPE: "the program that held packets on the links of {} had already ended when "
    "they were healed: since its end the links had no fault",
    rules.Table.STREAM: "the proxy of the streams of {} had already ended when they were healed: "
    "since its end no program answered there",
}
_NETEM_ENDED: Final = (
    "the emulators of the links of {} were already gone when they were healed: the links had no "
    "fault since then"
)
_KINDS: Final = {
    rules.Table.CUT: CUT,
    rules.Table.SHAPE: SHAPE,
    rules.Table.STREAM: SHAPE,
}
"""Map each table of packet rules to the name, in the history, of the faults that use it."""


class _Fault:
    """One fault and the links that it currently affects."""

    def __init__(self, label: str, quality: LinkQuality | StreamQuality | None, bit: int) -> None:
        self.label = label
        self.quality = quality
        self.table = rules.Table.for_quality(quality)
        self.bit = bit  # the bit that marks packets of this fault
        self.links: set[Link] = set()
        # links that netem shapes in the source's namespace
        self.by_kernel: frozenset[Link] = frozenset()
        self.counting: dict[str, frozenset[Link]] = {}  # node: links whose packets its rules count

    def at(self, links: Collection[Link]) -> dict[str, list[Link]]:
        """Map nodes to the `links` for which this fault has rules in the node's namespace."""
        at: dict[str, list[Link]] = {}
        for link in sorted(links):
            kernel = link in self.by_kernel
            for node in (link.source,) if kernel else rules.owners(link, self.table):
                at.setdefault(node, []).append(link)
        return dict(sorted(at.items()))

    def patterns(self, links: Collection[Link]) -> list[str]:
        """Return the patterns that select this fault's rules and toxics on these links."""
        if {*links} == self.links:
            return rules.select_fault(self.label)
        says: list[str] = []
        if isinstance(self.quality, LinkQuality):
            says = [rules.text_of(self.quality)]
        elif self.quality is not None:
            says = [kind for kind, _ in toxics_of(self.quality)]
        return rules.select_links(self.label, sorted(links), says)


class LinkFaults:
    """All link faults of one run."""

    def __init__(
        self,
        blueprint: Blueprint,
        engine: Engine,
        in_thread: Callable[..., Awaitable[Any]],
        warden: Warden,
        tell: Callable[[str, str, str], None],
        provide_proxy: Callable[[str], None],
    ) -> None:
        """Make an empty record of link faults.

        When a fault ends early, `tell` gets an affected node, the reason, and the kind of fault.
        `provide_proxy` starts a Toxiproxy in a node's namespace unless one is running.
        """
        self._tell = tell
        self._warden = warden
        self._provide_proxy = provide_proxy
        self._ports = {name: spec.ports for name, spec in blueprint.specs.items()}
        self._places = blueprint.places
        self._addresses = blueprint.addresses
        self._clients = blueprint.clients
        self._engine = engine
        self._in_thread = in_thread
        self._faults: dict[str, _Fault] = {}
        self._lock = asyncio.Lock()
        self._bits = collections.deque(
            rules.FAULT_BITS
        )  # free mark bits; the one that was freed first is first
        self._missing: dict[Capability, str] = {}
        self._has_netem = False
        self._classes: dict[int, int] = {}  # set of mark bits: number of the netem class
        # (node, mark bits): netem's quality
        self._emulated: dict[tuple[str, int], LinkQuality] = {}

    async def missing(self) -> dict[Capability, str]:
        """Test the engine's kernel and prepare netem; map each missing capability to the reason."""
        keeper = next(iter(self._places.values())).keeper
        for able, command in (
            ([Capability.DUPLICATE], rules.probe_twice_command()),
            (LINK_QUALITY, rules.probe_command()),
            (STREAMS, streams.probe_command()),
        ):
            result = await self._in_thread(self._engine.exec, keeper, command)
            if result.code != 0:
                why = result.output.strip()[-500:] or f"code {result.code}"
                self._missing |= dict.fromkeys(able, why)
        probed = await self._in_thread(self._engine.exec, keeper, netem.probe_command())
        if probed.code == 0:
            await self._run(dict.fromkeys(self._places, netem.prepare_command()))
            self._has_netem = True
        return self._missing

    async def set_links(self, wanted: Mapping[Link, LinkState], lease_s: float) -> dict[str, Bite]:
        """Put links into these states (see `harness.cluster.Controls.set_links`)."""
        check_links(wanted, self._places, self._clients)
        qualities = {fault: each for state in wanted.values() for fault, each in state.items()}
        for quality in qualities.values():
            if quality is not None:
                check_shape(quality, self._missing)
        async with self._lock:
            bites = {}
            for fault_id, fault in list(self._faults.items()):
                gone = {
                    link for link in fault.links & wanted.keys() if fault_id not in wanted[link]
                }
                if gone:
                    bites[fault_id] = await self._take_off(fault, gone)
                if not fault.links:
                    self._warden.release(f"link:{fault_id}")
                    self._forget(fault_id)
            for fault_id, quality in qualities.items():
                if fault_id not in self._faults:
                    links = {link for link, state in wanted.items() if fault_id in state}
                    await self._lay(fault_id, quality, links, lease_s)
            return bites

    def _forget(self, fault_id: str) -> None:
        fault = self._faults.pop(fault_id)
        if fault.bit:
            self._bits.append(fault.bit)

    async def _run(self, commands: dict[str, list[str]]) -> dict[str, ExecResult]:
        """Run one command in each node's namespace, all at the same time; wait for all of them."""

        async def one(node: str, command: list[str]) -> ExecResult:
            keeper = self._places[node].keeper
            result: ExecResult = await self._in_thread(self._engine.exec, keeper, command)
            if result.code != 0:
                raise InfrastructureError(
                    f"docker: `{command[3]}` failed with code {result.code} in {keeper}: "
                    f"{result.output.strip()[-500:]}"
                )
            return result

        answers = await gather_all(one(node, command) for node, command in commands.items())
        return dict(zip(commands, answers, strict=True))

    async def _lay(
        self,
        fault_id: str,
        quality: LinkQuality | StreamQuality | None,
        links: set[Link],
        lease_s: float,
    ) -> None:
        """Put a fault on links. It is recorded first, so it can be removed even if this fails."""
        bit = 0
        if isinstance(quality, LinkQuality):
            if not self._bits:
                raise UsageError(
                    f"{len(rules.FAULT_BITS)} faults of link quality are in force, which is the "
                    "maximum; heal a fault first"
                )
            bit = self._bits.popleft()
        fault = self._faults[fault_id] = _Fault(label_of(fault_id), quality, bit)
        fault.links = links
        if self._has_netem and isinstance(quality, LinkQuality):
            fault.by_kernel = frozenset(link for link in links if netem.reaches(link, quality))
        at = fault.at(links)
        keepers = [self._places[node].keeper for node in at]
        heal = undo_by("heal", fault.table.name, fault.label, *keepers)
        self._warden.guard(f"link:{fault_id}", heal, deadline_s=lease_s + AFTER_LEASE_S)
        if fault.table is rules.Table.STREAM:
            proxies = (self._in_thread(self._provide_proxy, node) for node in at)
            await asyncio.gather(*proxies)
        await self._set_emulators()
        await self._run({node: self._command(fault, node, each) for node, each in at.items()})
        fault.counting = {node: self._counting(fault, node, each) for node, each in at.items()}

    def _counting(self, fault: _Fault, node: str, links: Sequence[Link]) -> frozenset[Link]:
        """Return the links whose packets or connections are counted in the node's namespace."""
        if fault.table is rules.Table.STREAM:
            return streams.counting_links(node, links, self._ports)
        return frozenset(links)

    def _command(self, fault: _Fault, node: str, links: Sequence[Link]) -> list[str]:
        label, addresses = fault.label, self._addresses
        match fault.quality:
            case None:
                return rules.cut_command(label, links, addresses)
            case LinkQuality() as quality:
                marked = [link for link in links if link in fault.by_kernel]
                held = [link for link in links if link not in fault.by_kernel]
                if not held:
                    return rules.mark_command(label, marked, fault.bit, addresses)
                return rules.shape_command(
                    label, held, quality, fault.bit, addresses, marked=marked
                )
            case quality:
                return streams.stream_command(label, node, links, quality, addresses, self._ports)

    async def _set_emulators(
        self, leaving: _Fault | None = None, links: Collection[Link] = ()
    ) -> None:
        """Give each link's netem the combined quality of all faults on the link.

        The fault `leaving` does not count on `links`, because it is about to be removed there.
        """
        wanted: dict[tuple[str, int], LinkQuality] = {}
        shaped = [
            (fault, (fault.by_kernel & fault.links) - {*(links if fault is leaving else ())})
            for fault in self._faults.values()
        ]
        for link in {link for _, on in shaped for link in on}:
            here = [fault for fault, on in shaped if link in on]
            qualities = [each.quality for each in here if isinstance(each.quality, LinkQuality)]
            bits = sum(fault.bit for fault in here)
            wanted[link.source, bits] = LinkQuality.together(qualities)
        commands: dict[str, dict[int, tuple[int, LinkQuality]]] = {}
        for (node, bits), quality in wanted.items():
            if self._emulated.get((node, bits)) != quality:
                number = self._classes.setdefault(bits, len(self._classes) + 1)
                commands.setdefault(node, {})[number] = (bits, quality)
        await self._run({node: netem.set_command(each) for node, each in commands.items()})
        self._emulated |= wanted

    async def _take_off(self, fault: _Fault, links: set[Link]) -> Bite:
        """Delete the fault's rules on these links. Returns the effect that the rules counted."""
        command = rules.heal_command(fault.patterns(links), fault.table)
        at = fault.at(links)
        # prepare the classes that the remaining faults need
        await self._set_emulators(fault, links)
        touched, undone = 0, False
        for node, result in (await self._run(dict.fromkeys(at, command))).items():
            counts = rules.counted_packets(result.output)
            touched += sum(counts.get((fault.label, link), 0) for link in at[node])
            counting = fault.counting.get(node, frozenset()) & links
            if lost := sorted(link for link in counting if (fault.label, link) not in counts):
                undone = True
                self._tell_lost(fault, lost)
            held = [link for link in at[node] if link not in fault.by_kernel]
            if len(held) < len(at[node]) and not netem.met_packets(result.output):
                self._tell(node, _NETEM_ENDED.format(node), _KINDS[fault.table])
            if held and not rules.is_served(result.output, fault.table):
                self._tell(node, _ENDED[fault.table].format(node), _KINDS[fault.table])
        fault.links -= links
        unit = "connections" if fault.table is rules.Table.STREAM else "packets"
        return Bite(touched, unit, undone=undone)

    def _tell_lost(self, fault: _Fault, links: list[Link]) -> None:
        """Report links whose rules were gone before the fault was removed.

        Another program removed the rules: the driver and the warden would have kept the counts.
        """
        named = ", ".join(f"{link.source} > {link.destination}" for link in links)
        what = (
            f"the rules of {fault.label} on {named:.200} had been removed, and not by the harness"
        )
        for node in sorted({end for link in links for end in (link.source, link.destination)}):
            if not is_client(node):
                self._tell(node, what, _KINDS[fault.table])

    async def reset(self, links: Sequence[Link]) -> int:
        """Abort the connections between the ends of these links; returns how many were aborted."""
        check_links(links, self._places, self._clients)
        peers: dict[str, set[str]] = {}
        # Aborting one end of a connection also resets the other end, so each pair needs one
        # command.
        for low, high in sorted({tuple(sorted((link.source, link.destination))) for link in links}):
            node, peer = (high, low) if is_client(low) else (low, high)
            peers.setdefault(node, set()).add(self._addresses[peer])
        ends = {node: sorted(peers[node]) for node in sorted(peers)}
        async with self._lock:
            listed = await self._run({node: rules.list_command(at) for node, at in ends.items()})
            reset = await self._run({node: rules.reset_command(at) for node, at in ends.items()})
        count = 0
        for node, result in listed.items():
            before = rules.connections(result.output)
            left = before & rules.connections(reset[node].output)  # new connections do not count
            if before and before == left:
                raise InfrastructureError(
                    f"docker: none of {counted(len(before), 'connection')} of node {node!r} could "
                    "be reset; the engine's kernel needs CONFIG_INET_DIAG_DESTROY"
                )
            count += len(before - left)
        return count
