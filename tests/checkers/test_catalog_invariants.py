"""Every invariant: a sound snapshot and history, and one mutant that breaks it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from checkers.catalog import CatalogInvariantsChecker
from harness.ops import CheckResult, Verdict
from tests.checkers.histories import Writer

Json = dict[str, Any]


def raft(role: str, term: int = 3, last: int = 5) -> Json:
    return {
        "role": role,
        "term": term,
        "commit_index": last,
        "last_index": last,
        "log": [[n, 1, 100 + n] for n in range(1, last + 1)],
        "digests": [[n, f"d{n}"] for n in range(1, last + 1)],
    }


PEERS = [{"uuid": f"u{n}", "address": f"t{n}:7050", "member_type": "VOTER"} for n in (1, 2, 3)]


def table(ident: str, name: str, state: str = "RUNNING", version: int = 0) -> Json:
    return {"id": ident, "name": name, "state": state, "version": version, "num_replicas": 3}


def tablet(ident: str, table_id: str, start: str, end: str, state: str = "RUNNING") -> Json:
    return {
        "id": ident,
        "table_id": table_id,
        "state": state,
        "start": start,
        "end": end,
        "consensus": {"term": 1, "leader_uuid": "u1", "opid_index": 1, "peers": PEERS},
    }


def replica(ident: str, table_id: str, role: str, version: int = 0) -> Json:
    return {
        "tablet_id": ident,
        "table_id": table_id,
        "data_state": "READY",
        "state": "RUNNING",
        "schema_version": version,
        "committed_config": {"opid_index": 1, "peers": PEERS},
        "raft": raft(role, term=1),
    }


def sound_snapshot() -> Json:
    master = {
        "uuid": "m",
        "role": "FOLLOWER",
        "term": 3,
        "ready": False,
        "raft": raft("FOLLOWER"),
        "tables": [table("A", "a"), table("B", "b", version=2), table("C", "a", "REMOVED")],
        "tablets": [
            tablet("A1", "A", "", "80"),
            tablet("A2", "A", "80", ""),
            tablet("B1", "B", "", ""),
            tablet("C1", "C", "", "", "DELETED"),
        ],
        "truncated": {"tables": 0, "tablets": 0},
        "name_map": {"a": "A", "b": "B"},
    }
    leader = copy.deepcopy(master) | {"role": "LEADER", "ready": True, "raft": raft("LEADER")}
    tservers = {}
    for n in (1, 2, 3):
        role = "LEADER" if n == 1 else "FOLLOWER"
        tservers[f"t{n}"] = {
            "uuid": f"u{n}",
            "tablets": [
                replica("A1", "A", role),
                replica("A2", "A", role),
                replica("B1", "B", role, version=2),
            ],
        }
    masters = {"m1": master, "m2": leader, "m3": copy.deepcopy(master)}
    return copy.deepcopy({"masters": masters, "tservers": tservers})


def sound_history() -> Writer:
    h = Writer()
    h.create(1, "c", "C", revision=1)
    h.delete(1, "c", "C", revision=2)
    h.create(1, "a", "A", revision=3)
    h.create(2, "b0", "B", revision=4)
    call = {"name": "b0", "new_name": "b", "nonce": "r"}
    h.ok(2, "rename", call, {"table_id": "B", "schema_version": 1, "revision": 5})
    steps = {"name": "b", "nonce": "x", "steps": [["add", "z"]]}
    h.ok(2, "alter", steps, {"table_id": "B", "schema_version": 2, "revision": 6})
    h.ok(3, "is-alter-done", {"name": "b"}, {"table_id": "B", "schema_version": 2, "done": True})
    h.get(3, "b", "B", 2, revision=7)
    return h


def judge(h: Writer, snapshot: Json | None, *, settled: bool | None = True) -> CheckResult:
    if settled is not None:
        h.fact("converged", {"ok": settled, "took_s": 1.0, "bound_s": 9.0, "pending": []})
    if snapshot is not None:
        h.fact("snapshot", snapshot)
    return CatalogInvariantsChecker().check(h.history, None, time_limit_s=10)


def broken(result: CheckResult) -> list[str]:
    assert result.verdict is Verdict.INVALID, result
    return sorted(result.details["by_invariant"])


def test_a_sound_run_is_valid() -> None:
    result = judge(sound_history(), sound_snapshot())
    assert result.verdict is Verdict.VALID, result
    assert set(result.details["looked"]) >= {
        "acknowledged", "alter-done", "applied-versions", "coverage", "ids-not-reused",
        "logs-agree", "name-map", "one-leader", "orphans", "replica-logs-agree", "replicas",
        "revisions", "schema-versions", "table-states", "tablet-states", "unique-ids",
        "unique-names",
    }  # fmt: skip


def leader_rows(snapshot: Json) -> Json:
    rows: Json = snapshot["masters"]["m2"]
    return rows


def two_leaders(s: Json) -> None:
    s["masters"]["m1"]["role"] = "LEADER"


def two_tablet_leaders(s: Json) -> None:
    s["tservers"]["t2"]["tablets"][0]["raft"]["role"] = "LEADER"


def other_digest(s: Json) -> None:
    s["masters"]["m3"]["raft"]["digests"][2][1] = "zz"


def other_entry(s: Json) -> None:
    s["masters"]["m3"]["raft"]["log"][2][1] = 2


def other_replica_digest(s: Json) -> None:
    s["tservers"]["t3"]["tablets"][1]["raft"]["digests"][0][1] = "zz"


def two_names(s: Json) -> None:
    leader_rows(s)["tables"].append(table("D", "a"))


def two_ids(s: Json) -> None:
    leader_rows(s)["tablets"].append(tablet("B1", "B", "", "", "DELETED"))


def stale_name_map(s: Json) -> None:
    leader_rows(s)["name_map"]["a"] = "C"


def preparing_table(s: Json) -> None:
    leader_rows(s)["tables"][0]["state"] = "PREPARING"
    del leader_rows(s)["name_map"]["a"]


def altering_table(s: Json) -> None:
    leader_rows(s)["tables"][0]["state"] = "ALTERING"


def creating_tablet(s: Json) -> None:
    leader_rows(s)["tablets"][0]["state"] = "CREATING"


def tablet_of_removed_table(s: Json) -> None:
    leader_rows(s)["tablets"][3]["state"] = "RUNNING"


def tablet_of_no_table(s: Json) -> None:
    leader_rows(s)["tablets"][3]["table_id"] = "nowhere"


def hole(s: Json) -> None:
    leader_rows(s)["tablets"][1]["start"] = "90"


def overlap(s: Json) -> None:
    leader_rows(s)["tablets"][1]["start"] = "70"


def no_end(s: Json) -> None:
    leader_rows(s)["tablets"][1]["end"] = "f0"


def unknown_replica(s: Json) -> None:
    s["tservers"]["t1"]["tablets"].append(replica("Z", "A", "FOLLOWER"))


def replica_of_deleted(s: Json) -> None:
    s["tservers"]["t1"]["tablets"].append(replica("C1", "C", "FOLLOWER"))


def replica_of_other_table(s: Json) -> None:
    s["tservers"]["t1"]["tablets"][0]["table_id"] = "B"


def missing_replica(s: Json) -> None:
    s["tservers"]["t2"]["tablets"].pop(0)


def stale_config(s: Json) -> None:
    s["tservers"]["t2"]["tablets"][0]["committed_config"]["peers"] = PEERS[:2]


def few_voters(s: Json) -> None:
    leader_rows(s)["tables"][0]["num_replicas"] = 5


def old_schema(s: Json) -> None:
    s["tservers"]["t2"]["tablets"][2]["schema_version"] = 1


def lost_table(s: Json) -> None:
    leader_rows(s)["tables"].pop(0)
    del leader_rows(s)["name_map"]["a"]


def old_version(s: Json) -> None:
    leader_rows(s)["tables"][1]["version"] = 1


def old_name(s: Json) -> None:
    leader_rows(s)["tables"][1]["name"] = "b0"
    leader_rows(s)["name_map"] = {"a": "A", "b0": "B"}


def risen_table(s: Json) -> None:
    leader_rows(s)["tables"][2] = table("C", "c")
    leader_rows(s)["name_map"]["c"] = "C"


@pytest.mark.parametrize(
    ("mutate", "invariant", "words"),
    [
        (two_leaders, "one-leader", "m1 and m2 both lead the masters in term 3"),
        (two_tablet_leaders, "one-leader", "t1 and t2 both lead tablet A1 in term 1"),
        (other_digest, "logs-agree", "digests differ at index 3"),
        (other_entry, "logs-agree", "different entries of the system catalog at index 3"),
        (other_replica_digest, "replica-logs-agree", "tablet A2"),
        (two_names, "unique-names", "2 live tables are named 'a': A, D"),
        (two_ids, "unique-ids", "the id B1 occurs twice"),
        (stale_name_map, "name-map", "'a' resolves to C, but its rows say A"),
        (preparing_table, "table-states", "Table A ('a') is stored as PREPARING"),
        (altering_table, "table-states", "Table A ('a') is still ALTERING"),
        (creating_tablet, "tablet-states", "Tablet A1 of table A is still CREATING"),
        (tablet_of_removed_table, "tablet-states", "although its table was removed"),
        (tablet_of_no_table, "tablet-states", "a table that does not exist"),
        (hole, "coverage", "no tablet for keys from 80 to 90"),
        (overlap, "coverage", "covered twice from key 70"),
        (no_end, "coverage", "no tablet for keys from f0 on"),
        (unknown_replica, "orphans", "t1 holds a replica of tablet Z, which the catalog does not"),
        (replica_of_deleted, "orphans", "tablet C1, which the catalog has as DELETED"),
        (replica_of_other_table, "orphans", "for table B, but the catalog gives the tablet to"),
        (missing_replica, "replicas", "A1 of table 'a' has no replica on t2"),
        (stale_config, "replicas", "the replica on t2 has a committed configuration of u1, u2,"),
        (few_voters, "replicas", "has 3 voters; the table asks for 5"),
        (old_schema, "schema-versions", "at schema version 1 on t2; the table is at version 2"),
        (lost_table, "acknowledged", "nothing deleted table A since, but in the snapshot of the"),
        (old_version, "acknowledged", "table B is only at version 1, below 2"),
        (old_name, "acknowledged", "table B is named 'b0' at that version"),
        (risen_table, "acknowledged", "table C lives as 'c'"),
    ],
)
def test_each_broken_invariant_of_the_snapshot_is_named(
    mutate: Callable[[Json], None], invariant: str, words: str
) -> None:
    snapshot = sound_snapshot()
    mutate(snapshot)
    result = judge(sound_history(), snapshot)
    assert invariant in broken(result)
    assert any(invariant in line and words in line for line in result.explanation), result


def test_a_follower_that_lags_is_no_violation() -> None:
    snapshot = sound_snapshot()
    snapshot["masters"]["m1"]["raft"] = raft("FOLLOWER", last=3)
    snapshot["masters"]["m3"]["raft"]["log"].append([6, 3, 999])  # not committed yet
    assert judge(sound_history(), snapshot).verdict is Verdict.VALID


def silent_master(s: Json) -> None:
    s["masters"]["m1"] = None


def silent_tserver(s: Json) -> None:
    s["tservers"]["t1"] = None


def nobody_ready(s: Json) -> None:
    leader_rows(s)["ready"] = False


def truncated(s: Json) -> None:
    s["masters"]["m1"]["truncated"]["tables"] = 4


@pytest.mark.parametrize(
    ("mutate", "words"),
    [
        (silent_master, "no snapshot of master m1"),
        (silent_tserver, "no snapshot of tablet server t1"),
        (nobody_ready, "no master was a ready leader"),
        (truncated, "master m1 left 4 tables out"),
        (dict.clear, "the snapshot has no masters"),
    ],
)
def test_what_is_missing_makes_it_unknown(mutate: Callable[[Json], None], words: str) -> None:
    snapshot = sound_snapshot()
    mutate(snapshot)
    result = judge(sound_history(), snapshot)
    assert result.verdict is Verdict.UNKNOWN
    assert any(words in gap for gap in result.details["gaps"])


def test_no_snapshot_or_no_rest_is_unknown() -> None:
    assert judge(sound_history(), None).verdict is Verdict.UNKNOWN
    assert judge(sound_history(), sound_snapshot(), settled=None).verdict is Verdict.UNKNOWN


def test_what_only_holds_at_rest_is_not_demanded_before() -> None:
    snapshot = sound_snapshot()
    altering_table(snapshot)
    replica_of_deleted(snapshot)
    old_schema(snapshot)
    assert judge(sound_history(), snapshot, settled=False).verdict is Verdict.VALID


def test_a_lost_delete_may_explain_a_missing_table() -> None:
    snapshot = sound_snapshot()
    lost_table(snapshot)
    snapshot["masters"]["m2"]["tablets"] = snapshot["masters"]["m2"]["tablets"][2:]
    for server in snapshot["tservers"].values():
        server["tablets"] = server["tablets"][2:]
    h = sound_history()
    h.lost(8, "rename", {"name": "a", "new_name": "q", "nonce": "r2"})
    h.lost(9, "delete", {"name": "q", "nonce": "d2"})
    assert judge(h, snapshot).verdict is Verdict.VALID


def test_lost_changes_may_explain_a_higher_version_under_another_name() -> None:
    snapshot = sound_snapshot()
    leader_rows(snapshot)["tables"][1] |= {"version": 3, "name": "q"}
    leader_rows(snapshot)["name_map"] = {"a": "A", "q": "B"}
    for server in snapshot["tservers"].values():
        server["tablets"][2]["schema_version"] = 3
    h = sound_history()
    h.lost(8, "rename", {"name": "b", "new_name": "q", "nonce": "r2"})
    assert judge(h, snapshot).verdict is Verdict.VALID


# --- along the history ------------------------------------------------------------------------


def stale_revision(h: Writer) -> tuple[int, int]:
    first = h.create(4, "x", "X", revision=40)
    return first, h.get(5, "a", "A", revision=39)


def applied_goes_back(h: Writer) -> tuple[int, int]:
    return 14, h.get(5, "b", "B", 2, applied_schema_version=1)


def done_but_not_applied(h: Writer) -> tuple[int, int]:
    first = h.ok(
        4, "is-alter-done", {"name": "b"}, {"table_id": "B", "schema_version": 3, "done": True}
    )
    return first, h.get(5, "b", "B", 3, applied_schema_version=2)


def seen_after_deletion(h: Writer) -> tuple[int, int]:
    return 2, h.ok(5, "list", {}, {"tables": [["c", "C", 0]]})


def deleted_twice(h: Writer) -> tuple[int, int]:
    return 2, h.delete(5, "c", "C")


def created_twice(h: Writer) -> tuple[int, int]:
    return 4, h.create(5, "y", "A")


@pytest.mark.parametrize(
    ("mutate", "invariant"),
    [
        (stale_revision, "revisions"),
        (applied_goes_back, "applied-versions"),
        (done_but_not_applied, "alter-done"),
        (seen_after_deletion, "ids-not-reused"),
        (deleted_twice, "ids-not-reused"),
        (created_twice, "ids-not-reused"),
    ],
)
def test_each_broken_invariant_of_the_history_names_its_operations(
    mutate: Callable[[Writer], tuple[int, int]], invariant: str
) -> None:
    h = sound_history()
    first, second = mutate(h)
    result = judge(h, None)
    assert invariant in broken(result)
    assert {first, second} <= set(result.operations)


def test_concurrent_answers_may_come_in_any_order() -> None:
    h = sound_history()
    h.call(4, "get", {"name": "a"})
    h.create(5, "x", "X", revision=40)
    answer = {"result": "ok", "table_id": "A", "schema_version": 0, "revision": 8}
    h.ret(4, h.lines[1].type, answer)
    assert judge(h, None).verdict is Verdict.UNKNOWN  # only the snapshot is missing


def test_many_violations_are_cut_and_say_so() -> None:
    h = sound_history()
    for _ in range(12):
        h.delete(5, "c", "C")
    result = judge(h, None)
    assert result.details["violations"] > 12
    assert "more violations are not shown" in result.explanation[-1]
