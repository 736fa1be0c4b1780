"""The ledger of the target: the list of its switchable defects, one `Row` each, and the profiles.

The correct and the broken code path are next to each other in the target, behind one condition,
such as `if Bug.KUDU_765 in node.bugs`. A row says how the harness finds the defect, and names the
modules that contain the condition. `harness list`, the page `docs/bugs.md` and `harness exam` are
generated from the rows.

A profile is a set of defects and the defaults of some flags. The profile `legacy` is Kudu of 2016,
and `modern` is Kudu of today.

A defect has the identifier of its issue in Kudu's tracker, if there is an issue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from targets.ledger import Find, Row, Switch, profiles_of, switched_on, titles_of

_MASTER: Final = "targets.kudu.master"
_HMS: Final = "targets.kudu.hms"
LEGACY: Final = ("legacy",)
STILL: Final = ("legacy", "modern")


class Bug(Switch):
    """The known defects. On the command line, ids have dashes: `Bug.KUDU_765` is `KUDU-765`."""

    NO_LEASE = Row(
        title="leaders answer reads without asking a majority",
        upstream="leaders check their leadership locally and hold no lease. A leader that is cut "
        "off keeps answering until the partition heals or it notices (6.7 s measured on "
        "1.16)",
        fixed="open by design",
        profiles=STILL,
        where=(f"{_MASTER}.leader_term", f"{_MASTER}.node", "targets.kudu.tserver.scanners"),
        find=Find("--nemesis partition-leader", "linearizable-catalog", 1),
    )
    KUDU_765 = Row(
        title="a new leader loads its catalog too early and forgets acknowledged tables",
        upstream="the catalog was loaded at once, before operations from older terms had committed",
        fixed="2015-05-13",
        where=(f"{_MASTER}.leadership",),
        find=Find("--nemesis kill-leader", "linearizable-catalog", 1),
    )
    ORDER_CREATE = Row(
        title="CreateTable publishes its in-memory maps before it replicates",
        upstream="the maps showed the table in state UNKNOWN while its tablets and the table were "
        "still being replicated one by one. If that failed, the table was removed again",
        fixed="2016-04-01",
        profiles=LEGACY,
        where=(f"{_MASTER}.catalog.catalog_manager",),
        find=Find("--nemesis kill-leader", "linearizable-catalog", 1),
    )

    CREATE_HMS_GHOST = Row(
        title="a create with unknown outcome is rolled back in the metastore",
        upstream="the write fails because another master leads, so the entry is dropped; the write "
        "then commits after all. The table has no entry until the next leader reads the "
        "drop event and deletes the table",
        fixed="open",
        where=(f"{_HMS}.hms_catalog",),
        find=Find(
            "--hms --workload kudu-hms --time-limit 20 --concurrency 20 --readers 40 "
            "--mix create=50,delete=10,get=20,list=20 --names 12 "
            "--fault 'shape members to node:m1 delay=100ms at 1s for 22s' "
            "--fault 'shape members to node:m2 delay=100ms at 1s for 22s' "
            "--fault 'shape members to node:m3 delay=100ms at 1s for 22s' "
            "--fault 'do step-down on leader at 4s' --fault 'do step-down on leader at 7s' "
            "--fault 'do step-down on leader at 10s' --fault 'do step-down on leader at 13s' "
            "--fault 'do step-down on leader at 16s'",
            "linearizable-catalog",
            1,
        ),
    )
    HMS_CREATE_RETRY = Row(
        title="a create in the metastore is resent after a lost reply, and collides with itself",
        upstream="the leader trusts the AlreadyExists reply before its rollback is armed, which "
        "leaves an entry without a table",
        fixed="open",
        where=(f"{_HMS}.deployment", f"{_HMS}.hms_catalog", f"{_HMS}.repair"),
        find=Find(
            "--hms --workload kudu-hms --time-limit 15 "
            "--mix create=30,alter=10,rename=10,delete=15,get=15,list=5,hive-get=5 "
            "--fault 'cut node:hms1 to it when event hms-creating nth=15 for 3s'",
            "kudu-hms",
            1,
        ),
    )
    HMS_EXLEADER_ACK = Row(
        title="a drop or rename through the metastore is acknowledged by a master that is no "
        "longer leader",
        upstream="when a master has lost its leadership, polling the event log returns OK without "
        "doing anything. The next leader shows the old name until it polls (suspected)",
        fixed="open",
        where=(f"{_HMS}.hms_catalog", f"{_HMS}.notification_log_listener"),
        find=Find(
            "--hms --workload kudu-hms --time-limit 20 "
            "--fault 'cut it from members when event hms-changed nth=10 for 4s' "
            "--fault 'cut follower from role:hms when event hms-changed nth=10 for 8s'",
            "linearizable-catalog",
            3,
        ),
    )
    HMS_ORPHAN = Row(
        title="a leader that dies between the metastore's create and its own leaves an entry "
        "behind",
        upstream="Kudu does not look for such entries; `kudu hms fix` drops them",
        fixed="open",
        where=(f"{_HMS}.deployment", f"{_HMS}.repair"),
        find=Find(
            "--hms --workload kudu-hms --time-limit 15 "
            "--mix create=30,alter=10,rename=10,delete=15,get=15,list=5,hive-get=5 "
            "--fault 'kill it when event hms-created nth=15 for 3s'",
            "kudu-hms",
            1,
        ),
    )
    KUDU_2475 = Row(
        title="an event of the metastore's log that cannot be applied is skipped",
        upstream="the listener logs the error and continues. A rename onto a name that a create "
        "has reserved is acknowledged, and lost",
        fixed="open",
        where=(f"{_HMS}.hms_catalog", f"{_HMS}.notification_log_listener"),
        find=Find(
            "--hms --workload kudu-hms --time-limit 20 "
            "--mix create=30,hive-rename=20,hive-drop=10,delete=5,rename=5,get=10,list=5 "
            "--fault 'shape members from leader delay=100ms jitter=20ms at 2s for 20s'",
            "kudu-hms",
            3,
        ),
    )
    STALE_MASTER_ADDRS = Row(
        title="metastore entries name the masters with which the leader was started",
        upstream="after a migration, kudu.master_addresses is never corrected; an alter on a "
        "master with an old list writes the old list again",
        fixed="open",
        where=(f"{_HMS}.deployment", f"{_HMS}.master_side", f"{_HMS}.repair"),
        find=Find(
            "--hms --workload kudu-hms --time-limit 15 --names 12 --masters 1 --spare-masters 2 "
            "--fault 'do add-master on node:m2 at 5s' --fault 'do add-master on node:m3 at 9s'",
            "kudu-hms",
            1,
        ),
    )

    ALTER_REPLY = Row(
        title="an alter also counts as complete once AlterSchema is answered",
        upstream="the answer of a tablet's leader counted as its report, which is harmless",
        fixed="2016",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.async_rpc_tasks",),
        find=None,
    )
    BG_CLOCK_RESET = Row(
        title="every failover restarts the clock of a tablet that is not created in time",
        upstream="a master counts the age of a CREATING tablet from its own election. No check "
        "here limits how long a create may take while leaders change, so none finds the defect",
        fixed="open",
        profiles=STILL,
        where=(f"{_MASTER}.tablets.background",),
        find=None,
    )
    CATCH_UP_EXIT = Row(
        title="a new leader that cannot commit in its term exits",
        upstream="LOG(FATAL) after master_failover_catchup_timeout_ms (30 s), by design",
        fixed="open by design",
        profiles=STILL,
        where=(f"{_MASTER}.leadership",),
        find=Find(
            "--bug NO-LEASE --kudu-flag master_failover_catchup_timeout_ms=3000 "
            "--nemesis kill-leader "
            "--fault 'cut it from members when event leader group=master nth=2 for 8s'",
            "crash",
            1,
        ),
    )
    FENCE_ORPHAN = Row(
        title="a master orders the deletion of tablets that it has no record of",
        upstream="a rogue, blank or lagging master wiped data; finding this needs a wiped master "
        "and a workload with rows",
        fixed="2016-07-13",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.heartbeats",),
        find=None,
    )
    KUDU_1353 = Row(
        title="a leader knows only the replicas that were reported to it",
        upstream="the map of each tablet's replicas was filled from reports rather than from "
        "storage, and a tablet server that the master already knew sent empty reports",
        fixed="2016-04-27",
        profiles=LEGACY,
        where=(
            f"{_MASTER}.tablets.heartbeats",
            f"{_MASTER}.leadership",
            "targets.kudu.tserver.heartbeater",
        ),
        find=Find("--nemesis partition-leader", "catalog-invariants", 1),
    )
    KUDU_1358 = Row(
        title="a new leader has not heard of any tablet server",
        upstream="only leaders recorded heartbeats, so a new leader refused CreateTable for a "
        "while",
        fixed="2016-06-01",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.background", f"{_MASTER}.catalog.catalog_manager"),
        find=Find("--nemesis kill-leader", "catalog-invariants", 1),
    )
    KUDU_1374 = Row(
        title="tablets are reported only when they change",
        upstream="a leader acknowledged a report and died before the call that the report "
        "required; that call was never made",
        fixed="2016-07-12",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.heartbeats", "targets.kudu.tserver.heartbeater"),
        find=Find(
            "--time-limit 40 --fault 'cut members from role:tserver at 20s for 14s' "
            "--fault 'do step-down on leader at 24s'",
            "liveness",
            1,
        ),
    )
    KUDU_1537 = Row(
        title="DDL requests have no ids, so a retry may be applied twice",
        upstream="clients resend until their deadline. A client may get AlreadyPresent or NotFound "
        "for its own success, and a resent delete or rename may hit a new table of the "
        "same name",
        fixed="open",
        profiles=STILL,
        where=(f"{_MASTER}.catalog.catalog_manager", "targets.kudu.system"),
        find=Find("--nemesis none", "linearizable-catalog", 1),
    )
    KUDU_2302 = Row(
        title="a new leader that cannot resolve the name of one peer exits",
        upstream="a leader made a proxy for every peer in the step in which it won its election, "
        "and a CHECK failed if the name of one peer could not be resolved",
        fixed="2021-06-12 (1.16)",
        profiles=LEGACY,
        where=(f"{_MASTER}.node", "targets.kudu.tserver.node"),
        find=Find(
            "--time-limit 15 --fault 'do lose-name on follower at 5s' "
            "--fault 'do step-down on leader at 6s'",
            "crash",
            1,
        ),
    )
    KUDU_2684 = Row(
        title="a master that is named twice gets every heartbeat and report twice",
        upstream="a tablet server started one heartbeat thread per entry of "
        "--tserver_master_addrs, even if two entries were equal",
        fixed="2019-01-31 (1.9)",
        profiles=LEGACY,
        where=("targets.kudu.tserver.heartbeater",),
        find=Find("--named-twice m1,m2 --nemesis none --time-limit 15", "bounds", 1),
    )
    KUDU_3344 = Row(
        title="deleted tables and tablets stay in the masters' memory forever",
        upstream="no row of the system tablet was ever removed, and a new leader loaded all rows. "
        "The fix is off by default (enable_metadata_cleanup_for_deleted_tables_and_tablets)",
        fixed="2022-02-21 (1.16)",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.background",),
        find=Find(
            "--nemesis none --rate 10 --time-limit 40 "
            "--kudu-flag metadata_for_deleted_table_and_tablet_reserved_secs=30",
            "bounds",
            1,
        ),
    )
    KUDU_3452 = Row(
        title="a tablet that cannot be placed keeps all other tablets from being placed",
        upstream="the background loop returned at the first tablet without enough live tablet "
        "servers. While a table waited for servers, no other create finished",
        fixed="2023-05-16 (1.18)",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.background",),
        find=Find(
            "--nemesis none --time-limit 15 --unplaceable 25 "
            "--kudu-flag catalog_manager_check_ts_count_for_create_table=false",
            "liveness",
            1,
        ),
    )
    KUDU_495_ABORT = Row(
        title="a master exits if it loses its leadership during a write",
        upstream="a CHECK treated failed replication like a failing disk",
        fixed="2016-03-31",
        profiles=LEGACY,
        where=(f"{_MASTER}.leader_term",),
        find=Find("--nemesis partition-leader", "crash", 1),
    )
    KUDU_495_SPLIT = Row(
        title="a table and its tablets are written separately",
        upstream="one logical operation was several replicated writes. A failover in between left "
        "tablets without a table, or running tablets of a removed table",
        fixed="2016-03-31",
        profiles=LEGACY,
        where=(f"{_MASTER}.catalog.catalog_manager",),
        find=Find("--nemesis kill-leader", "catalog-invariants", 16),
    )
    DNS_ONCE = Row(
        title="names of masters are resolved once per process",
        upstream="KUDU-75, KUDU-1620, KUDU-1885: a process that had reached a master kept its old "
        "address, so moving a DNS alias required a restart of every process. No fault of a run "
        "moves a name, but tests/kudu/test_replacement.py does",
        fixed="2022 (1.16)",
        profiles=LEGACY,
        where=(f"{_MASTER}.node", "targets.kudu.system", "targets.kudu.tserver.node"),
        find=None,
    )
    KUDU_2443 = Row(
        title="the replacement of a tablet's only replica is evicted and added again forever",
        upstream="for a tablet with one replica, masters did not except a leader from the replicas "
        "marked REPLACE, so the new replica was evicted as soon as it had a vote. Then the marked "
        "replica was replaced again (cb2037292)",
        fixed="2018-05-16",
        where=(f"{_MASTER}.tablets.rereplication",),
        find=Find(
            "--workload move --replicas 1 --tables 1 --groups 0 --partitions 1 --members 20 "
            "--rate 30 --nemesis none --time-limit 6",
            "bounds",
            1,
        ),
    )
    KUDU_3723 = Row(
        title="a range with the table's hash schema is stored as if it had its own",
        upstream="clients may spell out a range's hash schema. Masters stored it although it was "
        "the table's, and dropping the range did not remove it. After the range was added once "
        "more, the table could be neither opened nor altered (cad295f98)",
        fixed="2025-12-09",
        where=(f"{_MASTER}.catalog.catalog_manager",),
        find=Find("--workload ranges --nemesis none --time-limit 10", "catalog-invariants", 1),
    )
    KUDU_3789 = Row(
        title="the mark of a replica whose move has failed stays forever",
        upstream="the auto-rebalancer asked the tablet's leader once to remove the mark REPLACE, "
        "and a leader that is busy or out of reach refuses. A marked leader cannot be evicted, so "
        "its tablet keeps one replica too many (cf54a3ecc; masters have made marked leaders step "
        "down since c667e360f, 2026-07-24)",
        fixed="2026-06-30",
        where=(f"{_MASTER}.tablets.auto_rebalancer", f"{_MASTER}.tablets.rereplication"),
        find=Find(
            "--workload move --members 0 --tservers 5 --rate 20 --time-limit 24 --kudu-flag "
            "auto_rebalancing_enabled=true,auto_rebalancing_interval_seconds=2,"
            "auto_rebalancing_max_moves_per_server=5,"
            "auto_rebalancing_prefer_follower_replica_moves=false,"
            "auto_rebalancing_rpc_timeout_seconds=1,tserver_unresponsive_timeout_ms=10000,"
            "follower_unavailable_considered_failed_sec=3 "
            "--fault 'kill node:t5 at 1s for 20s' "
            "--fault 'cut it from role:tserver when event replica-move-failed for 5s'",
            "liveness",
            4,
        ),
    )
    LEADER_FLAP_ABA = Row(
        title="a leader that lost and regained its leadership gets no full report",
        upstream="a tablet server sends a full report when a master's reply changes from follower "
        "to leader. A server that was cut off in the meantime never sees that change "
        "(seen on 1.16)",
        fixed="open",
        profiles=("modern",),
        where=(f"{_MASTER}.tablets.heartbeats", "targets.kudu.tserver.heartbeater"),
        find=Find(
            "--time-limit 40 --fault 'cut members from role:tserver at 20s for 14s' "
            "--fault 'do step-down on leader at 22s' --fault 'do step-down on leader at 27s'",
            "liveness",
            11,
        ),
    )
    LEADER_ONLY_HEARTBEATS = Row(
        title="tablet servers send heartbeats only to the leader, which they first have to find",
        upstream="followers ignored heartbeats",
        fixed="2016-06",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.heartbeats", "targets.kudu.tserver.heartbeater"),
        find=None,
    )
    LEADER_READS = Row(
        title="masters that are not the leader refuse every read",
        upstream="KUDU-500, never implemented: even a read that tolerates staleness is refused. "
        "This only puts load on the leader, so no checker finds it",
        fixed="open",
        profiles=STILL,
        where=(f"{_MASTER}.follower_reads",),
        find=None,
    )
    LEADER_PICK = Row(
        title="a client believes the first master that claims to lead",
        upstream="terms are not compared, so a partitioned former leader may win even for a "
        "client that "
        "knows every address (seen on 1.16)",
        fixed="open",
        profiles=STILL,
        where=("targets.kudu.system",),
        find=None,
    )
    LIST_TORN = Row(
        title="ListTables reads tables one by one, not as a snapshot",
        upstream="the list may omit a table that existed all the time",
        fixed="open",
        profiles=STILL,
        where=(f"{_MASTER}.master_service",),
        find=Find(
            "--nemesis none --names 40 --mix create=20,delete=12,list=10,get=5 --rate 80 "
            "--time-limit 20",
            "linearizable-catalog",
            2,
        ),
    )
    OFFLINE_MEMBERS = Row(
        title="masters cannot be added or removed while the cluster runs",
        upstream="there was neither AddMaster nor RemoveMaster (KUDU-2181), only a copy of the "
        "system tablet while all masters were down; here both calls are refused, which a checker "
        "of acknowledged changes cannot blame",
        fixed="2021 (1.15)",
        profiles=LEGACY,
        where=(f"{_MASTER}.membership",),
        find=None,
    )
    ORDER_DELETE = Row(
        title="replicas are deleted before the table's deletion is replicated",
        upstream="DeleteTablet was sent first; if the write then failed, the table had lost its "
        "data",
        fixed="2016-03-31",
        profiles=LEGACY,
        where=(f"{_MASTER}.catalog.catalog_manager",),
        find=Find("--fault 'cut leader from members' --names 12 --time-limit 20", "liveness", 12),
    )
    ORDER_REPLACE = Row(
        title="a replacement tablet is visible before it is replicated",
        upstream="a failed write was undone in two steps; replies named a tablet that no log "
        "contains",
        fixed="2016-04-25",
        profiles=LEGACY,
        where=(f"{_MASTER}.tablets.background",),
        find=Find(
            "--profile modern --tservers 4 --time-limit 40 --concurrency 40 --names 24 "
            "--mix create=3,locate=6,is-create-done=6,delete=1 "
            "--kudu-flag tablet_creation_timeout_ms=10000 "
            "--fault 'pause all@tserver at 6s for 20s' "
            "--fault 'cut leader from members at 15s for 9s'",
            "catalog-invariants",
            2,
        ),
    )
    PLACE_AT_ONCE = Row(
        title="CreateTable does not wait for tablet servers to be heard of",
        upstream="the remainder of KUDU-1358: a create fails on a master that started less than "
        "one heartbeat interval ago",
        fixed="open",
        profiles=STILL,
        where=(f"{_MASTER}.catalog.catalog_manager",),
        find=None,
    )
    RELOAD_NO_LOCK = Row(
        title="running DDL continues while a new leader reloads the catalog",
        upstream="it wrote changes that were decided on the old maps, and the calls of its tasks "
        "were lost",
        fixed="2016",
        profiles=LEGACY,
        where=(f"{_MASTER}.leader_term",),
        find=None,
    )
    RENAME_GAP = Row(
        title="for a moment neither the old nor the new name of a table resolves",
        upstream="the map of names is switched before the record is committed",
        fixed="open",
        profiles=STILL,
        where=(f"{_MASTER}.catalog.catalog_manager",),
        find=Find("--nemesis none --moves 50", "linearizable-catalog", 1),
    )

    STORED_LIST = Row(
        title="a master exits if its list of masters differs from the stored one",
        upstream="start-up fails with InvalidArgument if the stored list is longer or the lists "
        "differ by more than one master. If a master is killed after an AddMaster, but before its "
        "flags list the new master, it cannot start until they do. Runs keep a node's list at a "
        "restart, so only --changed-masters causes this exit",
        fixed="open by design",
        profiles=STILL,
        where=(f"{_MASTER}.membership", "targets.kudu.target"),
        find=Find(
            "--changed-masters m1 --fault 'do rolling-restart on node:m2 variant=changed'",
            "crash",
            1,
        ),
    )


BUGS: Final[Mapping[str, str]] = titles_of(Bug)
PROFILES: Final[Mapping[str, frozenset[Bug]]] = profiles_of(Bug, ("strict", "modern", "legacy"))

_USUAL: Final[Mapping[str, bool]] = {
    "log_force_fsync_all": False,  # logs are not synced, as in Kudu; votes are always synced
    # Tablet servers and clients know only the masters that they were started with
    "heartbeat_names_masters": False,
    "enable_metadata_cleanup_for_deleted_tables_and_tablets": False,
}
FLAGS: Final[Mapping[str, Mapping[str, bool]]] = {
    "strict": {},
    "modern": _USUAL,
    "legacy": {  # Kudu has had pre-elections since 1.1, and voting tombstones since 1.5
        **_USUAL,
        "raft_enable_pre_election": False,
        "raft_enable_tombstoned_voting": False,
        # Before 1.7, Kudu evicted a replica before it added another (KUDU-1097).
        "raft_prepare_replacement_before_eviction": False,
    },
}
"""For each profile, the flags whose defaults differ from those in `Flags`."""


def bugs_of(profile: str, ids: tuple[str, ...]) -> frozenset[Bug]:
    """Return the defects of `profile` and of `ids`. Raises `UsageError` for an unknown name."""
    return switched_on(Bug, PROFILES, profile, ids)
