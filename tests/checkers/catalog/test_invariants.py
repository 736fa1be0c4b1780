"""Each invariant holds on a correct snapshot and history; one mutation is enough to break it."""

import copy
import functools
import operator
from typing import Any

import msgspec
import pytest

from checkers.catalog.invariants import CatalogInvariantsChecker
from harness.ops import CheckResult, OpType, Verdict
from harness.permits import (
    DELETED_FIRST,
    HALF_MADE,
    ORPHAN_REPLICAS,
    Permit,
    fact_of,
    permitted_in,
)
from tests.support.histories import Writer

Json = dict[str, Any]


def raft(role: str, term: int = 3, last: int = 5) -> Json:
    return {
        "role": role,
        "term": term,
        "commit_index": last,
        "applied_index": last,
        "last_index": last,
        "log": [[n, 1, 100 + n] for n in range(1, last + 1)],
        "digests": [[n, f"d{n}"] for n in range(1, last + 1)],
    }


PEERS = [{"uuid": f"u{n}", "address": f"t{n}:7050", "member_type": "VOTER"} for n in (1, 2, 3)]


COLUMNS = ["key", "a", "z"]
NONCES = {"A": "n-A", "B": "n-B", "C": "n-C"}


def table(ident: str, name: str, state: str = "RUNNING", version: int = 0) -> Json:
    columns = [
        {"id": number, "name": column, "is_key": number == 0}
        for number, column in enumerate(COLUMNS[: 2 + (version > 1)])
    ]
    return {
        "id": ident,
        "name": name,
        "state": state,
        "version": version,
        "applied_version": version,
        "columns": columns,
        "applied_columns": columns,
        "next_column_id": len(columns),
        "num_replicas": 3,
        "comment": NONCES.get(ident, ""),
    }


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
        "table_name": ident[0].lower(),
        "columns": [[number, name] for number, name in enumerate(COLUMNS[: 2 + (version > 1)])],
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
        "tables": [table("A", "a"), table("B", "b", version=2), table("C", "c", "REMOVED")],
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
    return CatalogInvariantsChecker().check(h.history, None, time_limit_s=300)


def broken(result: CheckResult) -> list[str]:
    assert result.verdict is Verdict.INVALID, result
    return sorted(result.details["by_invariant"])


def test_a_sound_run_is_valid():
    result = judge(sound_history(), sound_snapshot())
    assert result.verdict is Verdict.VALID, result
    assert set(result.details["looked"]) >= {
        "acknowledged", "alter-done", "applied-versions", "column-ids", "coverage",
        "created-once", "ids-not-reused",
        "logs-agree", "name-map", "one-leader", "orphans", "replica-logs-agree", "replicas",
        "replica-columns", "revisions", "rows-agree", "schema-versions", "table-states",
        "tablet-states", "unique-ids", "unique-names",
    }  # fmt: skip


def everywhere(path: str, value: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f"masters.{name}.{path}", value) for name in MASTERS)


GONE = object()
MASTERS = ("m1", "m2", "m3")  # m2 is the leader


def edit(snapshot: Json, *edits: tuple[str, Any]) -> Json:
    """Set the values at dotted paths; a path with `+` appends, and the value GONE removes."""
    for path, value in edits:
        *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
        place = functools.reduce(operator.getitem, way, snapshot)
        if value is GONE:
            del place[last]
        elif last == "+":
            place.append(value)
        else:
            place[last] = value
    return snapshot


LOST_TABLE = (("masters.m2.tables.0", GONE), ("masters.m2.name_map.a", GONE))
REMOVED = table("D", "d", "REMOVED")
REPLICA_OF_DELETED = ("tservers.t1.tablets.+", replica("C1", "C", "FOLLOWER"))
BROKEN: list[
    tuple[Any, ...]
    # per row: the invariant, words of the violation's message, and the edits that break the
    # invariant
] = [
    ("one-leader", "m1 and m2 both lead the masters in term 3", ("masters.m1.role", "LEADER")),
    ("one-leader", "t1 and t2 both lead tablet A1", ("tservers.t2.tablets.0.raft.role", "LEADER")),
    ("logs-agree", "digests differ at index 3", ("masters.m3.raft.digests.2.1", "zz")),
    ("logs-agree", "entries of the system catalog at index 3", ("masters.m3.raft.log.2.1", 2)),
    ("logs-agree", "entries of the system catalog at index 5", ("masters.m3.raft.log.4.1", 2)),
    ("replica-logs-agree", "tablet A2", ("tservers.t3.tablets.1.raft.digests.0.1", "zz")),
    ("one-leader", "t2 names u2", ("tservers.t2.tablets.0.raft.leader_uuid", "u2")),
    ("rows-agree", "values of next_column_id", ("masters.m3.tables.1.next_column_id", 9)),
    ("rows-agree", "only m2 has tablet C1", ("masters.m3.tablets.3", GONE)),
    ("replica-columns", "t3 holds the columns", ("tservers.t3.tablets.2.columns.2.0", 7)),
    ("replica-columns", "t3 holds the columns", ("tservers.t3.tablets.2.columns.2", GONE)),
    ("replica-columns", "knows it as", ("tservers.t3.tablets.2.table_name", "b0")),
    ("column-ids", "next column would get the id 2", *everywhere("tables.1.next_column_id", 2)),
    ("column-ids", "two columns have one id", *everywhere("tables.1.columns.2.id", 1)),
    ("created-once", "has the nonce 'n-D'", ("masters.m2.tables.+", REMOVED | {"comment": "n-D"})),
    (
        "created-once",
        "'a' (id A) and table 'd' (id D)",
        ("masters.m2.tables.+", REMOVED | {"comment": "n-A"}),
    ),
    ("acknowledged", "at version 3", ("masters.m2.tables.1.version", 3)),
    ("acknowledged", "no row of table 'c' (id C)", ("masters.m2.tables.2", GONE)),
    ("unique-names", "2 live tables are named 'a': A, D", ("masters.m2.tables.+", table("D", "a"))),
    ("unique-ids", "B1 occurs", ("masters.m2.tablets.+", tablet("B1", "B", "", "", "DELETED"))),
    ("name-map", "'a' resolves to C, but its rows say A", ("masters.m2.name_map.a", "C")),
    (
        "table-states",
        "is stored in the state PREPARING",
        ("masters.m2.tables.0.state", "PREPARING"),
        ("masters.m2.name_map.a", GONE),
    ),
    ("settled", "is still ALTERING", ("masters.m2.tables.0.state", "ALTERING")),
    ("settled", "is still CREATING", ("masters.m2.tablets.0.state", "CREATING")),
    ("tablet-states", "although its table was removed", ("masters.m2.tablets.3.state", "RUNNING")),
    ("tablet-states", "a table that does not exist", ("masters.m2.tablets.3.table_id", "nowhere")),
    ("coverage", "no tablet for keys from 80 to 90", ("masters.m2.tablets.1.start", "90")),
    ("coverage", "covered twice from key 70", ("masters.m2.tablets.1.start", "70")),
    ("coverage", "no tablet for keys from f0 on", ("masters.m2.tablets.1.end", "f0")),
    ("orphans", "tablet Z, which", ("tservers.t1.tablets.+", replica("Z", "A", "FOLLOWER"))),
    ("orphans", "tablet C1, which the catalog has as DELETED", REPLICA_OF_DELETED),
    ("orphans", "but the catalog gives the tablet to", ("tservers.t1.tablets.0.table_id", "B")),
    ("replicas", "has no replica on t2", ("tservers.t2.tablets.0", GONE)),
    (
        "replicas",
        "configuration of u1, u2,",
        ("tservers.t2.tablets.0.committed_config.peers", PEERS[:2]),
    ),
    ("replicas", "has 3 voters; the table asks for 5", ("masters.m2.tables.0.num_replicas", 5)),
    ("schema-versions", "at schema version 1 on t2", ("tservers.t2.tablets.2.schema_version", 1)),
    ("acknowledged", "has no row of table 'a' (id A)", *LOST_TABLE),
    ("acknowledged", "is only at version 1, below 2", ("masters.m2.tables.1.version", 1)),
    (
        "acknowledged",
        "is named 'b0' at that version",
        ("masters.m2.tables.1.name", "b0"),
        ("masters.m2.name_map", {"a": "A", "b0": "B"}),
    ),
    (
        "acknowledged",
        "table 'c' (id C) still exists",
        ("masters.m2.tables.2", table("C", "c")),
        ("masters.m2.name_map.c", "C"),
    ),
]


@pytest.mark.parametrize(("invariant", "words", "edits"), [(i, w, e) for i, w, *e in BROKEN])
def test_each_broken_invariant_of_the_snapshot_is_named(invariant, words, edits):
    result = judge(sound_history(), edit(sound_snapshot(), *edits))
    assert invariant in broken(result)
    assert any(invariant in line and words in line for line in result.explanation), result


def test_a_tombstone_of_a_deleted_tablet_is_left_behind():
    stone = {"data_state": "TOMBSTONED", "state": "STOPPED", "committed_config": None, "raft": None}
    left = replica("C1", "C", "FOLLOWER") | stone
    snapshot = edit(sound_snapshot(), ("tservers.t1.tablets.+", left))
    assert judge(sound_history(), snapshot).verdict is Verdict.VALID
    for unknown in (left | {"tablet_id": "Z"}, left | {"table_id": "B"}):
        result = judge(sound_history(), edit(sound_snapshot(), ("tservers.t1.tablets.+", unknown)))
        assert broken(result) == ["orphans"]


@pytest.mark.parametrize(("words", "edits"), [(w, e) for i, w, *e in BROKEN if i == "orphans"])
def test_the_permit_for_orphans_covers_only_replicas_of_unknown_tablets(words, edits):
    h = sound_history()
    h.fact("permits", fact_of("modern", [Permit(name=ORPHAN_REPLICAS, why="")]))
    result = judge(h, edit(sound_snapshot(), *edits))
    permitted = words == "tablet Z, which"
    assert ("orphans" in broken(result)) is not permitted
    assert result.details.get("permitted") == ({ORPHAN_REPLICAS: 1} if permitted else None)


@pytest.mark.parametrize(
    ("allowed", "peers", "permitted"),
    [(True, PEERS[1:], True), (True, PEERS, False), (False, PEERS[1:], False)],
)
def test_the_permit_for_orphans_covers_copies_that_their_group_left_out(allowed, peers, permitted):
    """The catalog places tablet B1 on t2 and t3; t1's copy has the configuration `peers`."""
    h = sound_history()
    permits = [Permit(name=ORPHAN_REPLICAS, why="")] if allowed else []
    h.fact("permits", fact_of("modern", permits))
    catalog = [
        change
        for m in ("m1", "m2", "m3")
        for change in (
            (f"masters.{m}.tables.1.num_replicas", 2),
            (f"masters.{m}.tablets.2.consensus.peers", PEERS[1:]),
        )
    ]
    held = {"t1": peers, "t2": PEERS[1:], "t3": PEERS[1:]}
    servers = [(f"tservers.{t}.tablets.2.committed_config.peers", held[t]) for t in held]
    result = judge(h, edit(sound_snapshot(), *catalog, *servers))
    assert result.verdict is (Verdict.PERMITTED if permitted else Verdict.INVALID), result
    assert result.details.get("permitted") == ({ORPHAN_REPLICAS: 1} if permitted else None)


def test_a_follower_that_lags_is_no_violation():
    snapshot = sound_snapshot()
    snapshot["masters"]["m1"]["raft"] = raft("FOLLOWER", last=3)
    snapshot["masters"]["m1"]["raft"]["log"].append([6, 2, 111])  # neither entry is committed
    snapshot["masters"]["m3"]["raft"]["log"].append([6, 3, 999])
    assert judge(sound_history(), snapshot).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (edit(sound_snapshot(), ("masters.m1", None)), "no snapshot of master m1"),
        (edit(sound_snapshot(), ("tservers.t1", None)), "no snapshot of tablet server t1"),
        (edit(sound_snapshot(), ("masters.m2.ready", False)), "no master was a ready leader"),
        (edit(sound_snapshot(), ("masters.m1.truncated.tables", 4)), "master m1 left 4 tables out"),
        ({}, "the snapshot has no masters"),
    ],
)
def test_missing_reports_make_it_unknown(snapshot, words):
    result = judge(sound_history(), snapshot)
    assert result.verdict is Verdict.UNKNOWN
    assert any(words in gap for gap in result.details["gaps"])


def test_no_snapshot_or_no_rest_is_unknown():
    assert judge(sound_history(), None).verdict is Verdict.UNKNOWN
    assert judge(sound_history(), sound_snapshot(), settled=None).verdict is Verdict.UNKNOWN


def test_invariants_at_rest_are_not_demanded_earlier():
    snapshot = sound_snapshot()
    for master in snapshot["masters"].values():
        master["tables"][0]["state"] = "ALTERING"
    edit(snapshot, REPLICA_OF_DELETED)
    for tserver in snapshot["tservers"].values():
        tserver["tablets"][2]["schema_version"] = 1
        tserver["tablets"][2]["columns"].pop()
    assert judge(sound_history(), snapshot, settled=False).verdict is Verdict.VALID


def remove(snapshot: Json, position: int) -> None:
    for master in snapshot["masters"].values():
        row = master["tables"][position]
        row["state"] = "REMOVED"
        master["name_map"].pop(row["name"])
        for line in master["tablets"]:
            if line["table_id"] == row["id"]:
                line["state"] = "DELETED"
    for server in snapshot["tservers"].values():
        server["tablets"] = [t for t in server["tablets"] if t["table_id"] != row["id"]]


def lost_delete(h: Writer, name: str, process: int = 9) -> int:
    return h.lost(process, "delete", {"name": name, "nonce": f"d{process}"})


def lost_rename(h: Writer, old: str, new: str, process: int = 8) -> int:
    return h.lost(process, "rename", {"name": old, "new_name": new, "nonce": f"r{process}"})


A_DELETED, B_DELETED = (
    functools.partial(lost_delete, name="a"),
    functools.partial(lost_delete, name="b", process=10),
)


@pytest.mark.parametrize(
    ("removed", "before", "after", "unexplained"),
    [
        ([0], [], [], 1),
        ([0], [], [A_DELETED], 0),
        ([0], [A_DELETED], [], 0),  # the delete was sent before the table existed
        ([0], [], [lambda h: lost_rename(h, "a", "q"), lambda h: lost_delete(h, "q")], 0),
        # neither table has this name when the delete is sent; `b0` was renamed before
        *(
            ([position], [], [functools.partial(lost_delete, name=name)], 1)
            for position in (0, 1)
            for name in ("b0", "c", "q")
        ),
        # two tables were removed, so one lost delete is not enough
        ([0, 1], [], [lambda h: lost_rename(h, "b", "a"), A_DELETED], 1),
        ([0, 1], [], [lambda h: lost_rename(h, "b", "a"), A_DELETED, B_DELETED], 0),
    ],
)
def test_lost_deletes_may_explain_that_tables_are_removed(removed, before, after, unexplained):
    snapshot, h = sound_snapshot(), Writer()
    for position in removed:
        remove(snapshot, position)
    h.play(before)
    shift = len(h.lines)
    h.lines += [
        msgspec.structs.replace(op, index=op.index + shift, time=op.time + shift)
        for op in sound_history().lines
    ]
    h.play(after)
    result = judge(h, snapshot)
    assert result.verdict is (Verdict.INVALID if unexplained else Verdict.VALID)
    assert result.details["by_invariant"] == ({"acknowledged": unexplained} if unexplained else {})
    assert result.details["exempt"].get("acknowledged", 0) == len(removed) - unexplained


def test_no_lost_delete_explains_that_a_row_is_missing():
    snapshot = sound_snapshot()
    remove(snapshot, 0)
    for master in snapshot["masters"].values():
        master["tables"].pop(0)
        master["tablets"] = master["tablets"][2:]
    h = sound_history()
    lost_delete(h, "a")
    assert broken(judge(h, snapshot)) == ["acknowledged"]


def test_nothing_is_valid_when_everything_was_exempt():
    snapshot = sound_snapshot()
    h = Writer()
    h.create(1, "a", "A")
    lost_delete(h, "a")
    remove(snapshot, 0)
    for master in snapshot["masters"].values():
        master["tables"] = master["tables"][:1]
        master["tablets"] = master["tablets"][:2]
        master["name_map"] = {}
    for server in snapshot["tservers"].values():
        server["tablets"] = []
    result = judge(h, snapshot)
    assert result.verdict is Verdict.UNKNOWN
    assert result.details["exempt"] == {"acknowledged": 1}


def test_a_table_that_was_only_seen_has_a_row():
    h = sound_history()
    h.ok(5, "list", {}, {"tables": [["s", "S", 0]]})
    assert broken(judge(h, sound_snapshot())) == ["acknowledged"]


def test_a_refused_create_makes_no_table():
    snapshot = sound_snapshot()
    for master in snapshot["masters"].values():
        master["tables"].append(REMOVED | {"comment": "n-D"})
    h = sound_history()
    h.fail(5, "create", {"name": "d", "nonce": "n-D", "columns": []}, None)
    assert broken(judge(h, snapshot)) == ["created-once"]


def test_a_leader_without_a_majority_may_be_deposed():
    snapshot = sound_snapshot()
    edit(snapshot, *LOST_TABLE)
    for name in ("m1", "m3"):
        snapshot["masters"][name]["term"] = 4
    assert judge(sound_history(), snapshot).verdict is Verdict.UNKNOWN


def test_lost_changes_may_explain_a_higher_version_under_another_name():
    snapshot = sound_snapshot()
    leader = snapshot["masters"]["m2"]
    leader["tables"][1] |= {"version": 3, "name": "q"}
    leader["name_map"] = {"a": "A", "q": "B"}
    for server in snapshot["tservers"].values():
        server["tablets"][2] |= {"schema_version": 3, "table_name": "q"}
    for name in ("m1", "m3"):
        snapshot["masters"][name] = copy.deepcopy(leader) | {"role": "FOLLOWER"}
    h = sound_history()
    h.lost(8, "rename", {"name": "b", "new_name": "q", "nonce": "r2"})
    assert judge(h, snapshot).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("version", "names"),
    [(1, ["acknowledged"]), (2, None), (3, ["acknowledged"])],
)
def test_changes_whose_answers_state_no_version_count_all_the_same(version, names):
    snapshot = sound_snapshot()
    for master in snapshot["masters"].values():
        for key in ("version", "applied_version"):
            master["tables"][1][key] = version
    for server in snapshot["tservers"].values():
        server["tablets"][2]["schema_version"] = version
    h = Writer()
    h.create(1, "a", "A")
    h.create(1, "c", "C")
    h.delete(1, "c", "C")
    h.create(2, "b0", "B")
    h.ok(2, "rename", {"name": "b0", "new_name": "b", "nonce": "r"}, {"table_id": "B"})
    steps = {"name": "b", "nonce": "x", "steps": [["add", "z"]]}
    h.ok(2, "alter", steps, {"table_id": "B"})
    result = judge(h, snapshot)
    assert result.details.get("by_invariant", {}).keys() == set(names or ()), result


# --- invariants of the history alone ----------------------------------------------------------


def staler_than_the_highest(h: Writer) -> tuple[int, int]:
    """Build two concurrent changes; the change with the lower revision is acknowledged last."""
    first = h.call(4, "create", {"name": "x", "nonce": "n-X", "columns": ["a"]})
    h.call(5, "create", {"name": "y", "nonce": "n-Y", "columns": ["a"]})
    h.ret(4, OpType.OK, {"result": "ok", "table_id": "X", "schema_version": 0, "revision": 40})
    h.ret(5, OpType.OK, {"result": "ok", "table_id": "Y", "schema_version": 0, "revision": 39})
    return first, h.get(6, "a", "A", revision=39)


def two_leaders_of_a_term(h: Writer) -> tuple[int, int]:
    first = h.fact("leader", {"node": "m1", "term": 4})
    h.fact("leader", {"node": "m1", "term": 4})
    h.fact("leader", {"node": "m2", "term": 5})
    h.fact("leader", {"node": "m2"})  # without a term, nothing can be checked
    return first, h.fact("leader", {"node": "m3", "term": 4})


def ask_alter(h: Writer, *steps: list[str]) -> None:
    process = 9 + len(h.lines)
    h.call(process, "alter", {"name": "a", "nonce": "x", "steps": list(steps)})
    h.ret(process, OpType.INFO)


def column_id_of_another(h: Writer) -> tuple[int, int]:
    """Drop a column, and give its id to a new column; no answer shows the state in between."""
    ask_alter(h, ["rename", "c1", "c1r"])
    first = h.get(4, "a", "A", 4, columns=["v0", "c1"], column_ids=[1, 2])
    h.get(4, "a", "A", 5, columns=["v0", "c1r"], column_ids=[1, 2])
    return first, h.get(4, "a", "A", 6, columns=["v0", "c2"], column_ids=[1, 2])


DONE = {"table_id": "B", "schema_version": 3, "done": True}


@pytest.mark.parametrize(
    ("mutate", "invariant"),
    [
        (lambda h: (h.create(4, "x", "X", revision=40), h.get(5, "a", "A", revision=39)),
         "revisions"),
        (staler_than_the_highest, "revisions"),
        (lambda h: (14, h.get(5, "b", "B", 2, applied_schema_version=1)), "applied-versions"),
        (lambda h: (h.ok(4, "is-alter-done", {"name": "b"}, DONE),
                    h.get(5, "b", "B", 3, applied_schema_version=2)), "alter-done"),
        (lambda h: (2, h.ok(5, "list", {}, {"tables": [["c", "C", 0]]})), "ids-not-reused"),
        (lambda h: (h.delete(4, "a", "A"), h.get(4, "a", "A")), "ids-not-reused"),
        (two_leaders_of_a_term, "one-leader"),
        (lambda h: (h.get(4, "a", "A", 4, column_ids=[1, 2]),
                    h.get(4, "a", "A", 5, column_ids=[1, 3]),
                    h.get(4, "a", "A", 6, column_ids=[1, 2, 3]))[1:], "column-ids"),
        (lambda h: (h.get(4, "a", "A", 4, column_ids=[1, 1]),), "column-ids"),
        (column_id_of_another, "column-ids"),
        (lambda h: (2, h.delete(5, "c", "C")), "ids-not-reused"),
        (lambda h: (4, h.create(5, "y", "A")), "ids-not-reused"),
    ],
)  # fmt: skip
def test_each_broken_invariant_of_the_history_names_its_operations(mutate, invariant):
    h = sound_history()
    named = mutate(h)
    result = judge(h, None)
    assert invariant in broken(result)
    assert {*named} <= set(result.operations)


def column_renamed(h: Writer) -> None:
    """Rename a column; the outcome may be unknown, and the request may have been sent twice."""
    ask_alter(h, ["add", "c1"], ["rename", "c1", "c2"])
    ask_alter(h, ["rename", "c2", "c3"])
    for version, name in enumerate(("c1", "c3", "c2"), start=4):
        h.get(4, "a", "A", version, columns=["v0", name], column_ids=[1, 2])


def read_during_the_deletion(h: Writer) -> None:
    h.call(4, "delete", {"name": "a", "nonce": "d"})
    h.call(5, "get", {"name": "a"})
    h.ret(4, OpType.OK, {"table_id": "A", "schema_version": 0})
    h.ret(5, OpType.OK, {"table_id": "A", "schema_version": 0})


def answers_in_another_order(h: Writer) -> None:
    h.call(4, "get", {"name": "a"})
    h.create(5, "x", "X", revision=40)
    answer = {"result": "ok", "table_id": "A", "schema_version": 0, "revision": 8}
    h.ret(4, OpType.OK, answer)


@pytest.mark.parametrize(
    "act", [column_renamed, read_during_the_deletion, answers_in_another_order]
)
def test_a_history_that_breaks_no_invariant(act):
    h = sound_history()
    act(h)
    assert judge(h, None).verdict is Verdict.UNKNOWN  # nothing to judge without a snapshot


def test_many_violations_are_counted_by_rule_with_an_example_of_each() -> None:
    h = sound_history()
    for _ in range(12):
        h.delete(5, "c", "C")
    result = judge(h, None)
    assert result.details["violations"] > 12
    assert result.details["rule"] == "ids-not-reused"
    by_rule = result.details["by_invariant"]
    assert all(f"{rule} {count}" in result.explanation[0] for rule, count in by_rule.items())
    assert len(result.explanation) == 1 + len(by_rule)


def divergence(**more: Any) -> Json:
    return {
        "group": "A1",
        "index": 4,
        "what": "log",
        "nodes": ["t1", "t2"],
        "values": ["aa", "bb"],
        "times_ns": [2_000_000_000, 3_000_000_000],
        **more,
    }


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "t1 at 2.000 s and t2 at 3.000 s had applied different entries at index 4 of tablet"),
        ({"what": "state", "nodes": ["t1", "t1"]}, "t1 again at 3.000 s held different states"),
        ({"group": "master"}, "the system catalog"),
        ({"what": "epoch"}, "announced different values (epoch)"),
    ],
)
def test_replicas_that_differed_along_the_run_convict(more, words):
    h = sound_history()
    index = h.fact("divergence", divergence(**more))
    result = judge(h, sound_snapshot())
    assert broken(result) == ["checkpoints"]
    assert words in result.reason
    assert index in result.operations


@pytest.mark.parametrize("what", ["log", "leader"])
@pytest.mark.parametrize(
    ("group", "state", "permits", "permitted"),
    [
        ("C1", "RUNNING", [HALF_MADE], True),  # its table was removed
        ("C1", "RUNNING", [], False),
        ("C1", "DELETED", [HALF_MADE], False),
        ("A1", "RUNNING", [HALF_MADE], False),
        ("master", "RUNNING", [HALF_MADE], False),
    ],
)
def test_tablets_of_removed_tables_may_start_again(what, group, state, permits, permitted):
    h, snapshot = sound_history(), sound_snapshot()
    rules = {"catalog-invariants": ("tablet-states",)}
    h.fact("permits", fact_of("legacy", [Permit(name=n, why="", rules=rules) for n in permits]))
    for dump in snapshot["masters"].values():
        dump["tablets"][3]["state"] = state
    h.fact("divergence", divergence(group=group, what=what))
    rule = "checkpoints" if what == "log" else "elections"
    result = judge(h, snapshot)
    if permitted:
        assert result.verdict is Verdict.PERMITTED
    else:
        assert rule in broken(result)


@pytest.mark.parametrize(
    ("table", "kind", "permits", "permitted"),
    [
        ("a", OpType.INFO, [DELETED_FIRST], True),
        ("a", OpType.FAIL, [DELETED_FIRST], True),
        ("a", OpType.INFO, [], False),
        ("a", OpType.OK, [DELETED_FIRST], False),
        ("b", OpType.INFO, [DELETED_FIRST], False),
    ],
)
def test_a_delete_that_failed_may_have_deleted_tablets(table, kind, permits, permitted):
    h, snapshot = sound_history(), sound_snapshot()
    h.fact("permits", fact_of("legacy", [Permit(name=name, why="") for name in permits]))
    h.call(9, "delete", {"name": table, "nonce": "n"})
    h.add(9, kind, "delete", {"result": "ok"} if kind is OpType.OK else None)
    later_ns = h.lines[-1].time + 1
    h.fact("divergence", divergence(times_ns=[0, later_ns]))
    result = judge(h, snapshot)
    if permitted:
        assert permitted_in(result) == {DELETED_FIRST: 1}
    else:
        assert "checkpoints" in broken(result)


def test_a_divergence_convicts_a_run_that_never_ended():
    h = sound_history()
    h.fact("divergence", divergence())
    assert broken(judge(h, None, settled=None)) == ["checkpoints"]


def test_checkpoints_that_agree_are_counted():
    h = sound_history()
    h.fact("checkpoints", {"told": 9, "compared": 6, "diverged": 0, "forgotten": 0})
    result = judge(h, sound_snapshot())
    assert result.verdict is Verdict.VALID
    assert result.details["looked"]["checkpoints"] == 6


@pytest.mark.parametrize(("replicas", "rules"), [(5, []), (3, ["replicas", "settled"])])
def test_a_table_that_lacks_servers_is_at_rest_while_it_waits(replicas, rules):
    h, dump = sound_history(), sound_snapshot()
    h.create(4, "w", "W", revision=8)
    for master in dump["masters"].values():
        master["tables"].append(table("W", "w", "ALTERING") | {"num_replicas": replicas})
        waiting = {"state": "PREPARING", "consensus": None, "running_index": 0}
        master["tablets"].append(tablet("W1", "W", "", "") | waiting)
        master["name_map"]["w"] = "W"
    h.fact("converged", {"ok": True, "pending": [], "at": {"revision": 9}})
    answer = {"table_id": "W", "revision": 9, "done": False}
    h.ok(4, "is-create-done", {"name": "w"}, answer)
    result = judge(h, dump, settled=None)
    found = sorted({*result.details["by_invariant"]} - {"done-at-rest"})
    assert (found, result.verdict is Verdict.VALID) == (rules, not rules)
    assert ("done-at-rest" in result.details["by_invariant"]) is bool(rules)


@pytest.mark.parametrize(("hides", "rules"), [(True, []), (False, ["acknowledged", "forward"])])
def test_rows_of_removed_tables_may_go_if_the_leader_says_so(hides, rules):
    h, dump = sound_history(), sound_snapshot()
    leader, behind = dump["masters"]["m2"], dump["masters"]["m1"]
    leader["tables"].pop()
    leader["tablets"].pop()
    leader["hides_removed"] = hides
    dump["masters"]["m3"] = {**copy.deepcopy(leader), "role": "FOLLOWER", "ready": False}
    leader["raft"]["applied_index"] = dump["masters"]["m3"]["raft"]["applied_index"] = 9
    behind["raft"]["applied_index"] = 8
    result = judge(h, dump)
    assert sorted(result.details["by_invariant"]) == rules
