"""Swallow everything, and close after `timeout` ms of silence; 0 swallows for ever.

As upstream: the end of the stream still gets through, each chunk starts the time again, and
removing the toxic closes the connection, since bytes are missing from it.
"""

from __future__ import annotations

import asyncio

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["Timeout"]


class Timeout(Toxic, frozen=True):
    """Swallow, then close."""

    timeout: int = 0

    async def pipe(self, stub: Stub) -> None:
        """Swallow until silence has lasted for `timeout`."""
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
        """End the stream."""
        stub.swallow()
        return True
