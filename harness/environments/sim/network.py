"""Simulates the network: listeners, connections, and the faults of links.

For an application, connecting behaves as with TCP. A node that is down, or does not listen on the
port, refuses the connection after a round trip. A paused node's kernel still completes the
handshake, and data waits for the node. If the link is cut, no answer comes, so the kernel sends the
opening packet again after 1, 2, 4, ... s. The call ends by the caller's own timeout, or after two
minutes with the kernel's `TimeoutError`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

from harness.cluster import CLIENT, Bite, Link, LinkQuality
from harness.env import Address, Conn
from harness.environments.sim.connection import EndState, Owner, Pipe, SimConn
from harness.environments.sim.knobs import Knobs
from harness.environments.sim.links import Direction, FaultOnLink, latency_law
from harness.environments.sim.names import Names
from harness.environments.sim.world import World
from harness.nodes.caller import calling_end

BACKLOG_MAX: Final = 1024
_SYN_RETRIES_MAX: Final = 6
_SYN_RETRY_NS: Final = 1_000_000_000
_MS: Final = 1_000_000


class Host(Owner, Protocol):
    """A running node, as the network sees it."""

    listeners: dict[int, SimListener]

    def check_alive(self) -> None:
        """Raise `CancelledError` if the node is dead."""

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run the coroutine `coro` in a task of the node."""


class Place(Protocol):
    """A machine, as the network sees it."""

    @property
    def incarnation(self) -> Host | None:
        """The current run of the machine's node; `None` while it is down."""


class Fabric:
    """The network of one world: its links, connections, and attempts to connect."""

    def __init__(
        self,
        world: World,
        machines: Mapping[str, Place],
        knobs: Knobs,
        random: Random,
        clients: Sequence[str],
    ) -> None:
        """`clients` are the link ends of the driver's clients."""
        self.world = world
        self.clients = clients
        self.random = random
        self.draw_latency_ns = latency_law(knobs, random)
        self.tcp_timeout_ns = int(knobs.tcp_timeout_s * 1e9)
        self._machines = machines
        self._retransmit = knobs.retransmit
        self._rto_ns_max = int(knobs.rto_ms_max * _MS)
        self._links: dict[Link, Direction] = {}
        self._ends: dict[int, tuple[SimConn, SimConn]] = {}
        self._connections = 0
        self._attempts: dict[int, Attempt] = {}
        self.aliases: dict[str, str] = {}
        self.names = Names([name for name in machines if name != CLIENT], self.aliases)

    def link(self, source: str, destination: str) -> Direction:
        key = Link(source, destination)
        state = self._links.get(key)
        if state is None:
            state = self._links[key] = Direction(key)
        return state

    def host(self, node: str) -> Host | None:
        """Return the current run of a node; `None` while it is down."""
        machine = self._machines.get(node)
        return None if machine is None else machine.incarnation

    def trace_frame(self, pipe: Pipe, frame: bytes, at_ns: int) -> None:
        assert self.world.trace is not None
        self.world.trace.sent(self.world.now_ns, pipe.link.link, pipe.number, at_ns, frame)

    @property
    def links(self) -> Iterable[Direction]:
        """Return the links that were used or had a fault so far."""
        return self._links.values()

    @property
    def connections(self) -> Iterable[tuple[int, SimConn, SimConn]]:
        """Return each connection with an open end, as (number, calling end, accepted end)."""
        return [(number, *ends) for number, ends in self._ends.items()]

    # --- connections ------------------------------------------------------------------------

    async def connect(self, owner: Host, address: Address) -> SimConn:
        if address.node not in self._machines:
            raise ConnectionRefusedError(f"no node is named {address.node!r}")
        attempt = Attempt(owner, self._end_of(owner), address)
        self._send_syn(attempt)
        try:
            return await attempt.future
        except asyncio.CancelledError:
            if attempt.end is not None:
                attempt.end.close()
            raise
        finally:
            attempt.over = True
            del attempt  # an error refers to this frame, so avoid a reference cycle

    def _end_of(self, owner: Host) -> str:
        """Return the link end from which `owner` calls: a node, or a client of the driver."""
        caller = calling_end()
        return caller if owner.name == CLIENT and caller in self.clients else owner.name

    def _send_syn(self, attempt: Attempt) -> None:
        if attempt.over or not attempt.owner.loop.alive:
            return
        world, link = self.world, attempt.link(self)
        at_ns = world.now_ns + self.draw_latency_ns()
        if link.blocked:
            self._lose_syn(attempt, link)
        else:
            world.schedule(at_ns + int(link.quality.delay_ms * _MS), self._syn_arrives, attempt)

    def _lose_syn(self, attempt: Attempt, link: Direction) -> None:
        link.touch_cuts()
        if attempt.retries == _SYN_RETRIES_MAX:
            self.world.schedule(
                self.world.now_ns + (_SYN_RETRY_NS << attempt.retries),
                attempt.fail,
                TimeoutError(f"connecting to {attempt.address} took too long"),
            )
            return
        self.world.schedule(
            self.world.now_ns + (_SYN_RETRY_NS << attempt.retries), self._send_syn, attempt
        )
        attempt.retries += 1

    def _syn_arrives(self, attempt: Attempt) -> None:
        if attempt.over or not attempt.owner.loop.alive:
            return
        link = attempt.link(self)
        if link.blocked:
            self._lose_syn(attempt, link)
            return
        peer = self._machines[attempt.address.node].incarnation
        listener = None if peer is None else peer.listeners.get(attempt.address.port)
        if listener is not None and listener.loopback and attempt.source != attempt.address.node:
            listener = None
        if peer is None or listener is None:
            self._refuse(attempt)
        elif listener.backlog >= BACKLOG_MAX:
            self._lose_syn(attempt, link)  # Linux also drops the packet if the queue is full
        else:
            self._establish(attempt, peer, listener)

    def _refuse(self, attempt: Attempt) -> None:
        back = self.link(attempt.address.node, attempt.source)
        if back.blocked:
            self._lose_syn(attempt, back)
            return
        self.world.schedule(
            self.world.now_ns + self.draw_latency_ns(),
            attempt.fail,
            ConnectionRefusedError(f"no process listens on {attempt.address}"),
        )

    def _establish(self, attempt: Attempt, peer: Host, listener: SimListener) -> None:
        owner = attempt.owner
        self._connections += 1
        number = self._connections
        there = Pipe(self, self.link(attempt.source, peer.name), 2 * number)
        back = Pipe(self, self.link(peer.name, attempt.source), 2 * number + 1)
        end = SimConn(owner, peer.name, back, there)
        accepted = SimConn(peer, owner.name, there, back)
        end.peer_port = attempt.address.port
        there.sender = back.receiver = end
        back.sender = there.receiver = accepted
        self._ends[number] = (end, accepted)
        owner.ends[number] = end
        # A node may connect to itself, so the accepted and the calling end need different keys.
        peer.ends[-number] = accepted
        self._attempts[number] = attempt
        attempt.end = end
        accepted.accept()
        listener.offer(accepted)

    def established(self, end: SimConn) -> None:
        """Complete the connect call of `end`: the peer's kernel has accepted the connection."""
        attempt = self._attempts.pop(end.incoming.number // 2)
        if not attempt.future.done():
            attempt.future.set_result(end)

    def end_changed(self, end: SimConn) -> None:
        """Record that `end` is closed or reset. Forget the connection once no end is open."""
        number, opened_it = divmod(end.incoming.number, 2)
        end.owner.ends.pop(number if opened_it else -number, None)
        ends = self._ends.get(number)
        if ends is not None and all(e.state is not EndState.OPEN for e in ends):
            del self._ends[number]
        if opened_it and number in self._attempts:
            attempt = self._attempts.pop(number)
            attempt.fail(ConnectionResetError(f"{attempt.address} reset the connection"))

    # --- faults -----------------------------------------------------------------------------

    def set_links(self, wanted: Mapping[Link, Mapping[str, LinkQuality | None]]) -> dict[str, Bite]:
        """Put links into these states; returns the effect of each removed fault, by id."""
        gone: dict[str, dict[Direction, FaultOnLink]] = {}
        for at in sorted(wanted):
            direction = self.link(at.source, at.destination)
            for fault_id, fault in direction.set(wanted[at], self.world.now_ns).items():
                gone.setdefault(fault_id, {})[direction] = fault
        for left in gone.values():
            for ends in list(self._ends.values()):
                for end in ends:
                    link = end.out.link
                    if link in left and not link.blocked:
                        self._recover(end, left[link])
        return {
            fault_id: Bite(sum(fault.touched for fault in left.values()), "frames")
            for fault_id, left in gone.items()
        }

    def _recover(self, end: SimConn, fault: FaultOnLink) -> None:
        """Deliver the frames that a pipe held during a fault, or reset the connection."""
        end.incoming.open_window()  # window updates of the incoming pipe use the healed link
        if not end.out.held:
            return
        world = self.world
        outage_ns = world.now_ns - fault.since_ns
        wait_ns = int(self.random.random() * min(outage_ns, self._rto_ns_max))
        survives = fault.quality is not None or self.random.random() < self._retransmit
        action = Pipe.release if survives else _reset_held
        world.schedule(world.now_ns + wait_ns, action, end.out)

    def reset(self, links: Sequence[Link]) -> int:
        """Reset the open connections on these links at both ends; returns how many there were."""
        wanted = {*links}
        count = 0
        for first, second in list(self._ends.values()):
            if first.out.link.link in wanted or second.out.link.link in wanted:
                count += 1
                first.become_reset()
                second.become_reset()
        return count


def _reset_held(pipe: Pipe) -> None:
    if pipe.held and not pipe.link.blocked:
        pipe.held.clear()
        pipe.sender.become_reset()
        pipe.receiver.become_reset()


class Attempt:
    """An attempt to connect, until the connection is open or refused, or the caller gives up."""

    __slots__ = ("address", "end", "future", "over", "owner", "retries", "source")

    def __init__(self, owner: Host, source: str, address: Address) -> None:
        self.owner = owner
        self.source = source
        self.address = address
        self.future: asyncio.Future[SimConn] = owner.loop.create_future()
        self.end: SimConn | None = None
        self.retries = 0
        self.over = False

    def link(self, fabric: Fabric) -> Direction:
        return fabric.link(self.source, self.address.node)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class SimListener:
    """A listening port of one run of a node (see `harness.env.Listener`)."""

    loopback = False
    """Whether only the node itself can connect to the port."""

    def __init__(
        self, owner: Host, port: int, on_connect: Callable[[Conn], Awaitable[None]]
    ) -> None:
        self._owner = owner
        self._port = port
        self._on_connect = on_connect
        self.backlog = 0  # connections that wait for the node to handle them

    def close(self) -> None:
        """Stop accepting connections; open connections stay open."""
        if self._owner.listeners.get(self._port) is self:
            del self._owner.listeners[self._port]

    def offer(self, conn: SimConn) -> None:
        self.backlog += 1
        self._owner.loop.call_soon(self.accept, conn)

    def accept(self, conn: SimConn) -> None:
        """Run the handler of a queued connection in a task of the node."""
        self.backlog -= 1
        self._owner.spawn(self._handle(conn), name=f"serve-{conn.peer}:{self._port}")

    async def _handle(self, conn: SimConn) -> None:
        try:
            await self._on_connect(conn)
        except ConnectionError:
            conn.close()  # a lost connection ends the handler, but not the node


class SimNetwork:
    """The network of one run of a node (see `harness.env.Network`)."""

    def __init__(self, fabric: Fabric, owner: Host, ports: Sequence[int]) -> None:
        self._fabric = fabric
        self._owner = owner
        self._ports = frozenset(ports)

    def resolve(self, address: Address) -> Address:
        """Return `address` with the name of a node in place of an alias."""
        return Address(self._fabric.aliases.get(address.node, address.node), address.port)

    async def listen(self, port: int, on_connect: Callable[[Conn], Awaitable[None]]) -> SimListener:
        owner = self._owner
        owner.check_alive()
        if port not in self._ports:
            raise ValueError(
                f"{owner.name} may not listen on {port}: its NodeSpec declares the ports "
                f"{sorted(self._ports)}"
            )
        if port in owner.listeners:
            raise OSError(errno.EADDRINUSE, f"{owner.name} already listens on {port}")
        listener = owner.listeners[port] = SimListener(owner, port, on_connect)
        return listener

    async def connect(self, address: Address) -> SimConn:
        self._owner.check_alive()
        await self._owner.loop.thawed()
        return await self._fabric.connect(self._owner, address)
