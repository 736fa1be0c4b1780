"""The leader's background loop; each pass starts after an interval or when `epoch.wake` is set.

The loop places PREPARING tablets, replaces tablets that stay CREATING, and completes alters that
all tablets have reported. The loop handles one table at a time, under the table's lock, with one
batch per table. Then it reviews tablets that may have too few or too many replicas, and has their
leaders add or evict replicas.
"""

from __future__ import annotations

from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.bug_paths import replace_unordered
from targets.kudu.master.errors import RefusedError
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.tablets.assignment import (
    ASSIGNED_MAX,
    Moment,
    plan_assignments,
    plan_completion,
    tables_with_work,
)
from targets.kudu.master.tablets.rereplication import plan_change, review
from targets.kudu.master.tablets.ts_manager import TServerMap, available


async def run_background(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> None:
    """Run the background loop until the leadership of `epoch` ends."""
    if Bug.KUDU_1358 in node.bugs:
        tservers.forget_liveness()
    interval_s = node.flags.catalog_manager_bg_task_wait_ms / 1000
    while epoch.is_current():
        epoch.wake.clear()
        for table_id in tables_with_work(epoch.catalog):
            try:
                async with epoch.locked([table_id]):
                    await _settle(node, epoch, tservers, table_id)
            except RefusedError as refusal:
                node.env.event("background-refused", table=table_id, error=refusal.error.message)
                if not epoch.is_current():
                    return
        _review_replicas(node, epoch, tservers)
        await epoch.wake.wait(interval_s)


async def _settle(node: NodeContext, epoch: Epoch, tservers: TServerMap, table_id: str) -> None:
    catalog = epoch.catalog
    if table_id not in catalog.unsettled:
        return
    if not catalog.all_run(table_id):
        await _assign(node, epoch, tservers, table_id)
    completion = plan_completion(catalog, catalog.tables[table_id])
    if completion is not None:
        await epoch.write(completion.tables)


async def _assign(node: NodeContext, epoch: Epoch, tservers: TServerMap, table_id: str) -> None:
    """Place a table's PREPARING tablets, and replace tablets that were not created in time."""
    catalog, clock, flags = epoch.catalog, node.env.clock, node.flags
    moment = Moment(
        clock.wall_ns(),
        clock.monotonic_ns(),
        epoch.ready_ns,
        counts_own_time_only=Bug.BG_CLOCK_RESET in node.bugs,
    )
    plan = plan_assignments(
        catalog,
        catalog.tables[table_id],
        available(catalog, tservers, flags, moment.monotonic_ns),
        flags,
        moment,
        rng=node.env.random,
        new_id=node.new_id,
    )
    if plan.tablets:
        if Bug.ORDER_REPLACE in node.bugs:
            await replace_unordered(node.env, epoch, plan)
        else:
            await epoch.write(tablets=plan.tablets)
            epoch.tasks.submit(plan.calls)
        epoch.check()
        if len(plan.tablets) >= ASSIGNED_MAX:
            epoch.wake.set()  # wake up again, since there may be more tablets to place


def _review_replicas(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> None:
    """Have the leaders of tablets with too few or too many replicas add or evict a replica."""
    catalog, flags, now_ns = epoch.catalog, node.flags, node.env.clock.monotonic_ns()
    if not catalog.to_review:
        return
    servers = available(catalog, tservers, flags, now_ns)
    for tablet_id in list(catalog.to_review):
        decision = review(catalog, tablet_id, flags, node.bugs)
        if decision is None:
            del catalog.to_review[tablet_id]
        elif not epoch.tasks.changes_config(tablet_id):
            call = plan_change(
                catalog, tablet_id, decision, servers, rng=node.env.random, now_ns=now_ns
            )
            if call is not None:
                node.env.event("replica-change", tablet=tablet_id, **call.description)
                epoch.tasks.submit([call])
