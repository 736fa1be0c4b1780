"""A tablet server's heartbeats to masters, with one loop per master (Kudu: one thread per master).

A master has only one loop, even if the list of masters names it twice (KUDU-2684). A loop waits for
the interval or for a change of a tablet. Then it asks the tablet manager for the reports that are
due, and passes the master's answer to its `ReportTracker`. A changed tablet is reported after a
short pause, so that further changes join the report. A master that does not answer delays only its
own loop.

Answers name the current masters. The server also runs a loop for each of these. It believes the
answer of the newest term and, within a term, the answer of the leader. It always keeps the loops of
its initial list, so it can recover from a wrong answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Protocol

from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.messages import (
    TabletReport,
    TSHeartbeatRequest,
    TSHeartbeatResponse,
    TSRegistration,
)
from targets.kudu.rpc import RpcError
from targets.kudu.tserver.tablet_reports import BeatPlan, FullOn, ReportKind, ReportTracker
from targets.kudu.tserver.ts_tablet_manager import TabletManager
from targets.kudu.wakeup import Wakeup

_COALESCE_S: Final = 0.01


class ClusterMembership(Protocol):
    """Stores the id of this server's cluster, so that the server never joins another one."""

    cluster_id: str

    async def join(self, cluster_id: str) -> None:
        """Store the cluster id that the first ready leader sent; call this only once."""
        ...


class _MasterLoop:
    """The loop that sends this server's heartbeats to one master."""

    def __init__(
        self,
        node: NodeContext,
        master: str,
        membership: ClusterMembership,
        *,
        seqno: int,
        on_answer: Callable[[TSHeartbeatResponse], None],
    ) -> None:
        flags = node.flags
        self._node = node
        self.master: Final = master
        self._seqno = seqno
        self._membership = membership
        self._on_answer = on_answer
        self._interval_s = flags.heartbeat_interval_ms / 1000
        self._rpc_timeout_s = flags.heartbeat_rpc_timeout_ms / 1000
        self._tracker = ReportTracker(
            failures_before_backoff=flags.heartbeat_max_failures_before_backoff,
            full_on=_full_on(node.bugs),
        )
        # With the defect KUDU-1374, this master's acknowledgements clear the dirty marks of
        # `others`.
        self.others: Sequence[_MasterLoop] = ()
        self._wake = Wakeup()

    def mark_dirty(self, tablet_id: str) -> None:
        self._tracker.mark_dirty(tablet_id)
        if self._tracker.beat_now:
            self._wake.set()

    async def run(self, tablets: TabletManager, *, only_leader: bool = False) -> None:
        """Send heartbeats forever or, with `only_leader`, while the master leads and answers."""
        while True:
            self._wake.clear()
            await self._beat(tablets)
            if only_leader and not self._tracker.leads:
                return
            if self._tracker.beat_now:
                if self._tracker.failures == 0:
                    await asyncio.sleep(_COALESCE_S)
                # The call failed, perhaps at once, so pause. (Kudu does not pause, which wastes CPU
                # time.)
                else:
                    await asyncio.sleep(self._interval_s / 10)
                continue
            if await self._wake.wait(self._interval_s):
                await asyncio.sleep(_COALESCE_S)

    async def _beat(self, tablets: TabletManager) -> None:
        plan = self._tracker.plan()
        try:
            response = await self._node.rpc.call(
                self.master,
                self._request(plan, tablets),
                timeout_s=self._rpc_timeout_s,
            )
        except RpcError:
            self._tracker.failed()
            return
        if response.error is not None:
            self._tracker.failed()
            return
        # If logs are not synced, a power cut can make a cluster lose its id and create a new one. A
        # server that had stored the old id could never join again, so it stores no id. (Kudu's
        # servers never store a cluster id.)
        lasts = self._node.flags.log_force_fsync_all
        if lasts and response.cluster_id and not self._membership.cluster_id:
            await self._membership.join(response.cluster_id)
        own_id = self._membership.cluster_id
        if own_id and response.cluster_id and response.cluster_id != own_id:
            # The master belongs to another cluster; this server has joined its own cluster since
            # it sent the request.
            self._tracker.failed()
            return
        marked = self._tracker.dirty if self.others else {}
        self._tracker.answered(plan, response)
        for other in self.others:
            cleared = marked.keys() - self._tracker.dirty.keys()
            other._tracker.forget(sorted(cleared))  # noqa: SLF001 - one of us
        self._on_answer(response)

    def _request(self, plan: BeatPlan, tablets: TabletManager) -> TSHeartbeatRequest:
        report = None
        if plan.kind is not ReportKind.NONE:
            is_incremental = plan.kind is ReportKind.INCREMENTAL
            updated, removed = tablets.report(plan.tablet_ids if is_incremental else None)
            report = TabletReport(is_incremental, plan.sequence_number, updated, removed)
            if updated or removed:
                what, count = plan.kind.value, len(updated) + len(removed)
                self._node.env.point("report-sent", to=self.master, what=what, tablets=count)
        return TSHeartbeatRequest(
            ts_uuid=self._node.uuid,
            ts_seqno=self._seqno,
            registration=TSRegistration(self._node.address) if plan.register else None,
            report=report,
            num_live_tablets=tablets.live_tablets,
            cluster_id=self._membership.cluster_id,
        )


class Heartbeater:
    """The heartbeat loops of a tablet server, one loop per master."""

    def __init__(
        self,
        node: NodeContext,
        masters: Sequence[str],
        membership: ClusterMembership,
        *,
        seqno: int,
    ) -> None:
        """Send heartbeats to all `masters`, and to further masters that their answers name.

        `seqno` grows with every start of the server, so that masters notice a restart.
        """
        self._env = node.env
        self._node = node
        self._membership = membership
        self._seqno = seqno
        self._told = tuple(masters)
        # term of the last believed answer, and whether a leader sent it
        self._named_by = (-1, False)
        self._named: tuple[str, ...] = ()  # the masters in the last believed answer
        # Loops by their master's address. With the defect KUDU-2684, a second loop for the same
        # master has the key "ADDRESS (2)".
        self._loops: dict[str, _MasterLoop] = {}
        self._tablets: TabletManager | None = None  # set by `run`
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._follow(masters)

    @property
    def masters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(loop.master for loop in self._loops.values()))

    def mark_dirty(self, tablet_id: str) -> None:
        """Record that a tablet has changed, so every master must get a report."""
        for loop in self._loops.values():
            loop.mark_dirty(tablet_id)

    async def run(self, tablets: TabletManager) -> None:
        try:
            if Bug.LEADER_ONLY_HEARTBEATS in self._node.bugs:
                await self._follow_leader(tablets)
            self._tablets = tablets
            for key in self._loops:
                self._start(key, tablets)
            await asyncio.get_running_loop().create_future()  # until the task is cancelled
        finally:
            for task in self._tasks.values():
                task.cancel()

    def _start(self, key: str, tablets: TabletManager) -> None:
        beats = self._loops[key].run(tablets)
        self._tasks[key] = self._env.spawn(beats, name=f"heartbeat-{key}")

    async def _follow_leader(self, tablets: TabletManager) -> NoReturn:
        """Send to one master while it leads, then try the next (defect LEADER-ONLY-HEARTBEATS)."""
        pause_s = self._node.flags.heartbeat_interval_ms / 10_000
        while True:
            for loop in [*self._loops.values()]:
                await loop.run(tablets, only_leader=True)
                await asyncio.sleep(pause_s)

    def _learn(self, answer: TSHeartbeatResponse) -> None:
        named_by = (answer.meta.term, answer.leader_master)
        if answer.master_addresses and named_by >= self._named_by:
            self._named_by = named_by
            if answer.master_addresses != self._named:
                self._named = answer.master_addresses
                self._follow(self._told, self._named)

    def _follow(self, told: Sequence[str], named: Sequence[str] = ()) -> None:
        wanted = {address: address for address in (*told, *named)}
        if Bug.KUDU_2684 in self._node.bugs:
            wanted |= {f"{each} (2)": each for at, each in enumerate(told) if each in told[:at]}
        if wanted.keys() == self._loops.keys():
            return
        for key in [each for each in self._loops if each not in wanted]:
            del self._loops[key]
            task = self._tasks.pop(key, None)
            if task is not None:
                task.cancel()
        new = {key: master for key, master in wanted.items() if key not in self._loops}
        for key, master in new.items():
            self._loops[key] = _MasterLoop(
                self._node, master, self._membership, seqno=self._seqno, on_answer=self._learn
            )
            if self._tablets is not None:
                self._start(key, self._tablets)
        if Bug.KUDU_1374 in self._node.bugs:
            for loop in self._loops.values():
                loop.others = [other for other in self._loops.values() if other is not loop]


def _full_on(bugs: frozenset[Bug]) -> FullOn:
    if bugs & {Bug.KUDU_1374, Bug.KUDU_1353}:
        return FullOn.NOTHING
    return FullOn.FLIP if Bug.LEADER_FLAP_ABA in bugs else FullOn.LATER_TERM
