"""The invariant I10, on hand-written snapshots that each break one of its rules."""

import copy

import pytest

from checkers.hms.kudu import KuduHmsChecker
from tests.support.histories import Writer

SECOND = ["db1.y", "a", ["m1:1", "m2:1"], "c"]
TABLE = {"id": "a", "name": "db1.x", "state": "RUNNING"}


def good():
    hms = {"last_event": 7, "events": [[3, 10], [7, 12]], "masters": ["m1:1", "m2:1"]}
    leader = {"ready": True, "cluster_id": "c", "tables": [dict(TABLE)], "hms": hms}
    follower = {**copy.deepcopy(leader), "ready": False}
    entries = [["db1.x", "a", ["m2:1", "m1:1"], "c"], ["db1.other", "z", [], "another cluster"]]
    return {
        "masters": {"m1": leader, "m2": follower, "m3": None},
        "hms": {"event": 7, "entries": entries},
        "pending": [],
    }


def judged(snapshot, *, ok=True, shown=None):
    h = Writer()
    if shown is not None:
        f, answer = shown
        h.ok(0, f, {"name": "db1.x"}, answer)
    if ok is not None:
        h.fact("converged", {"ok": ok, "took_s": 0.0, "bound_s": 90.0})
    if snapshot is not None:
        h.fact("snapshot", snapshot)
    result = KuduHmsChecker().check(h.history, None, time_limit_s=10)
    broken_rules = "+".join(result.details["by_invariant"])
    return str(result.verdict), broken_rules or result.details.get("rule")


def broken(change):
    snapshot = good()
    change(snapshot, snapshot["masters"]["m1"])
    return judged(snapshot)


def test_consistent_catalogs_are_valid():
    assert judged(good()) == ("valid", None)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("no-entry", lambda s, _: s["hms"].update(entries=[])),
        ("orphan", lambda _, leader: leader["tables"].clear()),
        ("orphan", lambda _, leader: leader["tables"][0].update(state="REMOVED")),
        ("names", lambda _, leader: leader["tables"][0].update(name="db1.y")),
        ("addresses", lambda _, leader: leader["hms"].update(masters=["m1:1"])),
        ("addresses", lambda s, _: s["hms"]["entries"][0].__setitem__(2, ["m1:1", "m1:1"])),
        ("caught-up", lambda s, _: s["hms"].update(event=8)),
        ("events", lambda _, leader: leader["hms"].update(events=[[7, 10], [7, 12]])),
        ("events", lambda s, _: s["masters"]["m2"]["hms"].update(events=[[7, 10], [3, 12]])),
        ("ids+names", lambda s, _: s["hms"]["entries"].append(SECOND)),
    ],
)  # fmt: skip
def test_each_rule_is_broken_by_its_own(rule, change):
    assert broken(change) == ("invalid", rule)


def test_what_was_not_at_rest_is_unknown_unless_it_can_never_be_right():
    moving = good()
    moving["hms"]["entries"] = []
    assert judged(moving, ok=False) == judged(moving, ok=None) == ("unknown", "not-at-rest")
    assert judged({**moving, "pending": ["something"]}) == ("unknown", "not-at-rest")
    assert judged({**moving, "hms": None}) == ("unknown", "not-at-rest")
    assert judged(None) == ("unknown", "not-at-rest")
    moving["masters"]["m1"]["ready"] = False
    assert judged(moving) == ("unknown", "not-at-rest")
    moving["masters"]["m2"]["hms"]["events"] = [[5, 1], [4, 2]]
    assert judged(moving, ok=False) == ("invalid", "events")


@pytest.mark.parametrize(
    ("f", "value", "rule"),
    [
        ("create", {"table_id": "a"}, "no-table"),
        ("get", {"table_id": "a", "result": "ok"}, "no-table"),
        ("list", {"tables": [["db1.x", "a", 1]]}, "no-table"),
        ("create", {"table_id": "b"}, "orphan"),
        # proves no table, because Hive may show an entry before its table exists
        ("hive-get", {"table_id": "a"}, "orphan"),
    ],
)
def test_an_entry_whose_table_kudu_showed_is_no_orphan(f, value, rule):
    snapshot = good()
    snapshot["masters"]["m1"]["tables"].clear()
    assert judged(snapshot, shown=(f, value)) == ("invalid", rule)
