"""The part of the RPC client that operations need, so that tests can script it."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)


class Caller(Protocol):
    """Sends one request to one address."""

    async def call(
        self,
        address: str,
        method: str,
        request: msgspec.Struct,
        response_type: type[R],
        *,
        timeout_s: float,
    ) -> R:
        """The answer. Raises `RpcError`, whose `sent` is false when nothing was processed."""
        ...

    def close(self) -> None:
        """Drop all connections."""
        ...
