"""Delay: `latency` ms, give or take `jitter` ms, from a chunk's arrival to its departure.

The order of bytes is kept, so a chunk also waits for those before it. Removing the toxic lets
everything held go at once.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["Latency"]


class Latency(Toxic, frozen=True):
    """Delay every chunk."""

    buffer_chunks: ClassVar[int] = 1024

    latency: int = 0
    jitter: int = 0

    def _delay_s(self, stub: Stub) -> float:
        delay_ms = self.latency
        if self.jitter > 0:
            delay_ms += stub.random.randrange(2 * self.jitter) - self.jitter
        return delay_ms / 1000

    async def pipe(self, stub: Stub) -> None:
        """Delay every chunk."""
        while await stub.receive():
            wait_s = max(0.0, self._delay_s(stub) - stub.held_age_s)
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                stub.delayed(wait_s)
            await stub.send()
