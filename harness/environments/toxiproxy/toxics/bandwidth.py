"""Throttle: `rate` KB a second (1000 bytes), in pieces of at most a tenth of a second's worth.

A rate of zero or less stops nothing at upstream's size of a chunk but cannot pass a byte either
(its loop splits by `rate * 100`, which never ends), so here it is taken as no limit.
"""

from __future__ import annotations

import asyncio

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["Bandwidth"]

_PIECE_S = 0.1


class Bandwidth(Toxic, frozen=True):
    """Pass bytes at a limited rate."""

    rate: int = 0

    async def pipe(self, stub: Stub) -> None:
        """Send a piece, wait for as long as it takes at `rate`, and so on."""
        loop = asyncio.get_running_loop()
        free_at_s = loop.time()
        while await stub.receive():
            if self.rate <= 0:
                await stub.send()
                continue
            bytes_per_s = self.rate * 1000
            piece_bytes = max(1, int(bytes_per_s * _PIECE_S))
            while stub.held_bytes > 0:
                size = min(piece_bytes, stub.held_bytes)
                # An idle time is not saved up for a later burst.
                free_at_s = max(free_at_s, loop.time()) + size / bytes_per_s
                await asyncio.sleep(free_at_s - loop.time())
                await stub.send(size)
