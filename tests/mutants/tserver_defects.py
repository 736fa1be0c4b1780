"""Defects of tablet servers."""

import msgspec

from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.tserver import tablet_replica as _tablet
from targets.kudu.tserver.tablet import TabletMachine
from targets.kudu.tserver.tablet_reports import ReportKind, ReportTracker
from targets.kudu.tserver.ts_tablet_manager import TabletManager
from tests.mutants.plant import mutant


@mutant("version-without-columns", "tserver")
def version_without_columns(patch):
    """A replica applies a version but keeps its columns"""
    original = TabletMachine._set_schema

    def half(self, schema, schema_version):
        original(self, getattr(self, "schema", schema), schema_version)

    patch.setattr(TabletMachine, "_set_schema", half)


@mutant("marks-cleared-when-sent", "tserver")
def marks_cleared_when_sent(patch):
    """Marks of an incremental report are cleared when it is sent, not when it is acknowledged"""
    original = ReportTracker.plan

    def hasty(self):
        plan = original(self)
        if plan.kind is ReportKind.INCREMENTAL:
            self._dirty.clear()
        return plan

    patch.setattr(ReportTracker, "plan", hasty)


@mutant("tablets-not-reopened", "tserver")
def tablets_not_reopened(patch):
    """A restarted tablet server does not open its tablets"""

    async def nothing(self):
        return

    patch.setattr(TabletManager, "open_all", nothing)


@mutant("tablet-wal-never-syncs", "tserver")
def tablet_wal_never_syncs(patch):
    """Logs of tablets are not synced, those of masters are"""

    class Careless(Replica):
        def __init__(self, env, **options):
            super().__init__(env, **options)
            self._wal._sync = False

    patch.setattr(_tablet, "Replica", Careless)


@mutant("delete-keeps-files", "tserver")
def delete_keeps_files(patch):
    """A deleted tablet's superblock and log stay on the disk"""

    async def nothing(self, tablet):
        return

    patch.setattr(TabletManager, "_remove_files", nothing)


@mutant("tablet-snapshot-not-restored", "tserver")
def tablet_snapshot_not_restored(patch):
    """A tablet's snapshot is read, but not restored"""
    patch.setattr(TabletMachine, "restore", lambda self, data, index: None)


@mutant("changes-not-reported", "tserver")
def changes_not_reported(patch):
    """A change of a replica waits for the next full report"""
    patch.setattr(ReportTracker, "mark_dirty", lambda self, tablet_id: None)


@mutant("second-copies-applied", "tserver", workload="rows")
def second_copies_applied(patch):
    """A write that the log has twice is applied twice"""
    original = TabletMachine._write

    def twice(self, operation, index, term):
        if self.results.find(operation.client_id, operation.seq_no) is not None:
            other = f"{operation.client_id}, again at {index}"
            operation = msgspec.structs.replace(operation, client_id=other)
        return original(self, operation, index, term)

    patch.setattr(TabletMachine, "_write", twice)
