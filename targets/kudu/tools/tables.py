"""The actions of the tool that create, alter and delete tables.

Each action sends one request. As in Kudu's tool, a create or an alter returns once all tablets of
the table have applied the change.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

from harness.plugins import Said
from targets.kudu import messages as m
from targets.kudu.tools.admin import Admin, ToolError

DONE_S: Final = 60.0
"""The time limit for all tablets to apply a change, as in Kudu's tool."""
_ASK_EVERY_S: Final = 0.1


async def create(admin: Admin, options: argparse.Namespace) -> Said:
    """Create a table. Its first column is the key, which is also hashed."""
    (key, key_type), *others = options.columns
    columns = (
        m.Column(id=0, name=key, type=key_type, is_key=True, is_nullable=False),
        *(m.Column(id=0, name=name, type=column_type) for name, column_type in others),
    )
    request = m.CreateTableRequest(
        name=options.table,
        schema=m.Schema(columns),
        partition_schema=m.PartitionSchema(num_hash_buckets=options.hash, hash_columns=(key,)),
        request_id=admin.request_id(),
        num_replicas=options.replicas,
    )
    created = await admin.ask_leader(request)
    table = m.TableIdentifier(table_id=created.table_id)
    return await _until_done(admin, m.IsCreateTableDoneRequest(table), f"created {options.table}")


async def alter(admin: Admin, options: argparse.Namespace) -> Said:
    """Change the name of a table, or one of its columns."""
    steps: tuple[m.AlterStep, ...] = ()
    if options.add_column:
        name, column_type = options.add_column
        column = m.Column(id=0, name=name, type=column_type)
        steps = (m.AlterStep(m.StepType.ADD_COLUMN, column=column),)
    elif options.drop_column:
        steps = (m.AlterStep(m.StepType.DROP_COLUMN, name=options.drop_column),)
    elif options.rename_column:
        name, new_name = options.rename_column
        steps = (m.AlterStep(m.StepType.RENAME_COLUMN, name=name, new_name=new_name),)
    table = m.TableIdentifier(table_name=options.table)
    request = m.AlterTableRequest(table, admin.request_id(), steps, new_table_name=options.rename)
    altered = await admin.ask_leader(request)
    table = m.TableIdentifier(table_id=altered.table_id)
    return await _until_done(admin, m.IsAlterTableDoneRequest(table), f"altered {options.table}")


async def delete(admin: Admin, options: argparse.Namespace) -> Said:
    """Delete a table. Its tablets are deleted later, in the background."""
    table = m.TableIdentifier(table_name=options.table)
    await admin.ask_leader(m.DeleteTableRequest(table, admin.request_id()))
    return Said("")


async def _until_done(admin: Admin, request: Any, done: str) -> Said:
    try:
        async with asyncio.timeout(DONE_S):
            while not (await admin.ask_leader(request)).done:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(_ASK_EVERY_S)
    except TimeoutError:
        raise ToolError(
            f"Timed out: the masters have {done}, but not all of its tablets run after {DONE_S:g} "
            "s; see `harness kudu ksck`"
        ) from None
    return Said("")
