"""The state machine a group replicates, and those who wait for it."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from targets.kudu.raft.errors import RaftError

__all__ = ["StateMachine", "Waiter"]

_TIMED_OUT: Final = object()


class StateMachine(Protocol):
    """What a group replicates. All three are synchronous and deterministic."""

    def apply(self, index: int, term: int, payload: bytes) -> Any:
        """Apply one committed write; the result goes to the proposer that waits for it."""
        ...

    def snapshot(self) -> bytes:
        """The whole state as of the last applied index."""
        ...

    def restore(self, data: bytes, index: int) -> None:
        """Replace the whole state by a `snapshot` taken at `index`."""
        ...


class Waiter:
    """Somebody who waits. Errors travel as results, so that none is ever left unretrieved."""

    __slots__ = ("future", "term")

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.term = 0

    def finish(self, outcome: Any) -> None:
        """Let the waiter go on with `outcome`, unless it has given up."""
        if not self.future.done():
            self.future.set_result(outcome)

    async def wait(self, timeout_s: float | None) -> Any:
        """The outcome. Raises `TimeoutError`, or the outcome itself if it is a `RaftError`."""
        if timeout_s is None:
            outcome = await self.future
        else:
            # Cheaper than `asyncio.timeout`, and every read of a catalog waits here.
            timer = asyncio.get_running_loop().call_later(timeout_s, self.finish, _TIMED_OUT)
            try:
                outcome = await self.future
            finally:
                timer.cancel()
            if outcome is _TIMED_OUT:
                raise TimeoutError(f"nothing happened within {timeout_s} s")
        if isinstance(outcome, RaftError):
            raise outcome
        return outcome
