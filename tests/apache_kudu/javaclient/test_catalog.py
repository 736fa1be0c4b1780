"""Outcomes of operations on the catalog, as far as the Java client's answers prove them."""

import pytest

from harness.errors import UsageError
from harness.ops import OpType
from harness.vocabularies import ddl
from targets.apache_kudu.javaclient.attempts import read_frames
from targets.apache_kudu.javaclient.catalog import (
    Looks,
    answering,
    judge,
    line_of,
    unbounded,
    with_uuids,
)
from targets.apache_kudu.javaclient.program import Reply
from targets.apache_kudu.wire.tables import Version
from tests.apache_kudu.javaclient.frames import came, sent, sleeps

CREATE = ddl.Create("t", "n1", ["a"], 3, 3)
ALTER = ddl.Alter("t", "n2", [["add", "b"]])
RENAME = ddl.Rename("t", "u", "n3")
DELETE = ddl.Delete("t", "n4")
GET = ddl.Get("t")
EXISTS = "table t already exists with id i1"
MISSING = 'the table does not exist: table_name: "t"'
NO_COLUMN = "The specified column does not exist: b"
TABLE = {"table_id": "i1", "comment": "n1", "columns": ["a"], "column_ids": [11]}
IN_TERM = Looks(term=4)
METHODS = {"create": "CreateTable", "delete": "DeleteTable", "get": "GetTableSchema"}


def judged(call, said, *outcomes, looks=IN_TERM, truncated=False):
    """Judge an operation by its attempts' outcomes: "ok", (code, text), or `None` for no answer."""
    method = METHODS.get(call.f, "AlterTable")
    frames = []
    for outcome in outcomes:
        frames.append(sent(len(frames), method=method))
        if outcome is not None:
            code, text = ("OK", "") if outcome == "ok" else outcome
            frames.append(came(len(frames), code, text, method=method))
    attempts, _ = read_frames(frames)
    return judge(call, said, attempts, looks, truncated=truncated)


def refused(code, text):
    return Reply(None, (code, text))


DOWN = ("NETWORK_ERROR", "connection closed")
BUSY = ("SERVICE_UNAVAILABLE", "new table name t is already reserved")


@pytest.mark.parametrize(
    ("call", "code", "text", "result"),
    [
        (CREATE, "ALREADY_PRESENT", EXISTS, "exists"),
        (RENAME, "ALREADY_PRESENT", "table u already exists with id i2", "exists"),
        (RENAME, "NOT_FOUND", MISSING, "not-found"),
        (DELETE, "NOT_FOUND", MISSING, "not-found"),
        (ALTER, "NOT_FOUND", MISSING, "not-found"),
        (ALTER, "NOT_FOUND", NO_COLUMN, "invalid"),
        (ALTER, "ALREADY_PRESENT", "The column already exists: b", "invalid"),
    ],
)
def test_a_refusal_fails_unless_a_hidden_attempt_may_be_its_reason(call, code, text, result):
    said = refused(code, text)
    first = judged(call, said, (code, text))
    assert (first.type, first.value) == (
        OpType.FAIL,
        {"result": result, "revision": None, "term": 4},
    )
    assert judged(call, said, BUSY, (code, text)).value == first.value
    for hidden in (None, DOWN):
        again = judged(call, said, hidden, (code, text))
        assert (again.type, again.value) == (OpType.INFO, None)


def test_a_refusal_in_no_certain_term_fails_and_shows_nothing():
    end = judged(
        CREATE, refused("ALREADY_PRESENT", EXISTS), ("ALREADY_PRESENT", EXISTS), looks=Looks()
    )
    assert (end.type, end.value) == (OpType.FAIL, None)


def test_an_acknowledged_change_is_ok_whatever_came_before():
    end = judged(CREATE, Reply(TABLE, None), DOWN, "ok")
    assert (end.type, end.value["table_id"], end.value["term"]) == (OpType.OK, "i1", 4)
    assert judged(CREATE, Reply(TABLE, None), "ok", looks=Looks()).type is OpType.INFO


def test_a_create_whose_table_could_not_be_read_afterwards_is_of_unknown_outcome():
    assert judged(CREATE, refused("NOT_FOUND", MISSING), "ok").type is OpType.INFO


@pytest.mark.parametrize("code", ["TIMED_OUT", "OPEN"])
def test_a_client_whose_time_was_up_may_still_send_the_change(code):
    said = refused(code, "time is up")
    for outcomes in ((), (BUSY,), (None,)):
        assert judged(DELETE, said, *outcomes).type is OpType.INFO
    assert judged(DELETE, said, ("NOT_FOUND", MISSING)).type is OpType.FAIL


def test_a_client_that_gave_up_before_it_sent_the_change_did_nothing():
    said = refused("SERVICE_UNAVAILABLE", "Couldn't find a valid master")
    assert judged(DELETE, said).type is OpType.FAIL
    assert judged(DELETE, said, BUSY).type is OpType.FAIL
    assert judged(DELETE, said, truncated=True).type is OpType.INFO


def test_an_alter_has_a_version_if_no_other_change_came_between():
    said = Reply({"table_id": "i1"}, None)

    def version(before, after):
        return judged(ALTER, said, "ok", looks=Looks(4, before, after)).value["schema_version"]

    assert version(Version("i1", 5, True), Version("i1", 6, False)) == 6
    assert version(Version("i1", 5, True), Version("i1", 7, False)) is None
    assert version(Version("i0", 5, True), Version("i1", 6, False)) is None
    assert version(None, Version("i1", 6, False)) is None


def test_a_read_shows_columns_only_of_a_certain_version():
    looks = Looks(4, Version("i1", 5, True), Version("i1", 5, True))
    value = judged(GET, Reply(TABLE, None), "ok", looks=looks).value
    assert (value["columns"], value["applied_schema_version"], value["schema_version"]) == (
        ["a"],
        5,
        5,
    )
    value = judged(GET, Reply(TABLE, None), "ok").value
    assert (value["result"], value["comment"], "columns" in value) == ("ok", "n1", False)


def test_a_read_finds_a_table_missing_by_its_name_and_in_a_certain_term():
    missing = judged(GET, refused("NOT_FOUND", MISSING), DOWN, ("NOT_FOUND", MISSING))
    assert (missing.type, missing.value["result"]) == (OpType.OK, "not-found")
    by_id = ("NOT_FOUND", 'the table does not exist: table_id: "i1"')
    assert judged(GET, refused(*by_id), by_id).type is OpType.FAIL
    assert judged(GET, refused("TIMED_OUT", "x"), None).type is OpType.FAIL
    unproven = judged(GET, Reply(TABLE, None), "ok", looks=Looks())
    assert (unproven.type, unproven.value) == (OpType.FAIL, None)


def test_the_master_that_answered_is_the_last_one():
    frames = [sent(0), sleeps(1, *DOWN), sent(2, server="b"), came(3), sent(4, server="c")]
    assert answering("create", read_frames(frames)[0]).server == "b"
    assert answering("create", read_frames(frames[:1])[0]) is None


def test_lines_have_the_operation_and_its_arguments():
    assert line_of(RENAME) == {"f": "rename", "name": "t", "new_name": "u", "nonce": "n3"}
    assert line_of(ddl.List())["f"] == "list"


def test_ranges_of_tables_are_refused():
    for call in (
        ddl.Create("t", "n1", ["a"], 3, 3, ranges=[["a", "b"]]),
        ddl.Alter("t", "n2", [["add-range", "a", "b", ""]]),
    ):
        with pytest.raises(UsageError, match="ranges"):
            line_of(call)


def test_the_ends_of_the_key_space_have_no_bounds():
    def tablets(*ends):
        return [{"start": start, "end": end} for start, end in ends]

    assert unbounded(tablets(("00000000", "00000001"), ("00000001", "00000002"))) == tablets(
        ("", "00000001"), ("00000001", "")
    )
    assert unbounded(tablets(("", "61"), ("61", ""))) == tablets(("", "61"), ("61", ""))
    assert unbounded([]) == []


def test_located_replicas_get_uuids_only_where_they_are_certain():
    tablet = {"tablet_id": "T", "leader": "h:1", "replicas": ["h:1", "h:2"]}
    reply = Reply({"table_id": "i1", "tablets": [tablet, {**tablet, "leader": None}]}, None)
    first, second = with_uuids(reply, {"h:1": "a", "h:2": "b"}).answer["tablets"]
    assert (first["leader"], first["replicas"], second["leader"]) == ("a", ["a", "b"], None)
    unknown = with_uuids(reply, {"h:1": "a"})
    assert (unknown.answer, unknown.error[0]) == (None, "NO_UUID")
    failed = Reply(None, ("TIMED_OUT", "x"))
    assert with_uuids(failed, {}) is failed
