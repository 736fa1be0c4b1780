"""Link faults as the driver keeps them: which rules each fault has where, and what it has touched.

A fault is a cut, or a quality that its links or the streams on them are shaped to; all are rules
and are healed alike.
One lock orders all changes, so counters are never read while rules move. A fault may be healed in
parts (`heal_among`); what its deleted rules had counted stays on its account.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from harness.cluster import (
    STREAMS,
    Bite,
    Capability,
    Link,
    LinkQuality,
    StreamQuality,
    check_links,
    is_client,
)
from harness.environments.docker.capabilities import LINK_QUALITY
from harness.environments.docker.deploy import Blueprint
from harness.environments.docker.engine.engine import Engine, ExecResult
from harness.environments.docker.network import rules, streams
from harness.environments.host.control import gather_all
from harness.errors import InfrastructureError, UsageError
from harness.timeline import CUT, SHAPE

T = TypeVar("T")
_FAULTS_MAX: Final = 100_000
_ENDED: Final = {
    rules.Table.SHAPE: "the program that held packets on the links of {} had ended when they were "
    "healed: from then on they were whole",
    rules.Table.STREAM: "the proxy of the streams of {} had ended when they were healed: from then "
    "on nobody answered there",
}
_KINDS: Final = {
    rules.Table.CUT: CUT,
    rules.Table.SHAPE: SHAPE,
    rules.Table.STREAM: SHAPE,
}
"""The word for such a fault in the history."""


class InThread(Protocol):
    """Runs a blocking call in a thread."""

    def __call__(self, call: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        """What `call(*arguments)` returns."""
        ...


class _Fault:
    def __init__(
        self, links: Sequence[Link], quality: LinkQuality | StreamQuality | None, bit: int
    ) -> None:
        self.links = set(links)  # those it still lies on
        self.table = rules.Table.for_quality(quality)
        self.owners = sorted({node for link in links for node in rules.owners(link, self.table)})
        self.quality = quality
        self.bit = bit  # what the packets of a shaped link wear
        self.touched = 0
        self.laid: dict[str, frozenset[Link]] = {}  # what counts where, once it is in force
        self.undone = False  # by another program than the harness and its warden

    def links_at(self, node: str) -> list[Link]:
        """Those for which it has rules in the node's namespace."""
        return sorted(link for link in self.links if node in rules.owners(link, self.table))


class LinkFaults:
    """All link faults of one run."""

    def __init__(
        self,
        blueprint: Blueprint,
        engine: Engine,
        in_thread: InThread,
        tell: Callable[[str, str, str], None],
        provide_proxy: Callable[[str], None],
    ) -> None:
        """`tell` hears of a node on whose links a fault did not do what was asked, why, and of
        which kind that fault was.

        `provide_proxy` has a Toxiproxy run in a node's namespace, if none does.
        """
        self._tell = tell
        self._provide_proxy = provide_proxy
        self._ports = {name: spec.ports for name, spec in blueprint.specs.items()}
        self._places = blueprint.places
        self._addresses = blueprint.addresses
        self._clients = blueprint.clients
        self._engine = engine
        self._in_thread = in_thread
        self._faults: dict[str, _Fault] = {}
        self._lock = asyncio.Lock()
        self._bits = collections.deque(rules.FAULT_BITS)  # the one unused for longest first

    async def missing(self) -> dict[Capability, str]:
        """What the engine's kernel cannot do, and why; which is the same for all nodes."""
        keeper = next(iter(self._places.values())).keeper
        found: dict[Capability, str] = {}
        for able, command in (
            ([Capability.DUPLICATE], rules.probe_twice_command()),
            (LINK_QUALITY, rules.probe_command()),
            (STREAMS, streams.probe_command()),
        ):
            result = await self._in_thread(self._engine.exec, keeper, command)
            if result.code != 0:
                why = result.output.strip()[-500:] or f"code {result.code}"
                found |= dict.fromkeys(able, why)
        return found

    def plan(
        self, links: Sequence[Link], quality: LinkQuality | StreamQuality | None = None
    ) -> str:
        """Register a fault that is not injected yet: a cut, or a quality; returns its id.

        Raises `UsageError`.
        """
        check_links(links, self._places, self._clients)
        if len(self._faults) >= _FAULTS_MAX:
            raise UsageError(f"{_FAULTS_MAX} link faults in one run; use fewer or longer intervals")
        bit = 0
        if isinstance(quality, LinkQuality):
            if not self._bits:
                raise UsageError(
                    f"{len(rules.FAULT_BITS)} faults of link quality at once; heal some first"
                )
            bit = self._bits.popleft()
        fault = _Fault(links, quality, bit)
        name = fault.table.fault_id(len(self._faults))
        self._faults[name] = fault
        return name

    def keepers(self, fault: str) -> list[str]:
        """The containers in whose namespaces the fault has rules."""
        return [self._places[node].keeper for node in self._faults[fault].owners]

    def active(self) -> list[str]:
        """The faults that still lie on a link, in order of injection."""
        return [name for name, fault in self._faults.items() if fault.links]

    async def _run(self, commands: dict[str, list[str]]) -> dict[str, ExecResult]:
        """Run one command in each of several namespaces at once; waits for all of them."""

        async def one(node: str, command: list[str]) -> ExecResult:
            keeper = self._places[node].keeper
            result = await self._in_thread(self._engine.exec, keeper, command)
            if result.code != 0:
                raise InfrastructureError(
                    f"docker: `{command[3]}` failed with code {result.code} in {keeper}: "
                    f"{result.output.strip()[-500:]}"
                )
            return result

        answers = await gather_all(one(node, command) for node, command in commands.items())
        return dict(zip(commands, answers, strict=True))

    async def inject(self, name: str) -> None:
        """Inject a planned fault."""
        async with self._lock:
            fault = self._faults[name]
            if fault.table is rules.Table.STREAM:
                proxies = (self._in_thread(self._provide_proxy, node) for node in fault.owners)
                await asyncio.gather(*proxies)
            await self._run({node: self._command(name, fault, node) for node in fault.owners})
            fault.laid = {node: self._counting(fault, node) for node in fault.owners}

    def _counting(self, fault: _Fault, node: str) -> frozenset[Link]:
        """The links whose rules in the node's namespace count."""
        links = fault.links_at(node)
        if fault.table is rules.Table.STREAM:
            return streams.counting_links(node, links, self._ports)
        return frozenset(links)

    def _command(self, name: str, fault: _Fault, node: str) -> list[str]:
        """What injects the fault in the node's namespace."""
        links, addresses = fault.links_at(node), self._addresses
        match fault.quality:
            case None:
                return rules.cut_command(name, links, addresses)
            case LinkQuality() as quality:
                return rules.shape_command(name, links, quality, fault.bit, addresses)
            case quality:
                return streams.stream_command(name, node, links, quality, addresses, self._ports)

    async def heal(self, name: str) -> Bite:
        """Delete the fault's rules; returns all that it touched, at a second call as well."""
        if name not in self._faults:
            raise UsageError(f"there was no link fault {name!r} in this run")
        async with self._lock:
            fault = self._faults[name]
            if fault.links:
                command = rules.heal_command(rules.select_fault(name), fault.table)
                outputs = await self._run(dict.fromkeys(fault.owners, command))
                self._account(fault.table, outputs, fault.links, only=name)
                self._lift(fault, set(fault.links))
            streamed = fault.table is rules.Table.STREAM
            unit = "connections" if streamed else "packets"
            return Bite(fault.touched, unit, undone=fault.undone)

    async def heal_among(self, ends: set[str]) -> list[str]:
        """Delete the rules of all links with both ends here; returns the faults that are over."""
        async with self._lock:
            inside = {
                name: {link for link in fault.links if {link.source, link.destination} <= ends}
                for name, fault in self._faults.items()
            }
            for table in rules.Table:
                at: dict[str, set[Link]] = {}
                for name, links in inside.items():
                    for link in links if self._faults[name].table is table else ():
                        for node in rules.owners(link, table):
                            at.setdefault(node, set()).add(link)
                commands = {
                    node: rules.heal_command(rules.select_links(sorted(links)), table)
                    for node, links in sorted(at.items())
                }
                self._account(table, await self._run(commands), set().union(*at.values()))
            return [name for name, links in inside.items() if self._lift(self._faults[name], links)]

    def _lift(self, fault: _Fault, links: set[Link]) -> bool:
        """These links are rid of the fault; whether it is over by that."""
        was_on = bool(fault.links)
        fault.links -= links
        if not was_on or fault.links:
            return False
        if fault.bit:
            self._bits.append(fault.bit)
        return True

    def _account(
        self,
        table: rules.Table,
        outputs: dict[str, ExecResult],
        links: Iterable[Link],
        *,
        only: str | None = None,
    ) -> None:
        """Add what the deleted rules had counted to their faults."""
        wanted = frozenset(links)
        for node, result in outputs.items():
            counts = rules.counted_packets(result.output)
            for name, fault in self._faults.items():
                if fault.table is table and only in {None, name}:
                    healed = wanted & set(fault.links_at(node))
                    fault.touched += sum(counts.get((name, link), 0) for link in healed)
                    laid = healed & fault.laid.get(node, frozenset())
                    if lost := sorted(link for link in laid if (name, link) not in counts):
                        fault.undone = True
                        self._tell_lost(name, table, lost)
            if not rules.is_served(result.output, table):
                self._tell(node, _ENDED[table].format(node), _KINDS[table])

    def _tell_lost(self, name: str, table: rules.Table, links: list[Link]) -> None:
        """Say of which links rules were gone when they were to be healed.

        Neither the driver nor the warden removed them: each leaves what they had counted.
        """
        named = ", ".join(f"{link.source} > {link.destination}" for link in links)
        what = f"the rules of {name} on {named:.200} had been removed, and not by the harness"
        for node in sorted({end for link in links for end in (link.source, link.destination)}):
            if not is_client(node):
                self._tell(node, what, _KINDS[table])

    async def reset(self, links: Sequence[Link]) -> int:
        """Abort the connections between the ends of these links; returns how many."""
        check_links(links, self._places, self._clients)
        peers: dict[str, set[str]] = {}
        # A connection has two ends, and aborting one tells the other: each pair is done once.
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
            left = before & rules.connections(reset[node].output)  # the others are new ones
            if before and before == left:
                raise InfrastructureError(
                    f"docker: none of {len(before)} connections of node {node!r} could be reset; "
                    "the engine's kernel needs CONFIG_INET_DIAG_DESTROY"
                )
            count += len(before - left)
        return count
