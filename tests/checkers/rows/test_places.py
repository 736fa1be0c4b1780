"""Scans that skip a tablet, show a row in two tablets, or mix rows of different times."""

import random
from operator import methodcaller as do
from typing import Any

import msgspec
import pytest

from checkers.rows.elle import ElleRows
from checkers.rows.once import ExactlyOnce
from checkers.rows.registers import LinearizableRows, SnapshotScans
from checkers.rows.sessions import ReadYourWrites
from harness.ops import History, OpType, Verdict
from tests.checkers.rows.histories import random_history
from tests.checkers.rows.test_rows import Rows, judge, permitting, up, verdicts


def two_tablets() -> Rows:
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    h.write(0, [up("b", "1")], 11, tablet="U")
    return h


def test_a_scan_that_leaves_out_a_tablet_showed_it_empty():
    h = two_tablets()
    h.scan(1, {"a": {"v": "1"}}, 20, end="b")  # the scan did not ask for rows of the other tablet
    h.scan(1, {"a": {"v": "1"}}, 10, at=10)  # the other tablet had no rows at that time
    # any replica may answer, with a state of any age
    h.scan(1, {"a": {"v": "1"}}, None, mode="latest")
    assert verdicts(h) == {}
    h.scan(1, {"a": {"v": "1"}}, 20)
    assert verdicts(h) == {"snapshot-scans": "stale-row", "elle-rows": ""}
    h = two_tablets()
    h.scan(1, {"a": {"v": "1"}}, None, mode="latest", replica="leader")
    assert verdicts(h) == {"linearizable-rows": "stale-row"}


def test_a_scan_without_any_tablet():
    h = two_tablets()
    h.scan(1, {}, 20)
    h.lines[-1].value["parts"].clear()
    assert verdicts(h) == {"snapshot-scans": "stale-row", "elle-rows": ""}


def without_a_tablet(history: History, rng: random.Random) -> tuple[History, bool]:
    """Remove one tablet's rows from a scan; return the history, and whether that was possible."""
    lines = list(history)
    scans = [
        (place, number)
        for place, op in enumerate(lines)
        if op.type is OpType.OK and op.f == "scan"
        for number, part in enumerate(op.value["parts"])
        if part["rows"]
    ]
    if not scans:
        return history, False
    place, number = rng.choice(scans)
    parts = list(lines[place].value["parts"])
    del parts[number]
    value = {**lines[place].value, "parts": parts}
    lines[place] = msgspec.structs.replace(lines[place], value=value)
    return History(lines), True


def test_any_tablet_that_any_scan_leaves_out_is_missed():
    count = 0
    for seed in range(60):
        history = random_history(seed, lost=0.0, deletes=False, count=30)
        spoiled, is_spoiled = without_a_tablet(history, random.Random(seed))
        if not is_spoiled:
            continue
        checkers = (LinearizableRows(), SnapshotScans())
        results = [judge(checker, spoiled).verdict for checker in checkers]
        at_several = any(
            op.value["timestamp"] is None
            for op, before in zip(spoiled, history, strict=True)
            if op != before
        )
        assert Verdict.INVALID in results or at_several, seed
        count += Verdict.INVALID in results
    assert count > 40


# --- rows in the wrong tablet --------------------------------------------------------------------


def test_a_row_in_two_tablets():
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    h.write(0, [up("a", "2")], 11, tablet="U")
    assert verdicts(h) == {"rows-exactly-once": "two-places"}
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    h.write(0, [["update", "a", {"v": "2"}]], 11, "not-found", tablet="U")  # the row does not exist
    assert "rows-exactly-once" not in verdicts(h)


@pytest.mark.parametrize("moved", [None, "delete", "rename"])
def test_a_name_that_leads_to_two_tables(moved):
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    if moved is not None:
        h.lost(2, moved, {"name": "r", "nonce": "n", "new_name": "s"})
    h.read(1, "a", None, 20)
    h.lines[-1].value["table_id"] = "other"
    h.lines[-1].value["tablet"] = "O"
    assert verdicts(h) == ({} if moved else {"rows-exactly-once": "two-places"})


def test_a_scan_that_shows_more_than_it_was_asked_for():
    h = Rows()
    h.write(0, [up("a", "1"), up("b", "1")], 10)
    h.scan(1, {"b": {"v": "1"}}, 20, start="b")
    assert verdicts(h) == {}
    h.scan(1, {"a": {"v": "1"}, "b": {"v": "1"}}, 20, start="b")
    assert verdicts(h) == {"rows-exactly-once": "not-asked"}


def absent(h: Rows, f: str) -> None:
    """Add an answer to process 1: the table `r` does not exist."""
    call: dict[str, Any] = {"table": "r", "key": "a"}
    if f == "write":
        call = {"table": "r", "nonce": "w", "rows": [up("a", "1")]}
    h.call(1, f, call)
    h.ret(1, OpType.FAIL if f == "write" else OpType.OK, {"result": "not-found"})


@pytest.mark.parametrize("f", ["read", "scan", "write"])
def test_a_table_that_is_there_is_found(f):
    h = Rows()
    absent(h, f)
    h.call(0, "create", {"name": "r", "nonce": "n"})
    absent(h, f)  # the table may not exist yet
    h.ret(0, OpType.OK, {"result": "ok", "table_id": "id", "schema_version": 0})
    assert "rows-exactly-once" not in verdicts(h)
    absent(h, f)
    assert verdicts(h) == {"rows-exactly-once": "no-table"}
    permitted = permitting("stale-read")
    permitted.create(0, "r", "id")
    absent(permitted, f)
    assert verdicts(permitted) == {}


def test_a_table_that_may_have_been_deleted_need_not_be_found():
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    h.lost(2, "delete", {"name": "r", "nonce": "d"})
    absent(h, "read")
    assert verdicts(h) == {}


# --- rows of the wrong time ----------------------------------------------------------------------


def test_a_scan_at_another_time_than_it_named():
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    h.write(0, [up("a", "2")], 20)
    h.scan(1, {"a": {"v": "1"}}, 15, at=15)
    assert verdicts(h) == {}
    h.scan(1, {"a": {"v": "1"}}, 15, at=25)
    assert verdicts(h) == {"read-your-writes": "asked-time"}


@pytest.mark.parametrize(
    ("mode", "found"), [("latest", {}), ("snapshot", {"read-your-writes": "asked-time"})]
)
def test_tablets_of_one_scan_are_at_one_time(mode, found):
    h = two_tablets()
    h.scan(1, {"a": {"v": "1"}}, 20, mode=mode)
    part = {"tablet": "U", "timestamp": 21, "rows": [["b", {"v": "1"}]]}
    h.lines[-1].value["parts"].append(part)
    h.lines[-1].value["timestamp"] = None
    assert verdicts(h) == found


def test_scans_that_do_not_say_their_time_are_counted_as_exempt():
    h = Rows()
    h.scan(1, {}, None)
    h.scan(1, {}, 7)
    details = judge(ReadYourWrites(), h.history).details
    assert (details["exempt"], details["looked"]["asked-time"]) == ({"asked-time": 1}, 1)


# --- power cuts ----------------------------------------------------------------------------------

CUT = {"action": "inject", "fault": "f1", "targets": ["t1"], "kind": "power-cut"}


LINEARIZABLE, SNAPSHOTS, ELLE = LinearizableRows(), SnapshotScans(), ElleRows()
CUTS = do("nemesis", "power-cut-all", CUT)
DISKS_CUT = do("nemesis", "power-cut-all", {**CUT, "targets": [], "disks": ["t1"]})
ONE = {"a": {"v": "1"}}
WRITE, LATER = do("write", 0, [up("a", "1")], 10), do("write", 0, [up("a", "1")], 30)
THERE, GONE = do("read", 1, "a", {"v": "1"}), do("read", 1, "a", None)
ASK = do("call", 0, "write", {"table": "r", "nonce": "n", "rows": [up("a", "1")]})
PART = {"tablet": "T", "timestamp": 10, "rows": [0]}
ANSWER = do("ret", 0, OpType.OK, {"table_id": "id", "rows": ["ok"], "parts": [PART]})


@pytest.mark.parametrize(
    ("checker", "steps", "is_permitted"),
    [
        # the cut may lose WRITE, but not the write that followed the cut
        (LINEARIZABLE, [WRITE, CUTS, THERE, GONE, do("write", 0, [up("a", "2")], 20)], True),
        (LINEARIZABLE, [WRITE, CUTS, THERE, GONE, do("write", 0, [up("a", "2")], 20), GONE], False),
        # a contradiction that precedes the cut stays a contradiction
        (LINEARIZABLE, [WRITE, GONE, CUTS, GONE], False),
        # nodes that were already down lose power, too
        (LINEARIZABLE, [WRITE, DISKS_CUT, GONE], True),
        # an answer may arrive after its node lost power
        *((checker, [ASK, CUTS, ANSWER, do("read", 1, "a", None, 20)], True)
          for checker in (LINEARIZABLE, SNAPSHOTS, ELLE)),
        # a replica may show a lost row until it follows a leader that lacks the row
        *((checker, [*steps, do("scan", 1, ONE, 40), do("scan", 1, {}, later)], is_permitted)
          for checker in (SNAPSHOTS, ELLE)
          for later in (40, 41)
          for steps, is_permitted in (([WRITE, CUTS], True), ([CUTS, LATER], False))),
        # the contradiction names its first operations, which all precede the cut
        (ELLE, [WRITE, *(do("scan", 1, ONE, at) for at in range(11, 31)),
                do("write", 0, [up("a", "2")], 31), CUTS, do("scan", 1, ONE, 40)], True),
        # a write in progress during the cut may take effect after the cut
        (ELLE, [ASK, CUTS, do("scan", 1, ONE, 5), do("write", 2, [up("a", "2")], 10),
                do("scan", 1, ONE, 11), do("ret", 0, OpType.INFO, None)], True),
    ],
)  # fmt: skip
def test_a_power_cut_permits_what_it_may_have_lost(checker, steps, is_permitted):
    h = permitting("lost-after-power-cut").play(steps)
    expected = Verdict.PERMITTED if is_permitted else Verdict.INVALID
    assert judge(checker, h.history).verdict is expected


@pytest.mark.parametrize(
    ("when", "verdict"),
    [("before", Verdict.INVALID), ("during", Verdict.PERMITTED), ("after", Verdict.INVALID)],
)
def test_a_request_that_is_sent_again_after_a_power_cut_is_a_new_one(when, verdict):
    h = permitting("lost-after-power-cut")
    for moment in ("before", "during", "after"):
        if moment == "during":
            h.call(0, "write", {"table": "r", "nonce": "n", "rows": [up("a", "1")]})
        if moment == when:
            h.nemesis("power-cut-all", CUT)
        if moment == "during":
            part = {"tablet": "T", "timestamp": 10, "rows": [0], "again": [[20, ["ok"]]]}
            h.ret(0, OpType.OK, {"table_id": "id", "rows": ["ok"], "parts": [part]})
    assert judge(ExactlyOnce(), h.history).verdict is verdict


@pytest.mark.parametrize("when", ["during", "after"])
@pytest.mark.parametrize("kind", [OpType.OK, OpType.INFO])
def test_requests_resent_after_a_power_cut_may_take_effect(kind, when):
    h = permitting("lost-after-power-cut")
    part = {"tablet": "T", "timestamp": 20, "rows": [0]}
    answer = {"table_id": "id", "rows": ["ok"], "parts": [part]}
    h.call(0, "write", {"table": "r", "nonce": "n", "rows": [up("a", "1")]})
    h.read(1, "a", {"v": "1"})
    if when == "after":
        h.ret(0, kind, answer if kind is OpType.OK else None)
    h.nemesis("power-cut-all", CUT)
    h.read(1, "a", None)
    if when == "during":
        h.ret(0, kind, answer if kind is OpType.OK else None)
    h.read(1, "a", {"v": "1"})
    wanted = Verdict.PERMITTED if when == "during" else Verdict.INVALID
    assert judge(LinearizableRows(), h.history).verdict is wanted


@pytest.mark.parametrize("where", ["before", "between", "after"])
@pytest.mark.parametrize("old", ["0", None])
def test_changes_lost_in_a_power_cut_excuse_no_other_stretch(where, old):
    h = permitting("lost-after-power-cut")
    if old is not None:
        h.write(0, [up("a", old)], 5)
    clock = 10
    for moment in ("before", "between", "after"):
        h.write(0, [up("a", moment)], clock)
        if moment == where:  # the row disappears again, without a power cut
            h.scan(1, {} if old is None else {"a": {"v": old}}, clock + 1)
        h.nemesis("power-cut-all", CUT)
        h.scan(1, {} if old is None else {"a": {"v": old}}, clock + 2)
        clock += 10
    assert judge(ElleRows(), h.history).verdict is Verdict.INVALID


def test_once_checks_places_of_all_answers():
    history = random_history(11, count=60)
    looked = judge(ExactlyOnce(), history).details["looked"]
    assert looked["two-places"] > 50
    assert looked["not-asked"] > 20
