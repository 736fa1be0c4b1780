"""Computes the limits that the checker `bounds` enforces on calls, memory, disk and outages.

Limits follow from flags, for example from the interval of heartbeats and the election timeout. All
limits are far above the values measured in clean runs. A run that exceeds a limit had a storm of
calls, a leak, or a cluster that never recovered from a fault.

Counters come from the dumps of the nodes. A node counts the calls that it served since its last
start, so a restart can only hide calls.

For the checker `catalog-invariants`, this module also lists the limits of requests that flags have
changed, for example the maximum length of a name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from targets.kudu.flags import Flags
from targets.kudu.master.tablets.ts_manager import IDLE_INTERVALS
from targets.kudu.tserver.errors import RESULTS_MAX, WRITES_WAITING_MAX

Json = Mapping[str, Any]
_DEAD_TABLETS: Final = ("DELETED", "REPLACED")
COPY: Final = "ConsensusService.StartTabletCopy"
CHANGE: Final = "ConsensusService.ChangeConfig"
MOVE: Final = "ConsensusService.BulkChangeConfig"
INSTALL: Final = "ConsensusService.InstallSnapshot"
CHANGES: Final = (CHANGE, MOVE)
CARRIED_OUT: Final = "carried out"
OUTAGE_KINDS: Final = ("none", "cut", "kill", "power-cut", "pause", "restart", "reset")
"""Kinds of faults that masters promise to recover from; "none" is an outage without a fault."""
SMALL_BATCH_BYTES: Final = 2000
"""Updates of at least this size hold several catalog entries, of at most 630 bytes each."""
USUAL: Final = Flags()
"""Kudu's own flags, under which the limits of calls were measured."""
REPLICAS_OF_MASTERS: Final = 7
CATALOG_KIB_REPLICA: Final = 0.2
"""KiB of the masters' snapshots for each replica that was ever created (measured: 0.07)."""
ENTRIES_OF_OPERATION: Final = 3
"""Maximum number of entries that an operation adds to the masters' log; a create adds three."""
USUAL_PAIRS: Final = 20
"""The number of pairs of a tablet server and a master in the measured cluster: 4 times 5."""


def describe_bounds(
    masters: Json, tservers: Json, flags: Flags, changed: Flags | None = None, *, names: int = 1
) -> dict[str, Any]:
    """Build the snapshot's `limits`, `counters` by node, `calls` by method and `amounts` by name.

    `masters` and `tservers` map each node to its dump, or to `None` if the node did not answer. If
    some nodes run under the flags `changed`, each limit is the larger of the limits under both sets
    of flags. `names` is the number of names that a master may have: two if a spare may take a lost
    master's name.
    """
    pairs = len(masters) * len(tservers)
    dumps = {name: dump for name, dump in {**masters, **tservers}.items() if dump is not None}
    calls = _calls_of(dumps)
    amounts = _amounts(masters, calls)
    made = amounts.get("replica made", 0)
    limits = _limits(flags, pairs, made)
    if changed is not None:
        limits = [_larger(*two) for two in zip(limits, _limits(changed, pairs, made), strict=True)]
    limits.append(_idle_heartbeats(names, flags, changed or flags))
    return {
        "limits": [limit for limit in limits if limit["limit"] != math.inf],
        "counters": {name: _counters(dump) for name, dump in sorted(dumps.items())},
        "calls": calls,
        "amounts": amounts,
        "quorum": sorted(masters),
    }


def keeps_voters(*flags: Flags | None) -> bool:
    """Whether a tablet never has fewer voters than its table asks for, under all these flags."""
    return all(f is None or f.raft_prepare_replacement_before_eviction for f in flags)


def describe_accepted(tservers: int, flags: Flags) -> dict[str, Any]:
    """Build the snapshot's `accepts`: the limits of requests that flags have changed.

    The checker assumes Kudu's own limits by default, so under Kudu's own flags there are none.
    """

    def declared(found: Flags) -> dict[str, Any]:
        return {
            "name_bytes": found.max_identifier_length,
            "columns": found.max_num_columns,
            "replicas": [found.min_num_replicas, found.max_num_replicas],
            "new_replicas": found.max_create_tablets_per_ts * tservers,
        }

    usual = declared(USUAL)
    accepts = {name: value for name, value in declared(flags).items() if value != usual[name]}
    return {"accepts": accepts} if accepts else {}


def _calls_of(dumps: Mapping[str, Json]) -> dict[str, int]:
    calls: dict[str, int] = {}
    for _, dump in sorted(dumps.items()):
        put_off = dump.get("put_off")
        for method, count in dump.get("calls", {}).items():
            calls[method] = calls.get(method, 0) + count
            if put_off is not None:
                name = f"{method} {CARRIED_OUT}"
                calls[name] = calls.get(name, 0) + count - put_off.get(method, 0)
    return calls


def _counters(dump: Json) -> dict[str, int]:
    """Return a node's counters. For a counter of its groups or tablets, take the largest value.

    The counter `files` leaves out log segments and row files.
    """
    counters = dict(dump.get("counters", {}))
    rafts = [dump.get("raft"), *(tablet.get("raft") for tablet in dump.get("tablets", ()))]
    groups: list[Json] = [(raft or {}).get("counters") or {} for raft in rafts]
    for group in groups:
        for name, value in group.items():
            key = f"{name} of a group"
            counters[key] = max(counters.get(key, 0), value)
    rows: list[Json] = [
        (tablet.get("rows") or {}).get("counters") or {} for tablet in dump.get("tablets", ())
    ]
    for tablet in rows:
        for name, value in tablet.items():
            key = f"{name} of a tablet"
            counters[key] = max(counters.get(key, 0), value)
    if "replies" in dump:
        counters["remembered replies"] = dump["replies"]["kept"]
    if "files" in dump:
        logs = sum(group.get("log segments", 0) for group in groups)
        counters["files"] = (
            dump["files"] - logs - sum(tablet.get("row files", 0) for tablet in rows)
        )
    return counters


def _amounts(masters: Json, calls: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of tables, tablets, replicas and changes on which the limits depend.

    The numbers come from the catalog of the most up-to-date master. If no master answered, the
    result is empty: all numbers are then unknown, not 0.

    A replica that replaces another one counts as "replica copied", not as "replica made". Both
    allow a deletion, because the replaced replica is deleted too.
    """
    answered = [dump for dump in masters.values() if dump is not None]
    if not answered:
        return {}
    rows: Json = max(answered, key=lambda dump: dump.get("revision", 0))
    tablets: dict[str, int] = {}
    for tablet in rows["tablets"]:
        tablets[tablet["table_id"]] = tablets.get(tablet["table_id"], 0) + 1
    tables = rows["tables"]
    forgotten = rows.get("forgotten") or {}
    return {
        "live table": sum(table["state"] != "REMOVED" for table in tables),
        "live tablet": sum(t["state"] not in _DEAD_TABLETS for t in rows["tablets"]),
        "configuration changed": sum(calls.get(method, 0) for method in CHANGES),
        "replica asked to move": calls.get(MOVE, 0),
        "replica copied": calls.get(f"{COPY} {CARRIED_OUT}", 0),
        "replica made": forgotten.get("replicas", 0)
        + sum(t["num_replicas"] * tablets.get(t["id"], 0) for t in tables),
        "tablet altered": forgotten.get("altered", 0)
        + sum(t["version"] * tablets.get(t["id"], 0) for t in tables),
    }


def _limits(flags: Flags, pairs: int, made: int) -> list[dict[str, Any]]:
    return [*_times(flags), *_calls(flags, pairs, made), *_kept(flags), *_used(flags, made)]


def _larger(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    per = {unit: max(share, other["per"][unit]) for unit, share in one["per"].items()}
    return {**one, "limit": max(one["limit"], other["limit"]), "per": per}


def _limit(
    name: str, measure: str, of: str, limit: float, why: str, **per: float
) -> dict[str, Any]:
    units = {unit.replace("_", " "): share for unit, share in per.items()}
    return {
        "name": name, "measure": measure, "of": of, "limit": limit, "per": units, "why": why
    }  # fmt: skip


def _election_ms(flags: Flags) -> float:
    return flags.raft_heartbeat_interval_ms * flags.leader_failure_max_missed_heartbeat_periods


def _times(flags: Flags) -> list[dict[str, Any]]:
    """Return the limits of outages and elections.

    An outage may last six minimal election timeouts plus two seconds. Clean runs usually need 1.5
    timeouts, but short ones are easily missed on slow disks.
    Outages are unlimited if an update holds only few entries. A follower then gets entries more
    slowly than clients write, and a new leader cannot serve before its followers have caught up.
    """
    timeout_s = _election_ms(flags) / 1000
    few = flags.consensus_max_batch_size_bytes < SMALL_BATCH_BYTES
    outage_s = math.inf if few else 6 * timeout_s + 2
    outage = "a new leader is elected after one election timeout, or after a few if votes are split"
    return [
        *(
            _limit(f"outage under {kind}", "outage", kind, outage_s, outage)
            for kind in OUTAGE_KINDS
        ),
        _limit(
            "elections",
            "elections",
            "",
            10,
            "a leader is only replaced when it is lost",
            fault=3,
            second=0.2 / timeout_s,
        ),
        _limit(
            "leaders of a term",
            "leaders",
            "",
            1,
            "a replica votes once per term and never changes its vote",
        ),
    ]


def _scaled(number: int, factor: Fraction) -> float:
    scaled = number * factor
    return int(scaled) if scaled.denominator == 1 else float(scaled)


def _calls(flags: Flags, pairs: int, made: int) -> list[dict[str, Any]]:
    """Return the limits of calls: a node makes each call once, and repeats it only if it fails.

    **Heartbeats and votes** grow with time. Each tablet server sends heartbeats to each master.
    Each loss of a leader allows at least as many votes as under the default flags.

    **DeleteTablet.** A call that conflicts with another call for the same tablet is postponed and
    resent, 13 times in the first minute. With slow disks, 8.6 calls per replica were measured, of
    which 1.02 were carried out.

    **Slow seconds.** Disks that work off a backlog answer late, so calls time out and are resent. A
    slow second was seen to add up to 17 votes, 11 calls of DeleteTablet and 1 deletion.

    **New leaders** resend the calls that are unfinished in their catalog. If updates hold few
    entries, the catalog lags, and all calls may be unfinished.

    **ChangeConfig.** A move needs one call, which evicts the old replica (1.03 measured). A fault
    may hit all replicas, each of which is then added elsewhere and evicted.

    **Snapshots.** A copied replica gets one snapshot (1.03 measured). Any other follower gets
    entries, unless a fault kept it away until the leader had removed them. Snapshots of masters
    are not limited, because masters do not report which of them were complete.
    """
    service, why = "TabletServerAdminService", "a call is repeated only after it failed"
    votes = Fraction(_election_ms(USUAL)) / Fraction(_election_ms(flags))
    beats = Fraction(USUAL.heartbeat_interval_ms, flags.heartbeat_interval_ms)
    beats_of_leaders = Fraction(USUAL.raft_heartbeat_interval_ms, flags.raft_heartbeat_interval_ms)
    beats *= max(Fraction(1), Fraction(pairs, USUAL_PAIRS))
    return [
        _limit(
            "calls of CreateTablet", "calls", f"{service}.CreateTablet {CARRIED_OUT}", 100, why,
            replica_made=1.5, fault=20,
        ),
        _limit(
            "calls of DeleteTablet", "calls", f"{service}.DeleteTablet", 100, why,
            replica_made=13, replica_copied=13, fault=20, slow_second=25,
        ),
        _limit(
            "deletions", "calls", f"{service}.DeleteTablet {CARRIED_OUT}", 30,
            "a replica is deleted once, and again if an answer was lost",
            replica_made=1.2, replica_copied=1.2, fault=5, slow_second=2,
        ),
        _limit(
            "calls of AlterSchema", "calls", f"{service}.AlterSchema", 60, why,
            tablet_altered=2, fault=10,
        ),
        _limit(
            "calls of RequestConsensusVote", "calls", "ConsensusService.RequestConsensusVote", 500,
            "a tablet elects a leader when it is created, and whenever it loses its leader",
            replica_made=4, replica_copied=4, fault=_scaled(300, max(Fraction(1), votes)),
            second=_scaled(4, votes), slow_second=40,
        ),
        _limit(
            "calls of TSHeartbeat", "calls", "MasterService.TSHeartbeat", 500,
            "a tablet server sends a heartbeat once per interval, or at once if there are changes "
            "to report",
            replica_made=10, replica_copied=10, tablet_altered=20, second=_scaled(60, beats),
        ),
        _limit(
            "calls of StartTabletCopy", "calls", COPY, 100,
            "a leader asks a server without its tablet to copy it, once per heartbeat",
            replica_made=1, configuration_changed=2, fault=30,
            second=_scaled(2 * made, beats_of_leaders),
        ),
        _limit(
            "copies", "calls", f"{COPY} {CARRIED_OUT}", 100,
            "a replica is copied when it is added, and again if the copy was interrupted",
            replica_made=1, configuration_changed=2, fault=30,
        ),
        _limit(
            "snapshots of tablets", "calls", f"{INSTALL} {CARRIED_OUT}", 50,
            "a follower gets a snapshot when it is copied, or for entries that its leader has "
            "removed",
            replica_copied=1.5, fault=30 + 2 * made, second=0.1,
        ),
        _limit(
            "calls of ChangeConfig", "calls", CHANGE, 100,
            "a configuration changes once per move, or after a replica is lost",
            replica_asked_to_move=8, replica_made=1, fault=60 + 4 * made, second=2,
        ),
        _limit(
            "calls of UpdateConsensus", "calls", "ConsensusService.UpdateConsensus", 1000,
            "a leader updates each follower once per interval, or at once if there are new entries",
            operation=20, fault=1000, replica_copied=20,
            second=_scaled(4 * (made + REPLICAS_OF_MASTERS), beats_of_leaders),
        ),
    ]  # fmt: skip


def _idle_heartbeats(names: int, *flags: Flags) -> dict[str, Any]:
    """Return the limit of heartbeats without news. After a fault, delayed ones arrive together."""
    intervals = [each.heartbeat_interval_ms for each in flags]
    limit = _scaled(3 * IDLE_INTERVALS // 2 * names, Fraction(max(intervals), min(intervals)))
    return _limit(
        "idle heartbeats", "counter", "idle heartbeats of a server", limit,
        "a tablet server sends a master one heartbeat without news per interval, even if its list "
        "names the master twice", fault=IDLE_INTERVALS,
    )  # fmt: skip


def _used(flags: Flags, made: int) -> list[dict[str, Any]]:
    """Return the limits of a running node's memory and disk.

    An operation is counted as a hundred rows of a hundred bytes, each of which is written more than
    once: to the log, to the history and to a row file. The limits also allow for real disks, which
    write a whole page of 4 KiB per sync.
    """
    kib = 1 / 1024
    records_kib = made * CATALOG_KIB_REPLICA * ENTRIES_OF_OPERATION / flags.master_snapshot_every
    return [
        _limit(
            "memory at any time", "memory", "any time", 320,
            "the number of operations in progress is bounded, and a copied tablet of at most 256 "
            "MiB is held in memory",
            operation=0.005,
        ),
        _limit(
            "disk", "disk", "", 8, "old log segments and the data of deleted replicas are removed",
            operation=64 * kib, live_tablet=1, replica_made=4 * kib, replica_copied=1,
        ),
        _limit(
            "written in a minute", "written", "", 8,
            "an idle node writes little, and each row is written to disk only a few times",
            operation=(64 + records_kib) * kib, second=64 * kib, fault=1, replica_made=32 * kib,
            replica_copied=1,
        ),
    ]  # fmt: skip


def _kept(flags: Flags) -> list[dict[str, Any]]:
    """Return the limits of a cluster at rest. A few locks are allowed, for tablet reports."""
    retained, idle = (
        flags.log_max_segments_to_retain,
        "a cluster at rest has no operation in progress",
    )
    return [
        _limit(
            "memory", "memory", "", 64,
            "the number of operations in progress is bounded, and old log segments are removed",
            operation=0.005,
        ),
        _limit("locks", "counter", "locks", 4, "a lock ends with its last user", live_table=1),
        _limit("requests in flight", "counter", "requests in flight", 4, idle),
        _limit("reserved names", "counter", "reserved names", 4, idle),
        _limit(
            "late rows", "counter", "late rows", 0,
            "rows of deleted tables go: metadata_for_deleted_table_and_tablet_reserved_secs",
        ),
        _limit("tablets in transition", "counter", "tablets in transition", 4, idle),
        _limit(
            "files", "counter", "files", 12,
            "a replica has three files (superblock, vote state, snapshot), deleted with it",
            live_tablet=4,
        ),
        _limit(
            "row files", "counter", "row files of a tablet", 64,
            "each row file up to 4 MiB is at most half as large as the one before it",
        ),
        _limit("waiting requests", "counter", "waiting requests of a group", 16, idle),
        _limit(
            "log segments", "counter", "log segments of a group", retained,
            "flag log_max_segments_to_retain",
        ),
        _limit(
            "log on disk", "counter", "log bytes of a group",
            retained * flags.log_segment_size_kb * 1024,
            "flags log_max_segments_to_retain and log_segment_size_kb",
        ),
        _limit(
            "history", "counter", "history bytes of a tablet", flags.tablet_history_max_kb * 1024,
            "flag tablet_history_max_kb",
        ),
        _limit(
            "results", "counter", "remembered results of a tablet",
            RESULTS_MAX + WRITES_WAITING_MAX,
            "a tablet refuses new writes once it remembers this many results",
        ),
        _limit(
            "replies", "counter", "remembered replies", flags.master_replies_max,
            "flag master_replies_max",
        ),
        _limit("waiting writes", "counter", "waiting writes of a tablet", 16, idle),
        _limit("waiting reads", "counter", "waiting reads of a tablet", 16, idle),
        _limit(
            "garbage segments", "counter", "garbage segments of a group", 2,
            "log segments are removed once a snapshot covers them",
        ),
    ]  # fmt: skip
