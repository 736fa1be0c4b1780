"""What a toxic is: a frozen set of attributes and a coroutine that moves bytes through a stub.

`pipe` may be cancelled at any await, since toxics come and go while bytes flow; nothing may be lost
or doubled then. So a toxic never owns bytes: the stub holds the chunk that was received until the
toxic sends it on or swallows it, and whoever takes over flushes what is still held.
"""

from __future__ import annotations

import random
from typing import ClassVar, Protocol

import msgspec

__all__ = ["CHUNK_BYTES_MAX", "Stub", "Toxic"]

CHUNK_BYTES_MAX = 32 * 1024


class Stub(Protocol):
    """The place of one toxic on one direction of one connection."""

    passed_bytes: int
    swallowed_bytes: int

    @property
    def random(self) -> random.Random:
        """The stream of this toxic on this connection."""
        ...

    @property
    def held_bytes(self) -> int:
        """How much of the received chunk is still held."""
        ...

    @property
    def held_age_s(self) -> float:
        """How long ago the held chunk arrived at the proxy, delays so far taken out."""
        ...

    async def receive(self) -> bool:
        """Hold the next chunk; false at the end of the stream (and on every later call)."""
        ...

    async def send(self, size_bytes: int | None = None) -> None:
        """Pass on the first bytes of what is held (all of it by default)."""
        ...

    def swallow(self) -> None:
        """Drop what is held."""
        ...

    def delayed(self, delay_s: float) -> None:
        """Note that the held chunk was delayed on purpose."""
        ...

    def reset(self) -> None:
        """Reset the whole connection, both ways."""
        ...


class Toxic(msgspec.Struct, frozen=True):
    """The attributes of a toxic, as in the API, and what it does: here, nothing."""

    buffer_chunks: ClassVar[int] = 1
    """How many chunks may wait in front of this toxic before the sender is held back."""

    async def pipe(self, stub: Stub) -> None:
        """Move bytes until the stream ends; returning ends it for the receiver as well."""
        while await stub.receive():
            await stub.send()

    def cleanup(self, stub: Stub) -> bool:
        """Called when the toxic is removed; true where the stream must end now."""
        del stub
        return False
