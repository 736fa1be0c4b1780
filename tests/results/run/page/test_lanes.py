"""Lanes of a page (faults, leaders, nodes, tables), for small histories with known lanes."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from harness.timeline import (
    faults_of,
    nodes_of,
    phases_of,
    reigns_of,
    states_of,
)
from results.run.page import tables as tables_module
from results.run.page.lanes import fault_rows, lanes_of, marks_of
from results.run.page.tables import as_rows, tables_of
from tests.results.run.page.runs import MS, Script, small_run


def test_phases_faults_and_marks():
    history = small_run()
    assert phases_of(history) == [(0, "setup"), (101 * MS, "chaos"), (1700 * MS, "final")]
    cut, kill = faults_of(history)
    assert (cut.id, cut.start, cut.end) == ("partition-leader-1", 300 * MS, 800 * MS)
    assert (cut.targets, cut.bite, cut.note) == (
        ("m1",),
        {"count": 7, "unit": "frames"},
        "cut m1 off",
    )
    assert (kill.id, kill.end, kill.bite) == ("kill-leader-1", 1500 * MS, {"count": None})
    assert [row["bite"] for row in fault_rows([cut, kill], [cut.nemesis, kill.nemesis])] == [
        "7 frames",
        "not measurable",
    ]
    assert marks_of(history) == []
    live = Script().fact(5, "live", {"ok": True}).history()
    assert marks_of(live) == [(5 * MS, "live", '{"ok":true}')]


def test_a_fault_without_healing_is_open_and_one_without_target_is_kept():
    script = Script().nemesis(1, "pause-leader", action="inject", fault="p1", targets=[], note="x")
    script.nemesis(2, "pause-leader", action="heal", fault="unknown", targets=[])
    script.nemesis(3, "pause-leader", action="inject", fault="p2", targets=["m1"], note="y")
    missed, open_ended = faults_of(script.history())
    assert (missed.targets, missed.end) == ((), None)
    assert (open_ended.id, open_ended.end) == ("p2", None)


def test_a_leader_that_answers_after_the_next_one_was_seen():
    first, second = reigns_of(small_run())
    assert (first.node, first.term, first.start, first.end) == ("m1", 1, 100 * MS, 500 * MS)
    assert first.until == "m2 was seen to lead in term 2"
    # The leader's last answer in term 1 is the list at 1015 ms, after the read at 705 ms.
    assert first.answered == 1015 * MS
    # The second leader's process ended before another leader was seen.
    assert (second.node, second.end, second.until) == ("m2", 1000 * MS, "its process ended")
    assert second.answered is None


def test_only_the_end_of_its_own_process_ends_a_reign():
    script = Script().fact(0, "leader", {"node": "m1", "term": 1})
    for at, node in ((10, "m2"), (20, "m1")):
        script.fact(at, "node-exit", {"node": node, "code": -9, "expected": True})
    assert [reign.end for reign in reigns_of(script.history())] == [20 * MS]


def test_answers_in_another_term_or_by_another_node_prolong_nothing():
    script = Script().fact(0, "leader", {"node": "m1", "term": 1})
    script.fact(10, "leader", {"node": "m2", "term": 2})
    script.op(1, 5, 0, "get", {}, "ok", {"term": 1})
    script.op(20, 25, 0, "get", {}, "ok", {"term": 1}, node="m2")
    script.op(30, 35, 0, "get", {}, "ok", {"term": 3}, node="m1")
    assert [reign.answered for reign in reigns_of(script.history())] == [None, None]


def test_a_node_is_down_until_the_first_proof_that_it_runs():
    (down,) = states_of(small_run(), faults_of(small_run()))
    assert (down.node, down.kind, down.start, down.end) == ("m2", "down", 1000 * MS, 1500 * MS)
    assert down.why == "ended as asked, code -9; until kill-leader-1 was healed"


def down_and(script):
    """Return the state of node m1 in a history with these lines. It went down at 100 ms."""
    script.fact(100, "node-exit", {"node": "m1", "code": 1, "expected": False})
    history = script.history()
    return states_of(history, faults_of(history))[0]


def test_evidence_that_a_node_runs_again():
    # An operation sent before the exit and answered after it proves nothing.
    assert down_and(Script().op(90, 110, 0, "get", {}, "ok", {})).end is None
    # An operation sent after the exit proves nothing without an answer.
    assert down_and(Script().op(120, 130, 0, "get", {}, "fail", None)).end is None
    # Answered by another node.
    assert down_and(Script().op(120, 130, 0, "get", {}, "ok", {}, node="m2")).end is None
    assert down_and(Script().op(120, 130, 0, "get", {}, "ok", {})).end == 130 * MS
    assert down_and(Script().fact(140, "live", {"core": ["m2"]})).end is None
    assert down_and(Script().fact(140, "live", {"core": ["m1"]})).end == 140 * MS
    assert down_and(Script().fact(150, "phase", {"phase": "heal-all"})).end is None
    assert down_and(Script().fact(150, "phase", {"phase": "converge"})).end == 150 * MS
    for nemesis, end in (("partition-leader", None), ("pause-leader", None), ("kill-x", 160 * MS)):
        script = Script().nemesis(50, nemesis, action="inject", fault="f", targets=["m1"])
        script.nemesis(160, nemesis, action="heal", fault="f", targets=["m1"])
        script.fact(100, "node-exit", {"node": "m1", "code": 1, "expected": False})
        states = states_of(script.history(), faults_of(script.history()))
        assert [end] == [state.end for state in states if state.kind == "down"]


def test_a_pause_ends_by_its_healing_or_by_the_end_of_the_process():
    pause = {"fault": "p", "targets": ["m1"], "note": ""}
    script = Script().nemesis(10, "pause-leader", action="inject", **pause)
    script.nemesis(30, "pause-leader", action="heal", **pause)
    (state,) = states_of(script.history(), faults_of(script.history()))
    assert (state.kind, state.start, state.end) == ("paused", 10 * MS, 30 * MS)
    script.fact(20, "node-exit", {"node": "m1", "code": -9, "expected": True})
    paused, down = states_of(script.history(), faults_of(script.history()))
    assert (paused.end, paused.why) == (20 * MS, "p; until its fact `node-exit`")
    assert (down.kind, down.end) == ("down", None)


def test_a_core_that_came_to_life_and_the_rest_are_all_nodes():
    script = Script().fact(1, "leader", {"node": "m2", "term": 1})
    script.fact(4, "live", {"core": ["m1", "m2"], "rest": ["m3", "t1"], "ok": True})
    script.fact(5, "snapshot", {"m9": {}, "bounds": {"limits": []}})
    assert nodes_of(script.history(), [], []) == ["m1", "m2", "m3", "t1"]


def test_nodes_are_all_that_the_run_speaks_of():
    history = small_run()
    assert nodes_of(history, faults_of(history), ["t1"]) == ["m1", "m2", "t1"]


@given(st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(0, 20)), max_size=30))
def test_spans_in_a_lane_are_disjoint_and_lanes_are_as_few_as_can_be(pairs):
    spans = sorted(
        ((start, None if length is None else start + length) for start, length in pairs),
        key=lambda span: span[0],
    )
    lanes = lanes_of(spans)
    for lane in set(lanes):
        own = [span for span, number in zip(spans, lanes, strict=True) if number == lane]
        for before, after in itertools.pairwise(own):
            assert before[1] is not None
            assert before[1] <= after[0]
    ends = [float("inf") if end is None else end for _, end in spans]
    # The largest number of spans that are open at once, right after one begins; empty spans do not
    # count.
    most = max(
        (
            sum(s <= spans[n][0] and (e > spans[n][0] or m == n) for m, ((s, _), e) in
                enumerate(zip(spans, ends, strict=True)) if m <= n)
            for n in range(len(spans))
        ),
        default=0,
    )  # fmt: skip
    assert most == max(lanes, default=-1) + 1


def test_tables_as_acknowledged_as_read_and_as_kept_by_masters():
    lanes, cut = tables_of(small_run(), ())
    assert cut == 0
    first, second = lanes
    assert (first.id, first.names) == ("aaaa1111", ["t1", "t2", "t1"])
    assert [(event.kind, event.end, event.name, event.text) for event in first.events] == [
        ("create", 210 * MS, "t1", "created as 't1'"),
        ("rename", 620 * MS, "t2", "renamed from 't1' to 't2', version 1"),
        ("delete", 930 * MS, "t2", "deleted (was 't2')"),
    ]
    assert (first.seen_first, first.seen_last) == (700 * MS, 705 * MS)
    assert first.final == ["m1: REMOVED, named 't2', version 1"]
    assert (second.id, second.names, second.final) == ("bbbb2222", ["t5"], [])
    assert as_rows(lanes)[1]["seen"] == [1010 * MS, 1015 * MS]


def test_changes_that_were_not_acknowledged_are_in_no_lane():
    script = Script()
    table = {"table_id": "x1", "schema_version": 1}
    script.op(1, 2, 0, "alter", {"name": "a"}, "fail", {"result": "exists", **table})
    script.op(3, 4, 1, "alter", {"name": "a"}, "info", {"result": "ok", **table})
    lanes, _ = tables_of(script.history(), ())
    assert lanes == []
    script.op(5, 6, 0, "alter", {"name": "a"}, "ok", {"result": "not-found", **table})
    lanes, _ = tables_of(script.history(), ())
    assert [lane.events for lane in lanes] == [[]]  # the table is mentioned, but unchanged


def test_of_too_many_tables_those_of_the_anomaly_and_the_newest_stay(monkeypatch):
    script = Script()
    for n in range(10):
        answer = {"result": "ok", "table_id": f"id{n}", "schema_version": 0}
        script.op(10 * n, 10 * n + 1, 0, "create", {"name": f"t{n}"}, "ok", answer)
    lanes, cut = tables_of(script.history(), (2,), most=4)  # op 2 creates id1
    assert [lane.id for lane in lanes] == ["id1", "id7", "id8", "id9"]
    assert cut == 6
    monkeypatch.setattr(tables_module, "EVENTS_MAX", 3)
    lanes, cut = tables_of(script.history(), (2,))
    assert ([lane.id for lane in lanes], cut) == (["id1", "id8", "id9"], 7)
