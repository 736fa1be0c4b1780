"""The end of the stream arrives `delay` ms late."""

from __future__ import annotations

import asyncio

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["SlowClose"]


class SlowClose(Toxic, frozen=True):
    """Delay the close."""

    delay: int = 0

    async def pipe(self, stub: Stub) -> None:
        """Pass everything on, then wait."""
        while await stub.receive():
            await stub.send()
        await asyncio.sleep(self.delay / 1000)
