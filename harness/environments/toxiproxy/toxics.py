"""All toxics of the API, by type name."""

from __future__ import annotations

import asyncio
import math
from typing import ClassVar, Final

from harness.cluster import StreamQuality
from harness.environments.toxiproxy.stub import Noop, Stub, Toxic

_PIECE_S: Final = 0.1
_STALL_MS_MIN: Final = 3_600_000


class Bandwidth(Toxic, frozen=True):
    """Throttles a stream to `rate` KB per second (1 KB is 1000 bytes).

    Bytes pass in pieces, each of which takes at most a tenth of a second. With a rate of zero or
    less, no bytes pass until the toxic is changed or removed. (Upstream crashes for a rate below
    zero.)
    """

    rate: int = 0

    @property
    def blocks(self) -> bool:
        return self.rate <= 0

    async def pipe(self, stub: Stub) -> None:
        loop = asyncio.get_running_loop()
        free_at_s = loop.time()
        while await stub.receive():
            if self.rate <= 0:
                await loop.create_future()
            bytes_per_s = self.rate * 1000
            piece_bytes = max(1, int(bytes_per_s * _PIECE_S))
            while stub.held_bytes > 0:
                size = min(piece_bytes, stub.held_bytes)
                # An idle time does not allow a burst afterwards.
                free_at_s = max(free_at_s, loop.time()) + size / bytes_per_s
                await asyncio.sleep(free_at_s - loop.time())
                await stub.send(size)


class Blackhole(Toxic, frozen=True):
    """A cut: nothing passes, not even the end of a connection, until it is removed.

    Upstream lacks this toxic. When the cut is removed, a connection that lost bytes is reset, since
    a byte stream cannot continue with a gap. An idle connection continues, as with TCP.
    """

    @property
    def blocks(self) -> bool:
        return True

    async def pipe(self, stub: Stub) -> None:
        while await stub.receive():
            stub.swallow()
        await asyncio.get_running_loop().create_future()

    def cleanup(self, stub: Stub) -> bool:
        stub.swallow()
        if stub.swallowed_bytes > 0:
            stub.reset()
            return True
        return False


class Latency(Toxic, frozen=True):
    """Delays each chunk by `latency` ms, plus or minus up to `jitter` ms.

    The order of bytes stays the same, so a chunk also waits for its predecessors. Removing the
    toxic releases all held chunks at once.
    """

    buffer_chunks: ClassVar[int] = 1024

    latency: int = 0
    jitter: int = 0

    @property
    def blocks(self) -> bool:
        # A delay that lasts longer than every fault is a stall.
        return self.latency - self.jitter >= _STALL_MS_MIN

    def _delay_s(self, stub: Stub) -> float:
        delay_ms = self.latency
        if self.jitter > 0:
            delay_ms += stub.random.randrange(2 * self.jitter) - self.jitter
        return delay_ms / 1000

    async def pipe(self, stub: Stub) -> None:
        while await stub.receive():
            wait_s = max(0.0, self._delay_s(stub) - stub.held_age_s)
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                stub.delayed(wait_s)
            await stub.send()


class LimitData(Toxic, frozen=True):
    """Closes a connection after `bytes` bytes in the toxic's direction."""

    bytes: int = 0

    async def pipe(self, stub: Stub) -> None:
        # an update of the toxic does not reset `passed_bytes`; only adding the toxic does
        while await stub.receive():
            left = max(0, self.bytes - stub.passed_bytes)
            await stub.send(min(left, stub.held_bytes))
            if stub.passed_bytes >= self.bytes:
                stub.swallow()
                return


class ResetPeer(Toxic, frozen=True):
    """Resets a connection `timeout` ms after its first bytes, or its end, arrive.

    The toxic holds the first chunk until the reset, so no bytes are lost before.
    """

    timeout: int = 0

    async def pipe(self, stub: Stub) -> None:
        # Reset both directions, so that neither end sees an orderly close.
        await stub.receive()
        await asyncio.sleep(self.timeout / 1000)
        stub.reset()


class Slicer(Toxic, frozen=True):
    """Cuts the data into pieces of about `average_size` bytes, `delay` microseconds apart."""

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    def _sizes(self, stub: Stub) -> list[int]:
        """Return the sizes of the held chunk's pieces: it is halved with random variation."""
        # limited, because upstream's recursion never ends for some values
        average = max(1, self.average_size)
        variation = min(max(0, self.size_variation), average - 1)
        sizes: list[int] = []
        open_ranges = [(0, stub.held_bytes)]
        while open_ranges:
            start, end = open_ranges.pop()
            if end - start - average <= variation:
                sizes.append(end - start)
                continue
            middle = start + (end - start) // 2
            if variation > 0:
                middle += stub.random.randrange(2 * variation) - variation
            middle = min(max(middle, start + 1), end - 1)
            open_ranges += [(middle, end), (start, middle)]
        return sizes

    async def pipe(self, stub: Stub) -> None:
        while await stub.receive():
            for size in self._sizes(stub):
                await stub.send(size)
                await asyncio.sleep(self.delay / 1e6)


class SlowClose(Toxic, frozen=True):
    """Delays the end of a stream by `delay` ms."""

    delay: int = 0

    async def pipe(self, stub: Stub) -> None:
        await super().pipe(stub)
        await asyncio.sleep(self.delay / 1000)


class Timeout(Toxic, frozen=True):
    """Swallows all bytes, and closes a connection after `timeout` ms without bytes (0: never).

    As in upstream, the end of the stream still passes, each chunk restarts the timeout, and
    removing the toxic closes the connection, since its stream has a gap.
    """

    timeout: int = 0

    @property
    def blocks(self) -> bool:
        return True

    async def pipe(self, stub: Stub) -> None:
        wait_s = self.timeout / 1000 if self.timeout > 0 else None
        try:
            while True:
                async with asyncio.timeout(wait_s):
                    received = await stub.receive()
                if not received:
                    return
                stub.swallow()
        except TimeoutError:
            return

    def cleanup(self, stub: Stub) -> bool:
        stub.swallow()
        return True


TOXICS: Final[dict[str, type[Toxic]]] = {
    "bandwidth": Bandwidth,
    "blackhole": Blackhole,
    "latency": Latency,
    "limit_data": LimitData,
    "noop": Noop,
    "reset_peer": ResetPeer,
    "slicer": Slicer,
    "slow_close": SlowClose,
    "timeout": Timeout,
}


def toxics_of(quality: StreamQuality) -> list[tuple[str, dict[str, int]]]:
    """Return the toxics for a quality of streams, as (type, attributes), in chain order."""
    toxics: list[tuple[str, dict[str, int]]] = []
    if quality.slice_bytes:
        gap_us = math.ceil(quality.gap_ms * 1000)
        size = {"average_size": quality.slice_bytes, "size_variation": 0}
        toxics.append(("slicer", size | {"delay": gap_us}))
    if quality.reset_after_ms is not None:
        toxics.append(("reset_peer", {"timeout": math.ceil(quality.reset_after_ms)}))
    return toxics
