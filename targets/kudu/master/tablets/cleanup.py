"""Decides which rows of deleted tables and tablets the leader may remove.

Kudu kept these rows forever, on disk and in the memory of every master (KUDU-3344). Since 1.16, a
flag lets the leader remove them some time after the deletion. The flag is off in Kudu, but on in
the profile `strict`.

A master ignores reports about tablets that it does not know, so a row must stay until no tablet
server has a replica of its tablet. Kudu relies on the time alone. Here, the leader also waits until
every tablet server has sent it a full report in its term, and until no call about the tablet is
pending, since a reported replica leads to such a call.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import Forgotten
from targets.kudu.master.tablets.ts_manager import TServerMap

FORGOTTEN_MAX: Final = 1000
"""Maximum numbers of tables and of tablets that one batch removes. Later batches remove more."""
LATE_INTERVALS: Final = 5
"""The number of cleanups after which a row that should be gone counts as late."""
_CLEANUPS: Final = 30
"""The number of cleanup intervals for which a deleted row is kept."""


def cleanup_interval_ns(flags: Flags) -> int:
    """Return the time between two cleanups."""
    kept_s = flags.metadata_for_deleted_table_and_tablet_reserved_secs
    return kept_s * 1_000_000_000 // _CLEANUPS


def plan_cleanup(
    catalog: Catalog,
    tservers: TServerMap,
    in_calls: Collection[str],
    flags: Flags,
    now_ns: int,
    *,
    is_late: bool = False,
) -> Forgotten:
    """Return the tables and tablets to remove at the wall-clock time `now_ns`.

    `in_calls` are the tablets with pending calls. With `is_late`, return only rows that an earlier
    cleanup should have removed. A table is removed together with its last tablets, or later.
    """
    if not flags.enable_metadata_cleanup_for_deleted_tables_and_tablets:
        return Forgotten()
    if any(server.full_report_term != catalog.term for server in tservers):
        return Forgotten()
    kept_ns = flags.metadata_for_deleted_table_and_tablet_reserved_secs * 1_000_000_000
    if is_late:
        kept_ns += LATE_INTERVALS * cleanup_interval_ns(flags)
    since_ns = now_ns - kept_ns
    tablets: list[str] = []
    needed: set[str] = set()
    for tablet_id, tablet in catalog.tablets.items():
        is_due = not tablet.is_live and tablet.deleted_ns < since_ns and tablet_id not in in_calls
        if is_due and len(tablets) < FORGOTTEN_MAX:
            tablets.append(tablet_id)
        else:
            needed.add(tablet.table_id)
    tables = [
        table_id
        for table_id, table in catalog.tables.items()
        if not table.is_live and table.delete_ns < since_ns and table_id not in needed
    ]
    return Forgotten(tuple(sorted(tables)[:FORGOTTEN_MAX]), tuple(sorted(tablets)))
