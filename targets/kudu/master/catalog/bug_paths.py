"""Broken write paths behind switches: writes as they were before the write contract.

The contract is: lock, copy, one batch, commit, publish, calls. The switches restore the three
exceptions in the appendix of Kudu's multi-master design, fixed in March and April 2016; operations
with several writes (KUDU-495); and a gap that Kudu still has (RENAME-GAP). Each function is the
broken half of a condition in its caller. The events let a nemesis strike inside these windows.
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
"""The time that a thread may take between two steps in memory while other threads run."""


async def create_unordered(env: Env, epoch: Epoch, plan: Plan, reply: Reply) -> None:
    """ORDER-CREATE: publish, then replicate. Raises `RefusedError` after taking the table back.

    The maps show the new table at once, in state UNKNOWN and without a schema; then the tablets and
    the table are replicated one after another. Clients can see a table that is never created.
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
    """ORDER-DELETE: call tablet servers before anything is replicated."""
    epoch.tasks.abort_table(plan.table_id)
    epoch.tasks.submit(plan.calls)
    env.event("delete-rpc-sent", table=plan.table_id)


async def replace_unordered(env: Env, epoch: Epoch, plan: Plan) -> None:
    """ORDER-REPLACE: show new tablets before they are replicated.

    If the replication fails, the tablets are removed again in two steps, between which the table
    lacks a tablet.
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
    """KUDU-495-SPLIT: write an operation on a table in several batches. Raises `RefusedError`.

    A create writes the tablets first, then the table; a delete writes the table first, then each
    tablet.
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
    except RefusedError as refusal:  # the table is gone already, so a plain refusal would be wrong
        raise write_lost(refusal.error.message) from refusal
    return applied


async def rename_with_gap(epoch: Epoch, plan: Plan, reply: Reply) -> Applied:
    """RENAME-GAP: for a moment only the id resolves, no name. Raises `RefusedError`."""
    assert plan.reserve is not None
    epoch.catalog.hidden[plan.reserve] = None
    try:
        applied = await epoch.write(plan.tables, plan.tablets, reply=reply)
        await asyncio.sleep(GAP_S)
    finally:
        epoch.catalog.show(plan.reserve, plan.table_id)
    return applied
