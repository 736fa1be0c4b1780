"""Defects to plant in tablet servers."""

import msgspec

from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.tserver import tablet_replica as _tablet
from targets.kudu.tserver.tablet import TabletMachine
from targets.kudu.tserver.tablet_reports import ReportKind, ReportTracker
from targets.kudu.tserver.ts_tablet_manager import TabletManager
from tests.mutants.plant import mutant


@mutant("tserver", TabletMachine, "_set_schema")
def version_without_columns(original, self, schema, schema_version):
    """A replica applies a version but keeps its columns"""
    original(self, getattr(self, "schema", schema), schema_version)


@mutant("tserver", ReportTracker, "plan")
def marks_cleared_when_sent(original, self):
    """Marks of an incremental report are cleared when it is sent, not when it is acknowledged"""
    plan = original(self)
    if plan.kind is ReportKind.INCREMENTAL:
        self._dirty.clear()
    return plan


@mutant("tserver", TabletManager, "open_all")
async def tablets_not_reopened(_, self):
    """A restarted tablet server does not open its tablets"""
    return


@mutant("tserver")
def tablet_wal_never_syncs(patch):
    """Logs of tablets are not synced; logs of masters are"""

    class Careless(Replica):
        def __init__(self, env, **options):
            super().__init__(env, **options)
            self._wal._sync = False

    patch.setattr(_tablet, "Replica", Careless)


@mutant("tserver", TabletManager, "_remove_files")
async def delete_keeps_files(_, self, tablet):
    """A deleted tablet's superblock and log stay on the disk"""
    return


@mutant("tserver")
def tablet_snapshot_not_restored(patch):
    """A tablet's snapshot is read, but not restored"""
    patch.setattr(TabletMachine, "restore", lambda self, data, index: None)


@mutant("tserver")
def changes_not_reported(patch):
    """A change of a replica waits for the next full report"""
    patch.setattr(ReportTracker, "mark_dirty", lambda self, tablet_id: None)


@mutant("tserver", TabletMachine, "_write", workload="rows")
def second_copies_applied(original, self, operation, index, term):
    """A write that the log has twice is applied twice"""
    if self.results.find(operation.client_id, operation.seq_no) is not None:
        other = f"{operation.client_id}, again at {index}"
        operation = msgspec.structs.replace(operation, client_id=other)
    return original(self, operation, index, term)
