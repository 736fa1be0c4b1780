"""Close the connection after `bytes` bytes."""

from __future__ import annotations

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["LimitData"]


class LimitData(Toxic, frozen=True):
    """Pass a number of bytes, then end."""

    bytes: int = 0

    async def pipe(self, stub: Stub) -> None:
        """Count over the life of the toxic on this connection, updates included."""
        while await stub.receive():
            left = max(0, self.bytes - stub.passed_bytes)
            await stub.send(min(left, stub.held_bytes))
            if stub.passed_bytes >= self.bytes:
                stub.swallow()
                return
