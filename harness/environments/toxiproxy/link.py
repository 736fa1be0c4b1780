"""One direction of one connection: a chain of stages from one socket to the other.

    socket -> [source] -> channel -> [toxic] -> channel -> [toxic] -> socket

Each stage is a task. Without toxics, the chain has only the source, which writes directly to the
receiving socket. While bytes flow, toxics can be added at the end of the chain and removed at any
place. A change cancels the affected tasks, moves the data that these tasks hold, and restarts them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from harness.environments.toxiproxy.sockets import Reader
from harness.environments.toxiproxy.stub import (
    Channel,
    Counters,
    End,
    Sink,
    Source,
    Stub,
    ToxicEntry,
)


class Link:
    """One direction of one connection, with one stage for each toxic."""

    def __init__(
        self,
        direction: str,
        reader: Reader,
        writer: asyncio.StreamWriter,
        *,
        counters: Counters,
        stream: Callable[[str], random.Random],
        end: Callable[[End], None],
        reset_connection: Callable[[], None],
    ) -> None:
        """`end` ends this direction for the receiver. `reset_connection` resets both directions."""
        self.direction = direction
        self.counters = counters
        self.stream = stream
        self.reset_connection = reset_connection
        self._sink = Sink(writer, counters, end)
        self._stubs = [Stub(None, Source(reader, counters), self._sink, self)]
        self._change = asyncio.Lock()
        self._closed = False

    def start(self, entries: list[ToxicEntry]) -> None:
        for entry in entries:
            self._append(entry)
        for stub in self._stubs:
            stub.start()

    def _append(self, entry: ToxicEntry) -> Stub:
        channel = Channel(entry.toxic.buffer_chunks)
        last = self._stubs[-1]
        stub = Stub(entry, channel, self._sink, self)
        last.output = channel
        self._stubs.append(stub)
        return stub

    async def add(self, entry: ToxicEntry) -> None:
        async with self._change:
            if self._closed:
                return
            last = self._stubs[-1]
            if not await last.interrupt():
                return  # the stream has already ended, so the toxic would have no effect
            stub = self._append(entry)
            last.start()
            stub.start()

    async def update(self, entry: ToxicEntry) -> None:
        async with self._change:
            stub = self._find(entry)
            if stub is not None and await stub.interrupt():
                stub.draw()
                stub.start()

    async def remove(self, entry: ToxicEntry) -> None:
        """Remove a toxic and pass on the data that it holds, unless its removal ends the stream."""
        async with self._change:
            stub = self._find(entry)
            if stub is None or not await stub.interrupt():
                return
            if stub.cleanup():
                stub.finish()
                return
            place = self._stubs.index(stub)
            before = self._stubs[place - 1]
            goes_on = await before.interrupt()
            stub.drain()
            before.output = stub.output
            del self._stubs[place]
            if goes_on:
                before.start()

    def _find(self, entry: ToxicEntry) -> Stub | None:
        return next((stub for stub in self._stubs if stub.entry is entry), None)

    async def close(self) -> None:
        async with self._change:
            self._closed = True
            for stub in self._stubs:
                await stub.interrupt()
