"""One simulated connection: two ends, and an ordered pipe of frames in each direction.

Rules of the model, with their reasons:

* Each frame draws one latency before any fault is considered, so that editing the faults of a case
  changes the rest of the run as little as possible.
* Cuts are tested when a frame is sent and again when it arrives, so a cut swallows frames in
  flight. As in TCP, swallowed frames stay in the sender's buffer, in order, and block later frames.
  After the heal, either the frames arrive late (retransmission), or the connection is reset at both
  ends (a middlebox, or a proxy as in the process environment, gave up). The knob `retransmit` is
  the probability of a retransmission. If no frame of a sender arrives for `tcp_timeout_s`, the
  sender's end is reset.
* A reset (RST) is a packet, so it takes a latency, and a cut loses it for good. A node behind a cut
  does not learn that its peer died until the node sends again after the heal.
* `drop`, `duplicate` and `reorder` of a link's quality act on single frames of a connection that
  stays open. These faults are harsher than TCP, on purpose, and only nemeses that request them
  cause them.
* The pieces of a byte stream (`Pipe.is_stream`) are never lost, repeated or reordered: TCP sends a
  dropped piece again, so it and all later pieces arrive late. As on Linux, data that arrived before
  a reset can still be read. The kernel keeps the connections of a dead process: the peer gets the
  rest of the stream and its end, or a reset if the process had data left to read.
* A pipe holds at most `PIPE_BYTES_MAX` (back-pressure). `send` waits before it queues its frame, so
  a cancelled `send` has sent nothing.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from heapq import heappush
from random import Random
from typing import Final, Protocol
from zlib import crc32

from harness.env import FRAME_BYTES_MAX
from harness.environments.sim.links import Direction
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.world import World

PIPE_BYTES_MAX: Final = 4 * 1024 * 1024
_FRAME_OVERHEAD_BYTES: Final = 64
_SENT_AGAIN_NS: Final = 200_000_000  # TCP sends a piece again after this time without an answer
_MS: Final = 1_000_000
_MASK: Final = 0xFFFFFFFF


class EndState(enum.Enum):
    """The state of one end of a connection."""

    OPEN = "open"
    CLOSED = "closed"  # this end's node has called `close`
    RESET = "reset"  # the connection was reset, or this end's node is dead


_OPEN: Final = EndState.OPEN


class _Mark(enum.Enum):
    """A control message that travels in order with the frames."""

    ACCEPTED = "accepted"
    END = "end"


Item = bytes | _Mark


class Owner(Protocol):
    """The running node that owns an end of a connection."""

    name: str
    loop: NodeLoop
    ends: dict[int, SimConn]


class Medium(Protocol):
    """The network as a connection sees it. A connection reports its frames and changes to it."""

    world: World
    random: Random
    draw_latency_ns: Callable[[], int]
    tcp_timeout_ns: int

    def trace_frame(self, pipe: Pipe, frame: bytes, at_ns: int) -> None:
        """Record in the trace that `frame` was sent and will arrive at `at_ns`."""

    def established(self, end: SimConn) -> None:
        """Complete the connect call of `end`: the peer's kernel has accepted the connection."""

    def end_changed(self, end: SimConn) -> None:
        """Record that `end` is no longer open."""


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_held_epoch",
        "_last_ns",
        "buffered_bytes",
        "fabric",
        "held",
        "is_stream",
        "link",
        "number",
        "receiver",
        "sender",
        "waiters",
    )

    def __init__(self, fabric: Medium, link: Direction, number: int) -> None:
        self.fabric = fabric
        self.link = link
        self.number = number
        self.sender: SimConn
        self.receiver: SimConn
        self.is_stream = False  # its frames are pieces of a byte stream
        self.buffered_bytes = 0
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.held: deque[Item] = deque()  # swallowed frames, which may arrive after the heal
        self._held_epoch = 0
        self._last_ns = 0

    def transmit(self, item: Item) -> None:
        """Send a frame or control message to the receiver, subject to the link's faults."""
        fabric = self.fabric
        world = fabric.world
        at_ns = world.now_ns + fabric.draw_latency_ns()
        if isinstance(item, bytes):
            world.digest = crc32(item, (world.digest + at_ns + self.number) & _MASK)
            if world.trace is not None:
                fabric.trace_frame(self, item, at_ns)
        if self.link.whole and not self.held:
            if at_ns < self._last_ns:  # noqa: PLR1730 (a hot path: no call)
                at_ns = self._last_ns
            self._last_ns = at_ns
            heappush(world.heap, (at_ns, next(world.sequence), self.arrive, item))
        elif self.held or self.link.blocked:
            self._hold(item)
        else:
            self._transmit_worse(item, at_ns)

    def arrive(self, item: Item) -> None:
        """Deliver a frame or control message to the receiver, unless the link is blocked now."""
        if self.held or self.link.blocked:
            self._hold(item)
            return
        receiver = self.receiver
        if receiver.state is _OPEN:
            receiver.take(item)
        elif item is not _Mark.END:
            if isinstance(item, bytes):
                self.drained(item)
            receiver.out.transmit_reset()

    # --- impaired links ---------------------------------------------------------------------

    def _hold(self, item: Item) -> None:
        if self.link.cuts:
            self.link.touch_cuts()
        else:
            self.link.touch_shapes()
        if self.sender.state is EndState.RESET:
            return  # a sender that was reset retransmits nothing
        if not self.held:
            self._held_epoch += 1
            world = self.fabric.world
            give_up_ns = world.now_ns + self.fabric.tcp_timeout_ns
            world.schedule(give_up_ns, self._give_up, self._held_epoch)
        self.held.append(item)

    def _give_up(self, epoch: int) -> None:
        if self.held and epoch == self._held_epoch:
            self.held.clear()
            self.sender.become_reset()

    def release(self) -> None:
        """Deliver swallowed frames in order, once the link is no longer blocked."""
        if self.link.blocked:
            return
        held, self.held = self.held, deque()
        for item in held:
            self.arrive(item)

    def _transmit_worse(self, item: Item, at_ns: int) -> None:
        world, random, link = self.fabric.world, self.fabric.random, self.link
        quality = link.quality
        link.touch_shapes()
        at_ns += int((quality.delay_ms + random.random() * quality.jitter_ms) * _MS)
        if quality.rate_kb_s:
            size = len(item) if isinstance(item, bytes) else _FRAME_OVERHEAD_BYTES
            took_ns = size * _MS // quality.rate_kb_s
            link.free_at_ns = max(world.now_ns, link.free_at_ns) + took_ns
            at_ns += link.free_at_ns - world.now_ns
        if isinstance(item, bytes):
            if random.random() < quality.drop:
                if not self.is_stream:
                    self.drained(item)
                    return
                at_ns += _SENT_AGAIN_NS
            if random.random() < quality.duplicate and not self.is_stream:
                self.buffered_bytes += len(item) + _FRAME_OVERHEAD_BYTES
                again_ns = max(at_ns, self._last_ns) + self.fabric.draw_latency_ns()
                world.schedule(again_ns, self.arrive, item)
            if random.random() < quality.reorder and not self.is_stream:
                late_ns = max(at_ns, self._last_ns) + 4 * self.fabric.draw_latency_ns()
                world.schedule(late_ns, self.arrive, item)
                return
        self._last_ns = max(at_ns, self._last_ns)
        world.schedule(self._last_ns, self.arrive, item)

    # --- resets and back-pressure -----------------------------------------------------------

    def transmit_reset(self) -> None:
        """Send a reset to the receiver. A blocked link loses it."""
        world = self.fabric.world
        self._last_ns = max(world.now_ns + self.fabric.draw_latency_ns(), self._last_ns)
        if self.link.blocked:
            self.link.touch_cuts()
        else:
            world.schedule(self._last_ns, self._arrive_reset)

    def _arrive_reset(self, _: None) -> None:
        if self.link.blocked:
            self.link.touch_cuts()
        else:
            self.receiver.become_reset()

    def drained(self, frame: bytes) -> None:
        """Count `frame` as gone from the pipe. Waiting senders continue if there is room."""
        self.buffered_bytes -= len(frame) + _FRAME_OVERHEAD_BYTES
        if self.waiters and self.buffered_bytes < PIPE_BYTES_MAX // 2:
            world = self.fabric.world
            world.schedule(world.now_ns + self.fabric.draw_latency_ns(), self.open_window)

    def open_window(self, _: None = None) -> None:
        """Let waiting senders continue, unless the link from receiver to sender is blocked."""
        if not self.receiver.out.link.blocked:
            wake_all(self.waiters)


class SimConn:
    """One end of a simulated connection (see `harness.env.Conn`)."""

    __slots__ = (
        "_ended",
        "_finished",
        "_inbox",
        "_loop",
        "_waiter",
        "incoming",
        "notify",
        "out",
        "owner",
        "peer",
        "peer_port",
        "state",
    )

    def __init__(self, owner: Owner, peer: str, incoming: Pipe, out: Pipe) -> None:
        self.owner = owner
        self.state = EndState.OPEN
        self.incoming = incoming
        self.out = out
        self._loop = owner.loop
        self.peer = peer  # the name of the node at the other end
        self.peer_port = 0  # the port to which the calling end connected
        self.notify: Callable[[], None] | None = None  # called when `recv` would return
        self._inbox: deque[bytes] = deque()
        self._ended = False
        self._finished = False
        self._waiter: asyncio.Future[None] | None = None

    async def send(self, frame: bytes) -> None:
        """Send one frame; wait while the pipe is full. May raise `ConnectionResetError`."""
        while not self.try_send(frame):
            if self._loop.paused:
                await self._loop.thawed()
                continue
            waiter = self._loop.create_future()
            self.out.waiters.append(waiter)
            await waiter

    def try_send(self, frame: bytes) -> bool:
        """Send one frame if the pipe has room now, else return false. Raises like `send`."""
        size = len(frame)
        if size > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {size} bytes is above the limit of {FRAME_BYTES_MAX}")
        if self.state is not _OPEN or not self._loop.alive:
            self._check_open()
        pipe = self.out
        if pipe.buffered_bytes >= PIPE_BYTES_MAX or self._loop.paused:
            return False
        pipe.buffered_bytes += size + _FRAME_OVERHEAD_BYTES
        pipe.transmit(bytes(frame))
        return True

    async def recv(self) -> bytes | None:
        """Return the next frame, or `None` at an orderly end; may raise `ConnectionResetError`."""
        inbox = self._inbox
        while not inbox:
            if self._ended or self.state is EndState.CLOSED:
                return None
            if self.state is not _OPEN or not self._loop.alive:
                self._check_open()
            if self._waiter is not None:
                raise RuntimeError(f"two tasks wait in recv() of one connection to {self.peer}")
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frame = inbox.popleft()
        self.incoming.drained(frame)
        return frame

    def close(self) -> None:
        """Close the connection after the frames that were sent; a second call has no effect."""
        if self.state is EndState.OPEN and self._loop.alive:
            self.finish()
            self._become(EndState.CLOSED)

    def finish(self) -> None:
        """Tell the peer that no more frames follow. This end can still receive frames."""
        if self.state is EndState.OPEN and self._loop.alive and not self._finished:
            self._finished = True
            self.out.transmit(_Mark.END)

    @property
    def has_ended(self) -> bool:
        """Whether the peer has announced that no more frames follow."""
        return self._ended

    def receive_nowait(self, size: int) -> bytes:
        """Return up to `size` bytes that have arrived, as a piece of a byte stream."""
        pieces: list[bytes] = []
        while self._inbox and size > 0:
            frame = self._inbox.popleft()
            pieces.append(frame[:size])
            self.incoming.drained(frame)
            if rest := frame[size:]:
                self._inbox.appendleft(rest)
                self.incoming.buffered_bytes += len(rest) + _FRAME_OVERHEAD_BYTES
            size -= len(pieces[-1])
        return b"".join(pieces)

    @property
    def arrived_bytes(self) -> int:
        """The number of bytes that have arrived but were not received yet."""
        return sum(map(len, self._inbox))

    # --- for the network --------------------------------------------------------------------

    @property
    def unread(self) -> tuple[bytes, ...]:
        """The frames that have arrived but that the node has yet to receive."""
        return tuple(self._inbox)

    def take(self, item: Item) -> None:
        """Take a frame or control message out of the incoming pipe."""
        if isinstance(item, bytes):
            self._inbox.append(item)
        elif item is _Mark.END:
            self._ended = True
        else:
            self.out.fabric.established(self)
        if self.notify is not None:
            self.notify()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def become_reset(self) -> None:
        if self.state is EndState.OPEN:
            self._become(EndState.RESET)

    def die(self) -> None:
        """Abandon this end, because its node was killed.

        The peer of a byte stream gets the rest and the end, or a reset if the node had data left to
        read.
        """
        if self.state is not EndState.OPEN:
            return
        if self.notify is not None and not self._inbox:
            if not self._finished:
                self._finished = True
                self.out.transmit(_Mark.END)
            self._become(EndState.CLOSED)
        else:
            self._become(EndState.RESET)
            self.out.transmit_reset()

    def accept(self) -> None:
        self.out.transmit(_Mark.ACCEPTED)

    def _become(self, state: EndState) -> None:
        self.state = state
        if self.notify is None:
            self._inbox.clear()
        if state is EndState.RESET:
            self.out.held.clear()
        self.out.fabric.end_changed(self)
        if self.notify is not None:
            self.notify()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        wake_all(self.out.waiters)

    def _check_open(self) -> None:
        if not self._loop.alive:
            raise asyncio.CancelledError(f"{self._loop.name} is dead and cannot send")
        if self.state is not EndState.OPEN:
            raise ConnectionResetError(f"the connection to {self.peer} is {self.state.value}")


def wake_all(waiters: deque[asyncio.Future[None]]) -> None:
    """Wake all waiting tasks, so that they look at their connection again."""
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
