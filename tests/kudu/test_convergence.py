"""The conditions under which a cluster counts as at rest, on hand-written dumps."""

import copy
from typing import Any

import pytest

from harness.plugins import NodeRole
from targets.kudu.convergence import PENDING_MAX, MasterView, find_pending


def cluster() -> tuple[dict[str, Any], dict[str, Any]]:
    """Build dumps of three masters and two tablet servers at rest, with one tablet."""
    peers = [{"uuid": uuid, "member_type": "VOTER", "replace": False} for uuid in ("u1", "u2")]
    master = {
        "term": 4,
        "raft": {"applied_index": 9, "digest": "d"},
        "tables": [
            {"id": "T", "name": "t", "state": "RUNNING", "version": 2, "num_replicas": 2},
            {"id": "R", "name": "r", "state": "REMOVED", "version": 1, "num_replicas": 2},
        ],
        "tablets": [
            {
                "id": "x",
                "table_id": "T",
                "state": "RUNNING",
                "consensus": {"opid_index": -1, "peers": peers},
            },
            {"id": "y", "table_id": "R", "state": "DELETED", "consensus": None},
        ],
        "tasks": 0,
        "tservers": [{"uuid": uuid, "in_maintenance": False} for uuid in ("u1", "u2", "gone")],
    }
    replica = {
        "tablet_id": "x",
        "state": "RUNNING",
        "data_state": "READY",
        "schema_version": 2,
        "committed_config": {"opid_index": -1, "peers": peers},
        "raft": {"leader_uuid": "u1"},
    }
    masters = {
        name: {"dump": copy.deepcopy(master), "role": NodeRole("follower", 4)}
        for name in ("m1", "m2", "m3")
    }
    masters["m2"]["role"] = NodeRole("leader", 4, ready=True)
    tservers = {
        name: {"uuid": f"u{n}", "tablets": [copy.deepcopy(replica)]}
        for n, name in enumerate(("t1", "t2"), 1)
    }
    return masters, tservers


def pending(masters: dict[str, Any], tservers: dict[str, Any]) -> tuple[str, ...]:
    return find_pending({n: MasterView(**v) for n, v in masters.items()}, tservers)


def test_cluster_at_rest():
    assert pending(*cluster()) == ()


def _no_leader(m, t):
    m["m2"]["role"] = NodeRole("follower", 4)


def _two_leaders(m, t):
    m["m1"]["role"] = NodeRole("leader", 3)


def _leader_not_ready(m, t):
    m["m2"]["role"] = NodeRole("leader", 4, ready=False)


def _orphan(m, t):
    t["t1"]["tablets"].append({**t["t1"]["tablets"][0], "tablet_id": "y"})


def _tablet(m):
    return m["m2"]["dump"]["tablets"][0]


def _of_replicas(count):
    def spoil(m, t):
        m["m2"]["dump"]["tables"][0].update(num_replicas=count)
        t["t3"] = {"uuid": "u3", "tablets": []}

    return spoil


CASES = [
    (_of_replicas(3), "tablet x has 2 voters of 3"),
    (_of_replicas(1), "tablet x has 2 voters of 1"),
    (
        lambda m, t: _tablet(m)["consensus"]["peers"][1].update(member_type="NON_VOTER"),
        "tablet x has 1 replicas that do not vote",
    ),
    (
        lambda m, t: _tablet(m)["consensus"]["peers"][1].update(replace=True),
        "marked for replacement",
    ),
    (lambda m, t: m["m1"].update(dump=None), "m1 does not answer"),
    (lambda m, t: m["m1"].update(role=None), "m1 does not answer"),
    (lambda m, t: t.update(t2=None), "t2 does not answer"),
    (_no_leader, "0 masters lead"),
    (_two_leaders, "2 masters lead and are ready: m1, m2"),
    (_leader_not_ready, "0 masters lead"),
    (lambda m, t: m["m3"]["dump"].update(term=5), "m3 is in term 5"),
    (lambda m, t: m["m3"]["dump"]["raft"].update(applied_index=8), "m3 has applied_index 8"),
    (lambda m, t: m["m3"]["dump"]["raft"].update(digest="e"), "m3 has digest e"),
    (lambda m, t: m["m2"]["dump"]["tables"][0].update(state="ALTERING"), "table t (T) is ALTERING"),
    (lambda m, t: m["m2"]["dump"]["tablets"][0].update(state="CREATING"), "tablet x is CREATING"),
    (lambda m, t: m["m2"]["dump"]["tablets"][0].update(state="PREPARING"), "x is PREPARING"),
    (lambda m, t: _tablet(m).update(table_id="U"), "x belongs to table U, which is missing"),
    (
        lambda m, t: _tablet(m).update(table_id="V", state="PREPARING"),
        "x belongs to table V, which is missing",
    ),
    (lambda m, t: m["m2"]["dump"].update(tasks=3), "3 calls to tablet servers"),
    (lambda m, t: t["t1"]["tablets"].clear(), "t1 has no replica of tablet x"),
    (_orphan, "t1 holds tablet y"),
    (lambda m, t: t["t2"]["tablets"][0].update(schema_version=1), "on t2 has schema version 1"),
    (lambda m, t: t["t2"]["tablets"][0].update(state="BOOTSTRAPPING"), "on t2 is READY, BOOT"),
    (lambda m, t: t["t2"]["tablets"][0].update(data_state="TOMBSTONED"), "on t2 is TOMBSTONED"),
    (lambda m, t: t["t2"]["tablets"][0]["raft"].update(leader_uuid=None), "knows no leader"),
    (lambda m, t: t["t2"]["tablets"][0]["raft"].update(role="LEADER", term=9), "is led by t2"),
    (
        lambda m, t: t["t2"]["tablets"][0]["committed_config"].update(opid_index=5),
        "has configuration 5",
    ),
    (
        lambda m, t: t["t2"]["tablets"][0]["committed_config"].update(peers=[]),
        "has configuration -1 of []",
    ),
]


@pytest.mark.parametrize(("spoil", "text"), CASES, ids=[text for _, text in CASES])
def test_each_condition_alone_keeps_it_from_rest(spoil, text):
    masters, tservers = cluster()
    spoil(masters, tservers)
    (line,) = pending(masters, tservers)
    assert text in line


def test_tablets_of_a_table_that_lacks_servers_may_wait():
    masters, tservers = cluster()
    dump = masters["m2"]["dump"]
    dump["tables"].append(
        {"id": "W", "name": "w", "state": "ALTERING", "version": 1, "num_replicas": 3}
    )
    wide = {"id": "w", "table_id": "W", "state": "PREPARING", "consensus": None}
    dump["tablets"].append(wide)
    assert pending(masters, tservers) == ()
    wide["state"] = "CREATING"
    assert len(pending(masters, tservers)) == 2  # one line for the table, one for its tablet
    wide["state"] = "PREPARING"
    tservers["t3"] = {"uuid": "u3", "tablets": []}
    assert len(pending(masters, tservers)) == 2


@pytest.mark.parametrize(("ready_for_ms", "waits"), [(500, True), (60_000, False)])
def test_a_new_leader_gets_some_time_to_remove_late_rows(ready_for_ms, waits):
    masters, tservers = cluster()
    late = {"counters": {"late rows": 2}, "ready_for_ms": ready_for_ms}
    masters["m2"]["dump"].update(late)
    assert bool(pending(masters, tservers)) is waits


@pytest.mark.parametrize("missing", ["server", "maintenance"])
def test_replicas_that_no_server_is_left_for_are_not_waited_for(missing):
    masters, tservers = cluster()
    _of_replicas(3)(masters, tservers)
    if missing == "server":
        del tservers["t3"]
    else:
        masters["m2"]["dump"]["tservers"].append({"uuid": "u3", "in_maintenance": True})
    assert pending(masters, tservers) == ()


def test_tombstone_of_a_tablet_that_moved_away_is_no_leftover():
    masters, tservers = cluster()
    for view in masters.values():
        view["dump"]["tablets"] = []
    for server in tservers.values():
        server["tablets"][0].update(data_state="TOMBSTONED", raft=None)
    assert pending(masters, tservers) == ()


def test_report_is_bounded_and_says_so():
    masters, tservers = cluster()
    replica = tservers["t1"]["tablets"][0]
    tservers["t1"]["tablets"] += [{**replica, "tablet_id": f"z{n}"} for n in range(50)]
    lines = pending(masters, tservers)
    assert len(lines) == PENDING_MAX + 1
    assert lines[-1] == "... and 30 more"
