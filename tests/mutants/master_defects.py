"""Defects to plant in masters: in DDL, reads, refusals, reports and calls."""

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


@mutant("exactly-once", Ddl, "_once")
async def request_ids_ignored(_, self, epoch, request_id, execute):
    """Request ids are never looked up"""
    return await execute()


@mutant("exactly-once", SystemTablet, "restore")
async def replies_not_in_snapshot(original, self, data, index):
    """Snapshots leave out the answers kept for resent requests"""
    await original(self, data, index)
    self.replies.clear()


@mutant("exactly-once", Ddl, "_once")
async def replies_by_client(original, self, epoch, request_id, execute):
    """A resent request gets the answer to the client's latest request"""
    key = (request_id.client_id, request_id.seq_no)
    if key in epoch.catalog.replies:
        mine = [k for k in epoch.catalog.replies if k[0] == request_id.client_id]
        return epoch.catalog.find_reply(*mine[0])
    return await original(self, epoch, request_id, execute)


@mutant("raft")
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


@mutant("reads", MasterService, "list_tables")
async def list_in_two_steps(_, self, request: ListTablesRequest):
    """ListTables reads the second half of the tables a moment after the first"""
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


@mutant("ddl", ddl, "plan_alter")
def rename_not_reserved(original, *args, **options):
    """A rename does not reserve its new name"""
    plan = original(*args, **options)
    return type(plan)(
        plan.table_id, plan.schema_version, plan.tables, plan.tablets, None, plan.calls
    )


class _Unconfirmed:
    """An epoch of leadership that is never confirmed by a majority."""

    def __init__(self, epoch):
        self._epoch = epoch

    def __getattr__(self, name):
        return getattr(self._epoch, name)

    async def confirm(self):
        self._epoch.check()


@mutant("ddl")
def refusals_unconfirmed(patch):
    """A master refuses requests without confirming that it still leads"""
    create, on_table = Ddl._create, Ddl._on_table

    async def hasty_create(self, epoch, request):
        return await create(self, _Unconfirmed(epoch), request)

    async def hasty(self, epoch, *args, **options):
        return await on_table(self, _Unconfirmed(epoch), *args, **options)

    patch.setattr(Ddl, "_create", hasty_create)
    patch.setattr(Ddl, "_on_table", hasty)


@mutant("ddl", alter, "_add")
def column_ids_reused(original, step, columns, next_column_id, flags):
    """Ids of dropped columns are used again (KUDU-461)"""
    del next_column_id
    return original(step, columns, 1 + max(column.id for column in columns), flags)


@mutant("reads", reads, "get_table_locations")
def locate_leaves_out_a_tablet(original, *args):
    """GetTableLocations leaves out the last tablet"""
    response = original(*args)
    if len(response.tablets) > 1:
        return msgspec.structs.replace(response, tablets=response.tablets[:-1])
    return response


@mutant("reads", service.reads, "is_create_table_done")
def created_too_early(original, *args):
    """IsCreateTableDone answers yes before the tablets run"""
    response = original(*args)
    return msgspec.structs.replace(response, done=True)


@mutant("ddl")
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


@mutant("calls")
def creates_not_resent(patch):
    """A new leader does not resend CreateTablet calls"""
    patch.setattr(heartbeats, "plan_missing", lambda *_: [])
    patch.setattr(leadership, "create_replicas", lambda tablet: ())


@mutant("calls", Ddl, "_commit")
async def delete_before_commit(original, self, epoch, plan, request_id, *, is_delete=False):
    """DeleteTablet calls are sent before the delete has committed (ORDER-DELETE)"""
    if is_delete:
        epoch.tasks.submit(plan.calls)
    return await original(self, epoch, plan, request_id, is_delete=is_delete)


@mutant("calls", Tasks, "submit")
def calls_multiply(_, self, calls):
    """Every report starts another copy of a call (KUDU-2992)"""
    for call in calls:
        if self._closed:
            return
        entry = _Pending(call, self._table_of(call))
        self._pending[call.key] = entry
        entry.task = self._env.spawn(self._run(entry), name=f"task-{call.key[0]}")


@mutant("ddl", Epoch, "_forget_user")
def locks_never_forgotten(_, self, table_id):
    """Per-table locks are never forgotten"""
    self._lock_users[table_id] -= 1


@mutant("ddl", Catalog, "is_fully_altered")
def altered_by_one(_, self, table):
    """An alter counts as done as soon as one tablet has reported it"""
    tablets = self.live_tablets(table.id)
    return not tablets or any(
        self.reported_versions.get(tablet.id, -1) >= table.version for tablet in tablets
    )


@mutant("ddl", ddl, "plan_delete")
def delete_keeps_tablets(original, *args, **options):
    """DeleteTable changes only the table's row, so the tablets stay (KUDU-495)"""
    plan = original(*args, **options)
    return type(plan)(plan.table_id, plan.schema_version, plan.tables, (), plan.reserve, plan.calls)


@mutant("calls", Heartbeats, "_answer")
def no_full_report(original, self, *args, **options):
    """A new leader asks no tablet server for a full report (KUDU-1374)"""
    answer = original(self, *args, **options)
    return msgspec.structs.replace(answer, needs_full_tablet_report=False)


@mutant("ddl", Ddl, "_commit")
async def rename_in_two_steps(original, self, epoch, plan, request_id, *, is_delete=False):
    """A rename drops the old name a moment before the new one resolves (RENAME-GAP)"""
    old = epoch.catalog.tables.get(plan.table_id)
    if plan.reserve is not None and old is not None and old.name != plan.reserve:
        epoch.catalog.by_name.pop(old.name, None)
    return await original(self, epoch, plan, request_id, is_delete=is_delete)


@mutant("raft", SystemTablet, "restore")
async def deleted_forgotten_by_snapshot(original, self, data, index):
    """A restored snapshot has only live tables, so ids of deleted ones may be forgotten"""
    await original(self, data, index)
    self.tables = {key: table for key, table in self.tables.items() if table.is_live}


@mutant("calls", Catalog, "_put_tablet")
def tablets_run_unreported(original, self, tablet_id, tablet):
    """A tablet is RUNNING as soon as its calls are sent, reported or not"""
    if tablet.state is TabletState.CREATING:
        tablet = msgspec.structs.replace(tablet, state=TabletState.RUNNING)
    original(self, tablet_id, tablet)


@mutant("replacement", replacement._Peers, "_voter_to_evict")
def evicted_too_early(original, self, num_replicas):
    """A failed replica is evicted before its replacement votes"""
    return original(self, num_replicas - 1)


@mutant("ranges", alter, "change_ranges", workload="ranges")
def dropped_ranges_stay(original, *args, **more):
    """An alter that drops a range leaves its tablets"""
    return dataclasses.replace(original(*args, **more), dropped=())


@mutant("ranges", workload="ranges")
def ranges_lack_a_bucket(patch):
    """A new range has no tablet for its last hash bucket"""
    original = ranges.range_partitions
    patch.setattr(ranges, "range_partitions", lambda *args: original(*args)[:-1])


@mutant("ranges", workload="ranges")
def hash_schemas_of_ranges_stay(patch):
    """The hash schema of a dropped range is never removed"""
    patch.setattr(ranges, "_without", lambda schema, *_: schema)
