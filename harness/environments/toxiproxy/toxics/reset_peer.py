"""Reset the connection `timeout` ms after the first bytes (or the end) arrive."""

from __future__ import annotations

import asyncio

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["ResetPeer"]


class ResetPeer(Toxic, frozen=True):
    """Hold the first chunk, wait, reset; a connection that is not reset yet loses nothing."""

    timeout: int = 0

    async def pipe(self, stub: Stub) -> None:
        """Reset both ways, so that neither end takes it for an orderly close."""
        await stub.receive()
        await asyncio.sleep(self.timeout / 1000)
        stub.reset()
