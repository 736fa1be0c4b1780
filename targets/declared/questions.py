"""Sessions for the harness's own questions, such as who leads."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from harness.env import Address, ClientEnv
from targets.declared.protocols import Protocol, Session

__all__ = ["QuestionSessions"]


class QuestionSessions:
    """One session per question. It is closed afterwards, since a system has no end of its own."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol

    @contextlib.asynccontextmanager
    async def session(self, env: ClientEnv, address: Address) -> AsyncIterator[Session]:
        """Open a session with this node, and close it at the end of the question."""
        session = await self._protocol.open(env, address)
        try:
            session.begin()
            yield session
        finally:
            await session.close()
