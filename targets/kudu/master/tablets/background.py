"""The leader's background loop. A pass begins after an interval, or when `epoch.wake` is set.

A pass places PREPARING tablets, replaces tablets that stay CREATING, and completes alters that all
tablets have reported. It handles one table at a time, under the table's lock, with one batch per
table. Then it reviews tablets that may have too few or too many replicas, and asks their leaders to
add or evict replicas. Finally it removes the rows of tables that were deleted long ago.

A tablet for which there are too few servers does not hold up other tablets. Before KUDU-3452 was
fixed, such a tablet ended the pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.bug_paths import replace_unordered
from targets.kudu.master.catalog.records import Forgotten
from targets.kudu.master.errors import RefusedError
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.tablets.assignment import (
    ASSIGNED_MAX,
    Moment,
    lacks_servers,
    plan_assignments,
    plan_completion,
    tables_with_work,
)
from targets.kudu.master.tablets.cleanup import cleanup_interval_ns, plan_cleanup
from targets.kudu.master.tablets.rereplication import plan_change, review
from targets.kudu.master.tablets.ts_manager import TServer, TServerMap, available


async def run_background(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> None:
    """Run the background loop until the leadership of `epoch` ends."""
    if Bug.KUDU_1358 in node.bugs:
        tservers.forget_liveness()
    cleanup_ns = 0  # the time of the next cleanup
    interval_s = node.flags.catalog_manager_bg_task_wait_ms / 1000
    while epoch.is_current():
        epoch.wake.clear()
        places = not (Bug.KUDU_3452 in node.bugs and _ends_round(node, epoch, tservers))
        for table_id in tables_with_work(epoch.catalog):
            try:
                async with epoch.locked([table_id]):
                    await _settle(node, epoch, tservers, table_id, places=places)
            except RefusedError as refusal:
                node.env.event("background-refused", table=table_id, error=refusal.error.message)
                if not epoch.is_current():
                    return
        _review_replicas(node, epoch, tservers)
        now_ns = node.env.clock.monotonic_ns()
        if now_ns >= cleanup_ns and Bug.KUDU_3344 not in node.bugs:
            cleanup_ns = now_ns + cleanup_interval_ns(node.flags)
            await _clean_up(node, epoch, tservers)
        await epoch.wake.wait(interval_s)


def _ends_round(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> bool:
    """Whether a tablet has too few servers, which ends the pass (defect KUDU-3452)."""
    catalog = epoch.catalog
    moment, alive = _now(node, epoch, tservers)
    return any(
        lacks_servers(catalog, catalog.tables[table_id], alive, node.flags, moment)
        for table_id in tables_with_work(catalog)
    )


def _now(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> tuple[Moment, Sequence[TServer]]:
    clock = node.env.clock
    moment = Moment(
        clock.wall_ns(),
        clock.monotonic_ns(),
        epoch.ready_ns,
        counts_own_time_only=Bug.BG_CLOCK_RESET in node.bugs,
    )
    return moment, available(epoch.catalog, tservers, node.flags, moment.monotonic_ns)


async def _settle(
    node: NodeContext, epoch: Epoch, tservers: TServerMap, table_id: str, *, places: bool
) -> None:
    catalog = epoch.catalog
    if table_id not in catalog.unsettled:
        return
    if places and not catalog.all_run(table_id):
        await _assign(node, epoch, tservers, table_id)
    completion = plan_completion(catalog, catalog.tables[table_id])
    if completion is not None:
        await epoch.write(completion.tables)


async def _assign(node: NodeContext, epoch: Epoch, tservers: TServerMap, table_id: str) -> None:
    catalog, flags = epoch.catalog, node.flags
    moment, alive = _now(node, epoch, tservers)
    plan = plan_assignments(
        catalog,
        catalog.tables[table_id],
        alive,
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
            epoch.wake.set()  # there may be more tablets to place


async def _clean_up(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> None:
    catalog, now_ns = epoch.catalog, node.env.clock.wall_ns()

    def plan() -> Forgotten:
        return plan_cleanup(catalog, tservers, epoch.tasks.tablets(), node.flags, now_ns)

    rows = plan()
    if not rows:
        return
    owners = {catalog.tablets[tablet_id].table_id for tablet_id in rows.tablets}
    try:
        async with epoch.locked(owners.union(rows.tables)):
            if plan() == rows:  # otherwise the next pass tries again
                await epoch.write(forgotten=rows)
                node.env.event("rows-forgotten", tables=len(rows.tables), tablets=len(rows.tablets))
    except RefusedError as refusal:
        node.env.event("background-refused", table="", error=refusal.error.message)


def _review_replicas(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> None:
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
