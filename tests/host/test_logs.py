"""Output lines of nodes are recognised as events, kept, or cut short."""

import re
import time

import pytest

from harness.environments.host import lines, logs
from harness.environments.host.lines import NodeLine, encode_line, parse_line
from harness.environments.host.logs import EventBus, NodeLog
from harness.errors import TargetError


def event(kind: str, **data) -> bytes:
    return encode_line(NodeLine(1, "event", kind, "a", data))


@pytest.fixture
def bus():
    bus = EventBus(pytest.fail)
    bus.seen = []
    bus.subscribe(lambda e: bus.seen.append((e.node, e.kind, e.data)))
    return bus


def test_events_are_found_in_any_pieces(bus, tmp_path):
    raw = event("leader", term=3) + b"plain text\n" + event("x") + b'{"level": "event"}\nlast'
    log = NodeLog("a", bus, tmp_path / "a.log")
    for place in range(len(raw)):
        log.feed(raw[place : place + 1])
    log.end_incarnation()
    log.close()

    assert bus.seen == [("a", "leader", {"term": 3}), ("a", "x", {})]
    assert log.tail(2) == ['{"level": "event"}', "last"]
    assert log.tail(0) == []
    assert (tmp_path / "a.log").read_bytes() == raw + b"\n"


def test_checkpoints_are_delivered_and_not_kept(bus, tmp_path):
    log = NodeLog("a", bus, tmp_path / "a.log")
    log.feed(event("checkpoint", group="g", index=1) + event("x"))
    log.close()

    assert [kind for _, kind, _ in bus.seen] == ["checkpoint", "x"]
    assert len(log.tail(9)) == 1
    assert (tmp_path / "a.log").read_bytes() == event("x")


@pytest.mark.parametrize(("said_ns", "late_ns"), [(400, 600), (1000, 0), (5000, 0)])
def test_events_say_how_late_they_came(monkeypatch, said_ns, late_ns):
    monkeypatch.setattr(logs.time, "time_ns", lambda: 1000)
    seen, bus = [], EventBus(pytest.fail)
    bus.subscribe(lambda e: seen.append(e.late_ns))
    NodeLog("a", bus, None).feed(encode_line(NodeLine(said_ns, "event", "x", "a", {})))

    assert seen == [late_ns]


def test_log_lines_are_no_events(bus):
    log = NodeLog("a", bus, None)
    log.feed(encode_line(NodeLine(1, "info", "log", "a", {"message": "hello"})))

    assert bus.seen == []
    assert "hello" in log.tail(1)[0]


def test_early_events_wait_for_the_first_subscriber(monkeypatch, caplog):
    monkeypatch.setattr(logs, "EARLY_EVENTS_MAX", 2)
    bus, seen = EventBus(pytest.fail), []
    for number in range(4):
        bus.publish("a", f"k{number}", {})
    bus.subscribe(lambda e: seen.append(e.kind))
    bus.publish("a", "later", {})

    assert seen[:2] == ["k0", "k1"]
    assert seen[-1] == "later"
    assert "before the first subscriber" in caplog.text


def test_the_file_is_bounded_and_says_so(bus, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LOG_BYTES_MAX", 20)
    log = NodeLog("a", bus, tmp_path / "a.log")
    for number in range(5):
        log.feed(b"line %d\n" % number)

    kept = (tmp_path / "a.log").read_text().splitlines()
    assert kept == ["line 0", "line 1", "[cut here: the log reached 20 bytes]"]
    assert log.tail(1) == ["line 4"]


def test_a_line_without_end_is_cut(bus, monkeypatch):
    monkeypatch.setattr(logs, "LINE_BYTES_MAX", 100)
    log = NodeLog("a", bus, None)
    log.feed(b"x" * 150)

    assert log.tail(1) == ["x" * 150]


def test_an_oversized_event_says_that_it_was_cut(monkeypatch):
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 200)
    line = parse_line(encode_line(NodeLine(1, "event", "big", "a", {"x": "y" * 500})).strip())

    assert line is not None
    assert (line.event, line.data["limit_bytes"]) == ("big", 200)


def test_data_that_json_cannot_say_is_traced_as_its_repr():
    line = parse_line(encode_line(NodeLine(1, "event", "odd", "a", {"x": range(3)})).strip())

    assert line is not None
    assert line.data == {"x": "range(0, 3)"}


@pytest.mark.parametrize("kind", ["x", "node-exited", "infrastructure", "leader", "checkpoint"])
def test_output_of_a_foreign_program_is_text(kind, tmp_path, bus):
    log = NodeLog("a", bus, tmp_path / "a.log", foreign=True)
    log.feed(event(kind, term="third", what="all", lasts=True))
    log.close()

    assert bus.seen == []
    assert kind in log.tail(1)[0]


def test_a_node_that_announces_events_of_the_driver_ends_the_run():
    failures, seen = [], []
    bus = EventBus(failures.append)
    bus.subscribe(lambda e: seen.append((e.kind, e.by_driver)))
    NodeLog("a", bus, None).feed(event("node-exited", code=0) + event("x"))
    bus.publish("a", "node-exited", {"code": 0})
    bus.hear("client", "config-forced", {"group": "g"})

    assert seen == [("x", False), ("node-exited", True), ("config-forced", True)]
    (failure,) = failures
    assert isinstance(failure, TargetError)
    assert "node 'a' announced the event 'node-exited'" in str(failure)


def test_text_of_foreign_programs_is_stamped_in_the_file_alone(tmp_path, bus):
    log = NodeLog("a", bus, tmp_path / "a.log", foreign=True)
    before_s = time.time()
    log.feed(b"up\n" + event("x"))
    log.close()

    assert log.tail(9)[0] == "up"
    stamped, structured = (tmp_path / "a.log").read_text().splitlines()
    at, text = stamped.split(" ")
    assert before_s - 1e-5 <= float(at.removeprefix("@")) <= time.time() + 1e-5
    assert (at[0], text) == ("@", "up")
    assert re.match(r'@[0-9.]+ {"ts_ns":1,', structured)
