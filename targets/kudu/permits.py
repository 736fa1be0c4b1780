"""Permits: each excuses violations that a profile's known defects explain (`harness.permits`).

A defect that was switched on in addition to the profile is never excused.
"""

from __future__ import annotations

from typing import Final

from harness.permits import (
    DDL_TWICE,
    DELETED_FIRST,
    DIRTY_CREATE,
    HALF_MADE,
    LOST_AFTER_POWER_CUT,
    NAME_GAP,
    STALE_READ,
    TORN_LIST,
    Permit,
)
from harness.vocabularies.members import AddMaster, RemoveMaster
from targets.kudu.bugs import FLAGS, PROFILES, Bug
from targets.kudu.consensus.log_cache import COMMITTED_LOST
from targets.kudu.consensus.raft_consensus import NO_PROXY
from targets.kudu.consensus.raft_core import TWO_LEADERS
from targets.kudu.flags import Flags
from targets.kudu.master.membership import LISTS_DIFFER

LIVENESS: Final = "liveness"
CATALOG: Final = "catalog-invariants"
UNREAD: Final[dict[str, tuple[str, ...]]] = {"stats": ("unread",)}
UNDONE: Final[dict[str, tuple[str, ...]]] = {LIVENESS: ("converged",), **UNREAD}

_PERMITS: Final[dict[Bug, Permit]] = {
    Bug.NO_LEASE: Permit(name=STALE_READ, why="leaders have no lease and ask no majority"),
    Bug.LIST_TORN: Permit(name=TORN_LIST, why="ListTables reads one table after another"),
    Bug.RENAME_GAP: Permit(name=NAME_GAP, why="the map of names changes before the record commits"),
    Bug.KUDU_1537: Permit(name=DDL_TWICE, why="DDL has no request ids"),
    Bug.CATCH_UP_EXIT: Permit(
        name="catch-up-exit",
        why="a new leader that cannot commit in its term exits",
        signs=("failed to catch up with older terms in time",),
    ),
    Bug.OFFLINE_MEMBERS: Permit(
        name="offline-members",
        why="masters cannot be added or removed while the cluster runs",
        lacks=(AddMaster.f, RemoveMaster.f),
    ),
    Bug.LEADER_READS: Permit(
        name="leader-reads",
        why="masters that are not the leader refuse every read",
        lacks=("follower-reads",),
    ),
    Bug.STORED_LIST: Permit(
        name="stored-list-exit",
        why="a master exits if it is started with a list of masters that differs from the stored "
        "one",
        signs=(LISTS_DIFFER,),
    ),
    Bug.KUDU_495_ABORT: Permit(
        name="write-exit",
        why="a master that loses its leadership during a write exits",
        signs=("writing to the sys-catalog failed",),
    ),
    Bug.LEADER_FLAP_ABA: Permit(
        name="unseen-leader",
        why="a leader that lost and regained its leadership gets no full report",
        after="leader-back",
        rules=UNDONE,
    ),
    Bug.KUDU_1353: Permit(
        name="unheard-replicas",
        why="a leader knows only the replicas that were reported to it",
        rules={CATALOG: ("located-tablets",), **UNREAD},
    ),
    Bug.KUDU_1358: Permit(
        name="cold-leader",
        why="a new leader knows no tablet server yet",
        rules={CATALOG: ("refusals",)},
    ),
    Bug.KUDU_495_SPLIT: Permit(
        name=HALF_MADE,
        why="a table and its tablets are written separately",
        rules={CATALOG: ("tablet-states", "coverage", "settled")},
    ),
    Bug.ORDER_DELETE: Permit(
        name=DELETED_FIRST, why="replicas are deleted before the deletion is replicated"
    ),
    Bug.ORDER_REPLACE: Permit(
        name="unlogged-tablet",
        why="a replacement tablet is visible before it is replicated",
        rules={CATALOG: ("named-tablets", "maps-equal-rows", "located-rows")},
    ),
    Bug.KUDU_2302: Permit(
        name="unresolved-exit",
        why="a new leader that cannot resolve the name of a peer exits",
        signs=(NO_PROXY,),
    ),
    Bug.KUDU_3344: Permit(
        name="rows-kept",
        why="rows of deleted tables are never removed",
        rules={"bounds": ("late rows",)},
    ),
    Bug.ORDER_CREATE: Permit(
        name=DIRTY_CREATE,
        why="a new table is visible before it is replicated",
    ),
}


_UNDONE: Final[dict[Bug, str]] = {
    Bug.KUDU_1374: "tablets are reported only when they change",
    Bug.KUDU_1353: "a leader knows only the replicas that were reported to it",
    Bug.KUDU_495_SPLIT: "a table and its tablets are written separately",
    Bug.ORDER_DELETE: "replicas are deleted before the deletion is replicated",
}
"""Reasons why work that one leader leaves to the next leader may never be done.

A checker that finds undone work cannot tell which of these defects caused it.
"""

_UNSYNCED: Final = Permit(
    name=LOST_AFTER_POWER_CUT,
    # Without syncs, a leader may lose committed entries. A replica that still has the entries then
    # crashes (PendingRounds::AbortOpsAfter) or keeps different data. If the catalog lost a tablet,
    # its replicas are never deleted, because masters ignore unknown tablets.
    why="logs are not synced",
    # If a configuration is lost, a Raft group may get two majorities, each with its own leader. A
    # master that knows the configuration of one majority tombstones the replicas of the other.
    signs=(COMMITTED_LOST, TWO_LEADERS),
    after="power-cut",
    rules={
        **UNDONE,
        CATALOG: ("one-leader",),
        "bounds": ("calls of StartTabletCopy", "copies"),
    },
)

_EVICTED_FIRST: Final = Permit(
    name="evicted-first",
    # If the source of a copy dies, the remaining replicas may never be a majority again. As before
    # Kudu 1.5, a replica without data does not vote, and is copied again and again.
    why="a lost replica is evicted before its replacement has the data",
    rules={**UNDONE, "bounds": ("calls of StartTabletCopy", "copies")},
)


_ROUND_ENDED: Final = Permit(
    name="round-ended",
    why="while a table lacks tablet servers, no tablet is placed",
    rules={LIVENESS: ("live", "converged"), **UNREAD},
)


def permits_of_profile(profile: str, flags: Flags) -> list[Permit]:
    """Return the permits of a profile whose nodes run with `flags`, sorted by name."""
    permits = [permit for bug, permit in _PERMITS.items() if bug in PROFILES[profile]]
    undone = [why for bug, why in _UNDONE.items() if bug in PROFILES[profile]]
    if undone:
        whys = "; ".join(undone)
        # each leader tries to create a tablet again that was deleted too early, and is refused
        rules = {**UNDONE, "bounds": ("calls of CreateTablet",)}
        permits.append(Permit(name="left-undone", why=whys, after="leader-change", rules=rules))
    if not FLAGS[profile].get("raft_prepare_replacement_before_eviction", True):
        permits.append(_EVICTED_FIRST)
    may_lack_servers = not flags.catalog_manager_check_ts_count_for_create_table
    if Bug.KUDU_3452 in PROFILES[profile] and may_lack_servers:
        permits.append(_ROUND_ENDED)
    unsynced = FLAGS[profile].get("log_force_fsync_all") is False
    if unsynced and not flags.log_force_fsync_all:
        permits.append(_UNSYNCED)
    return sorted(permits, key=lambda permit: permit.name)
