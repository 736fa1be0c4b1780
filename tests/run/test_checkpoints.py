"""Checkpoints of one group and index are compared, however much time lies between them."""

from collections import Counter
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import ClusterEvent
from harness.run import divergence as checkpoints
from harness.run.divergence import Checkpoints
from harness.run.recorder import EventScribe, Recorder

TOLD = st.lists(
    st.tuples(
        st.sampled_from(["t1", "t2"]),
        st.sampled_from(["g", "h"]),
        st.integers(0, 3),
        st.sampled_from(["x", "y"]),
    ),
    max_size=25,
)


@given(TOLD)
def test_it_finds_what_comparing_all_with_all_finds(told):
    compare = Checkpoints()
    found = []
    for number, (node, group, index, log) in enumerate(told):
        data = {"group": group, "index": index, "log": log}
        found += [d["group"] for d in compare.take(node, data, number)]

    different = {
        one[1] for one in told for two in told if one[1:3] == two[1:3] and one[3] != two[3]
    }
    assert sorted(found) == sorted(different)  # each divergence is reported once
    places = Counter(entry[1:3] for entry in told)
    assert compare.summary() == (
        {
            "told": len(told),
            "compared": len(told) - len(places),
            "diverged": len(different),
            "forgotten": 0,
            "reached": {},
        }
        if told
        else None
    )


def test_a_divergence_names_the_earlier_leader():
    compare = Checkpoints()
    compare.take("t1", {"group": "g", "index": 4, "log": "a", "state": "s"}, 10)
    assert compare.take("t2", {"group": "g", "index": 4, "log": "a"}, 20) == []
    assert compare.take("t1", {"group": "g", "index": 4, "log": "a", "state": "z"}, 30) == [
        {
            "group": "g",
            "index": 4,
            "what": "state",
            "nodes": ["t1", "t1"],
            "values": ["s", "z"],
            "times_ns": [10, 30],
        }
    ]


def test_other_groups_and_indices_are_other_places():
    compare = Checkpoints()
    for group, index, log in [("g", 1, "a"), ("g", 2, "b"), ("h", 1, "c"), ("g", 0, "d")]:
        assert compare.take("t1", {"group": group, "index": index, "log": log}, 0) == []


def test_files_that_are_not_checkpoints_are_left_alone():
    compare = Checkpoints()
    for data in ({}, {"group": 1, "index": 1}):
        assert compare.take("t1", data, 0) == []
    assert compare.summary() is None
    for data in (
        {"group": "g", "log": "a"}, {"group": "g", "log": "b"}, {"group": "g", "index": "1"}
    ):  # fmt: skip
        assert compare.take("t1", data, 0) == []
    for value in (1, None, ["a"], 2):
        assert compare.take("t1", {"group": "g", "index": 1, "log": value}, 0) == []


def test_memory_is_bounded_and_counts_forgotten_entries(monkeypatch):
    monkeypatch.setattr(checkpoints, "POINTS_MAX", 2)
    compare = Checkpoints()
    for index in (1, 2, 3):
        compare.take("t1", {"group": "g", "index": index, "log": "a"}, 0)
    assert compare.take("t2", {"group": "g", "index": 1, "log": "b"}, 0) == []  # t1's is forgotten
    assert len(compare.take("t2", {"group": "g", "index": 3, "log": "b"}, 0)) == 1
    assert compare.summary()["forgotten"] == 2


def test_divergences_are_bounded():
    compare = Checkpoints()
    found = []
    for number in range(checkpoints.DIVERGENCES_MAX + 5):
        for log in ("a", "b"):
            found += compare.take("t1", {"group": f"g{number}", "index": 1, "log": log}, 0)
    assert len(found) == checkpoints.DIVERGENCES_MAX


def test_the_history_has_what_differed_and_how_much_was_compared():
    recorder = Recorder(SimpleNamespace(monotonic_ns=lambda: 7))
    recorder.start_ns = -7
    scribe = EventScribe(recorder, [])
    for node, log, late_ns in [("t1", "a", 0), ("t2", "a", 0), ("t3", "b", 3)]:
        data = {"group": "g", "index": 1, "log": log}
        scribe.on_event(ClusterEvent(0, node, "checkpoint", data, late_ns))
    scribe.summarize()
    facts = [(op.f, op.value) for op in recorder.history()]
    assert [f for f, _ in facts] == ["divergence", "checkpoints"]
    assert facts[0][1]["nodes"] == ["t1", "t3"]
    assert facts[0][1]["times_ns"] == [14, 11]  # the times of the announcements
    assert facts[1][1] == {
        "told": 3, "compared": 2, "diverged": 1, "forgotten": 0, "reached": {}
    }  # fmt: skip


def test_a_target_without_checkpoints_leaves_no_fact():
    recorder = Recorder(SimpleNamespace(monotonic_ns=lambda: 0))
    EventScribe(recorder, []).summarize()
    assert list(recorder.history()) == []


@given(st.lists(st.tuples(st.sampled_from(["g", "h"]), st.integers(0, 5)), max_size=20))
def test_it_keeps_when_anybody_first_had_reached_a_number(told):
    compare = Checkpoints()
    for now, (group, version) in enumerate(told, start=1):
        compare.take("t1", {"group": group, "version": version}, now)
    kept = (compare.summary() or {}).get("reached", {}).get("version", {})
    for group in ("g", "h"):
        for version in range(6):
            first = [now for now, (g, v) in enumerate(told, 1) if g == group and v >= version]
            steps = [now for number, now in kept.get(group, []) if number >= version]
            assert steps[:1] == first[:1]


def test_events_are_ordered_by_emission_not_by_arrival():
    compare = Checkpoints()
    for said_ns in (9, 4, 7):
        compare.take("t1", {"group": "g", "version": 1}, said_ns)
    assert compare.summary()["reached"] == {"version": {"g": [(1, 4)]}}


def test_of_too_many_steps_none_are_kept(monkeypatch):
    monkeypatch.setattr(checkpoints, "REACHED_MAX", 2)
    compare = Checkpoints()
    for version in (1, 2, 3):
        compare.take("t1", {"group": "g", "index": 0, "version": version}, version)
        assert (compare.summary()["reached"] == {}) == (version == 3)


def test_a_summary_does_not_change_afterwards():
    compare = Checkpoints()
    compare.take("t1", {"group": "g", "version": 1}, 0)
    summary = compare.summary()
    compare.take("t1", {"group": "g", "version": 2}, 9)
    compare.take("t1", {"group": "h", "version": 2}, 9)
    assert summary["reached"] == {"version": {"g": [(1, 0)]}}
