"""Broken write paths of masters, which run only if the defect is switched on.

The correct path follows a contract (`leader_term.py`): lock, copy, one batch, commit, publish,
calls. Three defects violate the order of these steps, as Kudu did until 2016 (ORDER-CREATE,
ORDER-DELETE, ORDER-REPLACE). Another defect writes an operation in several batches (KUDU-495). The
last defect hides a table briefly during a rename, as Kudu still does (RENAME-GAP). The correct
path is in the caller of each function. Events let a nemesis inject a fault between two steps.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from harness.env import Env
from targets.kudu.master.catalog.plan import Plan
from targets.kudu.master.catalog.records import Reply, TableState, TabletState
from targets.kudu.master.catalog.sys_catalog import Applied
from targets.kudu.master.errors import RefusedError, write_lost
from targets.kudu.master.leader_term import Epoch
from targets.kudu.messages import Schema

GAP_S: Final = 0.0002
"""The pause, in seconds, between two in-memory steps. In Kudu, other threads can run then."""


async def create_unordered(env: Env, epoch: Epoch, plan: Plan, reply: Reply) -> None:
    """Publish a new table before it is replicated (defect ORDER-CREATE). Raises `RefusedError`.

    The maps show the new table at once, in state UNKNOWN and without a schema. Then the tablets and
    the table are replicated one after another. If the replication fails, the maps drop the table,
    so clients can see a table that is never created.
    """
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


def send_deletes(env: Env, epoch: Epoch, plan: Plan) -> None:
    """Call tablet servers before the table's deletion is replicated (defect ORDER-DELETE)."""
    epoch.tasks.abort_table(plan.table_id)
    epoch.tasks.submit(plan.calls)
    env.event("delete-rpc-sent", table=plan.table_id)


async def replace_unordered(env: Env, epoch: Epoch, plan: Plan) -> None:
    """Publish new tablets before they are replicated (defect ORDER-REPLACE).

    If the replication fails, the maps drop the new tablets and then restore the old ones. Between
    these two steps the table lacks a tablet. Raises `RefusedError`.
    """
    tablets = epoch.catalog.tablets
    before = [tablets[t.id] for t in plan.tablets if t.state is TabletState.REPLACED]
    if not before:
        await epoch.write(tablets=plan.tablets)
        epoch.tasks.submit(plan.calls)
        return
    fresh = [tablet for tablet in plan.tablets if tablet.id not in tablets]
    replaced = [tablet for tablet in plan.tablets if tablet.state is TabletState.REPLACED]
    epoch.catalog.publish_unlogged((), [*replaced, *fresh])
    env.event("replacement-published", table=plan.table_id)
    try:
        await epoch.write(tablets=plan.tablets)
    except RefusedError:
        epoch.catalog.take_back_tablets(fresh)
        await asyncio.sleep(GAP_S)
        epoch.catalog.publish_unlogged((), before)
        raise
    env.event("assignments-replicated", table=plan.table_id)
    epoch.tasks.submit(plan.calls)


async def write_split(
    env: Env, epoch: Epoch, plan: Plan, reply: Reply, *, is_delete: bool
) -> Applied:
    """Write an operation on a table in several batches (defect KUDU-495-SPLIT).

    A create writes the tablets first, then the table. A delete writes the table first, then each
    tablet. Raises `RefusedError`.
    """
    if not plan.tablets:
        return await epoch.write(plan.tables, reply=reply)
    if not is_delete:
        await epoch.write(tablets=plan.tablets)
        env.event("tablets-replicated", table=plan.table_id)
        return await epoch.write(plan.tables, reply=reply)
    applied = await epoch.write(plan.tables, reply=reply)
    env.event("table-replicated", table=plan.table_id)
    try:
        for tablet in plan.tablets:
            await epoch.write(tablets=[tablet])
            env.event("tablet-replicated", tablet=tablet.id)
    # the table is already deleted, so the operation has taken effect
    except RefusedError as refusal:
        raise write_lost(refusal.error.message) from refusal
    return applied


async def rename_with_gap(epoch: Epoch, plan: Plan, reply: Reply) -> Applied:
    """Rename a table so that neither its old nor its new name resolves for a moment (RENAME-GAP).

    The table's id still resolves. Raises `RefusedError`.
    """
    assert plan.reserve is not None
    epoch.catalog.hidden[plan.reserve] = None
    try:
        applied = await epoch.write(plan.tables, plan.tablets, reply=reply)
        await asyncio.sleep(GAP_S)
    finally:
        epoch.catalog.show(plan.reserve, plan.table_id)
    return applied
