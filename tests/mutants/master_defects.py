"""Defects of the masters: DDL, reads, refusals, reports, calls."""

import asyncio
import dataclasses
import functools
import itertools

import msgspec

from targets.kudu.master import leadership, reads
from targets.kudu.master import master_service as service
from targets.kudu.master.catalog import alter, ranges
from targets.kudu.master.catalog import catalog_manager as ddl
from targets.kudu.master.catalog.catalog_manager import Ddl
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import TabletState
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.errors import invalid_schema
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.master_service import MasterService
from targets.kudu.master.tablets import heartbeats, replacement
from targets.kudu.master.tablets.async_rpc_tasks import Tasks, _Pending
from targets.kudu.master.tablets.heartbeats import Heartbeats
from targets.kudu.messages import ListTablesRequest, ListTablesResponse
from tests.mutants.plant import mutant


@mutant("request-ids-ignored", "exactly-once")
def request_ids_ignored(patch):
    """Request ids are never looked up"""

    async def again(self, epoch, request_id, execute):
        return await execute()

    patch.setattr(Ddl, "_once", again)


@mutant("replies-not-in-snapshot", "exactly-once")
def replies_not_in_snapshot(patch):
    """Snapshots leave out the answers kept for resent requests"""
    original = SystemTablet.restore

    async def forgetful(self, data, index):
        await original(self, data, index)
        self.replies.clear()

    patch.setattr(SystemTablet, "restore", forgetful)


@mutant("replies-by-client", "exactly-once")
def replies_by_client(patch):
    """The answer to a resent request is that of the client's latest request"""
    original = Ddl._once

    async def mixed(self, epoch, request_id, execute):
        key = (request_id.client_id, request_id.seq_no)
        if key in epoch.catalog.replies:
            mine = [k for k in epoch.catalog.replies if k[0] == request_id.client_id]
            return epoch.catalog.find_reply(*mine[0])
        return await original(self, epoch, request_id, execute)

    patch.setattr(Ddl, "_once", mixed)


@mutant("snapshot-misses-last", "raft")
def snapshot_misses_last(patch):
    """A snapshot misses the batch that was applied last"""
    apply, snapshot = SystemTablet.apply, SystemTablet.snapshot

    def noting(self, index, term, payload):
        before = (dict(self.tables), dict(self.tablets), dict(self.replies), self.last_index)
        self.before_last = before
        return apply(self, index, term, payload)

    def missing(self):
        now = (self.tables, self.tablets, self.replies, self.last_index)
        before = getattr(self, "before_last", now)
        self.tables, self.tablets, self.replies, self.last_index = before
        try:
            return snapshot(self)
        finally:
            self.tables, self.tablets, self.replies, self.last_index = now

    patch.setattr(SystemTablet, "apply", noting)
    patch.setattr(SystemTablet, "snapshot", missing)


@mutant("list-in-two-steps", "reads")
def list_in_two_steps(patch):
    """ListTables takes its second half a little later"""

    async def torn(self, request: ListTablesRequest):
        first = await self._read(reads.list_tables, request)
        await asyncio.sleep(0.001)
        epoch = self._leadership.epoch
        if epoch is None:
            return first
        second = reads.list_tables(epoch.catalog, request, first.meta)
        middle = "t2"
        tables = [t for t in first.tables if t.name < middle]
        tables += [t for t in second.tables if t.name >= middle]
        return ListTablesResponse(first.meta, tables=tuple(tables))

    patch.setattr(MasterService, "list_tables", torn)


@mutant("rename-not-reserved", "ddl")
def rename_not_reserved(patch):
    """A rename does not reserve its new name"""
    original = alter.plan_alter

    def unreserved(*args, **options):
        plan = original(*args, **options)
        return type(plan)(
            plan.table_id, plan.schema_version, plan.tables, plan.tablets, None, plan.calls
        )

    patch.setattr(ddl, "plan_alter", unreserved)


class _Unconfirmed:
    """An epoch that never asks a majority."""

    def __init__(self, epoch):
        self._epoch = epoch

    def __getattr__(self, name):
        return getattr(self._epoch, name)

    async def confirm(self):
        self._epoch.check()


@mutant("refusals-unconfirmed", "ddl")
def refusals_unconfirmed(patch):
    """Refusals are answered without confirmed leadership"""
    create, on_table = Ddl._create, Ddl._on_table

    async def hasty_create(self, epoch, request):
        return await create(self, _Unconfirmed(epoch), request)

    async def hasty(self, epoch, *args, **options):
        return await on_table(self, _Unconfirmed(epoch), *args, **options)

    patch.setattr(Ddl, "_create", hasty_create)
    patch.setattr(Ddl, "_on_table", hasty)


@mutant("column-ids-reused", "ddl")
def column_ids_reused(patch):
    """Ids of dropped columns are used again (KUDU-461)"""
    original = alter._add

    def reusing(step, columns, next_column_id, flags):
        del next_column_id
        return original(step, columns, 1 + max(column.id for column in columns), flags)

    patch.setattr(alter, "_add", reusing)


@mutant("locate-leaves-out-a-tablet", "reads")
def locate_leaves_out_a_tablet(patch):
    """GetTableLocations leaves out the last tablet"""
    original = reads.get_table_locations

    def short(*args):
        response = original(*args)
        if len(response.tablets) > 1:
            return msgspec.structs.replace(response, tablets=response.tablets[:-1])
        return response

    patch.setattr(reads, "get_table_locations", short)


@mutant("created-too-early", "reads")
def created_too_early(patch):
    """IsCreateTableDone says so before the tablets run"""
    original = reads.is_create_table_done

    @functools.wraps(original)
    def early(*args):
        response = original(*args)
        return msgspec.structs.replace(response, done=True)

    patch.setattr(service.reads, "is_create_table_done", early)


@mutant("every-third-alter-refused", "ddl")
def every_third_alter_refused(patch):
    """Every third alter is wrongly refused"""
    original = Ddl.alter
    count = itertools.count()

    @functools.wraps(original)
    async def moody(self, epoch, request):
        if next(count) % 3 == 2:
            raise invalid_schema("not today")
        return await original(self, epoch, request)

    patch.setattr(Ddl, "alter", moody)


@mutant("creates-not-resent", "calls")
def creates_not_resent(patch):
    """A new leader does not resend CreateTablet calls"""
    patch.setattr(heartbeats, "plan_missing", lambda *_: [])
    patch.setattr(leadership, "create_replicas", lambda tablet: ())


@mutant("delete-before-commit", "calls")
def delete_before_commit(patch):
    """DeleteTablet leaves before the commit (ORDER-DELETE)"""
    original = Ddl._commit

    async def early(self, epoch, plan, request_id, *, is_delete=False):
        if is_delete:
            epoch.tasks.submit(plan.calls)
        return await original(self, epoch, plan, request_id, is_delete=is_delete)

    patch.setattr(Ddl, "_commit", early)


@mutant("calls-multiply", "calls")
def calls_multiply(patch):
    """Every report starts another copy of a call (KUDU-2992)"""

    def submit(self, calls):
        for call in calls:
            if self._closed:
                return
            entry = _Pending(call, self._table_of(call))
            self._pending[call.key] = entry
            entry.task = self._env.spawn(self._run(entry), name=f"task-{call.key[0]}")

    patch.setattr(Tasks, "submit", submit)


@mutant("locks-never-forgotten", "ddl")
def locks_never_forgotten(patch):
    """Per-table locks are never forgotten"""

    def keep(self, table_id):
        self._lock_users[table_id] -= 1

    patch.setattr(Epoch, "_forget_user", keep)


@mutant("altered-by-one", "ddl")
def altered_by_one(patch):
    """An alter is done when one tablet has reported it"""

    def any_of(self, table):
        tablets = self.live_tablets(table.id)
        return not tablets or any(
            self.reported_versions.get(tablet.id, -1) >= table.version for tablet in tablets
        )

    patch.setattr(Catalog, "is_fully_altered", any_of)


@mutant("delete-keeps-tablets", "ddl")
def delete_keeps_tablets(patch):
    """DeleteTable writes the table alone, its tablets stay (KUDU-495)"""
    original = alter.plan_delete

    def partial(*args, **options):
        plan = original(*args, **options)
        return type(plan)(
            plan.table_id, plan.schema_version, plan.tables, (), plan.reserve, plan.calls
        )

    patch.setattr(ddl, "plan_delete", partial)


@mutant("no-full-report", "calls")
def no_full_report(patch):
    """A new leader asks no tablet server for a full report (KUDU-1374)"""
    original = Heartbeats._answer

    def content(self, *args, **options):
        answer = original(self, *args, **options)
        return msgspec.structs.replace(answer, needs_full_tablet_report=False)

    patch.setattr(Heartbeats, "_answer", content)


@mutant("rename-in-two-steps", "ddl")
def rename_in_two_steps(patch):
    """A rename drops the old name a moment before the new one resolves (RENAME-GAP)"""
    original = Ddl._commit

    async def gapped(self, epoch, plan, request_id, *, is_delete=False):
        old = epoch.catalog.tables.get(plan.table_id)
        if plan.reserve is not None and old is not None and old.name != plan.reserve:
            epoch.catalog.by_name.pop(old.name, None)
        return await original(self, epoch, plan, request_id, is_delete=is_delete)

    patch.setattr(Ddl, "_commit", gapped)


@mutant("deleted-forgotten-by-snapshot", "raft")
def deleted_forgotten_by_snapshot(patch):
    """Snapshots hold live tables only, so an id may be forgotten"""
    original = SystemTablet.restore

    async def living(self, data, index):
        await original(self, data, index)
        self.tables = {key: table for key, table in self.tables.items() if table.is_live}

    patch.setattr(SystemTablet, "restore", living)


@mutant("tablets-run-unreported", "calls")
def tablets_run_unreported(patch):
    """A tablet is RUNNING as soon as its calls are sent, reported or not"""
    original = leadership.Catalog._put_tablet

    def eager(self, tablet_id, tablet):
        if tablet.state is TabletState.CREATING:
            tablet = msgspec.structs.replace(tablet, state=TabletState.RUNNING)
        original(self, tablet_id, tablet)

    patch.setattr(Catalog, "_put_tablet", eager)


@mutant("evicted-too-early", "replacement")
def evicted_too_early(patch):
    """A failed replica is evicted before its replacement votes"""
    original = replacement._Peers._voter_to_evict

    def early(self, num_replicas):
        return original(self, num_replicas - 1)

    patch.setattr(replacement._Peers, "_voter_to_evict", early)


@mutant("dropped-ranges-stay", "ranges", workload="ranges")
def dropped_ranges_stay(patch):
    """An alter that drops a range leaves its tablets"""
    original = alter.change_ranges

    def kept(*args, **more):
        return dataclasses.replace(original(*args, **more), dropped=())

    patch.setattr(alter, "change_ranges", kept)


@mutant("ranges-lack-a-bucket", "ranges", workload="ranges")
def ranges_lack_a_bucket(patch):
    """A new range has no tablet for its last hash bucket"""
    original = ranges.range_partitions
    patch.setattr(ranges, "range_partitions", lambda *args: original(*args)[:-1])


@mutant("hash-schemas-of-ranges-stay", "ranges", workload="ranges")
def hash_schemas_of_ranges_stay(patch):
    """The hash schema of a dropped range is never removed"""
    patch.setattr(ranges, "_without", lambda schema, *_: schema)
