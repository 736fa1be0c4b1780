"""Reads on any master, with a bound on the age of the answer (KUDU-500; Kudu has no such reads).

A master asks the leader for a read index (`ConsensusService.ReadIndex`). The leader answers after a
majority has confirmed its leadership. All operations acknowledged *before the request was sent* are
at or before that index. Once this master has applied the index, its state is as new as the request.
The age of the state is measured from the sending of the request, on this master's own monotonic
clock. So neither another clock nor a message delay can make the bound too small. The clock may be
slow, so the bound is the measured age divided by `_RATE_MIN`.

Concurrent reads share a request. A read takes effect when it is evaluated, so the delay of its
answer adds no staleness.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from targets.kudu.bugs import Bug
from targets.kudu.consensus.errors import NotLeaderError
from targets.kudu.consensus.messages import ReadIndexRequest
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.master.errors import (
    invalid_argument,
    not_supported,
    too_stale,
)
from targets.kudu.master.leadership import Leadership
from targets.kudu.messages import Meta
from targets.kudu.rpc import RpcError

_WAIT_STEP_S: Final = 0.01
_RATE_MIN: Final = 0.5
"""The slowest assumed rate of this machine's clock, in clock seconds per true second.

Real clocks are much faster. A bound that is too large does no harm.
"""
Response = TypeVar("Response")


class FollowerReads:
    """Evaluates reads with a staleness bound on this master's own state."""

    def __init__(self, node: NodeContext, leadership: Leadership) -> None:
        self._node = node
        self._clock = node.env.clock
        self._leadership = leadership
        self._limit_s = node.flags.master_follower_read_timeout_ms / 1000
        # When the request for the newest applied read index was sent; None before the first one.
        self._asked_ns: int | None = None
        self._asking: asyncio.Task[None] | None = None

    async def read(
        self, max_staleness_ms: int, evaluate: Callable[[Catalog, Meta], Response]
    ) -> Response:
        """Return `evaluate(catalog, meta)` for a state that is at most `max_staleness_ms` old.

        Raises `RefusedError` if the state is still too old at the deadline.
        """
        if Bug.LEADER_READS in self._node.bugs:
            raise not_supported("max_staleness_ms: only leaders answer reads")
        if max_staleness_ms < 0:
            raise invalid_argument(
                f"max_staleness_ms is {max_staleness_ms}; it must not be negative"
            )
        limit_ns = max_staleness_ms * 1_000_000
        deadline_ns = self._clock.monotonic_ns() + int(self._limit_s * 1e9)
        while True:
            bound_ns = self._bound_ns()
            if bound_ns is not None and bound_ns <= limit_ns:
                return evaluate(self._leadership.view, self._meta(bound_ns))
            left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0:
                raise too_stale(bound_ns, max_staleness_ms)
            await self._refresh(left_s)

    def _bound_ns(self) -> int | None:
        if self._asked_ns is None:
            return None
        return int((self._clock.monotonic_ns() - self._asked_ns) / _RATE_MIN)

    def _meta(self, bound_ns: int) -> Meta:
        replica, view = self._leadership.replica, self._leadership.view
        term = 0 if replica is None else replica.term
        return Meta(self._node.uuid, term, view.revision, bound_ns)

    async def _refresh(self, left_s: float) -> None:
        if self._asking is None or self._asking.done():
            self._asking = self._node.env.spawn(self._ask(), name="follower-read")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        asked_ns = self._clock.monotonic_ns()
        replica = self._leadership.replica
        index = None if replica is None else await self._read_index(replica)
        if replica is None or index is None:
            await asyncio.sleep(_WAIT_STEP_S)  # a new leader may be elected soon
            return
        end_ns = asked_ns + int(self._limit_s * 1e9)
        while replica.applied_index < index:
            if self._clock.monotonic_ns() >= end_ns:
                return
            await asyncio.sleep(_WAIT_STEP_S)
        self._asked_ns = asked_ns

    async def _read_index(self, replica: Any) -> int | None:
        """Return the leader's read index; None if the leader is unknown or does not answer.

        A state that has applied this index has all operations acknowledged before this call.
        """
        leader = replica.leader_uuid
        if leader == self._node.uuid:
            try:
                index: int = await replica.confirm_leadership(timeout_s=self._limit_s)
            except (NotLeaderError, TimeoutError):
                return None
            return index
        address = next((p.address for p in replica.config.peers if p.uuid == leader), None)
        if leader is None or address is None:
            return None
        try:
            request = ReadIndexRequest(leader, SYSTEM_TABLET_ID)
            answer = await self._node.rpc.call(address, request, timeout_s=self._limit_s)
        except RpcError:
            return None
        return None if answer.error is not None else answer.index
