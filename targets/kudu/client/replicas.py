"""Sends requests to one tablet, trying one replica after another until a replica answers.

The client tries the next replica after a network error, and after the answers TABLET_NOT_FOUND and
TABLET_NOT_RUNNING. A replica that answers that it does not lead counts as a follower from then on
(`client/batcher.cc`, `client/meta_cache.cc`). When all replicas have failed, the client pauses and
asks a master for the tablet's locations, with a short time limit. If no master answers, the client
tries the same replicas again. Every RPC is an attempt in the history.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Generic, TypeVar

from harness.env import Env
from harness.ops import Attempt
from targets.kudu import messages as m
from targets.kudu.client.classify import rpc_error_text
from targets.kudu.client.session import Deadline, RetryPolicy
from targets.kudu.client.tables import Gone, Table, TableCache, Tablet
from targets.kudu.rpc import Call, Caller, RpcError

_ASK_MASTER_S: Final = 0.5
"""The time limit of a call to a master, after all known replicas failed."""
_ELSEWHERE: Final = frozenset(
    {
        m.TabletErrorCode.TABLET_NOT_FOUND,
        m.TabletErrorCode.TABLET_NOT_RUNNING,
        m.TabletErrorCode.WRONG_SERVER_UUID,
        m.TabletErrorCode.NOT_THE_LEADER,
    }
)
FINAL: Final = frozenset(
    {
        m.TabletErrorCode.MISMATCHED_SCHEMA,
        m.TabletErrorCode.INVALID_SCAN_SPEC,
        m.TabletErrorCode.INVALID_SNAPSHOT,
    }
)
"""Errors that another attempt would not change."""
TOO_LATE: Final = "TIMED_OUT: the deadline passed"
R = TypeVar("R", bound=m.TabletResponse)


@dataclasses.dataclass(slots=True)
class Target:
    """The tablet that an operation is sent to. `tried` has the replicas that failed this round."""

    name: str
    table: Table
    tablet: Tablet
    deadline: Deadline
    attempts: list[Attempt]
    any_replica: bool = False  # if false, only the leader may answer the request
    tried: list[str] = dataclasses.field(default_factory=list)
    rounds: int = 0
    gone: bool = False
    """Whether a master reported that the table is gone or was replaced."""

    node: str | None = None
    """The node of the latest attempt."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answered(Generic[R]):
    """The outcome of one attempt: `response`, which may contain an error, or `failure`."""

    response: R | None
    failure: RpcError | None
    node: str

    @property
    def error(self) -> m.TabletError | None:
        return None if self.response is None else self.response.error

    @property
    def text(self) -> str:
        if self.failure is not None:
            return rpc_error_text(self.failure)
        return "ok" if self.error is None else f"{self.error.code.name}: {self.error.message}"


def _leads(response: Any) -> bool:
    """Whether a leader answered. Only leaders answer writes; a scan's answer has the role."""
    return not isinstance(response, m.ScanResponse) or response.replica.role == "LEADER"


class Replicas:
    """Sends one client's requests to the replicas of tablets."""

    def __init__(self, env: Env, rpc: Caller, tables: TableCache, policy: RetryPolicy) -> None:
        self._env = env
        self._rpc = rpc
        self._tables = tables
        self._policy = policy

    async def attempt(self, target: Target, request: Call[R], limit_s: float) -> Answered[R] | None:
        """Make one RPC to the next replica; return `None` at the deadline or if the table is gone.

        After an answer that this replica cannot serve the request, the next attempt uses another
        one.
        """
        address = await self._next(target)
        if address is None or target.deadline.left_s <= 0:
            return None
        node = target.node = address.partition(":")[0]
        start_ns = self._env.clock.monotonic_ns()
        response: R | None = None
        failure: RpcError | None = None
        try:
            timeout_s = target.deadline.limit_s(limit_s)
            response = await self._rpc.call(address, request, timeout_s=timeout_s)
        except RpcError as error:
            failure = error
        answered = Answered(response, failure, node)
        end_ns = self._env.clock.monotonic_ns()
        target.attempts.append(Attempt(node, start_ns, end_ns, answered.text))
        self._learn(target, address, answered)
        return answered

    def _learn(self, target: Target, address: str, answered: Answered[Any]) -> None:
        error = answered.error
        if answered.failure is not None or (error is not None and error.code in _ELSEWHERE):
            target.tried.append(address)
            if target.tablet.leader == address:
                target.tablet.leader = None
        elif error is None and _leads(answered.response):
            target.tablet.leader = address

    async def pause(self, target: Target) -> None:
        target.rounds += 1
        await target.deadline.pause(self._policy.backoff_s(target.rounds))

    async def _next(self, target: Target) -> str | None:
        address = self._untried(target)
        if address is not None:
            return address
        await self.pause(target)
        await self._relocate(target)
        target.tried.clear()
        return None if target.gone else self._untried(target)

    async def _relocate(self, target: Target) -> None:
        try:
            table = await self._tables.ask(target.name, target.deadline.within(_ASK_MASTER_S))
        except Gone:
            target.gone = True
            return
        if table is None:
            return
        tablet = next((t for t in table.tablets if t.tablet_id == target.tablet.tablet_id), None)
        if table.table_id != target.table.table_id or tablet is None:
            target.gone = True
            return
        target.table, target.tablet = table, tablet

    def _untried(self, target: Target) -> str | None:
        tablet = target.tablet
        left = [address for address in tablet.replicas if address not in target.tried]
        if not left:
            return None
        if not target.any_replica:
            return tablet.leader if tablet.leader in left else left[0]
        return left[self._env.random.randrange(len(left))]
