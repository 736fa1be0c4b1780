"""One stage of a connection's chain (a stub), which runs a toxic, and the queues between stages.

A toxic is a frozen set of attributes and a coroutine that moves bytes through a stub. Toxics are
added and removed while bytes flow. So the coroutine may be cancelled at any await, and then no byte
may be lost or duplicated. Therefore a toxic never owns bytes. The stub holds the received chunk
until the toxic sends or swallows it, and a restarted stub first passes on the rest of a held chunk.

Two rules make a cancellation harmless. First, a stage hands a chunk over in one step without an
await (`take`), and only afterwards waits for `room`, so the chunk is always in exactly one place.
Second, the end of a stream is a state of its channel and not an item, so it cannot get lost.

Stages pass on the kind of an end (`End`) unchanged. After the end of one direction, the other
direction continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

import msgspec

from harness.environments.toxiproxy.sockets import Reader

_CHUNK_BYTES_MAX: Final = 32 * 1024


class End(enum.Enum):
    """The way in which one direction of a connection ended."""

    FINISHED = "finished"  # the sender ended this direction, and may still receive
    RESET = "reset"  # the sender reset the connection
    CLOSED = "closed"  # a toxic closed both directions, as in Shopify's server


@dataclass(slots=True)
class Counters:
    """The byte counters of one direction of a proxy, over all of its connections."""

    received_bytes: int = 0
    sent_bytes: int = 0
    swallowed_bytes: int = 0


class Toxic(msgspec.Struct, frozen=True):
    """The attributes of a toxic, as in the API, and its effect. This base class has neither."""

    buffer_chunks: ClassVar[int] = 1
    """How many chunks may wait before this toxic; with more, the previous stage must wait."""

    @property
    def blocks(self) -> bool:
        """Whether the active toxic lets no byte pass."""
        return False

    async def pipe(self, stub: Stub) -> None:
        """Move bytes through `stub` until the stream ends; the receiver learns of the end then."""
        while await stub.receive():
            await stub.send()

    def cleanup(self, stub: Stub) -> bool:
        """Handle the toxic's removal from a stub; returns whether the stream must end now."""
        del stub
        return False


class Noop(Toxic, frozen=True):
    """A toxic without effect, for connections that another toxic's toxicity excludes."""


class ToxicEntry(msgspec.Struct):
    """A toxic of a proxy, as in the API."""

    name: str
    type: str
    stream: str
    toxicity: float
    toxic: Toxic = msgspec.field(name="attributes")

    @property
    def direction(self) -> str:
        """`stream` in lower case. `stream` itself keeps the spelling that the client sent."""
        return self.stream.lower()


@dataclass(slots=True)
class _Chunk:
    data: bytes
    arrived_s: float


class Channel:
    """A bounded queue of chunks between two stages of a chain."""

    def __init__(self, capacity: int) -> None:
        self.chunks: deque[_Chunk] = deque()
        self.ended: End | None = None
        self._capacity = capacity
        self._changed = asyncio.Event()

    def take(self, chunk: _Chunk) -> None:
        self.chunks.append(chunk)
        self._changed.set()

    def end(self, end: End) -> None:
        self.ended = end
        self._changed.set()

    async def room(self) -> None:
        while len(self.chunks) > self._capacity:
            await self._wait()

    async def next(self) -> _Chunk | None:
        while not self.chunks:
            if self.ended is not None:
                return None
            await self._wait()
        self._changed.set()
        return self.chunks.popleft()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Sink:
    """The end of a chain, which writes chunks to the receiving socket."""

    def __init__(
        self, writer: asyncio.StreamWriter, counters: Counters, end: Callable[[End], None]
    ) -> None:
        self._writer = writer
        self._counters = counters
        self.end = end

    def take(self, chunk: _Chunk) -> None:
        if self._writer.is_closing():
            return  # the receiver is gone; the sender learns of it from the other direction
        self._writer.write(chunk.data)
        self._counters.sent_bytes += len(chunk.data)

    async def room(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()


class Source:
    """The start of a chain, which reads chunks from the sending socket."""

    def __init__(self, reader: Reader, counters: Counters) -> None:
        self._reader = reader
        self._counters = counters
        self.ended: End | None = None

    async def next(self) -> _Chunk | None:
        data = await self._reader.read(_CHUNK_BYTES_MAX)
        if not data:
            self.ended = End.RESET if self._reader.was_reset else End.FINISHED
            return None
        self._counters.received_bytes += len(data)
        return _Chunk(data, asyncio.get_running_loop().time())


class Chain(Protocol):
    """The chain of stages to which a stub belongs."""

    counters: Counters
    stream: Callable[[str], random.Random]
    reset_connection: Callable[[], None]


class Stub:
    """One stage of a chain: one toxic in one direction of one connection."""

    def __init__(
        self,
        entry: ToxicEntry | None,
        source: Source | Channel,
        output: Channel | Sink,
        chain: Chain,
    ) -> None:
        self.entry = entry
        self.source = source
        self.output = output
        self.passed_bytes = 0
        self.swallowed_bytes = 0
        self.task: asyncio.Task[None] | None = None
        self._chain = chain
        self._held: _Chunk | None = None
        self._end: End | None = None  # how the source ended, once `receive` has noticed it
        self._toxic: Toxic = Noop()
        self.random = chain.stream(entry.name if entry is not None else "")
        self.draw()

    def draw(self) -> None:
        """Choose whether the toxic acts on this connection, with the probability `toxicity`."""
        if self.entry is None:
            return
        acts = self.random.random() < self.entry.toxicity
        self._toxic = self.entry.toxic if acts else Noop()

    @property
    def held_bytes(self) -> int:
        return 0 if self._held is None else len(self._held.data)

    @property
    def held_age_s(self) -> float:
        """Return how long the held chunk has been in the proxy, without intended delays."""
        assert self._held is not None
        return asyncio.get_running_loop().time() - self._held.arrived_s

    async def receive(self) -> bool:
        """Receive and hold the next chunk; false once the stream has ended."""
        assert self._held is None
        self._held = await self.source.next()
        self._end = self.source.ended if self._held is None else None
        return self._held is not None

    async def send(self, size_bytes: int | None = None) -> None:
        """Pass on the first bytes of the held chunk, by default all of them."""
        self._hand_over(self.held_bytes if size_bytes is None else size_bytes)
        await self.output.room()

    def _hand_over(self, size_bytes: int) -> None:
        held = self._held
        assert held is not None
        assert 0 <= size_bytes <= len(held.data)
        if size_bytes > 0:
            self.output.take(_Chunk(held.data[:size_bytes], held.arrived_s))
            self.passed_bytes += size_bytes
        rest = held.data[size_bytes:]
        self._held = _Chunk(rest, held.arrived_s) if rest else None

    def swallow(self) -> None:
        self.swallowed_bytes += self.held_bytes
        self._chain.counters.swallowed_bytes += self.held_bytes
        self._held = None

    def delayed(self, delay_s: float) -> None:
        """Record an intended delay of the held chunk. `held_age_s` does not count it."""
        assert self._held is not None
        self._held.arrived_s += delay_s

    def reset(self) -> None:
        self._chain.reset_connection()

    def start(self) -> None:
        """Start the toxic in a task. It first passes on a chunk that the stub still holds."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        if self._held is not None:
            await self.send()
        await self._toxic.pipe(self)
        self.finish()

    def finish(self) -> None:
        """End the stream for the receiver, and discard all data that are left."""
        self.swallow()
        self._toxic = Noop()
        if isinstance(self.source, Channel):
            for chunk in self.source.chunks:
                self._chain.counters.swallowed_bytes += len(chunk.data)
            self.source.chunks.clear()
        self.output.end(self._end or End.CLOSED)

    async def interrupt(self) -> bool:
        """Cancel the toxic's task; false if the toxic has already ended the stream."""
        if self.task is None:
            return False
        finished = self.task.done()
        self.task.cancel()
        await asyncio.wait([self.task])
        if not finished and not self.task.cancelled():
            finished = True  # the toxic ended the stream before it was cancelled
        self.task = None
        return not finished

    def drain(self) -> None:
        """Pass all held and queued data to the next stage, even beyond its capacity."""
        assert isinstance(self.source, Channel)
        if self._held is not None:
            self._hand_over(self.held_bytes)
        while self.source.chunks:
            self.output.take(self.source.chunks.popleft())
        if self.source.ended is not None:
            self.output.end(self.source.ended)

    def cleanup(self) -> bool:
        return self._toxic.cleanup(self)
