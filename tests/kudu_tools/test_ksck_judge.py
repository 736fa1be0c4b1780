"""Results of a cluster check about servers, configurations and replicas."""

from __future__ import annotations

import msgspec
import pytest

from targets.kudu.tools.ksck_judge import ObservedTablet, judge
from targets.kudu.tools.ksck_results import (
    ChecksumResults,
    ConfigType,
    Health,
    MasterConsensusState,
    ReplicaChecksum,
    ServerHealth,
    TabletChecksum,
)
from tests.kudu_tools.clusters import change, cluster, server, state, tablet, uuid

HEALTHY = tablet("t1", "t2", "t3")


def _with_master(found: ObservedTablet, **changes: object) -> ObservedTablet:
    record = msgspec.structs.replace(found.master_cstate, **changes)
    return msgspec.structs.replace(found, master_cstate=record)


DOWN = {"ts_healthy": False, "state": None, "data_state": None, "consensus_state": None}
CASES = {
    "all run": (HEALTHY, Health.HEALTHY),
    "one down": (change(HEALTHY, 2, **DOWN), Health.UNDER_REPLICATED),
    "two down": (change(change(HEALTHY, 1, **DOWN), 2, **DOWN), Health.UNAVAILABLE),
    "one failed": (change(HEALTHY, 1, state="FAILED"), Health.UNDER_REPLICATED),
    "one missing": (change(HEALTHY, 1, state=None, data_state=None), Health.UNDER_REPLICATED),
    "a copy runs": (
        change(HEALTHY, 2, is_voter=False, state="INITIALIZED", data_state="COPYING"),
        Health.RECOVERING,
    ),
    "fewer voters than wanted": (tablet("t1", "t2"), Health.UNDER_REPLICATED),
    "no leader is known": (_with_master(HEALTHY, leader_uuid=None), Health.UNAVAILABLE),
    "another leader": (
        change(HEALTHY, 1, consensus_state=state("t2", "t1", "t2", "t3")),
        Health.CONSENSUS_MISMATCH,
    ),
    "other voters": (
        change(HEALTHY, 1, consensus_state=state("t1", "t1", "t2")),
        Health.CONSENSUS_MISMATCH,
    ),
    "another non-voter": (
        change(
            HEALTHY, 1, consensus_state=state("t1", "t1", "t2", "t3", non_voter_uuids=(uuid("t4"),))
        ),
        Health.CONSENSUS_MISMATCH,
    ),
    "a term that the master does not know": (
        change(HEALTHY, 1, consensus_state=state("t1", "t1", "t2", "t3", term=9)),
        Health.HEALTHY,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_health_of_a_tablet(name):
    found, expected = CASES[name]
    results = judge(cluster(found))
    assert [t.health for t in results.tablet_summaries] == [expected]
    assert [t.health for t in results.table_summaries] == [expected]
    assert results.ok == (expected is Health.HEALTHY)


def test_a_table_is_as_its_worst_tablet():
    second = change(tablet("t1", "t2", "t3", tablet_id="two"), 2, **DOWN)
    (table,) = judge(cluster(HEALTHY, second)).table_summaries
    assert table.health is Health.UNDER_REPLICATED
    assert (table.total_tablets, table.healthy_tablets, table.underreplicated_tablets) == (2, 1, 1)


def test_one_dead_master_fails_the_check():
    whole = cluster(HEALTHY)
    masters = (*whole.masters[:2], server("m3", ServerHealth.UNAVAILABLE))
    results = judge(cluster(HEALTHY, masters=masters, master_states=whole.master_states[:2]))
    assert results.master_consensus_conflict
    assert len(results.errors) == 2
    assert results.master_summaries[-1].health is ServerHealth.UNAVAILABLE


@pytest.mark.parametrize(
    "changes",
    [
        {"term": 4},
        {"leader_uuid": uuid("m2")},
        {"voter_uuids": (uuid("m1"), uuid("m2"))},
        {"non_voter_uuids": (uuid("m4"),)},
        {"type": ConfigType.PENDING},
    ],
)
def test_masters_that_disagree_are_in_conflict(changes):
    states = list(cluster(HEALTHY).master_states)
    other = msgspec.structs.replace(states[2].consensus_state, **changes)
    states[2] = MasterConsensusState(uuid=states[2].uuid, consensus_state=other)
    results = judge(cluster(HEALTHY, master_states=tuple(states)))
    assert results.master_consensus_conflict
    assert not results.ok


def test_without_a_leading_master_the_check_stops():
    results = judge(cluster(tables=None))
    assert not results.ok
    assert not results.tserver_summaries
    assert not results.count_summaries


def test_a_dead_tablet_server_is_an_error_by_itself():
    servers = (server("t1"), server("t2"), server("t3", ServerHealth.WRONG_SERVER_UUID))
    assert len(judge(cluster(HEALTHY, tservers=servers)).errors) == 1


def test_two_versions_are_a_warning():
    servers = tuple(
        msgspec.structs.replace(found, version="2.0") if found.uuid == uuid("t2") else found
        for found in cluster(HEALTHY).tservers
    )
    results = judge(cluster(HEALTHY, tservers=servers))
    assert results.ok
    assert results.warnings
    assert [v.version for v in results.version_summaries] == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("second", "mismatch", "errors"), [("7", False, 0), ("8", True, 1), (None, False, 1)]
)
def test_checksums(second, mismatch, errors):
    replicas = tuple(
        ReplicaChecksum(ts_uuid=uuid(name), ts_address=f"{name}:7050", checksum=checksum)
        for name, checksum in (("t1", "7"), ("t2", second))
    )
    found = TabletChecksum(tablet_id="tab", mismatch=mismatch, replica_checksums=replicas)
    results = judge(cluster(HEALTHY, checksums=ChecksumResults(tables={"metrics": (found,)})))
    assert len(results.errors) == errors
