"""The leader's reader of the metastore's log (`master/hms_notification_log_listener.cc`).

The listener polls at an interval, and at once if a request waits for it. It carries out each event
that drops or renames one of Kudu's tables, in one batch with the event's id. The table's id and
name must match the event. The id of the last event is always stored, and events up to that id are
skipped. The listener ends with the leadership.

**Creates.** The catalog applies the metastore's changes in the metastore's order, and creates must
keep that order too. For example, a table that was renamed and then dropped must be gone before the
next table with that name is written. A create therefore waits for its own event, and at that event
the listener waits for the create (`Creating`). Events ignore the names that creates have reserved,
because the metastore has decided whether a name was free.

**Defects.** Kudu writes its creates at once. If an event cannot be applied, Kudu's listener logs
the obstacle and continues, so the event is lost (KUDU-2475). With HMS-EXLEADER-ACK, requests that
wait on a former leader end as if the listener had caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from targets.hive.api import Event, MetaTable
from targets.hive.metastore.kudu_rules import TABLE_ID
from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.hms.client import HmsError, HmsSettings
from targets.kudu.hms.entries import RENAMED_BY, HmsCatalog
from targets.kudu.master.catalog.alter import plan_alter, plan_delete
from targets.kudu.master.catalog.plan import Plan
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.errors import RefusedError, not_the_leader
from targets.kudu.master.leader_term import Epoch
from targets.kudu.messages import (
    AlterTableRequest,
    AppStatus,
    DeleteTableRequest,
    RequestId,
    TableIdentifier,
)
from targets.kudu.wakeup import Wakeup

APPLIED_MAX: Final = 1000
AGAIN_S: Final = 0.005
DROPPED: Final = "dropped"
_NO_CLIENT: Final = RequestId("hms", 0, "")

Planner = Callable[[], Plan]


class Creating:
    """A running create. At its event, the listener resolves `turn`, and then waits for `over`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()

    def end(self) -> None:
        """Record that the create is over: the table was written, or never will be."""
        _resolve([self.turn, self.over], None)


class Listener:
    """The reader of the log in one leadership; `creating` maps table ids to running creates."""

    def __init__(
        self,
        node: NodeContext,
        epoch: Epoch,
        rows: SystemTablet,
        catalog: HmsCatalog,
        settings: HmsSettings,
        creating: dict[str, Creating],
    ) -> None:
        self._node = node
        self._env = node.env
        self._epoch = epoch
        self._rows = rows
        self._catalog = catalog
        self._settings = settings
        self._creating = creating
        self._swallows = Bug.KUDU_2475 in node.bugs
        self._wake = Wakeup()
        self._waiters: list[asyncio.Future[None]] = []
        self._applied: dict[tuple[str, str], tuple[int, int]] = {}

    async def wait_caught_up(self) -> None:
        """Wait until this master has carried out all events that are now in the log.

        Raises `HmsError` at the deadline, or if the metastore does not answer. Raises
        `RefusedError` once another master leads.
        """
        if not self._epoch.is_current():
            self._end_of_term()
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        try:
            async with asyncio.timeout(self._settings.wait_s):
                await waiter
        except TimeoutError as error:
            why = f"the listener did not catch up with the log within {self._settings.wait_s:g} s"
            raise HmsError("", why, maybe_done=False) from error

    async def wait_turn(self, create: Creating) -> None:
        """Wait until the listener reaches the create's event. Raises like `wait_caught_up`."""
        if self._swallows:
            return
        self._wake.set()
        try:
            async with asyncio.timeout(self._settings.wait_s):
                await create.turn
        except TimeoutError as error:
            why = f"the event of the create was not read within {self._settings.wait_s:g} s"
            raise HmsError("", why, maybe_done=False) from error
        self._epoch.check()

    def applied(self, table_id: str, marker: str) -> tuple[int, int] | None:
        """Return the result of a rename with this `marker`, or of a drop (`DROPPED`).

        The result is the log index of the operation and the table's schema version after it. It is
        `None` if no recent event matches.
        """
        return self._applied.get((table_id, marker))

    async def run(self) -> None:
        """Poll the metastore's log until the leadership ends."""
        taken: list[asyncio.Future[None]] = []
        try:
            while self._epoch.is_current():
                taken, self._waiters = self._waiters, []
                error: Exception | None = None
                try:
                    await self._poll()
                except (HmsError, RefusedError) as failure:
                    error = failure
                if not self._epoch.is_current():
                    break
                _resolve(taken, error)
                await self._wake.wait(self._settings.poll_period_s)
                self._wake.clear()
        finally:
            _resolve([create.turn for create in self._creating.values()], None)
            try:
                self._end_of_term()
            except RefusedError as over:
                _resolve([*taken, *self._waiters], over)
            else:
                _resolve([*taken, *self._waiters], None)

    def _end_of_term(self) -> None:
        if Bug.HMS_EXLEADER_ACK not in self._node.bugs:
            raise not_the_leader()

    # --- events ------------------------------------------------------------------------------

    async def _poll(self) -> None:
        most = self._settings.batch_size
        while True:
            events = await self._catalog.events_after(self._rows.hms_event, most)
            self._epoch.check()
            for event in events:
                if event.ident > self._rows.hms_event:
                    await self._follow(event)
            if events and events[-1].ident > self._rows.hms_event:
                await self._epoch.write(hms_event=events[-1].ident)
            if len(events) < most:
                return

    async def _follow(self, event: Event) -> None:
        before, after = event.before, event.after
        if before is None and after is not None:
            await self._give_turn(after)
            return
        if before is None or not self._catalog.is_ours(before):
            return
        if after is not None and after.full_name == before.full_name:
            return
        table_id = before.parameters.get(TABLE_ID, "")
        try:
            plan = self._planner(table_id, before, after)
            marker = DROPPED if after is None else after.parameters.get(RENAMED_BY, "")
            await self._carry_out(event.ident, table_id, plan, marker)
        except RefusedError as refusal:
            self._epoch.check()
            if not self._swallows:
                raise
            self._env.event("hms-event-lost", event=event.ident, why=refusal.error.message)

    async def _give_turn(self, table: MetaTable) -> None:
        create = self._creating.get(table.parameters.get(TABLE_ID, ""))
        if create is not None and not self._swallows:
            _resolve([create.turn], None)
            await create.over
            self._epoch.check()

    def _planner(self, table_id: str, before: MetaTable, after: MetaTable | None) -> Planner:
        which = TableIdentifier(table_id=table_id, table_name=before.full_name)

        def plan() -> Plan:
            now_ns = self._env.clock.wall_ns()
            if after is None:
                drop = DeleteTableRequest(table=which, request_id=_NO_CLIENT)
                return plan_delete(self._epoch.catalog, drop, now_ns=now_ns)
            rename = AlterTableRequest(
                table=which, request_id=_NO_CLIENT, new_table_name=after.full_name
            )
            return plan_alter(
                self._epoch.catalog,
                rename,
                self._node.flags,
                now_ns=now_ns,
                new_id=self._node.new_id,
            )

        return plan

    async def _carry_out(self, event: int, table_id: str, plan_again: Planner, marker: str) -> None:
        """Carry out a drop or a rename that the log reports.

        Raises `RefusedError` if another master leads, and with KUDU-2475 also if a plan is refused.
        """
        reserved = self._epoch.catalog.reserved
        while True:
            async with self._epoch.locked([table_id]):
                held = {} if self._swallows else {**reserved}
                for name in held:
                    del reserved[name]
                outcome: Plan | RefusedError
                try:
                    outcome = plan_again()
                except RefusedError as refusal:
                    outcome = refusal
                reserved.update(held)
                if isinstance(outcome, Plan):
                    await self._commit(event, outcome, marker)
                    return
            if self._swallows:
                raise outcome
            error = outcome.error
            if error.status is not AppStatus.SERVICE_UNAVAILABLE:
                # Kudu has dropped the table, or never had it because its create was rolled back.
                self._env.event("hms-event-passed", event=event, table=table_id, why=error.message)
                return
            await asyncio.sleep(AGAIN_S)
            self._epoch.check()

    async def _commit(self, event: int, plan: Plan, marker: str) -> None:
        epoch, new_name = self._epoch, plan.reserve
        reserves = new_name is not None and new_name not in epoch.catalog.reserved
        if new_name is not None and reserves:
            epoch.catalog.reserve(new_name, f"event {event} of the metastore")
        try:
            applied = await epoch.write(plan.tables, plan.tablets, hms_event=event)
        finally:
            if new_name is not None and reserves:
                epoch.catalog.release(new_name)
        # Keep only the first event with this marker: later renames leave the marker in the entry.
        done = applied.index, plan.schema_version
        self._applied.setdefault((plan.table_id, marker), done)
        while len(self._applied) > APPLIED_MAX:
            del self._applied[next(iter(self._applied))]
        if new_name is None:
            epoch.tasks.abort_table(plan.table_id)
        epoch.after_commit(plan.calls)
        self._env.event("hms-event-applied", event=event, table=plan.table_id)


def _resolve(waiters: list[asyncio.Future[None]], error: Exception | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
