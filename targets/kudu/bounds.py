"""Limits that the target promises to keep, for the checker `bounds`.
Also which requests its flags have it refuse, for the checker `catalog-invariants`.

Counters are of nodes, as their dumps say; calls are those that nodes served since their last start,
so a restart can only hide some. Limits come from flags: how often a node speaks, how long an
election may take. They are far above what clean runs show (an outage of 2.3 s, 1.06 CreateTablet
and 3.3 DeleteTablet a replica, 1.48 AlterSchema a version of a tablet, no lock at rest, three
files a tablet, 16 MiB and a kilobyte per operation, 0.3 MiB on a disk, 2 to 4 KiB an operation
written to it), and below what a storm, a leak or a cluster
that sits out a fault shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from targets.kudu.flags import Flags
from targets.kudu.tserver.errors import RESULTS_MAX, WRITES_WAITING_MAX

Json = Mapping[str, Any]
_DEAD_TABLETS: Final = ("DELETED", "REPLACED")
COPY: Final = "ConsensusService.StartTabletCopy"
CHANGE: Final = "ConsensusService.ChangeConfig"
CHANGES: Final = (CHANGE, "ConsensusService.BulkChangeConfig")
CARRIED_OUT: Final = "carried out"
OUTAGE_KINDS: Final = ("none", "cut", "kill", "power-cut", "pause", "restart", "reset")
"""Kinds of faults that masters promise to get over; "none" is an outage without a fault."""
USUAL: Final = Flags()
"""Kudu's own flags, for which the limits of calls were measured."""
REPLICAS_OF_MASTERS: Final = 7
CATALOG_KIB_REPLICA: Final = 0.2
"""What masters keep in their snapshots for each replica that was ever made: 0.07 were measured."""
ENTRIES_OF_OPERATION: Final = 3
"""Entries of the masters' log that one operation may take: a create takes three."""
USUAL_PAIRS: Final = 20
"""The measured pairs of a tablet server and a master that it heartbeats to: 4 times 5."""


def describe_bounds(
    masters: Json, tservers: Json, flags: Flags, changed: Flags | None = None
) -> dict[str, Any]:
    """For the snapshot: `limits`, `counters` by node, `calls` by method, `amounts` by name.

    `masters` and `tservers` are dumps by node, `None` where a node did not answer. Where nodes may
    run under `changed` flags, a limit is the larger one.
    """
    pairs = len(masters) * len(tservers)
    dumps = {name: dump for name, dump in {**masters, **tservers}.items() if dump is not None}
    calls = _calls_of(dumps)
    amounts = _amounts(masters, calls)
    made = amounts.get("replica made", 0)
    limits = _limits(flags, pairs, made)
    if changed is not None:
        limits = [_larger(*two) for two in zip(limits, _limits(changed, pairs, made), strict=True)]
    return {
        "limits": limits,
        "counters": {name: _counters(dump) for name, dump in sorted(dumps.items())},
        "calls": calls,
        "amounts": amounts,
        "quorum": sorted(masters),
    }


def describe_accepted(tservers: int, flags: Flags) -> dict[str, Any]:
    """For the snapshot: `accepts`, with the limits of requests that are not Kudu's own.

    Those are the checker's without a word, so snapshots under Kudu's flags stay as they were.
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
    """By method; calls that tablet servers did not put off also by method and `CARRIED_OUT`."""
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
    """A node's own, and the worst of its Raft groups and of its tablets' rows; files are those
    next to the logs of groups and the rows of tablets.
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
    if "files" in dump:
        logs = sum(group.get("log segments", 0) for group in groups)
        counters["files"] = (
            dump["files"] - logs - sum(tablet.get("row files", 0) for tablet in rows)
        )
    return counters


def _amounts(masters: Json, calls: Mapping[str, int]) -> dict[str, int]:
    """The largest amounts ever, by the rows of the master that has applied most, and by calls: each
    new replica of a tablet that is there already is copied, and one that it replaces goes.

    Nothing where no master answered: the amount is then unknown, not 0.
    """
    answered = [dump for dump in masters.values() if dump is not None]
    if not answered:
        return {}
    rows: Json = max(answered, key=lambda dump: dump.get("revision", 0))
    tablets: dict[str, int] = {}
    for tablet in rows["tablets"]:
        tablets[tablet["table_id"]] = tablets.get(tablet["table_id"], 0) + 1
    tables = rows["tables"]
    return {
        "live table": sum(table["state"] != "REMOVED" for table in tables),
        "live tablet": sum(t["state"] not in _DEAD_TABLETS for t in rows["tablets"]),
        "configuration changed": sum(calls.get(method, 0) for method in CHANGES),
        "replica copied": calls.get(COPY, 0),
        "replica made": sum(t["num_replicas"] * tablets.get(t["id"], 0) for t in tables),
        "tablet altered": sum(t["version"] * tablets.get(t["id"], 0) for t in tables),
    }


def _limits(flags: Flags, pairs: int, made: int) -> list[dict[str, Any]]:
    """`made`: the replicas that were ever made."""
    return [*_times(flags), *_calls(flags, pairs, made), *_kept(flags), *_used(flags, made)]


def _larger(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The same limit, as large as the larger of both in each of its parts."""
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
    """The shortest election timeout."""
    return flags.raft_heartbeat_interval_ms * flags.leader_failure_max_missed_heartbeat_periods


def _times(flags: Flags) -> list[dict[str, Any]]:
    """Six of the shortest election timeouts and a second: clean runs need 1.5 of them."""
    timeout_s = _election_ms(flags) / 1000
    outage = "a new leader is elected after one election timeout, or a few if votes are split"
    return [
        *(
            _limit(f"outage under {kind}", "outage", kind, 6 * timeout_s + 1, outage)
            for kind in OUTAGE_KINDS
        ),
        _limit(
            "elections",
            "elections",
            "",
            10,
            "a leader changes when it is lost, and not by itself",
            fault=3,
            second=0.2 / timeout_s,
        ),
        _limit(
            "leaders of a term", "leaders", "", 1, "a replica votes once a term, and keeps to it"
        ),
    ]


def _scaled(number: int, factor: Fraction) -> float:
    """A whole number stays one: stored limits look as they always did."""
    scaled = number * factor
    return int(scaled) if scaled.denominator == 1 else float(scaled)


def _calls(flags: Flags, pairs: int, made: int) -> list[dict[str, Any]]:
    """Each call is made once for its purpose, and again where an answer was lost.

    Heartbeats and votes also come with time: as often as the flags say, and heartbeats from each
    tablet server to each master. A lost leader is worth at least the usual number of votes.

    A call that meets another one for the same tablet is put off and comes again, at first after
    16 ms: with slow disks 3.3 deletions a replica were seen, of which 1.02 were carried out.
    """
    service, why = "TabletServerAdminService", "a call is repeated only after it failed"
    votes = Fraction(_election_ms(USUAL)) / Fraction(_election_ms(flags))
    beats = Fraction(USUAL.heartbeat_interval_ms, flags.heartbeat_interval_ms)
    beats_of_leaders = Fraction(USUAL.raft_heartbeat_interval_ms, flags.raft_heartbeat_interval_ms)
    beats *= max(Fraction(1), Fraction(pairs, USUAL_PAIRS))
    return [
        _limit(
            "calls of CreateTablet", "calls", f"{service}.CreateTablet", 100, why,
            replica_made=1.5, fault=20,
        ),
        _limit(
            "calls of DeleteTablet", "calls", f"{service}.DeleteTablet", 100, why,
            replica_made=8, replica_copied=8, fault=20,
        ),
        _limit(
            "deletions", "calls", f"{service}.DeleteTablet {CARRIED_OUT}", 30,
            "a replica is deleted once, and again where an answer was lost",
            replica_made=1.2, replica_copied=1.2, fault=5,
        ),
        _limit(
            "calls of AlterSchema", "calls", f"{service}.AlterSchema", 60, why,
            tablet_altered=2, fault=10,
        ),
        _limit(
            "calls of RequestConsensusVote", "calls", "ConsensusService.RequestConsensusVote", 500,
            "a tablet elects a leader when it is made, and when that one is lost",
            replica_made=4, replica_copied=4, fault=_scaled(300, max(Fraction(1), votes)),
            second=_scaled(4, votes),
        ),
        _limit(
            "calls of TSHeartbeat", "calls", "MasterService.TSHeartbeat", 500,
            "a heartbeat comes in its interval, or at once with news",
            replica_made=10, replica_copied=10, tablet_altered=20, second=_scaled(60, beats),
        ),
        _limit(
            "calls of StartTabletCopy", "calls", COPY, 100,
            "a replica is copied when it is added, and again where that was cut short",
            replica_made=1, configuration_changed=2, fault=30,
        ),
        _limit(
            "calls of ChangeConfig", "calls", CHANGE, 100,
            "a configuration changes when somebody asks for it, or a replica is lost", operation=2,
            replica_made=1, fault=60,
        ),
        _limit(
            "calls of UpdateConsensus", "calls", "ConsensusService.UpdateConsensus", 1000,
            "a leader speaks to each of its followers in its interval, or at once with news",
            operation=20, fault=1000, replica_copied=20,
            second=_scaled(4 * (made + REPLICAS_OF_MASTERS), beats_of_leaders),
        ),
    ]  # fmt: skip


def _used(flags: Flags, made: int) -> list[dict[str, Any]]:
    """Limits of a node while it runs. A MiB of a tablet is one that it has or copies.

    An operation is worth a hundred rows of a hundred bytes, in the log, in history and in a row
    file, each of which is written more than once. Real disks write whole pages of 4 KiB, one for
    each sync. Masters write all their state again after a number of entries of their log.
    """
    kib = 1 / 1024
    records_kib = made * CATALOG_KIB_REPLICA * ENTRIES_OF_OPERATION / flags.master_snapshot_every
    return [
        _limit(
            "memory at any time", "memory", "any time", 320,
            "what is under way is bounded, and a copy of at most 256 MiB is held whole",
            operation=0.005,
        ),
        _limit(
            "disk", "disk", "", 8, "logs are collected, and what is deleted is gone",
            operation=64 * kib, live_tablet=1, replica_made=4 * kib, replica_copied=1,
        ),
        _limit(
            "written in a minute", "written", "", 8,
            "who has nothing to do writes little, and each write is written a few times",
            operation=(64 + records_kib) * kib, second=64 * kib, fault=1, replica_made=32 * kib,
            replica_copied=1,
        ),
    ]  # fmt: skip


def _kept(flags: Flags) -> list[dict[str, Any]]:
    """Limits at rest. Reports take locks now and then, also when nothing happens."""
    retained, idle = flags.log_max_segments_to_retain, "nothing is under way at rest"
    return [
        _limit(
            "memory", "memory", "", 64, "what is under way is bounded, and logs are collected",
            operation=0.005,
        ),
        _limit("locks", "counter", "locks", 4, "a lock goes with its last user", live_table=1),
        _limit("requests in flight", "counter", "requests in flight", 4, idle),
        _limit("reserved names", "counter", "reserved names", 4, idle),
        _limit("tablets in transition", "counter", "tablets in transition", 4, idle),
        _limit(
            "files", "counter", "files", 12,
            "a replica has a superblock, a vote state and a snapshot, and takes them along",
            live_tablet=4,
        ),
        _limit(
            "row files", "counter", "row files of a tablet", 64,
            "a row file never follows one less than twice its size, up to 4 MiB",
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
            "new writes are turned away when so many results are remembered",
        ),
        _limit("waiting writes", "counter", "waiting writes of a tablet", 16, idle),
        _limit("waiting reads", "counter", "waiting reads of a tablet", 16, idle),
        _limit(
            "garbage segments", "counter", "garbage segments of a group", 2,
            "segments go when a snapshot covers them",
        ),
    ]  # fmt: skip
