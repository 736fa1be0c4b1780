"""The trace of any history has slices that every viewer accepts, and shows each fact once."""

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.case import Case
from harness.cli import main
from harness.cli.run import artefacts
from harness.cli.run.artefacts import chosen_reporters
from harness.errors import UsageError
from harness.ops import HARNESS, NEMESIS, Attempt, CheckResult, History, Op, OpType, Verdict
from harness.store import RunFolder, StoredRun
from results.run.perfetto import EVENTS_MAX, TraceReporter, trace_of
from results.run.trace_events import (
    ANOMALIES,
    CLIENTS,
    FAULTS,
    NODES,
    PHASES,
    write_trace,
)
from tests.results.run.perfetto.histories import CLIENTS as CLIENT_COUNT
from tests.results.run.perfetto.histories import histories
from tests.tiers import examples


def stored(history, folder=Path("store/x/1"), **case):
    return StoredRun(folder, Case(seed=1, **case), history, None, None)


def events_of(history, *, events_max=EVENTS_MAX, **case):
    """Return the events after a round trip through JSON."""
    trace = trace_of(stored(history, **case), events_max=events_max)
    return json.loads(json.dumps(list(trace.events)))


def ns(time_us):
    """Convert a time as Perfetto does: it truncates fractions of a ns rather than rounding them."""
    return int(time_us * 1000)


def slices(events, pid):
    return [event for event in events if event["ph"] == "X" and event["pid"] == pid]


def tracks_of(events, pid):
    return {
        event["tid"]: event["args"]["name"]
        for event in events
        if event["name"] == "thread_name" and event["pid"] == pid
    }


def sealed(folder, history):
    run = RunFolder(folder, "x", "run-1")
    run.write_case(Case(seed=1))
    run.seal(history)
    return run.path


@given(histories())
@settings(max_examples=examples(150))
def test_slices_of_a_track_never_overlap(history):
    tracks = {}
    for event in events_of(history):
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        for earlier, later in itertools.pairwise(track):
            assert ns(earlier["ts"]) + ns(earlier["dur"]) <= ns(later["ts"])


@given(histories())
def test_every_operation_is_there_once_with_its_times(history):
    end = max([op.time for op in history] + [a.end for op in history for a in op.attempts] + [0])
    found = slices(events_of(history), CLIENTS)
    expected = Counter()
    for pair in history.pairs:
        info = pair.type is OpType.INFO
        done = pair.completion
        finish = end if done is None else max(pair.invoke.time, done.time)
        expected[pair.invoke.index, pair.invoke.time, finish - pair.invoke.time, info] += 1
    assert expected == Counter(
        (e["args"]["index"], ns(e["ts"]), ns(e["dur"]), "(info: " in e["name"]) for e in found
    )


@given(histories())
def test_every_attempt_is_there_once_with_its_times(history):
    expected = Counter(
        (pair.invoke.index, attempt.start, attempt.end - attempt.start)
        for pair in history.pairs
        for attempt in (pair.completion.attempts if pair.completion else ())
    )
    found = [event for event in slices(events_of(history), NODES) if event["cat"] == "attempt"]
    assert expected == Counter((e["args"]["op"], ns(e["ts"]), ns(e["dur"])) for e in found)


@given(histories(backwards=False))
def test_a_client_has_one_track_under_all_its_numbers(history):
    events = events_of(history, concurrency=CLIENT_COUNT)
    names = tracks_of(events, CLIENTS)
    processes = {pair.invoke.process for pair in history.pairs}
    assert sorted(names.values()) == sorted({f"client {p % CLIENT_COUNT}" for p in processes})
    for event in slices(events, CLIENTS):
        assert f"client {event['args']['process'] % CLIENT_COUNT}" == names[event["tid"]]


@given(histories())
def test_a_flow_leads_from_each_operation_to_its_attempts(history):
    events = events_of(history)
    flows = {}
    for event in events:
        if event.get("cat") == "flow":
            flows.setdefault(event["id"], {})[event["ph"]] = event
    attempts = [event for event in slices(events, NODES) if event["cat"] == "attempt"]
    operations = {event["args"]["index"]: event for event in slices(events, CLIENTS)}
    assert len(flows) == len(attempts)
    for flow, attempt in zip(flows.values(), attempts, strict=True):
        assert flow["s"]["tid"] == operations[attempt["args"]["op"]]["tid"]
        assert (flow["f"]["pid"], flow["f"]["tid"]) == (NODES, attempt["tid"])
        assert flow["s"]["ts"] == flow["f"]["ts"] == attempt["ts"]


def test_a_broken_rule_is_an_instant_at_the_failing_answer(tmp_path):
    history = History(
        [Op(0, 5, 0, OpType.INVOKE, "get", {"name": "t"}), Op(1, 9, 0, OpType.OK, "get", {})]
    )
    folder = sealed(tmp_path, history)
    results = [
        CheckResult("lin", Verdict.INVALID, "old", ("Why.",), (0,), {"rule": "stale-read"}),
        CheckResult("crash", Verdict.VALID, "fine"),
        CheckResult("live", Verdict.INVALID, "open: t", details={"rule": "converged"}),
    ]
    content = msgspec.json.encode({"checkers": results, "verdict": "invalid"})
    (folder / "results.json").write_bytes(content)
    trace = json.loads(TraceReporter().write(folder).read_bytes())
    events = [e for e in trace["traceEvents"] if e["pid"] == ANOMALIES and e["ph"] == "i"]
    assert [(e["name"], ns(e["ts"])) for e in events] == [
        ("lin: stale-read", 9),
        ("live: converged", 9),
    ]
    assert events[0]["args"] == {"reason": "old", "operations": [0]}


@given(histories(), st.integers(0, 60))
def test_times_rise_faults_begin_and_end_and_the_bound_holds(history, bound):
    whole = events_of(history)
    cut = events_of(history, events_max=bound)
    for events in (whole, cut):
        times = [event["ts"] for event in events if event["ph"] != "M"]
        assert sorted(times) == times
        edges = [(event["ph"], event["id"], event["name"]) for event in events if "id" in event]
        begun = [(identity, name) for side, identity, name in edges if side == "b"]
        assert len(set(begun)) == len(begun)
        assert sorted(begun) == sorted((i, name) for side, i, name in edges if side == "e")
        for identity, _ in begun:
            assert [event["ph"] for event in events if event.get("id") == identity] == ["b", "e"]
    counted = [event for event in cut if event["ph"] != "M" and "cut: " not in event["name"]]
    assert len(counted) <= bound
    told = [event for event in cut if event["name"].startswith("cut: ")]
    total = sum(event["ph"] != "M" for event in whole)
    assert (total > bound) == bool(told)


def test_tracks_of_phases_leaders_and_exits():
    history = History(
        [
            Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": "setup"}),
            Op(1, 10, HARNESS, OpType.INFO, "leader", {"node": "m1", "term": 1}),
            Op(2, 20, HARNESS, OpType.INFO, "phase", {"phase": "chaos"}),
            Op(3, 25, NEMESIS, OpType.INFO, "kill", inject("f1")),
            Op(4, 26, HARNESS, OpType.INFO, "node-exit", {"node": "m1", "expected": True}),
            Op(5, 30, HARNESS, OpType.INFO, "leader", {"node": "m2", "term": 2}),
            Op(6, 31, HARNESS, OpType.INFO, "node-exit", {"node": "m2", "expected": False}),
            Op(7, 40, HARNESS, OpType.INFO, "snapshot", {"huge": "x" * 9999}),
        ]
    )
    events = events_of(history)
    phases = [(e["name"], ns(e["ts"]), ns(e["dur"])) for e in slices(events, PHASES)]
    assert phases == [("setup", 0, 20), ("chaos", 20, 20)]
    leaders = [(e["name"], ns(e["ts"]), ns(e["dur"])) for e in slices(events, NODES)]
    assert leaders == [("m1 @ term 1", 10, 20), ("m2 @ term 2", 30, 10)]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    exits = [(names[e["pid"], e["tid"]], e["name"]) for e in events if e["name"][:4] == "exit"]
    assert exits == [("rpc to m1", "exit (expected)"), ("rpc to m2", "exit (NOT expected)")]
    faults = [(e["ph"], e["name"], ns(e["ts"])) for e in events if e["pid"] == FAULTS and "ts" in e]
    assert faults == [("b", "kill: m1", 25), ("e", "kill: m1", 40)]
    assert "x" * 100 not in json.dumps(events)


def inject(fault):
    return {"action": "inject", "fault": fault, "targets": ["m1"]}


def test_an_operation_given_up_says_so_and_one_without_an_answer_lasts_to_the_end():
    history = History(
        [
            Op(0, 1_000, 0, OpType.INVOKE, "create", {"table": "t"}),
            Op(1, 3_000, 0, OpType.INFO, "create", None, "TIMEOUT", "m1"),
            Op(2, 4_000, 1, OpType.INVOKE, "get"),
            Op(3, 9_000, 2, OpType.INVOKE, "get"),
        ]
    )
    first, second, third = slices(events_of(history), CLIENTS)
    assert first["name"] == "create (info: may act until the end)"
    assert (first["ts"], first["dur"], first["args"]["error"]) == (1.0, 2.0, "TIMEOUT")
    assert second["ts"] + second["dur"] == 9.0
    assert "get (info: open at the end of the run)" == second["name"] == third["name"]


def test_attempts_that_overlap_get_lanes_of_their_own():
    calls = (Attempt("m1", 0, 50, "ok"), Attempt("m1", 20, 30, "BUSY"), Attempt("m1", 60, 70, "ok"))
    history = History(
        [Op(0, 0, 0, OpType.INVOKE, "get"), Op(1, 80, 0, OpType.OK, "get", attempts=calls)]
    )
    events = events_of(history)
    names = tracks_of(events, NODES)
    told = [(names[e["tid"]], e["name"]) for e in slices(events, NODES)]
    assert told == [("rpc to m1", "get"), ("rpc to m1 (2)", "get: BUSY"), ("rpc to m1 (2)", "get")]


@pytest.mark.parametrize("time", [29, 57, 113, 1_001, 123_456_789_123, 2**52 + 1])
def test_times_survive_a_reader_that_cuts(time):
    history = History([Op(0, time, 0, OpType.INVOKE, "get")])
    assert [time] == [ns(event["ts"]) for event in slices(events_of(history), CLIENTS)]


def test_the_reporter_writes_whole_json_and_the_verb_packs_it(tmp_path, capsys):
    history = History([Op(0, 5, 0, OpType.INVOKE, "get", {"</script>": "\x00\u2028"})])
    folder = sealed(tmp_path, history)
    path = TraceReporter().write(folder)
    content = json.loads(path.read_bytes())
    assert folder / "trace.json" == path
    assert content["otherData"]["seed"] == 1
    packed = tmp_path / "t.json.gz"
    assert main(["trace", str(folder), "--output", str(packed)]) == 0
    assert str(packed) == capsys.readouterr().out.strip()
    assert content == json.loads(gzip.decompress(packed.read_bytes()))
    assert list(tmp_path.glob(".*.part")) + list(folder.glob(".*.part")) == []


def test_a_truncation_is_reported_in_the_file_and_on_stderr(tmp_path, capsys):
    history = History([Op(n, n, n, OpType.INVOKE, "get") for n in range(10)])
    path = tmp_path / "t.json"
    write_trace(trace_of(stored(history), events_max=4), path)
    text = "a trace has at most 4 events; it shows the first 4 of 10 operations"
    content = json.loads(path.read_bytes())
    assert text == content["otherData"]["cut"]
    assert text in capsys.readouterr().err
    assert [e["args"]["index"] for e in slices(content["traceEvents"], CLIENTS)] == [0, 1, 2, 3]


def test_bad_input_is_one_line(tmp_path, capsys):
    assert main(["trace", str(tmp_path / "none")]) == 254
    folder = sealed(tmp_path, History([]))
    assert main(["trace", str(folder), "--output", str(tmp_path)]) == 254
    below_a_file = folder / "case.json" / "b.json"
    assert main(["trace", str(folder), "--output", str(below_a_file)]) == 255
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("harness: ") for line in lines if "not finished" not in line) == 3
    assert "Traceback" not in "".join(lines)


def test_runs_make_no_trace_unless_asked():
    assert "trace" not in chosen_reporters("default")
    assert chosen_reporters("trace") == ["trace"]
    assert "trace" in chosen_reporters("all")
    assert chosen_reporters("none") == []
    with pytest.raises(UsageError, match="names 'tracer'"):
        chosen_reporters("tracer")


def test_a_reporter_that_does_not_load_is_tried_and_noted(monkeypatch, tmp_path, capsys):
    def broken(group, name):
        raise UsageError(f"the plug-in {name!r} of {group} does not load")

    monkeypatch.setattr(artefacts, "load_plugin", broken)
    assert "trace" in chosen_reporters("default")
    assert artefacts.make_artefacts(tmp_path, ["trace"]) == {}
    assert "'trace' of reporters does not load" in capsys.readouterr().err


def test_a_fault_begun_twice_is_two_whose_healings_end_the_oldest_first():
    history = History(
        [
            Op(0, 10, NEMESIS, OpType.INFO, "kill", inject("f1")),
            Op(1, 20, NEMESIS, OpType.INFO, "kill", inject("f1")),
            Op(2, 30, NEMESIS, OpType.INFO, "kill", inject("f1") | {"action": "heal"}),
            Op(3, 40, NEMESIS, OpType.INFO, "kill", inject("f1") | {"action": "heal"}),
        ]
    )
    told = [(e["ph"], ns(e["ts"])) for e in events_of(history) if e["ph"] != "M"]
    assert told == [("b", 10), ("b", 20), ("e", 30), ("e", 40)]
