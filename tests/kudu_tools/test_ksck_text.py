"""The text of a cluster check and the keys of its JSON."""

from __future__ import annotations

import msgspec
import pytest

from targets.kudu.tools.data_table import data_table
from targets.kudu.tools.ksck_judge import judge
from targets.kudu.tools.ksck_results import ChecksumResults, ReplicaChecksum, TabletChecksum
from targets.kudu.tools.ksck_text import plain_report
from tests.kudu_tools.clusters import change, cluster, state, tablet, uuid

HEALTHY = tablet("t1", "t2", "t3")
PENDING = change(
    HEALTHY, 1, consensus_state=state("t1", "t1", "t2", non_voter_uuids=(uuid("t4"),), term=4)
)
SECTIONS = (
    "Master Summary",
    "Tablet Server Summary",
    "Version Summary",
    "Summary by table",
    "Tablet Replica Count Summary",
    "Total Count",
)


def _lines(*tablets: object, full: bool = False, **changes: object) -> list[str]:
    return plain_report(judge(cluster(*tablets, **changes)), full=full).splitlines()  # type: ignore[arg-type]


def test_sections_come_in_order_and_end_with_ok():
    lines = _lines(HEALTHY)
    places = [lines.index(title) for title in SECTIONS]
    assert places == sorted(places)
    assert lines[-1] == "OK"
    assert not any("matrix" in line for line in lines)


def test_states_of_tablet_servers_come_between_the_masters_and_them():
    states = {uuid("t1"): "NONE", uuid("t2"): "MAINTENANCE_MODE"}
    seen = cluster(HEALTHY, tserver_states=states)
    lines = plain_report(judge(seen), tserver_states=states).splitlines()
    place = lines.index("Tablet Server States")
    assert lines.index("Master Summary") < place < lines.index("Tablet Server Summary")
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[place + 1 : place + 4]]
    assert rows[0] == ["Server", "State"]
    assert rows[2] == [uuid("t2"), "MAINTENANCE_MODE"]
    assert lines[place + 4] == ""  # replicas in the usual state have no line
    assert "Tablet Server States" not in _lines(HEALTHY)


def test_a_bad_tablet_is_shown_between_servers_and_tables():
    lines = _lines(PENDING)
    place = next(i for i, line in enumerate(lines) if line.startswith(f"Tablet {HEALTHY.id}"))
    assert lines.index("Version Summary") < place < lines.index("Summary by table")
    assert lines[-1] == "FAILED"
    assert "Errors:" in lines


def test_matrix():
    lines = _lines(PENDING)
    start = lines.index("The consensus matrix is:")
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[start + 1 : start + 7]]
    assert rows[0] == ["Config source", "Replicas", "Current term", "Config index", "Committed?"]
    assert [row[0] for row in rows[2:]] == ["master", "A", "B", "C"]
    assert rows[2][1].split() == ["A*", "B", "C"]
    assert rows[4][1].split() == ["A*", "B", "D~"]
    assert rows[4][2:] == ["4", "10", "Yes"]
    assert "  D = " + uuid("t4") in lines


def test_full_shows_healthy_tablets_and_the_masters_matrix():
    lines = _lines(HEALTHY, full=True)
    assert lines.count("The consensus matrix is:") == 2


def test_a_server_without_its_replica():
    down = {"ts_healthy": False, "state": None, "consensus_state": None}
    lines = _lines(change(HEALTHY, 2, **down))
    assert f"  {uuid('t3')} (t3:7050): TS unavailable" in lines
    assert any("[config not available]" in line for line in lines)


def test_an_empty_cluster():
    lines = _lines()
    assert "The cluster doesn't have any matching tables" in lines
    assert lines[-1] == "OK"


def test_checksums_are_listed_by_replica():
    replicas = (
        ReplicaChecksum(ts_uuid=uuid("t1"), ts_address="t1:7050", checksum="7"),
        ReplicaChecksum(ts_uuid=uuid("t2"), ts_address="t2:7050", status="TIMED_OUT"),
    )
    found = TabletChecksum(tablet_id="tab", mismatch=False, replica_checksums=replicas)
    sums = ChecksumResults(snapshot_timestamp=9, tables={"metrics": (found,)})
    lines = _lines(HEALTHY, checksums=sums)
    assert "Using snapshot timestamp: 9" in lines
    assert f"T tab P {uuid('t1')} (t1:7050): Checksum: 7" in lines
    assert f"T tab P {uuid('t2')} (t2:7050): Error: TIMED_OUT" in lines


def test_keys_of_the_json():
    data = msgspec.json.decode(msgspec.json.encode(judge(cluster(HEALTHY))))
    assert set(data) >= {
        "errors", "master_summaries", "tserver_summaries", "master_uuids",
        "master_consensus_conflict", "master_consensus_states", "tablet_summaries",
        "table_summaries", "checksum_results", "version_summaries", "count_summaries",
    }  # fmt: skip
    assert data["count_summaries"] == [
        {"masters": 3, "tservers": 3, "tables": 1, "tablets": 1, "replicas": 3}
    ]
    assert data["tserver_summaries"][0]["health"] == "HEALTHY"


@pytest.mark.parametrize("rows", [[], [["a", "b"]], [["longer than it", "x"], ["", "wide cell"]]])
def test_columns_of_a_table_line_up(rows):
    heading, rule, *body = data_table(["Name", "RF"], rows)
    assert len(body) == len(rows)
    places = {line.index("|") for line in (heading, *body)} | {rule.index("+")}
    assert len(places) == 1
    assert [[cell.strip() for cell in line.split("|")] for line in body] == rows
