"""The leader's background loop: every second, or when woken.

Places PREPARING tablets, replaces those that stay CREATING, completes alters that all tablets have
reported. One table at a time, under its lock, one batch each.
"""

from __future__ import annotations

from targets.kudu.context import NodeContext
from targets.kudu.master.assignment import (
    Moment,
    plan_assignments,
    plan_completion,
    tables_with_work,
)
from targets.kudu.master.epoch import Epoch
from targets.kudu.master.refusals import RefusedError
from targets.kudu.master.tservers import TServerMap

__all__ = ["run_background"]


async def run_background(node: NodeContext, epoch: Epoch, tservers: TServerMap) -> None:
    """Work until the leadership ends."""
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
        await epoch.wake.wait(interval_s)


async def _settle(node: NodeContext, epoch: Epoch, tservers: TServerMap, table_id: str) -> None:
    catalog, clock, flags = epoch.catalog, node.env.clock, node.flags
    if table_id not in catalog.unsettled:
        return
    moment = Moment(clock.wall_ns(), clock.monotonic_ns(), epoch.ready_ns)
    unresponsive_ns = flags.tserver_unresponsive_timeout_ms * 1_000_000
    plan = plan_assignments(
        catalog,
        catalog.tables[table_id],
        tservers.alive(moment.monotonic_ns, unresponsive_ns),
        flags,
        moment,
        rng=node.env.random,
        new_id=node.new_id,
    )
    if plan.tablets:
        await epoch.write(tablets=plan.tablets)
        epoch.tasks.submit(plan.calls)
        epoch.check()
    completion = plan_completion(catalog, catalog.tables[table_id])
    if completion is not None:
        await epoch.write(completion.tables)
