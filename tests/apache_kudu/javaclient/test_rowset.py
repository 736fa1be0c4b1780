"""Outcomes of operations on rows, as far as the Java client's answers prove them."""

import pytest

from harness.ops import OpType
from harness.vocabularies.rows import Read, Scan, Write
from targets.apache_kudu.javaclient.attempts import read_frames
from targets.apache_kudu.javaclient.program import Reply
from targets.apache_kudu.javaclient.rowset import line_of, scanned, unanswered, written
from tests.apache_kudu.javaclient.frames import came, sent

WRITE = Write("r", "n1", [("insert", "k1", {"v": "a"}), ("delete", "k2", {})])
READ = Read("r", "k1")
MISSING = 'the table does not exist: table_name: "r"'
DOWN = ("NETWORK_ERROR", "connection closed")
ELSEWHERE = ("ILLEGAL_STATE", "Replica a is not leader of this config")


def row(tablet="A", code="OK", text="", timestamp=100):
    return {"tablet": tablet, "server": "s", "timestamp": timestamp, "code": code, "text": text}


def attempts(**by_tablet):
    """Build the attempts of each batch from outcomes: "ok", (code, text), or `None` (no answer)."""
    frames = []
    for call, (tablet, outcomes) in enumerate(by_tablet.items()):
        how = {"call": call, "method": "Write", "server": "s", "tablet": tablet}
        for outcome in outcomes:
            frames.append(sent(len(frames), **how))
            if outcome is not None:
                code, text = ("OK", "") if outcome == "ok" else outcome
                frames.append(came(len(frames), code, text, **how))
    return read_frames(frames)[0]


def judged(rows, sent_, terms=None, *, truncated=False):
    terms = {each["tablet"]: 3 for each in rows} if terms is None else terms
    answer = {"table_id": "i1", "rows": rows}
    return written(answer, sent_, {"A": "t1", "B": "t2"}, terms, truncated=truncated)


def test_a_write_of_two_tablets_has_two_parts():
    end = judged([row(), row("B", timestamp=200), row()], attempts(A=["ok"], B=["ok"]))
    assert end.type is OpType.OK
    assert end.value == {
        "table_id": "i1",
        "rows": ["ok", "ok", "ok"],
        "parts": [
            {"tablet": "A", "node": "t1", "term": 3, "timestamp": 100, "rows": [0, 2]},
            {"tablet": "B", "node": "t2", "term": 3, "timestamp": 200, "rows": [1]},
        ],
    }


@pytest.mark.parametrize(
    ("code", "text", "result"),
    [
        ("ALREADY_PRESENT", "key already present", "already-present"),
        ("NOT_FOUND", "key not found", "not-found"),
        ("NOT_FOUND", "Row not in tablet partition", "invalid"),
        ("INVALID_ARGUMENT", "no value for column", "invalid"),
    ],
)
def test_a_refused_row_is_unknown_if_a_hidden_attempt_may_be_the_reason(code, text, result):
    rows = [row(), row(code=code, text=text)]
    end = judged(rows, attempts(A=[ELSEWHERE, "ok"]))
    assert (end.type, end.value["rows"]) == (OpType.OK, ["ok", result])
    for hidden in (None, DOWN):
        end = judged(rows, attempts(A=[hidden, "ok"]))
        assert (end.type, end.value["rows"]) == (OpType.INFO, ["ok", None])
    assert judged(rows, attempts(A=["ok"]), truncated=True).value["rows"] == ["ok", result]


def test_a_part_without_an_answer_failed_only_if_no_attempt_may_have_an_effect():
    def results(sent_, code="ABORTED"):
        end = judged([row(code=code, timestamp=0)], sent_)
        assert end.value["parts"][0]["timestamp"] is None
        return end.type, end.value["rows"]

    assert results(attempts(A=[ELSEWHERE])) == (OpType.FAIL, ["failed"])
    assert results(attempts()) == (OpType.FAIL, ["failed"])
    assert results(attempts(A=[DOWN])) == (OpType.INFO, [None])
    assert results(attempts(A=[ELSEWHERE]), code="TIMED_OUT") == (OpType.INFO, [None])
    assert results(attempts(), code="NONE") == (OpType.INFO, [None])


def test_a_part_in_no_certain_term_is_of_unknown_outcome():
    end = judged([row(), row("B")], attempts(A=["ok"], B=["ok"]), {"A": 3})
    assert (end.type, end.value["rows"]) == (OpType.INFO, ["ok", None])
    assert end.value["parts"][1]["term"] is None


def test_a_write_of_which_one_part_failed_is_no_failure():
    end = judged([row(), row("B", "ABORTED", "x")], attempts(A=["ok"], B=[ELSEWHERE]))
    assert (end.type, end.value["rows"]) == (OpType.INFO, ["ok", "failed"])


def test_an_error_as_a_whole_is_unknown_once_the_rows_reached_the_client():
    error = ("TIMED_OUT", "time is up")
    assert unanswered(WRITE, Reply(None, error)).type is OpType.INFO
    assert unanswered(WRITE, Reply(None, error, begun=False)).type is OpType.FAIL
    assert unanswered(READ, Reply(None, error)).type is OpType.FAIL
    missing = Reply(None, ("NOT_FOUND", MISSING), begun=False)
    assert unanswered(WRITE, missing).type is OpType.FAIL
    assert unanswered(READ, missing).value == {"result": "not-found"}


def part(tablet="A", timestamp=500, rows=()):
    return {"tablet": tablet, "server": "s", "timestamp": timestamp, "rows": list(rows)}


def test_a_read_shows_the_row_of_its_only_tablet():
    answer = {"table_id": "i1", "parts": [part(rows=[["k1", {"v": "a"}]])]}
    end = scanned(READ, answer, {"A": "t1"}, {"A": 7})
    assert end.value == {
        "table_id": "i1",
        "tablet": "A",
        "term": 7,
        "timestamp": None,
        "row": {"v": "a"},
    }
    assert scanned(READ, {"table_id": "i1", "parts": [part()]}, {}, {"A": 7}).value["row"] is None
    two = {"table_id": "i1", "parts": [part(), part("B")]}
    assert scanned(READ, two, {}, {"A": 7, "B": 7}).type is OpType.FAIL


def test_the_timestamps_of_snapshots_include_their_writes():
    answer = {"table_id": "i1", "parts": [part(rows=[["k2", {}], ["k1", {}]]), part("B")]}
    value = scanned(Scan("r", "snapshot", "any"), answer, {"A": "t1"}, {"A": 7, "B": 7}).value
    assert value["timestamp"] == 499
    assert [each["term"] for each in value["parts"]] == [None, None]
    assert [each[0] for each in value["parts"][0]["rows"]] == ["k1", "k2"]
    assert line_of(Scan("r", "snapshot", "any", 499))["at"] == 500


def test_scans_of_the_latest_state_have_no_timestamp_and_only_leaders_have_a_term():
    answer = {"table_id": "i1", "parts": [part()]}
    value = scanned(Scan("r"), answer, {"A": "t1"}, {"A": 7}).value
    assert (value["timestamp"], value["parts"][0]["term"]) == (None, 7)
    value = scanned(Scan("r", "latest", "any"), answer, {"A": "t1"}, {"A": 7}).value
    assert (value["timestamp"], value["parts"][0]["term"]) == (None, None)
