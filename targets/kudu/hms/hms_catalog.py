"""DDL in a cluster with a metastore, in Kudu's order (`CatalogManager`, `hms/hms_catalog.cc`).

A *listener* on the leading master reads the metastore's log of events and carries them out.

* create: The listener catches up with the log, the master reserves the name, and the metastore
  creates the entry. When the listener reaches the entry's event (`notification_log_listener`), the
  master writes the table. If the write fails, the master tries to drop the entry.
* drop, rename: The listener catches up, the metastore makes the change, and the listener carries
  out the event. Only then does the master acknowledge the request.
* columns: The master writes the change, and then tries to make it in the metastore as well.

The metastore may refuse a change because a table with that name exists or is missing. If the reason
is an event that the listener will still carry out, the master waits for the event and plans the
request again. Every refusal therefore agrees with Kudu's own catalog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from targets.hive import api
from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.hms.client import HmsError
from targets.kudu.hms.entries import bad_hms_name
from targets.kudu.hms.master_side import HmsSide
from targets.kudu.hms.notification_log_listener import DROPPED, Creating
from targets.kudu.master.catalog.alter import plan_alter
from targets.kudu.master.catalog.catalog_manager import Ddl, confirmed
from targets.kudu.master.catalog.plan import Plan
from targets.kudu.master.catalog.records import Reply, TableRecord
from targets.kudu.master.errors import RefusedError, busy, invalid_schema, write_lost
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import (
    AlterTableRequest,
    AppStatus,
    CreateTableRequest,
    DeleteTableRequest,
    MasterErrorCode,
    RequestId,
    TableIdentifier,
)

ATTEMPTS_MAX: Final = 5
"""Maximum number of times that a request is planned while the two catalogs disagree."""
_ELSEWHERE: Final = frozenset(
    {api.ALREADY_EXISTS, api.NO_SUCH_OBJECT, api.INVALID_OPERATION, api.META}
)
"""Refusals that reflect the metastore's state, which this master may not know yet."""


class _TakenError(Exception):
    """The metastore already has a table with the name of the new table."""


class HmsDdl(Ddl):
    """DDL in a cluster with a metastore. `epoch` is the leadership in which a call runs."""

    def __init__(self, node: NodeContext, tservers: TServerMap, hms: HmsSide) -> None:
        super().__init__(node, tservers)
        self._hms = hms
        self._bugs = node.bugs

    async def create(self, epoch: Epoch, request: CreateTableRequest) -> Reply:
        """Create a table under its lower-cased name."""
        request = msgspec.structs.replace(request, name=request.name.lower())
        return await super().create(epoch, request)

    async def alter(self, epoch: Epoch, request: AlterTableRequest) -> Reply:
        """Alter a table. A rename comes first; it is made in the metastore."""
        request = msgspec.structs.replace(request, table=_lower(request.table))
        if request.new_table_name is None:
            return await self._alter_columns(epoch, request)
        new_name = request.new_table_name.lower()

        async def execute() -> Reply:
            reply = await self._rename(epoch, request, new_name)
            if not (request.steps or request.num_replicas):
                return reply
            which = TableIdentifier(table_id=reply.table_id)
            rest = msgspec.structs.replace(request, table=which, new_table_name=None)
            return await self._on_table(
                epoch,
                which,
                request.request_id,
                lambda: plan_alter(
                    epoch.catalog,
                    rest,
                    self._flags,
                    now_ns=self._env.clock.wall_ns(),
                    new_id=self._node.new_id,
                ),
            )

        return await self._once(epoch, request.request_id, execute)

    async def delete(self, epoch: Epoch, request: DeleteTableRequest) -> Reply:
        """Delete a table by dropping it in the metastore."""
        which = _lower(request.table)
        return await self._once(
            epoch, request.request_id, lambda: self._drop(epoch, which, request.request_id)
        )

    # --- create ------------------------------------------------------------------------------

    async def _create(self, epoch: Epoch, request: CreateTableRequest) -> Reply:
        problem = bad_hms_name(request.name)
        if problem is not None:
            raise invalid_schema(problem)
        for _ in range(ATTEMPTS_MAX):
            await self._catch_up(epoch)
            with contextlib.suppress(_TakenError):
                return await super()._create(epoch, request)
        raise _refused(f"it has a table {request.name} that Kudu does not know")

    async def _catch_up(self, epoch: Epoch) -> None:
        try:
            await self._hms.wait_caught_up(epoch)
        except HmsError as error:
            raise _refused(error) from error

    async def _commit(
        self, epoch: Epoch, plan: Plan, request_id: RequestId, *, is_delete: bool = False
    ) -> Reply:
        if is_delete or not plan.tables or plan.table_id in epoch.catalog.tables:
            return await super()._commit(epoch, plan, request_id, is_delete=is_delete)
        (table,) = plan.tables
        creating = self._hms.creating(epoch)
        epoch.catalog.reserve(table.name, f"the operation {request_id.nonce!r}")
        creating[table.id] = create = Creating()
        is_reserved = True
        try:
            await self._create_entry(table)
            try:
                await self._hms.wait_turn(epoch, create)
                epoch.catalog.release(table.name)  # `super()._commit` reserves the name again
                is_reserved = False
                return await super()._commit(epoch, plan, request_id)
            except RefusedError as refusal:
                # If the outcome is unknown, the next leader decides about the entry (`Repair`).
                # With the defect CREATE-HMS-GHOST, this master drops the entry anyway.
                if not refusal.error.indeterminate or Bug.CREATE_HMS_GHOST in self._bugs:
                    await self._drop_entry(table)
                raise
            except HmsError as error:
                await self._drop_entry(table)
                raise _refused(error) from error
        finally:
            if is_reserved:
                epoch.catalog.release(table.name)
            del creating[table.id]
            create.end()

    async def _create_entry(self, table: TableRecord) -> None:
        retried = Bug.HMS_CREATE_RETRY in self._bugs
        self._env.event("hms-creating", table=table.id, name=table.name)
        try:
            await self._hms.catalog.create(table, "" if retried else table.id)
        except HmsError as error:
            if error.kind == api.ALREADY_EXISTS and retried:
                # A retry may find the entry that its own first call created, and take it for
                # another client's.
                raise RefusedError(
                    MasterErrorCode.TABLE_ALREADY_PRESENT,
                    AppStatus.ALREADY_PRESENT,
                    f"the table {table.name!r} already exists in the metastore",
                ) from error
            if error.kind == api.ALREADY_EXISTS and not error.maybe_done:
                raise _TakenError from error
            if error.maybe_done:
                await self._drop_entry(table)
            raise _refused(error) from error
        self._env.event("hms-created", table=table.id, name=table.name)

    async def _drop_entry(self, table: TableRecord) -> None:
        try:
            await self._hms.catalog.drop(table.name, table.id)
        except HmsError as error:
            self._env.event("hms-roll-back-failed", table=table.id, why=str(error))
        else:
            self._env.event("hms-rolled-back", table=table.id)

    # --- drop and rename ---------------------------------------------------------------------

    async def _drop(self, epoch: Epoch, which: TableIdentifier, request_id: RequestId) -> Reply:
        def look() -> TableRecord:
            return epoch.catalog.find(which)

        async def drop(table: TableRecord, marker: str) -> bool:
            del marker
            await self._hms.catalog.drop(table.name, table.id)
            return True

        return await self._through(epoch, request_id, look, drop, None)

    async def _rename(self, epoch: Epoch, request: AlterTableRequest, new_name: str) -> Reply:
        problem = bad_hms_name(new_name)
        if problem is not None:
            raise invalid_schema(problem)
        asked = AlterTableRequest(request.table, request.request_id, new_table_name=new_name)

        def look() -> TableRecord:
            now_ns = self._env.clock.wall_ns()
            plan = plan_alter(
                epoch.catalog, asked, self._flags, now_ns=now_ns, new_id=self._node.new_id
            )
            return epoch.catalog.tables[plan.table_id]

        async def rename(table: TableRecord, marker: str) -> bool:
            renamed = msgspec.structs.replace(table, name=new_name)
            return await self._hms.catalog.alter(table.name, renamed, marker=marker)

        return await self._through(epoch, request.request_id, look, rename, new_name)

    async def _through(
        self,
        epoch: Epoch,
        request_id: RequestId,
        look: Callable[[], TableRecord],
        change: Callable[[TableRecord, str], Awaitable[bool]],
        new_name: str | None,
    ) -> Reply:
        """Let the metastore change the table that `look` returns, and wait for the event."""
        marker = DROPPED if new_name is None else self._node.new_id()
        for _ in range(ATTEMPTS_MAX):
            await self._catch_up(epoch)
            table = await confirmed(epoch, look)
            try:
                done = await change(table, marker)
            except HmsError as error:
                if error.maybe_done:
                    raise _unknown(error) from error
                if error.kind not in _ELSEWHERE:
                    raise _refused(error) from error
                done = False
            if done:
                self._env.event("hms-changed", table=table.id, name=table.name, to=new_name)
                return await self._applied(epoch, table, request_id, marker)
        raise busy("the two catalogs do not agree about the table", ATTEMPTS_MAX)

    async def _applied(
        self, epoch: Epoch, table: TableRecord, request_id: RequestId, marker: str
    ) -> Reply:
        try:
            await self._hms.wait_caught_up(epoch)
        except HmsError as error:
            raise _unknown(error) from error
        except RefusedError as refusal:
            # The next leader may still carry out the metastore's event.
            raise write_lost(refusal.error.message) from refusal
        done = self._hms.applied(epoch, table.id, marker)
        if done is None:
            if not self._bugs & {Bug.KUDU_2475, Bug.HMS_EXLEADER_ACK}:
                raise _unknown("its event was skipped")
            done = epoch.catalog.revision, table.version + (marker != DROPPED)
        index, version = done
        return Reply(
            request_id.client_id,
            request_id.seq_no,
            request_id.nonce,
            table.id,
            version,
            index,
            epoch.term,
        )

    # --- columns -----------------------------------------------------------------------------

    async def _alter_columns(self, epoch: Epoch, request: AlterTableRequest) -> Reply:
        reply = await super().alter(epoch, request)
        if request.steps:
            table = epoch.catalog.tables.get(reply.table_id)
            if table is not None and table.is_live:
                try:
                    await self._hms.catalog.alter(table.name, table)
                except HmsError as error:
                    self._env.event("hms-alter-failed", table=table.id, why=str(error))
        return reply


def _refused(cause: object) -> RefusedError:
    return RefusedError(
        MasterErrorCode.HIVE_METASTORE_ERROR,
        AppStatus.REMOTE_ERROR,
        f"the Hive Metastore refused the change, or could not be reached: {cause}",
    )


def _unknown(cause: object) -> RefusedError:
    return RefusedError(
        MasterErrorCode.HIVE_METASTORE_ERROR,
        AppStatus.REMOTE_ERROR,
        f"the Hive Metastore may have made the change, but this was not confirmed: {cause}",
        indeterminate=True,
    )


def _lower(which: TableIdentifier) -> TableIdentifier:
    if which.table_name is None:
        return which
    return msgspec.structs.replace(which, table_name=which.table_name.lower())
