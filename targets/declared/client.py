"""One client process of a declared system.

The client keeps one session with one node. After a failure it moves on to the next node, unless it
is pinned. If the failed attempt sent nothing, the client first pauses. A dead node refuses
connections at once, and without a pause such failures would use up the workload's rate. An
operation fails (`fail`) if the client sent no request that may have an effect. Otherwise its
outcome is unknown (`info`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from harness.env import Address, ClientEnv
from harness.ops import Attempt, Completion, OpType, Request
from targets.declared.operations import Speaker
from targets.declared.protocols import FAILURES, DeclinedError, Protocol, Session, described

__all__ = ["DeclaredClient"]

BACK_OFF_S: Final = 0.2


class DeclaredClient:
    """A `harness.plugins.Client`. Process p begins with node p modulo the number of nodes."""

    def __init__(
        self,
        env: ClientEnv,
        process: int,
        nodes: Sequence[Address],
        protocol: Protocol,
        speaker: Speaker,
        *,
        pinned: bool,
    ) -> None:
        self._env, self._nodes = env, nodes
        self._protocol, self._speaker = protocol, speaker
        self._process, self._number, self._pinned = process, process, pinned
        self._session: Session | None = None

    @property
    def _address(self) -> Address:
        return self._nodes[self._number % len(self._nodes)]

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Perform one operation; the module's docstring says how outcomes are classified."""
        address, start = self._address, self._env.clock.monotonic_ns()
        session: Session | None = None
        try:
            async with asyncio.timeout(timeout_s):
                session = await self._opened(address)
                session.begin()
                value = await self._speaker.perform(session, request, process=self._process)
            return Completion(OpType.OK, value, None, address.node, tuple(session.attempts))
        except DeclinedError as declined:
            if session is None or declined.elsewhere:
                await self._rove()
            error = None if declined.value is not None else described(declined)
            kind, value = OpType.FAIL, declined.value
        except FAILURES as failure:
            error, value = described(failure), None
            changed = session is not None and session.may_have_changed
            kind = OpType.INFO if changed else OpType.FAIL
            await self._rove()
        except BaseException:
            await self.close()
            raise
        attempts = () if session is None else tuple(session.attempts)
        # without a session, opening one failed: record this as the attempt
        if session is None and error is not None:
            end = self._env.clock.monotonic_ns()
            attempts = (Attempt(address.node, start, end, error),)
        if error is not None and (session is None or not session.sent):
            await asyncio.sleep(min(BACK_OFF_S, timeout_s / 2))
        return Completion(kind, value, error, None if error else address.node, attempts)

    async def _opened(self, address: Address) -> Session:
        if self._session is None:
            self._session = await self._protocol.open(self._env, address)
        return self._session

    async def _rove(self) -> None:
        """Drop the session. Unless the client is pinned, move on to the next node."""
        await self.close()
        self._number += not self._pinned

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
