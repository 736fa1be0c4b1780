"""Does nothing; also what a toxic becomes on connections that its toxicity spares."""

from __future__ import annotations

from harness.environments.toxiproxy.toxics.base import Stub, Toxic

__all__ = ["Noop"]


class Noop(Toxic, frozen=True):
    """Pass everything on."""

    async def pipe(self, stub: Stub) -> None:
        """Pass everything on."""
        while await stub.receive():
            await stub.send()
