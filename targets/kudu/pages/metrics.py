"""The metrics of nodes for Prometheus, derived from the nodes' dumps.

A node exports series for at most `LIST_MAX` replicas and at most `LIST_MAX` tablet servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.support.exposition import CONTENT_TYPE, Family, Sample, exposed
from targets.kudu.pages import LIST_MAX
from targets.kudu.pages.site import Plain

_RAFT: Final = (
    ("term", "The current Raft term."),
    ("commit_index", "The last operation known to be committed."),
    ("applied_index", "The last operation applied."),
    ("last_index", "The last operation in the log."),
)
_ELECTIONS: Final = (
    ("started", "Elections this replica started, as a candidate, since its start."),
    ("won", "Elections this replica won since its start."),
)


def metrics_page(families: Iterable[Family]) -> Plain:
    """Build the page `/metrics`, as text for Prometheus and as JSON."""
    kept = [family for family in families if family.samples]
    data = {
        family.name: [{"labels": dict(labels), "value": value} for labels, value in family.samples]
        for family in kept
    }
    return Plain(data, exposed(kept), content_type=CONTENT_TYPE)


def _one(name: str, what: str, value: float) -> Family:
    return _gauge(name, what, [({}, value)])


def _gauge(name: str, what: str, samples: list[Sample]) -> Family:
    return Family(name, "gauge", what, samples)


def _calls(calls: Mapping[str, int]) -> Family:
    return Family(
        "kudu_rpc_calls_total",
        "counter",
        "Calls received, by method, since the start.",
        [({"method": method}, count) for method, count in sorted(calls.items())],
    )


def _raft(replicas: list[tuple[str, Mapping[str, Any]]]) -> list[Family]:
    families = [
        _gauge(f"kudu_raft_{key}", what, [({"group": g}, r[key]) for g, r in replicas])
        for key, what in _RAFT
    ]
    families.append(
        _gauge(
            "kudu_raft_is_leader",
            "Whether this replica leads.",
            [({"group": g}, int(r["role"] == "LEADER")) for g, r in replicas],
        )
    )
    families += [
        Family(
            f"kudu_raft_elections_{key}_total",
            "counter",
            what,
            [({"group": g}, r["elections"][key]) for g, r in replicas if "elections" in r],
        )
        for key, what in _ELECTIONS
    ]
    families.append(
        _gauge(
            "kudu_raft_log_bytes",
            "The size of the replica's log on disk.",
            [
                ({"group": g}, r["counters"]["log bytes"])
                for g, r in replicas
                if "log bytes" in r.get("counters", {})
            ],
        )
    )
    return families


def _states(name: str, what: str, states: Iterable[str]) -> Family:
    return _gauge(name, what, [({"state": s}, n) for s, n in sorted(Counter(states).items())])


def master_metrics(dump: Mapping[str, Any], start_ns: int) -> list[Family]:
    """Metrics of a master."""
    raft, servers = dump["raft"], dump["tservers"][:LIST_MAX]
    return [
        _one("kudu_start_time_seconds", "When the node started.", start_ns / 1e9),
        _calls(dump["calls"]),
        *_raft([("sys.catalog", raft)] if raft else []),
        _one("kudu_master_ready", "Whether this master leads and serves.", int(dump["ready"])),
        _states("kudu_tables", "Tables, by state.", [t["state"] for t in dump["tables"]]),
        _states("kudu_tablets", "Tablets, by state.", [t["state"] for t in dump["tablets"]]),
        _gauge(
            "kudu_tserver_seconds_since_heartbeat",
            "Seconds since the tablet server's last heartbeat to this master.",
            [(_server(s), s["millis_since_heartbeat"] / 1000) for s in servers],
        ),
        _gauge(
            "kudu_tserver_live_tablets",
            "Replicas with data, by the tablet server's last heartbeat.",
            [(_server(s), s["num_live_tablets"]) for s in servers],
        ),
        _one("kudu_master_tasks", "Pending calls to tablet servers.", dump["tasks"]),
        _one(
            "kudu_master_replies_kept",
            "Answers kept for resent requests.",
            dump["replies"]["kept"],
        ),
    ]


def _server(server: Mapping[str, Any]) -> dict[str, str]:
    return {"uuid": server["uuid"], "address": server["address"]}


def tserver_metrics(dump: Mapping[str, Any], start_ns: int) -> list[Family]:
    """Metrics of a tablet server."""
    tablets = dump["tablets"]
    running = [(t["tablet_id"], t["raft"]) for t in tablets if t["raft"] is not None]
    return [
        _one("kudu_start_time_seconds", "When the node started.", start_ns / 1e9),
        _calls(dump["calls"]),
        _states("kudu_tablet_replicas", "Replicas, by state.", [t["state"] for t in tablets]),
        _one(
            "kudu_tablet_replicas_led",
            "Replicas that lead their tablet.",
            sum(raft["role"] == "LEADER" for _, raft in running),
        ),
        _one(
            "kudu_tablet_replicas_without_series",
            f"Replicas beyond the first {LIST_MAX}, which are not exported one by one.",
            max(0, len(running) - LIST_MAX),
        ),
        *_raft(running[:LIST_MAX]),
        *_rows([(t["tablet_id"], t["rows"]) for t in tablets if t["rows"] is not None][:LIST_MAX]),
    ]


def _rows(stores: list[tuple[str, Mapping[str, Any]]]) -> list[Family]:
    return [
        _gauge(
            "kudu_tablet_live_rows",
            "Rows that exist now.",
            [({"tablet": t}, store["live_rows"]) for t, store in stores],
        ),
        *(
            _gauge(
                f"kudu_tablet_{name.replace(' ', '_')}",
                f"{name.capitalize()}.",
                [({"tablet": t}, store["counters"][name]) for t, store in stores],
            )
            for name in (stores[0][1]["counters"] if stores else ())
        ),
    ]
