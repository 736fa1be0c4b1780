"""Cut the data into pieces of about `average_size` bytes, `delay` microseconds apart."""

from __future__ import annotations

import asyncio

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["Slicer"]


class Slicer(Toxic, frozen=True):
    """Slice chunks."""

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    def _sizes(self, stub: Stub) -> list[int]:
        """Halve (give or take the variation) until every piece is about average; in order."""
        # Upstream's recursion never ends for a size below one or a variation above the average.
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
        """Send piece by piece."""
        while await stub.receive():
            for size in self._sizes(stub):
                await stub.send(size)
                await asyncio.sleep(self.delay / 1e6)
