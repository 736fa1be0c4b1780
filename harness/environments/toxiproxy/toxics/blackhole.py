"""A cut: nothing gets through, not even the end of a connection, until the toxic is removed.

Not in upstream. A connection that lost something is reset when the cut heals, as no byte stream
can go on with a hole in it; one that was idle all the time goes on, as TCP's would.
"""

from __future__ import annotations

import asyncio

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["Blackhole"]


class Blackhole(Toxic, frozen=True):
    """Swallow everything."""

    async def pipe(self, stub: Stub) -> None:
        """Swallow, and keep the end of the stream to ourselves."""
        while await stub.receive():
            stub.swallow()
        await asyncio.get_running_loop().create_future()

    def cleanup(self, stub: Stub) -> bool:
        """Reset what lost bytes."""
        stub.swallow()
        if stub.swallowed_bytes > 0:
            stub.reset()
            return True
        return False
