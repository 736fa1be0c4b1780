"""An administrator's access to a cluster: calls to its masters and servers, with time limits.

A tool waits for a leader, as Kudu's own client does. It sends each request once and reports the
answer. It sends a request again only if a master refused it because the master does not lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from harness.env import Env
from targets.kudu import messages as m
from targets.kudu.rpc import Call, Caller, R_co, RpcError

LOCATIONS_MAX: Final = 100_000
"""The number of tablets to ask for. No table has more."""
_AT_ONCE: Final = 16
"""Maximum number of concurrent calls."""
_PAUSE_S: Final = 0.25
_NOT_LEADING: Final = frozenset(
    {m.MasterErrorCode.NOT_THE_LEADER, m.MasterErrorCode.CATALOG_MANAGER_NOT_INITIALIZED}
)
A = TypeVar("A")
B = TypeVar("B")
Answer = TypeVar("Answer", bound=m.MasterResponse)


class ToolError(Exception):
    """An action of the tool failed. The message has the form `Status: text`, as in Kudu's tool.

    The tool then exits with code 1, like Kudu's.
    """


def state_of(server: m.TabletServerEntry) -> str:
    """Return Kudu's name for a tablet server's maintenance state, as set by an administrator."""
    return "MAINTENANCE_MODE" if server.in_maintenance else "NONE"


class Admin:
    """An administrator's calls to a cluster; `masters` are addresses as "node:port"."""

    def __init__(
        self, env: Env, rpc: Caller, masters: Sequence[str], *, timeout_s: float = 10.0
    ) -> None:
        """Limit each call to `timeout_s`."""
        self.announce = env.event
        self.masters = tuple(masters)
        self._env = env
        self._rpc = rpc
        self._timeout_s = timeout_s

    def request_id(self) -> m.RequestId:
        """Return a new request id for a change."""
        return m.RequestId(f"{self._env.random.getrandbits(64):016x}-tool", 1, "")

    async def ask(self, address: str, request: Call[R_co]) -> R_co:
        """Return the answer to a call, perhaps an error. Raises `RpcError` if no answer came."""
        return await self._rpc.call(address, request, timeout_s=self._timeout_s)

    async def must_answer(self, address: str, request: Call[R_co]) -> R_co:
        try:
            return await self.ask(address, request)
        except RpcError as error:
            raise ToolError(f"Network error: {address}: {error}") from error

    async def ask_master(self, address: str, request: Call[Answer]) -> Answer:
        """Return a master's answer. Raises `ToolError` for an error, or if no answer came."""
        return _without_error(await self.must_answer(address, request))

    async def ask_leader(self, request: Call[Answer]) -> Answer:
        """Return the answer of the leader. If there is none yet, wait for its election.

        Raises `ToolError` if the answer contains an error, if no answer came, or if no master leads
        within the time limit.
        """
        end_ns = self._env.clock.monotonic_ns() + round(self._timeout_s * 1e9)
        while True:
            late = self._env.clock.monotonic_ns() >= end_ns
            try:
                address = await self.leader()
            except ToolError:
                if late:
                    raise
            else:
                answer = await self.must_answer(address, request)
                error = answer.error
                refused = error is not None and error.code in _NOT_LEADING
                if late or not refused or (error is not None and error.indeterminate):
                    return _without_error(answer)
            await asyncio.sleep(_PAUSE_S)

    async def leader(self) -> str:
        """Return the address of the master that leads in the highest term. Raises `ToolError`."""
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
            return await self.ask(address, m.ConnectToMasterRequest())
        except RpcError:
            return None

    async def all_of(self, items: Iterable[A], question: Callable[[A], Awaitable[B]]) -> list[B]:
        """Call `question` for all items, `_AT_ONCE` at a time; return the answers in order."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(item: A) -> B:
            async with slots:
                return await question(item)

        return list(await asyncio.gather(*map(one, items)))


def _without_error(answer: Answer) -> Answer:
    if answer.error is not None:
        status = answer.error.status.name.replace("_", " ").capitalize()
        raise ToolError(f"{status}: {answer.error.message}")
    return answer
