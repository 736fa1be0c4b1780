"""UDP in the simulated network: a datagram may arrive on time, late, repeatedly, or not at all.

A cut drops datagrams for good. A link with a quality fault drops, repeats or reorders them. As on a
real network, the sender does not notice.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from zlib import crc32

from harness.environments.sim.network import Fabric
from harness.environments.sim.programs.net_loop import NetLoop
from harness.environments.sim.programs.sockets import SimSocket

_BYTES_MAX: Final = 65507
_MS: Final = 1_000_000
_MASK: Final = 0xFFFFFFFF


class DatagramTransport(asyncio.DatagramTransport):
    """A bound UDP port of a node."""

    def __init__(
        self,
        loop: NetLoop,
        fabric: Fabric,
        protocol: Any,
        here: tuple[str, int],
        there: tuple[str, int] | None,
    ) -> None:
        extra = {"sockname": here, "socket": SimSocket(loop, here=here, there=there)}
        super().__init__(extra | ({} if there is None else {"peername": there}))
        self._loop, self._fabric, self._protocol = loop, fabric, protocol
        self._port, self._there = here[1], there
        self._source = (loop.names.address(loop.name), here[1])
        self._closing = False
        loop.datagrams[self._port] = self
        loop.call_soon(protocol.connection_made, self)

    def sendto(self, data: Any, addr: Any = None) -> None:
        if self._closing or not self._loop.alive:
            return
        content = bytes(data)
        if len(content) > _BYTES_MAX:
            self._protocol.error_received(OSError(90, "Message too long"))
            return
        host, port = (addr or self._there or ("", 0))[:2]
        node = self._loop.names.node_at(host, self._loop.name)
        if node is None:
            self._protocol.error_received(OSError(113, f"No route to host {host!r}"))
            return
        self._loop.world.schedule(
            max(self._loop.busy_until_ns, self._loop.world.now_ns),
            self._leave,
            (node, int(port), content),
        )

    def _leave(self, datagram: tuple[str, int, bytes]) -> None:
        """Send a datagram, unless its node has died in the meantime."""
        if not self._loop.alive:
            return
        node, port, content = datagram
        fabric, world = self._fabric, self._fabric.world
        at_ns = world.now_ns + fabric.draw_latency_ns()
        world.digest = crc32(content, (world.digest + at_ns + port) & _MASK)
        link = fabric.link(self._loop.name, node)
        if link.blocked:
            link.touch_cuts()
            return
        arrivals = [at_ns]
        if not link.whole:
            link.touch_shapes()
            quality, draw = link.quality, fabric.random.random
            at_ns += int((quality.delay_ms + draw() * quality.jitter_ms) * _MS)
            arrivals = [] if draw() < quality.drop else [at_ns]
            if draw() < quality.duplicate:
                arrivals.append(at_ns + fabric.draw_latency_ns())
            if draw() < quality.reorder:
                arrivals = [each + 4 * fabric.draw_latency_ns() for each in arrivals]
        for each in arrivals:
            world.schedule(each, self._arrive, datagram)

    def _arrive(self, datagram: tuple[str, int, bytes]) -> None:
        node, port, content = datagram
        link = self._fabric.link(self._loop.name, node)
        if link.blocked:
            link.touch_cuts()
            return
        host = self._fabric.host(node)
        if host is not None and isinstance(host.loop, NetLoop) and port in host.loop.datagrams:
            host.loop.datagrams[port].receive(content, self._source)

    def receive(self, content: bytes, source: tuple[str, int]) -> None:
        """Pass a datagram to the protocol, in a callback of the node."""
        self._loop.call_soon(self._deliver, content, source)

    def _deliver(self, content: bytes, source: tuple[str, int]) -> None:
        if not self._closing:
            self._protocol.datagram_received(content, source)

    def is_closing(self) -> bool:
        return self._closing or not self._loop.alive

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.datagrams.pop(self._port, None)
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<DatagramTransport {self._source}>"
