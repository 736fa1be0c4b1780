"""Heartbeats of tablet servers to masters, and the tablet reports in these heartbeats.

Every master notes which tablet servers are alive, but only a ready leader handles reports. A leader
asks each tablet server for a full report once in its term, so that it finds and finishes work that
an earlier leader left undone (KUDU-1374). In Kudu, a tablet server sends a full report when it sees
a new leader, and misses a change during a partition (bug LEADER-FLAP-ABA).

Most heartbeats report no change. They are answered without a task, a lock or a write.

The answer to a heartbeat names all masters. In Kudu it does not, so a tablet server must be
restarted with a new list to learn of a new master. Until then, if the new master leads, it
considers the tablet server dead and cannot place any table.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.records import TableState
from targets.kudu.master.errors import (
    RefusedError,
    not_initialized,
    not_the_leader,
    wrong_cluster,
)
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.leadership import Leadership
from targets.kudu.master.tablets.rereplication import review
from targets.kudu.master.tablets.tablet_reports import ReportPlan, plan_missing, plan_report
from targets.kudu.master.tablets.ts_manager import TServer, TServerMap
from targets.kudu.messages import (
    Meta,
    RaftConfig,
    ReportedTablet,
    TabletReport,
    TSHeartbeatRequest,
    TSHeartbeatResponse,
)

REPORTED_MAX: Final = 4096
"""Maximum number of tablets of one report that are written in one batch.

Several batches are allowed, because the tablets are independent of each other.
"""


class Heartbeats:
    """Handles `MasterService.TSHeartbeat`, the heartbeats of tablet servers."""

    def __init__(self, node: NodeContext, leadership: Leadership, tservers: TServerMap) -> None:
        self._env = node.env
        self._bugs = node.bugs
        self._asks = not node.bugs & {Bug.KUDU_1353, Bug.KUDU_1374, Bug.LEADER_FLAP_ABA}
        self._uuid = node.uuid
        self._flags = node.flags
        self._silence_ns = 2 * node.flags.heartbeat_interval_ms * 1_000_000
        self._leadership = leadership
        self._tservers = tservers
        self._named: tuple[RaftConfig, tuple[str, ...]] = (RaftConfig(-1, ()), ())

    def handle(
        self, request: TSHeartbeatRequest, _peer: str
    ) -> TSHeartbeatResponse | Coroutine[Any, Any, TSHeartbeatResponse]:
        """Handle one heartbeat; return the answer, or a coroutine if a record must change.

        A report is first judged without locks, because most reports change no record.
        """
        replica = self._leadership.replica
        if replica is None:
            return TSHeartbeatResponse(Meta(self._uuid), error=not_initialized().error)
        meta = Meta(self._uuid, replica.term)
        epoch = self._leadership.epoch
        if epoch is None and Bug.LEADER_ONLY_HEARTBEATS in self._bugs:
            return self._response(meta)  # with this defect, a follower ignores heartbeats
        ours = self._leadership.cluster_id or ""
        # A master that does not know its cluster id yet cannot check the id that a server sends.
        if request.cluster_id and not ours:
            return TSHeartbeatResponse(meta, error=not_initialized().error)
        if request.cluster_id and request.cluster_id != ours:
            self._env.event("wrong-cluster", tserver=request.ts_uuid, cluster=request.cluster_id)
            refusal = wrong_cluster(request.cluster_id, ours)
            return TSHeartbeatResponse(meta, error=refusal.error)
        server = self._hear(request, epoch)
        if server is not None and _is_idle(request):
            self._tservers.note_idle_beat(server, server.heard_ns)
        if server is None:
            return self._response(
                meta,
                leader_master=epoch is not None,
                needs_reregister=True,
                needs_full_tablet_report=epoch is not None,
            )
        if epoch is None:
            return self._response(meta)
        report = request.report
        if report is None:
            return self._answer(meta, epoch, server, request)
        if not report.updated_tablets:
            _note_handled(epoch, server, report)
            return self._answer(meta, epoch, server, request, handled=True)
        draft = self._plan(epoch, server.uuid, report.updated_tablets)
        if draft.tablets:
            return self._handle_report(meta, epoch, server, request, report, draft)
        if not epoch.is_current():
            return TSHeartbeatResponse(meta, error=not_the_leader().error)
        self._follow_up(epoch, draft)
        _note_handled(epoch, server, report)
        return self._answer(meta, epoch, server, request, handled=True)

    def _hear(self, request: TSHeartbeatRequest, epoch: Epoch | None) -> TServer | None:
        now_ns = self._env.clock.monotonic_ns()
        before = self._tservers.get(request.ts_uuid)
        was_silent = before is None or now_ns - before.heard_ns > self._silence_ns
        server = self._tservers.heard(request, now_ns)
        if server is not None and was_silent:
            # Calls to a silent server may have been dropped. A full report shows which are needed.
            server.full_report_term = -1
            if epoch is not None:
                epoch.tasks.kick(server.uuid)
                epoch.wake.set()
        return server

    async def _handle_report(
        self,
        meta: Meta,
        epoch: Epoch,
        server: TServer,
        request: TSHeartbeatRequest,
        report: TabletReport,
        draft: ReportPlan,
    ) -> TSHeartbeatResponse:
        try:
            await self._process(epoch, server.uuid, report.updated_tablets, draft)
            epoch.check()
        # Answer with an error, so that the server sends its report again.
        except RefusedError as refusal:
            return TSHeartbeatResponse(meta, error=refusal.error)
        _note_handled(epoch, server, report)
        return self._answer(meta, epoch, server, request, handled=True)

    async def _process(
        self, epoch: Epoch, ts_uuid: str, reported: Sequence[ReportedTablet], draft: ReportPlan
    ) -> None:
        """Plan a report's changes again, under the locks of the tables in `draft`, and write them.

        `draft` is the plan made without locks, which may be outdated.
        """
        catalog = epoch.catalog
        changed = sorted({tablet.table_id for tablet in draft.tablets})
        mine = [r for r in reported if _table_of(epoch, r) in changed]
        rest = [r for r in reported if _table_of(epoch, r) not in changed]
        async with epoch.locked(changed):
            plan = self._plan(epoch, ts_uuid, mine)
            if plan.tablets:
                before = [catalog.tablets[tablet.id] for tablet in plan.tablets]
                for start in range(0, len(plan.tablets), REPORTED_MAX):  # KUDU-3016
                    await epoch.write(tablets=plan.tablets[start : start + REPORTED_MAX])
                for old, new in zip(before, plan.tablets, strict=True):
                    old_leader = old.consensus and old.consensus.leader_uuid
                    if new.consensus is not None and new.consensus.leader_uuid != old_leader:
                        epoch.tasks.retarget(new.id)
        epoch.check()
        self._follow_up(epoch, plan)
        self._follow_up(epoch, self._plan(epoch, ts_uuid, rest))

    def _plan(self, epoch: Epoch, ts_uuid: str, reported: Sequence[ReportedTablet]) -> ReportPlan:
        if epoch.catalog.heard is not None:
            for replica in reported:
                epoch.catalog.heard.setdefault(replica.tablet_id, {})[ts_uuid] = None
        deletes = Bug.FENCE_ORPHAN in self._bugs
        return plan_report(epoch.catalog, ts_uuid, reported, deletes_unknown=deletes)

    def _answer(
        self,
        meta: Meta,
        epoch: Epoch,
        server: TServer,
        request: TSHeartbeatRequest,
        *,
        handled: bool = False,
    ) -> TSHeartbeatResponse:
        """Return a ready leader's answer to a heartbeat of `server`.

        The answer requests a full report, unless the server has sent one in this term; three
        defects leave this request out. A server that has joined no cluster yet receives the id of
        this cluster.
        """
        return self._response(
            meta,
            leader_master=True,
            needs_full_tablet_report=self._asks and server.full_report_term != epoch.term,
            processed_sequence=-1
            if request.report is None or not handled
            else request.report.sequence_number,
            cluster_id="" if request.cluster_id else self._leadership.cluster_id or "",
        )

    def _response(self, meta: Meta, **fields: Any) -> TSHeartbeatResponse:
        replica = self._leadership.replica
        if replica is not None and self._flags.heartbeat_names_masters:
            config = replica.config
            if config is not self._named[0]:
                self._named = config, tuple([peer.address for peer in config.peers])
            fields["master_addresses"] = self._named[1]
        return TSHeartbeatResponse(meta, **fields)

    def _follow_up(self, epoch: Epoch, plan: ReportPlan) -> None:
        """Handle the parts of a report that need no write, after the other parts have been written.

        These are schema versions, peer health and calls to tablet servers. New work wakes the
        background loop.
        """
        catalog = epoch.catalog
        for tablet_id, version in plan.versions:
            catalog.note_reported_version(tablet_id, version)
            table = catalog.tables[catalog.tablets[tablet_id].table_id]
            if table.state is TableState.ALTERING and catalog.is_fully_altered(table):
                epoch.wake.set()
        for tablet_id, view in plan.views:
            catalog.views[tablet_id] = view
            if review(catalog, tablet_id, self._flags, self._bugs) is not None:
                catalog.to_review[tablet_id] = None
                epoch.wake.set()
        for alarm in plan.alarms:
            self._env.event("report-alarm", text=alarm)
        epoch.tasks.submit(plan.calls)


def _table_of(epoch: Epoch, replica: ReportedTablet) -> str | None:
    tablet = epoch.catalog.tablets.get(replica.tablet_id)
    return None if tablet is None else tablet.table_id


def _is_idle(request: TSHeartbeatRequest) -> bool:
    report = request.report
    return request.registration is None and (
        report is None
        or (report.is_incremental and not report.updated_tablets and not report.removed_tablet_ids)
    )


def _note_handled(epoch: Epoch, server: TServer, report: TabletReport) -> None:
    if not report.is_incremental:
        server.full_report_term = epoch.term
        epoch.tasks.submit(plan_missing(epoch.catalog, server.uuid, report.updated_tablets))
