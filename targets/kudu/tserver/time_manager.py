"""Safe timestamps: a replica applies no further write at or below a safe timestamp.

**Why a timestamp is safe.** A write gets its timestamp when the log is applied: the larger of the
leader's proposal and the previous timestamp plus one (`tablet.py`). So timestamps rise along the
log, and are equal on all replicas. A replica that has applied an entry with a timestamp at or above
T has applied *every* entry at or below T, since later entries of the log, from any leader, are
above T. A single test suffices:

    T is safe on a replica  <=>  `machine.last_timestamp` >= T

The test needs no clock, no lease and no promise from a leader. A read at T returns the same rows on
all replicas and at all times, despite three kinds of faults. After a failover, the new leader has
every committed entry in its log, and its own entries get higher timestamps. If a leader's clock is
behind, its proposals are raised when they are applied. A paused or partitioned leader can commit no
entry, so it makes no timestamp safe.

A read at T therefore returns every acknowledged write with a timestamp up to T.

**Progress.** Without writes, the log has no entry at or above T. The leader then appends an entry
that has only a timestamp (`AdvanceOp`), which serves all waiting reads at once. A follower asks its
leader for such an entry. Kudu instead sends a safe time with each heartbeat
(`consensus/time_manager.h`), which relies on the leader continuing to lead, and on its successor's
clock being ahead.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final

from targets.kudu import messages as m
from targets.kudu.consensus.applier import Waiter
from targets.kudu.consensus.errors import RaftError
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.context import NodeContext
from targets.kudu.hybrid_clock import HybridClock
from targets.kudu.rpc import RpcError
from targets.kudu.tserver.errors import READS_WAITING_MAX
from targets.kudu.tserver.tablet import AdvanceOp, TabletMachine

_RETRY_S: Final = 0.1
_ASK_LEADER_S: Final = 1.0
"""The time limit of a call to the leader. The leader may have crashed."""
_NS: Final = 1_000_000_000


class SafeTime:
    """Waits for safe timestamps on one replica, and advances the log if necessary."""

    def __init__(
        self,
        node: NodeContext,
        *,
        replica: Replica,
        machine: TabletMachine,
        clock: HybridClock,
    ) -> None:
        self._env = node.env
        self._rpc = node.rpc
        self._replica = replica
        self._machine = machine
        self._clock = clock
        self._lag_max_s = node.flags.safe_time_max_lag_ms / 1000
        self._waiting: list[tuple[int, int, Waiter]] = []  # a heap by timestamp
        self._wait_count = 0
        self._advancing: Waiter | None = None

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def reached(self, timestamp: int) -> None:
        """Resume the reads that wait for timestamps up to `timestamp`."""
        while self._waiting and self._waiting[0][0] <= timestamp:
            heapq.heappop(self._waiting)[2].finish(None)

    async def wait(self, timestamp: int, timeout_s: float) -> None:
        """Wait at most `timeout_s` until `timestamp` is safe on this replica.

        Raises `TimeoutError`, and `OverflowError` if too many reads wait.
        """
        deadline_ns = self._now_ns() + int(min(timeout_s, self._lag_max_s) * _NS)
        while self._machine.last_timestamp < timestamp:
            left_s = (deadline_ns - self._now_ns()) / _NS
            if left_s <= 0:
                raise TimeoutError(
                    f"the timestamp {timestamp} is not safe yet: the log is at "
                    f"{self._machine.last_timestamp}"
                )
            if await self._push(timestamp, left_s):
                await self._await(timestamp, left_s)
            else:
                await self._await(timestamp, min(left_s, _RETRY_S))

    async def _await(self, timestamp: int, timeout_s: float) -> None:
        if self._machine.last_timestamp >= timestamp:
            return
        if len(self._waiting) >= READS_WAITING_MAX:
            raise OverflowError(f"{len(self._waiting)} reads wait for their timestamps already")
        waiter = Waiter()
        self._wait_count += 1
        item = (timestamp, self._wait_count, waiter)
        heapq.heappush(self._waiting, item)
        try:
            await waiter.wait(timeout_s)
        except TimeoutError:
            return
        finally:
            if item in self._waiting:
                self._waiting.remove(item)
                heapq.heapify(self._waiting)

    async def _push(self, timestamp: int, timeout_s: float) -> bool:
        replica = self._replica
        if replica.role == "LEADER":
            return await self.advance(timestamp, timeout_s)
        leader = next(
            (peer for peer in replica.config.peers if peer.uuid == replica.leader_uuid), None
        )
        if leader is None:
            return False
        try:
            response = await self._rpc.call(
                leader.address,
                m.AdvanceSafeTimeRequest(replica.group_id, timestamp),
                timeout_s=min(timeout_s, _ASK_LEADER_S),
            )
        except RpcError:
            return False
        return response.error is None

    async def advance(self, timestamp: int, timeout_s: float) -> bool:
        """Commit an entry at or above `timestamp`; return whether the commit succeeded.

        Only a leader can commit. At most one such entry is in progress, and it serves all waiting
        reads.
        """
        deadline_ns = self._now_ns() + int(timeout_s * _NS)
        while self._machine.last_timestamp < timestamp:
            left_s = (deadline_ns - self._now_ns()) / _NS
            if left_s <= 0 or self._replica.role != "LEADER":
                return False
            if self._advancing is None:
                if not await self._commit(max(timestamp, self._clock.now()), left_s):
                    return False
                continue
            try:
                async with asyncio.timeout(left_s):
                    await asyncio.shield(self._advancing.future)
            except TimeoutError:
                return False
        return True

    async def _commit(self, timestamp: int, timeout_s: float) -> bool:
        under_way = self._advancing = Waiter()
        try:
            payload = TabletMachine.encode(AdvanceOp(timestamp))
            await self._replica.replicate(payload, timeout_s=timeout_s)
        except RaftError:
            return False
        finally:
            self._advancing = None
            under_way.finish(None)
        return True

    def _now_ns(self) -> int:
        return self._env.clock.monotonic_ns()
