"""The cluster as an administrator's tool sees it: addresses of masters, and calls with limits.

A tool asks once and says what came; it repeats nothing that changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from targets.kudu import messages as m
from targets.kudu.client.caller import Caller
from targets.kudu.rpc import RpcError

LOCATIONS_MAX: Final = 100_000
"""Tablets of a table that are asked for; there are no more."""
_AT_ONCE: Final = 16
"""So many calls are under way at once."""
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R", bound=msgspec.Struct)


class ToolError(Exception):
    """What was asked for could not be done; the message is Kudu's `Status: text` where it has one.

    The tool then ends with 1, as Kudu's does.
    """


def state_of(server: m.TabletServerEntry) -> str:
    """The state that an administrator gave a tablet server, in Kudu's words."""
    return "MAINTENANCE_MODE" if server.in_maintenance else "NONE"


class Admin:
    """Calls to a cluster. `masters` are addresses as "node:port"."""

    def __init__(
        self,
        rpc: Caller,
        masters: Sequence[str],
        *,
        announce: Callable[..., None] | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Each call waits `timeout_s` at most. `announce` is the `Env.event` of who calls."""
        self.announce = announce or (lambda _kind, **_data: None)
        self.masters = tuple(masters)
        self._rpc = rpc
        self._timeout_s = timeout_s

    async def ask(
        self, address: str, method: str, request: msgspec.Struct, response_type: type[R]
    ) -> R:
        """The answer, whatever it says; raises `RpcError` where none came."""
        return await self._rpc.call(
            address, method, request, response_type, timeout_s=self._timeout_s
        )

    async def must_answer(
        self, address: str, method: str, request: msgspec.Struct, response_type: type[R]
    ) -> R:
        """As `ask`; raises `ToolError` where no answer came."""
        try:
            return await self.ask(address, method, request, response_type)
        except RpcError as error:
            raise ToolError(f"Network error: {address}: {error}") from error

    async def ask_master(self, address: str, method: str, request: m.Message) -> Any:
        """The answer of a master that has no error; raises `ToolError` otherwise."""
        answer: Any = await self.must_answer(address, method, request, m.METHODS[method][1])
        if answer.error is not None:
            status = answer.error.status.name.replace("_", " ").capitalize()
            raise ToolError(f"{status}: {answer.error.message}")
        return answer

    async def ask_leader(self, method: str, request: m.Message) -> Any:
        """As `ask_master`, of the master that leads."""
        return await self.ask_master(await self.leader(), method, request)

    async def leader(self) -> str:
        """The address of the master that leads in the highest term; raises `ToolError`."""
        answers = await self.all_of(self.masters, self._connect)
        leaders = [
            (answer.meta.term, address)
            for address, answer in zip(self.masters, answers, strict=True)
            if answer is not None and answer.error is None and answer.role == "LEADER"
        ]
        if not leaders:
            raise ToolError(
                f"Not found: no leader master was found among {', '.join(self.masters)}"
            )
        return max(leaders)[1]

    async def _connect(self, address: str) -> m.ConnectToMasterResponse | None:
        try:
            return await self.ask(
                address,
                "MasterService.ConnectToMaster",
                m.ConnectToMasterRequest(),
                m.ConnectToMasterResponse,
            )
        except RpcError:
            return None

    async def all_of(self, items: Iterable[A], question: Callable[[A], Awaitable[B]]) -> list[B]:
        """The question asked of each item, some at a time; answers in the order of the items."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(item: A) -> B:
            async with slots:
                return await question(item)

        return list(await asyncio.gather(*map(one, items)))
