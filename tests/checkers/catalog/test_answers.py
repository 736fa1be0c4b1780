"""Rules that single answers must obey: answers about tablets, `done` answers and refusals."""

from collections.abc import Callable
from operator import methodcaller as do
from typing import Any

import pytest

from checkers.catalog.invariants.answers import check_answers
from checkers.catalog.invariants.history_invariants import check_history
from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.refusals import check_refusals
from checkers.catalog.invariants.snapshot import read_snapshot
from harness.ops import OpType
from harness.permits import Permit, fact_of
from tests.support.histories import Writer

Json = dict[str, Any]
REPLICAS = ["u1", "u2", "u3"]


def shown_tablet(ident: str, start: str, end: str, **more: Any) -> Json:
    tablet = {"tablet_id": ident, "start": start, "end": end}
    return {**tablet, "leader": "u2", "replicas": list(REPLICAS), **more}


def row(ident: str, start: str, end: str, since: int | None = 5, **more: Any) -> Json:
    peers = [{"uuid": uuid, "address": "", "member_type": "VOTER"} for uuid in REPLICAS]
    return {
        "id": ident,
        "table_id": "A",
        "state": "RUNNING",
        "start": start,
        "end": end,
        "running_index": since,
        "consensus": {"term": 1, "leader_uuid": "u1", "opid_index": -1, "peers": peers},
        **more,
    }


def snapshot(*rows: Json) -> Json:
    table = {"id": "A", "name": "a", "state": "RUNNING", "version": 0, "num_replicas": 3}
    replaced = row("A0", "80", "", since=0, state="REPLACED", consensus=None)
    tablets = list(rows) or [row("A1", "", "80"), row("A2", "80", "", since=6), replaced]
    master = {"role": "LEADER", "ready": True, "term": 1, "tables": [table], "tablets": tablets}
    return {"masters": {"m1": master}, "tservers": {"t1": {"uuid": "u1", "tablets": []}}}


def locate(h: Writer, *tablets: Json, revision: int = 7, **more: Any) -> int:
    listed = list(tablets) or [shown_tablet("A2", "80", ""), shown_tablet("A1", "", "80")]
    answer = {"table_id": "A", "schema_version": 0, "revision": revision, "tablets": listed}
    return h.ok(3, "locate", {"name": "a"}, {**answer, **more})


def ask_done(h: Writer, done: bool, f: str = "is-create-done", **more: Any) -> int:
    return h.ok(4, f, {"name": "a"}, {"table_id": "A", "done": done, "revision": 7, **more})


def made() -> Writer:
    h = Writer()
    call = {"name": "a", "nonce": "n", "columns": ["v1"], "partitions": 2, "replicas": 3}
    h.ok(1, "create", call, {"table_id": "A", "schema_version": 0, "revision": 3})
    return h


Step = Callable[[Writer], Any]


def later(act: Callable[..., Any], *args: Any, **more: Any) -> Step:
    return lambda h: act(h, *args, **more)


def written(*steps: Step) -> Writer:
    return made().play(steps)


def looked_at(h: Writer, dump: Json | None = None) -> CatalogFindings:
    findings = CatalogFindings("catalog-invariants", h.history)
    snap = read_snapshot(dump or snapshot(), findings, {})
    check_answers(h.history, snap, findings)
    check_refusals(h.history, findings)
    check_history(h.history, findings)
    return findings


def rules(h: Writer, dump: Json | None = None) -> list[str]:
    return sorted({violation.rule for violation in looked_at(h, dump).violations})


def test_sound_answers():
    h = made()
    ask_done(h, done=False)
    locate(h)
    ask_done(h, done=True)
    ask_done(h, done=False, f="is-alter-done", schema_version=1)
    h.get(2, "a", "A", 1)
    ask_done(h, done=True, f="is-alter-done", schema_version=1)
    locate(h, shown_tablet("A1", "", "80", leader=None), shown_tablet("A2", "80", ""))
    findings = looked_at(h)
    assert findings.violations == []
    assert set(findings.looked) >= {
        "done", "done-early", "located", "located-rows", "located-tablets", "revisions"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("leader", "at", "found"),
    [
        ("u1", (1, 9), []),
        ("u2", (1, 9), ["located-rows"]),
        (None, (1, 9), ["located-rows"]),
        ("u2", (1, 8), []),  # the leader may have changed since this older revision
        ("u2", (2, 9), []),
    ],
)
def test_an_answer_of_the_final_revision_names_the_leader_of_the_rows(leader, at, found):
    h, dump = made(), snapshot()
    dump["masters"]["m1"]["revision"] = 9
    tablets = [shown_tablet(*keys, leader=leader) for keys in (("A1", "", "80"), ("A2", "80", ""))]
    locate(h, *tablets, term=at[0], revision=at[1])
    assert rules(h, dump) == found


@pytest.mark.parametrize(
    ("tablets", "rule"),
    [
        ([shown_tablet("A1", "", "80")], "located"),
        ([shown_tablet("A2", "80", "")], "located"),
        ([shown_tablet("A1", "", "")], "located"),  # the request asked for two tablets
        ([shown_tablet("A1", "", "90"), shown_tablet("A2", "80", "")], "located"),
        ([shown_tablet("A1", "", "80"), shown_tablet("A2", "90", "")], "located"),
        ([shown_tablet("A1", "", "80"), shown_tablet("Z", "80", "")], "located-rows"),
        ([shown_tablet("A1", "", "70"), shown_tablet("A2", "70", "")], "located-rows"),
        (
            [
                shown_tablet("A1", "", "80", replicas=["u1", "u2", "u9"]),
                shown_tablet("A2", "80", ""),
            ],
            "located-rows",
        ),
        (
            [
                shown_tablet("A1", "", "80", replicas=["u2", "u2", "u1"]),
                shown_tablet("A2", "80", ""),
            ],
            "located-tablets",
        ),
        (
            [shown_tablet("A1", "", "80", leader="u7"), shown_tablet("A2", "80", "")],
            "located-tablets",
        ),
    ],
)
def test_answers_of_locate_are_checked(tablets, rule):
    h = made()
    locate(h, *tablets)
    assert rule in rules(h)


@pytest.mark.parametrize(
    ("keeps", "kind", "permits", "found"),
    [
        (True, "kill", ["lost-after-power-cut"], ["located-voters"]),
        (False, "kill", [], []),  # the scheme 3-2-3 evicts a replica before it adds one
        (True, "disk", [], []),  # a failed replica may be evicted before another is added
        (True, "power-cut", [], ["located-voters"]),
        (True, "power-cut", ["lost-after-power-cut"], []),  # its log may have lost its end
    ],
)
def test_a_tablet_keeps_its_voters_while_one_is_replaced(keeps, kind, permits, found):
    h, dump = made(), {**snapshot(), "keeps_voters": keeps}
    h.fact("permits", fact_of("legacy", [Permit(name=name, why="") for name in permits]))
    for row in dump["masters"]["m1"]["tablets"]:
        row["consensus"] = {**(row.get("consensus") or {}), "opid_index": 7}
    fault = {"action": "inject", "fault": "f", "kind": kind, "targets": ["t1"], "note": ""}
    h.add("nemesis", "info", kind, fault)
    two = shown_tablet("A1", "", "80", replicas=["u1", "u2"])
    locate(h, two, shown_tablet("A2", "80", ""))
    assert rules(h, dump) == found


def test_a_cut_answer_is_exempt():
    h = made()
    locate(h, shown_tablet("A1", "", "80"), truncated=True)
    findings = looked_at(h)
    assert findings.violations == []
    assert findings.exempted["located"] == 1


def test_replicas_may_have_changed_with_the_configuration():
    h = made()
    locate(h)
    moved = row("A2", "80", "")
    moved["consensus"] = moved["consensus"] | {"opid_index": 4, "peers": []}
    assert rules(h, snapshot(row("A1", "", "80"), moved)) == []


@pytest.mark.parametrize("f", ["is-create-done", "locate"])
@pytest.mark.parametrize(("since", "wrong"), [(7, False), (8, True), (0, True)])
def test_done_at_a_revision_before_a_tablet_ran_is_too_early(f, since, wrong):
    h = made()
    if f == "locate":
        locate(h)
    else:
        ask_done(h, done=True)
    dump = snapshot(row("A1", "", "80"), row("A2", "80", "", since=since))
    assert rules(h, dump) == (["done-early"] if wrong else [])


def test_rows_of_older_versions_do_not_say_since_when_a_tablet_runs():
    h = made()
    ask_done(h, done=True)
    findings = looked_at(h, snapshot(row("A1", "", "", since=None)))
    assert (findings.violations, findings.vacuous) == ([], [])


def converged(h: Writer, *, ok: bool = True, revision: int = 7) -> None:
    fact = {"ok": ok, "took_s": 1.0, "bound_s": 90.0, "pending": [], "at": {"revision": revision}}
    h.fact("converged", fact)


CREATED = later(ask_done, done=True)
NOT_CREATED = later(ask_done, done=False)
ALTERED = later(ask_done, done=True, f="is-alter-done", schema_version=2)
NOT_ALTERED = later(ask_done, done=False, f="is-alter-done", schema_version=2)
NOT_APPLIED = do("get", 3, "a", "A", 2, applied_schema_version=1, revision=7)
EMPTY = {"table_id": "A", "schema_version": 0, "revision": 7, "tablets": []}
MOVED = {"table_id": "B", "revision": 8, "tablets": [shown_tablet("A1", "", "")]}
ASKED = do("call", 5, "is-create-done", {"name": "a"})
DELETE = do("call", 6, "delete", {"name": "a"})
OF_A, OF_B = ({"result": "ok", "table_id": ident} for ident in "AB")
LOST = do("ret", 6, OpType.INFO)
ANSWERED = do("ret", 5, OpType.OK, {"result": "ok", "table_id": "A", "done": False})


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([do("ok", 3, "locate", {"name": "a"}, EMPTY)], "located"),
        ([locate, do("ok", 3, "locate", {"name": "b"}, MOVED)], "located-rows located-tablets"),
        # once an answer was "done", no later answer may be "not done"
        ([CREATED, NOT_CREATED], "done"),
        ([locate, NOT_CREATED], "done"),
        ([ALTERED, NOT_ALTERED], "done"),
        ([do("get", 2, "a", "A", 2), NOT_ALTERED], "done"),
        ([ASKED, CREATED, ANSWERED], ""),
        # the exception: the table is being deleted
        ([CREATED, DELETE, NOT_CREATED, do("ret", 6, OpType.OK, OF_A)], ""),
        ([CREATED, ASKED, DELETE, do("ret", 6, OpType.OK, OF_A), ANSWERED], ""),
        ([CREATED, DELETE, LOST, NOT_CREATED], ""),
        ([CREATED, DELETE, do("ret", 6, OpType.OK, OF_B), NOT_CREATED], "done"),
        ([CREATED, DELETE, NOT_CREATED, do("ret", 6, OpType.OK, OF_B)], "done"),
        ([CREATED, DELETE, NOT_CREATED, do("ret", 6, OpType.FAIL)], "done"),
        ([CREATED, NOT_CREATED, DELETE, do("ret", 6, OpType.OK, OF_A)], "done"),
        ([CREATED, do("call", 6, "delete", {"name": "b"}), LOST, NOT_CREATED], "done"),
        # after the cluster has converged, no request may still be in progress
        *(([converged, ask], "done-at-rest") for ask in (NOT_CREATED, NOT_ALTERED, NOT_APPLIED)),
        *(
            ([*before, ask, *after], "")
            for ask in (NOT_CREATED, NOT_ALTERED, NOT_APPLIED)
            for before, after in (
                ([], [converged]),
                ([], []),
                ([later(converged, ok=False)], []),
                ([later(converged, revision=6)], []),
            )
        ),
        # terms never decrease
        ([do("create", 1, "b", "B", term=5), do("get", 2, "b", "B", term=4)], "terms"),
        ([do("get", 2, "a", "A", 1, applied_schema_version=2)], "applied-versions"),
    ],
)
def test_answers_contradict_one_another_or_do_not(steps, broken):
    assert rules(written(*steps)) == broken.split()


def test_done_answers_at_rest_are_counted():
    h = made()
    converged(h)
    ask_done(h, done=True)
    h.ok(4, "is-alter-done", {"name": "z"}, {"result": "not-found"})
    findings = CatalogFindings("catalog-invariants", h.history)
    check_answers(h.history, None, findings)
    assert findings.looked["done-at-rest"] == 1
    assert findings.violations == []


S = 1_000_000_000


def altered(h: Writer, version: int = 1) -> None:
    ask_done(h, done=True, f="is-alter-done", schema_version=version)
    h.get(3, "a", "A", version)


def told(h: Writer, **steps: list[list[int]]) -> None:
    h.fact("checkpoints", {"told": 4, "compared": 2, "reached": {"version": steps}})


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([[0, 0], [1, S // 2]], False),
        ([[2, 0]], False),  # a tablet created later begins with a later version
        ([[0, 0], [1, S]], False),  # a report may be one second late
        ([[0, 0], [1, 3 * S]], True),
        ([[0, 0], [3, 3 * S]], True),
        ([[0, 0]], True),
        ([], True),
    ],
)
def test_a_version_is_applied_when_every_tablet_has_it(steps, broken):
    h = made()
    altered(h)
    told(h, A1=[[1, 0]], A2=steps)
    findings = looked_at(h)
    assert [v.rule for v in findings.violations] == ["applied-early"] * (2 * broken)
    assert findings.looked["applied-early"] == 4  # two answers, each about tablets A1 and A2
    assert findings.gaps == []


def test_tablets_that_alters_add_and_drop_prove_nothing_about_older_versions():
    h = made()
    altered(h)
    ask_done(h, done=True)
    told(h, A1=[[1, 0]], A2=[[0, 0]])
    dump = snapshot(row("A1", "", "80"), row("A2", "80", "", since=99))
    assert rules(h, dump) == ["applied-early", "done-early"]
    for master in dump["masters"].values():
        for table in master["tables"]:
            table["is_bounded"] = True
    assert rules(h, dump) == []


def test_a_version_may_have_been_applied_in_a_tablet_that_was_replaced_later():
    h = made()
    altered(h)
    told(h, A0=[[1, 0]], A1=[[1, 0]], A2=[[1, 9 * S]])
    assert rules(h) == []


@pytest.mark.parametrize("answer", [{"done": False, "schema_version": 1}, {"schema_version": 0}])
def test_an_answer_without_a_version_needs_no_tablet(answer):
    h = made()
    ask_done(h, f="is-alter-done", **{"done": True, **answer})
    h.get(3, "a", "A", 1, applied_schema_version=0)
    told(h, A1=[[0, 0]], A2=[])
    assert rules(h) == []


def test_targets_that_tell_no_versions_are_not_held_to_them():
    h = made()
    altered(h)
    assert rules(h) == []
    h.fact("checkpoints", {"told": 4, "compared": 2})
    assert rules(h) == []


def test_a_disturbed_harness_may_have_missed_an_announcement():
    h = made()
    altered(h)
    told(h, A1=[[1, 0]], A2=[[0, 0]])
    h.fact("infrastructure", {"node": None, "what": "the log of t1 broke off"})
    findings = looked_at(h)
    assert findings.violations == []
    assert "the log of t1 broke off" in findings.gaps[0]


# --- refusals ----------------------------------------------------------------------------------


def refused(h: Writer, f: str, call: Json, error: str, process: int = 6) -> int:
    index = h.call(process, f, {"nonce": "x", **call})
    h.add(process, OpType.FAIL, f, None, "m1", error=f"{error}: no")
    return index


def alter(*steps: list[str]) -> Json:
    return {"name": "a", "steps": list(steps)}


CREATE = {"name": "c", "columns": ["v"], "partitions": 1, "replicas": 3}
WRONG = [
    ("alter", alter(["add", "new"]), "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("alter", alter(["add", "new"], ["rename", "new", "newer"]), "INVALID_SCHEMA/NOT_FOUND"),
    ("alter", alter(["drop", "v1"]), "INVALID_SCHEMA/NOT_FOUND"),
    ("alter", alter(["add", "new"]), "UNKNOWN_ERROR/INVALID_ARGUMENT"),
    ("rename", {"name": "a", "new_name": "b"}, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("rename", {"name": "a", "new_name": "b"}, "TABLE_ALREADY_PRESENT/SERVICE_UNAVAILABLE"),
    ("delete", {"name": "a"}, "TABLE_NOT_FOUND/SERVICE_UNAVAILABLE"),
    ("delete", {"name": "a"}, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("create", CREATE, "TABLE_ALREADY_PRESENT/SERVICE_UNAVAILABLE"),
    ("create", CREATE, "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT"),
    ("create", CREATE, "TOO_MANY_TABLETS/INVALID_ARGUMENT"),
    ("create", CREATE, "EVEN_REPLICATION_FACTOR/INVALID_ARGUMENT"),
    ("create", CREATE, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("create", CREATE, "UNKNOWN_ERROR/INVALID_ARGUMENT"),
    ("get", {"name": "a"}, "TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE"),
    ("alter", alter(["add", "new"]), "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT"),
]


@pytest.mark.parametrize(("f", "call", "error"), WRONG)
def test_a_refusal_that_nothing_explains_is_wrong(f, call, error):
    h = made()
    index = refused(h, f, call, error)
    violations = looked_at(h).violations
    assert [(v.rule, v.operations) for v in violations] == [("refusals", (index,))]


LEGAL = [
    ("alter", alter(["add", "new"]), "NOT_THE_LEADER/ILLEGAL_STATE"),
    ("get", {"name": "a"}, "CATALOG_MANAGER_NOT_INITIALIZED/SERVICE_UNAVAILABLE"),
    ("alter", alter(["add", "v1"]), "INVALID_SCHEMA/ALREADY_PRESENT"),
    ("alter", alter(["drop", "v9"]), "INVALID_SCHEMA/NOT_FOUND"),
    ("alter", alter(["add", "v9"], ["rename", "v9", "v1"]), "INVALID_SCHEMA/ALREADY_PRESENT"),
    ("alter", alter(["add", "v9"], ["add", "v9"]), "INVALID_SCHEMA/ALREADY_PRESENT"),
    ("alter", alter(["drop", "key"]), "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("rename", {"name": "a", "new_name": ""}, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("create", {**CREATE, "replicas": 2}, "EVEN_REPLICATION_FACTOR/INVALID_ARGUMENT"),
    ("create", {**CREATE, "columns": ["v", "v"]}, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("create", {**CREATE, "partitions": 500}, "TOO_MANY_TABLETS/INVALID_ARGUMENT"),
    ("create", {**CREATE, "columns": ["v", ""]}, "UNKNOWN_ERROR/INVALID_ARGUMENT"),
    ("locate", {"name": "a"}, "TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE"),
    ("get", {"name": "a"}, "RPC/NOT_SENT"),
]


@pytest.mark.parametrize(("f", "call", "error"), LEGAL)
def test_a_refusal_that_the_request_or_the_state_explains(f, call, error):
    h = made()
    refused(h, f, call, error)
    assert rules(h) == []


DROP_REFUSED = later(refused, "alter", alter(["drop", "v1"]), "INVALID_SCHEMA/NOT_FOUND")
ADD_REFUSED = later(refused, "alter", alter(["add", "w"]), "INVALID_SCHEMA/ALREADY_PRESENT")
DROP_LOST = do("lost", 7, "alter", alter(["drop", "v1"], ["add", "w"]) | {"nonce": "y"})
RENAME = do("call", 7, "rename", {"name": "a", "new_name": "c", "nonce": "y"})
RENAME_FAILED = do("ret", 7, OpType.FAIL, {"result": "not-found"})
PRESENT = later(refused, "create", CREATE, "TABLE_ALREADY_PRESENT/SERVICE_UNAVAILABLE")
MISSING = later(refused, "create", CREATE, "TABLE_NOT_FOUND/SERVICE_UNAVAILABLE")
FULL = later(refused, "alter", alter(["drop", "v1"]), "INVALID_SCHEMA/INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([DROP_LOST, DROP_REFUSED, ADD_REFUSED], False),
        ([DROP_REFUSED, DROP_LOST], True),  # only earlier events can explain a refusal
        *(([RENAME, error, RENAME_FAILED], False) for error in (PRESENT, MISSING)),
        *(([RENAME, RENAME_FAILED, error], True) for error in (PRESENT, MISSING)),
        # a column may be dropped however many columns there are
        (
            [FULL, do("fact", "snapshot", {"accepts": {"columns": 1}})],
            True,
        ),
    ],
)
def test_a_refusal_is_explained_by_what_may_have_happened_before_it(steps, broken):
    assert rules(written(*steps)) == ["refusals"] * broken


def test_servers_may_be_unheard_after_a_fault_or_under_a_second_leader():
    for disturb in (
        lambda h: h.nemesis("kill", {"action": "inject", "fault": "f1", "targets": ["t1"]}),
        lambda h: h.fact("leader", {"node": "m2", "term": 2}),
        lambda h: h.fact("heartbeat-gap", {"gap_s": 9}),
        lambda h: h.fact("starvation", {"from_s": 1, "to_s": 2, "waited_s": {"t1": 0.9}}),
    ):
        h = made()
        h.fact("leader", {"node": "m1", "term": 1})
        refused(h, "create", CREATE, "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT")
        assert rules(h) == ["refusals"]
        h = made()
        h.fact("leader", {"node": "m1", "term": 1})
        disturb(h)
        refused(h, "create", CREATE, "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT")
        assert rules(h) == []


def test_a_metastore_that_is_killed_is_felt_before_the_kill_is_noted():
    for late_ms, expected in ((60, []), (5_000, ["refusals"])):
        h = made()
        refused(h, "delete", {"name": "a"}, "HIVE_METASTORE_ERROR/REMOTE_ERROR")
        h.at(h.lines[-1].time // 1_000_000 + late_ms)
        h.nemesis("kill", {"action": "inject", "fault": "f1", "targets": ["db"]})
        assert rules(h) == expected


STOP_M1 = {"action": "inject", "fault": "f1", "kind": "kill", "targets": ["m1"]}


@pytest.mark.parametrize(
    ("node", "fault", "found"),
    [
        ("m2", STOP_M1, ["refusals"]),  # m2 received all heartbeats: no fault hit it
        ("m1", STOP_M1, []),
        ("m2", STOP_M1 | {"targets": ["m1", "t1"]}, []),
        ("m2", STOP_M1 | {"kind": "cut"}, []),  # a cut may have hit any link
        ("m4", STOP_M1, []),  # m4 is not in the snapshot
    ],
)
def test_a_master_that_nothing_touched_knows_all_tablet_servers(node, fault, found):
    h = made()
    h.fact("leader", {"node": "m1", "term": 1})
    h.nemesis("kill", fault)
    h.fact("leader", {"node": node, "term": 2})
    h.call(7, "create", CREATE)
    error = "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT: too few"
    h.add(7, OpType.FAIL, "create", None, node, error=error)
    assert rules(h) == [], "without a snapshot the masters are unknown"
    h.fact("snapshot", {"masters": {"m1": None, "m2": None}})
    assert rules(h) == found


@pytest.mark.parametrize(
    ("f", "value", "found"),
    [
        ("node-exit", {"node": "m1", "code": 9, "expected": True}, ["refusals"]),
        ("node-exit", {"node": "m2", "code": 9, "expected": True}, []),
        ("node-exit", {"node": "t1", "code": 9, "expected": True}, []),
        ("starvation", {"from_s": 1, "to_s": 2, "waited_s": {"t1": 0.9}}, []),
        ("heartbeat-gap", {"gap_s": 9}, []),
    ],
)
def test_other_reasons_for_missing_heartbeats(f, value, found):
    h = made()
    h.fact(f, value)
    h.call(7, "create", CREATE)
    error = "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT: too few"
    h.add(7, OpType.FAIL, "create", None, "m2", error=error)
    h.fact("snapshot", {"masters": {"m1": None, "m2": None}})
    assert rules(h) == found


def test_a_table_that_was_done_can_be_located_while_its_name_stays():
    for proof in (lambda h: ask_done(h, done=True), locate):
        h = made()
        proof(h)
        refused(h, "locate", {"name": "a"}, "TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE")
        assert rules(h) == ["refusals"]
        h = made()
        h.lost(7, "rename", {"name": "b", "new_name": "a", "nonce": "r"})
        proof(h)
        refused(h, "locate", {"name": "a"}, "TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE")
        assert rules(h) == []


@pytest.mark.parametrize(
    ("node", "permits", "found"),
    [
        ("m1", ["stale-read"], []),
        ("m1", [], ["refusals"]),
        ("m2", ["stale-read"], ["refusals"]),
    ],
)
def test_a_stale_answer_does_not_prove_that_a_new_table_is_done(node, permits, found):
    h = Writer()
    h.fact("permits", fact_of("modern", [Permit(name=name, why="") for name in permits]))
    h.fact("leader", {"node": "m1", "term": 1})
    call = {"name": "a", "nonce": "n", "columns": ["v1"], "partitions": 2, "replicas": 3}
    h.ok(1, "create", call, {"table_id": "A", "schema_version": 0, "revision": 3})
    h.fact("leader", {"node": "m2", "term": 2})
    h.ok(1, "delete", {"name": "a"}, {"table_id": "A"})
    h.ok(1, "create", {**call, "nonce": "o"}, {"table_id": "B", "schema_version": 0})
    h.call(3, "is-create-done", {"name": "a"})
    done = {"result": "ok", "table_id": "A", "done": True, "revision": 7, "term": 1}
    h.add(3, OpType.OK, "is-create-done", done, node)
    h.call(6, "locate", {"name": "a"})
    error = "TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE: no"
    h.add(6, OpType.FAIL, "locate", None, "m2", error=error)
    findings = CatalogFindings("catalog-invariants", h.history)
    check_refusals(h.history, findings)
    assert sorted({violation.rule for violation in findings.violations}) == found


def test_an_unknown_code_is_exempt():
    h = made()
    refused(h, "delete", {"name": "a"}, "QUOTA_EXCEEDED/ABORTED")
    assert looked_at(h).exempted == {"refusals": 1}


DEMANDED = [
    ("name_bytes", 2, "create", CREATE | {"name": "long"}, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("name_bytes", 2, "create", CREATE | {"columns": ["long"]}, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("name_bytes", 2, "alter", alter(["add", "new"]), "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("name_bytes", 2, "alter", alter(["rename", "v1", "new"]), "INVALID_SCHEMA/INVALID_ARGUMENT"),
    (
        "name_bytes",
        2,
        "rename",
        {"name": "a", "new_name": "long"},
        "INVALID_SCHEMA/INVALID_ARGUMENT",
    ),
    ("columns", 1, "create", CREATE, "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("columns", 2, "alter", alter(["add", "new"]), "INVALID_SCHEMA/INVALID_ARGUMENT"),
    ("replicas", [1, 1], "create", CREATE, "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT"),
    ("replicas", [5, 7], "create", CREATE, "ILLEGAL_REPLICATION_FACTOR/INVALID_ARGUMENT"),
    ("new_replicas", 2, "create", CREATE, "TOO_MANY_TABLETS/INVALID_ARGUMENT"),
]
ENOUGH = {"name_bytes": 4, "columns": 3, "replicas": [3, 3], "new_replicas": 3}


@pytest.mark.parametrize(("name", "limit", "f", "call", "error"), DEMANDED)
def test_a_refusal_that_the_target_declared_is_legal_and_no_other(name, limit, f, call, error):
    accepted: list[tuple[Json | None, list[str]]] = [
        ({"accepts": {name: limit}}, []),
        ({"accepts": ENOUGH | {name: limit, "new": 1}}, []),
        ({"accepts": ENOUGH}, ["refusals"]),
        ({"accepts": {}}, ["refusals"]),
        ({}, ["refusals"]),
        (None, ["refusals"]),
    ]
    for declared, expected in accepted:
        h = made()
        refused(h, f, call, error)
        h.fact("snapshot", declared)
        assert rules(h) == expected, declared


@pytest.mark.parametrize(("servers", "wrong"), [(2, []), (3, ["refusals"]), (0, ["refusals"])])
def test_a_table_needs_a_server_per_replica(servers, wrong):
    h = made()
    refused(h, "create", CREATE, "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT")
    h.fact("snapshot", {"tservers": {f"t{n}": None for n in range(servers)}})
    assert rules(h) == wrong


def test_alters_may_have_filled_a_table_up():
    for version, wrong in ((0, ["refusals"]), (1, ["refusals"]), (2, [])):
        h = made()
        h.ok(1, "alter", alter(["add", "w"]) | {"nonce": "y"}, {"schema_version": version})
        refused(h, "alter", alter(["add", "new"]), "INVALID_SCHEMA/INVALID_ARGUMENT")
        h.fact("snapshot", {"accepts": {"columns": 4}})
        assert rules(h) == wrong
