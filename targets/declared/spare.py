"""Sessions of the harness's own questions, kept from one question to the next."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from harness.env import Address, ClientEnv
from targets.declared.protocols import Protocol, Session

__all__ = ["SpareSessions"]


class SpareSessions:
    """At most one idle session per node. Questions may overlap, so a session in use is not here."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._idle: dict[Address, Session] = {}

    @contextlib.asynccontextmanager
    async def session(self, env: ClientEnv, address: Address) -> AsyncIterator[Session]:
        """Lend a session with this node; after any exception it is closed."""
        session = self._idle.pop(address, None)
        if session is None:
            session = await self._protocol.open(env, address)
        try:
            session.begin()
            yield session
        except BaseException:
            await session.close()
            raise
        if address in self._idle:
            await session.close()
        else:
            self._idle[address] = session
