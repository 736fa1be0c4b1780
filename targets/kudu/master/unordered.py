"""Switch ORDER-CREATE: CreateTable as it was before 2016-04-01.

The first of the three exceptions in the appendix of Kudu's multi-master design: the maps show the
new table at once, in state UNKNOWN and without a schema; then the tablets and the table are
replicated one after another; a failure takes the table back. Clients can see a table that never
comes to be. The events let a nemesis hit the window.
"""

from __future__ import annotations

import msgspec

from harness.env import Env
from targets.kudu.master.epoch import Epoch
from targets.kudu.master.plan import Plan
from targets.kudu.master.records import Reply, TableState, TabletState
from targets.kudu.messages import Schema

__all__ = ["create_unordered"]


async def create_unordered(env: Env, epoch: Epoch, plan: Plan, reply: Reply) -> None:
    """Publish, then replicate. Raises `RefusedError` after taking the table back."""
    (table,) = plan.tables
    blank = msgspec.structs.replace(
        table, state=TableState.UNKNOWN, schema=Schema(()), comment="", owner=""
    )
    blanks = [msgspec.structs.replace(tablet, state=TabletState.UNKNOWN) for tablet in plan.tablets]
    async with epoch.locked([table.id]):
        epoch.catalog.publish_unlogged([blank], blanks)
        env.event("published", table=table.id, name=table.name)
        try:
            await epoch.write(tablets=plan.tablets)
            env.event("tablets-replicated", table=table.id)
            await epoch.write(tables=plan.tables, reply=reply)
            env.event("table-replicated", table=table.id)
        finally:
            epoch.catalog.take_back_unlogged(table.id)
    epoch.after_commit(plan.calls)
