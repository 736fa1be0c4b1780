"""The checkers of rows accept correct stores, agree with brute force, and report broken rules."""

import itertools
import random
from functools import partial
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkers.rows.bank import BankSums
from checkers.rows.elle import ElleRows
from checkers.rows.model import Row
from checkers.rows.once import ExactlyOnce
from checkers.rows.problem import floors
from checkers.rows.reading import Look, Part, RowsHistory, rows_history
from checkers.rows.registers import LinearizableRows, SnapshotScans
from checkers.rows.sessions import ReadYourWrites
from harness.errors import HistoryError
from harness.ops import History, OpType, Verdict
from harness.permits import Permit, fact_of
from tests.checkers.rows.histories import apply, random_history, spoiled
from tests.support.histories import Writer
from tests.support.orders import has_order
from tests.tiers import examples

ALL = (LinearizableRows(), SnapshotScans(), ElleRows(), BankSums(), ExactlyOnce(), ReadYourWrites())
SEEDS = st.integers(0, 2**32)


def judge(checker: Any, history: History) -> Any:
    return checker.check(history, None, time_limit_s=300)


@given(SEEDS, st.booleans(), st.booleans(), st.integers(1, 3), st.sampled_from([0.0, 0.2, 0.4]))
@settings(max_examples=examples(60), deadline=None)
def test_a_plain_store_is_never_blamed(seed, bank, deletes, tablets, lost):
    tablets = 1 if bank else tablets
    history = random_history(seed, bank=bank, deletes=deletes, tablets=tablets, lost=lost)
    for checker in ALL:
        result = judge(checker, history)
        assert result.verdict is not Verdict.INVALID, result.explanation
        if result.verdict is Verdict.UNKNOWN:
            assert result.reason == "there was nothing to judge"


# --- oracles -----------------------------------------------------------------------------------


def cells(row: Any) -> Row:
    return None if row is None else tuple(sorted(row.items()))


def played(row: Any, part: Part, key: str) -> tuple[Any, bool]:
    """Return the row after one part of a write, and whether the part's answer fits."""
    legal = True
    for written in part.rows:
        if written.key == key:
            result, row = apply(row, written.step.kind, dict(written.step.cells))
            legal = legal and written.result in {None, result}
    return row, legal


def brute_linearizable(read: RowsHistory) -> bool:
    """Whether each row has some linear order, by trying all orders."""
    for table, keys in read.keys.items():
        for key in keys:
            items: list[tuple[int, float, Any]] = []
            for part in read.parts:
                if part.table == table and any(row.key == key for row in part.rows):
                    done = part.pair.completion
                    end = done.index if part.is_known and done else float("inf")
                    items.append((part.pair.invoke.index, end, part))
            for look in read.looks:
                for seen, row in read.seen_by(look) if look.is_latest else ():
                    if seen == key and look.table == table:
                        assert look.pair.completion is not None
                        call, end = look.pair.invoke.index, look.pair.completion.index
                        items.append((call, end, row))

            def after(row: Any, what: Any, key: str = key) -> list[Any]:
                if isinstance(what, Part):
                    then, legal = played(row, what, key)
                else:
                    then, legal = row, cells(row) == what
                return [then] if legal else []

            if not has_order(items, None, after):
                return False
    return True


def brute_snapshots(read: RowsHistory) -> bool:
    """Whether some choice of timestamps for the unknown parts explains all reads."""
    floor = floors(read)
    stamps = sorted(
        {item.timestamp for item in (*read.parts, *read.looks) if item.timestamp is not None}
        | {0, *floor.values()}
    )
    looks = [look for look in read.looks if look.timestamp is not None]
    for table, keys in read.keys.items():
        for key in keys:
            parts = [
                part
                for part in read.parts
                if part.table == table and any(row.key == key for row in part.rows)
            ]
            stamped = [(2 * (part.timestamp or 0), part) for part in parts if part.timestamp]
            lost = [part for part in parts if not part.timestamp]
            wanted = [
                (2 * (look.timestamp or 0) + 1, row)
                for look in looks
                if look.table == table
                for seen, row in read.seen_by(look)
                if seen == key
            ]
            places: list[list[Any]] = [
                [None, *(s for s in stamps if s >= floor[part.pair.invoke.index])] for part in lost
            ]
            if not any(
                brute_at(key, stamped, chosen, wanted) for chosen in chosen_orders(lost, places)
            ):
                return False
    return True


def chosen_orders(lost: list[Part], places: list[list[Any]]) -> Any:
    for choice in itertools.product(*places):
        taken = [
            (stamp, part) for stamp, part in zip(choice, lost, strict=True) if stamp is not None
        ]
        yield from itertools.permutations(taken)


def brute_at(key: str, known: Any, chosen: Any, wanted: Any) -> bool:
    # A lost part may take effect after any event: half a step later, and before the next event.
    events = [(at, 0, part) for at, part in known]
    events += [(2 * at + 1.5, n, part) for n, (at, part) in enumerate(chosen)]
    events += [(at, 0, row) for at, row in wanted]
    row = None
    for _, _, what in sorted(events, key=lambda event: event[:2]):
        if isinstance(what, Part):
            row, legal = played(row, what, key)
            if not legal:
                return False
        elif cells(row) != what:
            return False
    return True


def small(seed: int) -> History:
    rng = random.Random(seed)
    history = random_history(
        seed, count=rng.randint(3, 9), keys=2, processes=3, tablets=rng.randint(1, 2), lost=0.2
    )
    for _ in range(rng.randint(0, 2)):
        history = spoiled(history, rng) or history
    return history


@given(SEEDS)
@settings(max_examples=examples(300), deadline=None)
def test_linearizable_rows_says_what_brute_force_says(seed):
    history = small(seed)
    expected = brute_linearizable(rows_history(history))
    assert (judge(LinearizableRows(), history).verdict is Verdict.VALID) is expected


@given(SEEDS)
# in this seed, a lost delete would have to fall between a write and the read at its timestamp
@example(3628800)
@settings(max_examples=examples(300), deadline=None)
def test_snapshot_scans_says_what_brute_force_says(seed):
    history = small(seed)
    expected = brute_snapshots(rows_history(history))
    assert (judge(SnapshotScans(), history).verdict is Verdict.VALID) is expected


@given(SEEDS)
@settings(max_examples=examples(100), deadline=None)
def test_what_elle_refutes_no_snapshot_explains(seed):
    rng = random.Random(seed)
    history = random_history(seed, count=20, lost=0.0)
    history = spoiled(history, rng) or history
    if judge(ElleRows(), history).verdict is Verdict.INVALID:
        assert judge(SnapshotScans(), history).verdict is Verdict.INVALID


# --- each rule can fail, and is then reported ----------------------------------------------------


class Rows(Writer):
    """A writer of operations on rows of the table `r`, which by default has one tablet."""

    def write(
        self, process: int, rows: list[Any], timestamp: int | None, *results: str, **more: Any
    ) -> int:
        answered = list(results) or ["ok"] * len(rows)
        index = self.call(
            process, "write", {"table": "r", "nonce": f"{len(self.lines)}", "rows": rows}
        )
        positions = list(range(len(rows)))
        part = {"tablet": "T", "node": "t1", "timestamp": timestamp, "rows": positions, **more}
        value = {"table_id": "id", "rows": answered, "parts": [part]}
        self.ret(process, OpType.OK, value, "t1")
        return index

    def lose(self, process: int, rows: list[Any]) -> int:
        call = {"table": "r", "nonce": f"{len(self.lines)}", "rows": rows}
        return self.lost(process, "write", call)

    def read(self, process: int, key: str, row: Any, timestamp: int | None = None) -> int:
        index = self.call(process, "read", {"table": "r", "key": key})
        value = {"table_id": "id", "tablet": "T", "timestamp": timestamp, "row": row}
        self.ret(process, OpType.OK, value, "t1")
        return index

    def scan(self, process: int, rows: dict[str, Any], timestamp: int | None, **asked: Any) -> int:
        call = {"table": "r", "mode": "snapshot", "replica": "any", "at": None, **asked}
        index = self.call(process, "scan", call)
        part = {
            "tablet": "T", "node": "t1", "timestamp": timestamp,
            "rows": [list(row) for row in sorted(rows.items())],
        }  # fmt: skip
        value = {"table_id": "id", "timestamp": timestamp, "parts": [part]}
        self.ret(process, OpType.OK, value, "t1")
        return index


def up(key: str, value: str, **more: Any) -> list[Any]:
    return ["upsert", key, {"v": value, **more}]


def verdicts(h: Rows) -> dict[str, str]:
    """Map each checker that reports a violation to the rule that is broken."""
    rules = {}
    for checker in ALL:
        result = judge(checker, h.history)
        if result.verdict is Verdict.INVALID:
            assert result.explanation
            rules[result.checker] = result.details.get("rule", "")
    return rules


def test_a_stale_read_of_a_leader():
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    h.write(0, [up("a", "2")], 20)
    h.read(1, "a", {"v": "1"})
    assert verdicts(h) == {"linearizable-rows": "stale-row"}
    text = " ".join(judge(LinearizableRows(), h.history).explanation)
    assert "row 'a' of table 'r'" in text
    assert "(op 4, read" in text
    assert "by then the row has v = '2'" in text
    assert "With these it is a contradiction" in text


ONE, TWO = {"v": "1"}, {"v": "2"}
write, scan, read = (partial(methodcaller, name) for name in ("write", "scan", "read"))
BOTH = [write(0, [up("a", "1")], 10), write(0, [up("a", "2")], 20)]


@pytest.mark.parametrize(
    ("steps", "last", "rules"),
    [
        # the answer lacks the error of a row
        ([write(0, [["insert", "a", ONE]], 10)], write(0, [["insert", "a", TWO]], 20, "ok"),
         "linearizable-rows snapshot-scans"),
        # a snapshot lacks an acknowledged row
        ([write(0, [up("a", "1")], 10)], scan(1, {}, 10), "snapshot-scans:stale-row elle-rows"),
        # a snapshot contains a later write
        ([scan(1, {}, 5), write(0, [up("a", "1")], 10)], scan(1, {"a": ONE}, 9),
         "snapshot-scans elle-rows"),
        # Once one scan shows a lost write, all scans at that timestamp or later must show it.
        ([write(0, [up("b", "0")], 5), methodcaller("lose", 1, [up("a", "1")]),
          scan(2, {"a": ONE, "b": {"v": "0"}}, 10)],
         scan(2, {"b": {"v": "0"}}, 10), "snapshot-scans elle-rows"),
        # the timestamp of a lost write is above the last one that its process knew
        ([scan(1, {}, 10), methodcaller("lose", 1, [up("a", "1")]), scan(2, {}, 11),
          scan(2, {"a": ONE}, 12)],
         scan(2, {"a": ONE}, 10), "snapshot-scans elle-rows ..."),
        # the scan lacks one row of a group
        ([write(0, [up("a", "0", balance="5"), up("b", "0", balance="5")], 5)],
         scan(2, {"a": {"v": "0", "balance": "5"}}, None, mode="latest"), "bank-sums:sum"),
        # a row that was never written
        ([write(0, [up("a", "0")], 5)], scan(1, {"a": {"v": "0"}, "b": {"v": "0"}}, 10),
         "rows-exactly-once:phantom ..."),
        # a write that takes effect twice
        ([write(0, [up("a", "1")], 10), scan(1, {"a": ONE}, 10),
          write(0, [["delete", "a", {}]], 20), scan(1, {}, 20)],
         scan(1, {"a": ONE}, 30), "rows-exactly-once:took-twice snapshot-scans ..."),
        # a client's time goes backwards
        ([read(0, "b", None, 50)], write(0, [up("a", "1")], 40), "read-your-writes:causality"),
        ([scan(0, {}, 50)], scan(0, {}, 40), "read-your-writes:own-time"),
        # only a column that may have been dropped may be missing
        ([write(0, [["insert", "a", {"v": "1", "w": "1"}]], 10),
          methodcaller("lost", 1, "alter", {"name": "r", "nonce": "x", "steps": [["drop", "w"]]}),
          read(2, "a", ONE), scan(2, {"a": {"v": "1", "w": "1"}}, 20)],
         read(2, "a", {"w": "1"}), "linearizable-rows"),
        # only the leader must answer from the newest state
        ([*BOTH, scan(1, {"a": ONE}, None, mode="latest")],
         scan(1, {"a": ONE}, None, mode="latest", replica="leader"), "linearizable-rows:stale-row"),
        # a resent request gets an answer that differs from the first
        ([write(0, [up("a", "1")], 10, "ok", again=[[10, ["ok"]]])],
         write(0, [up("b", "1")], 20, "ok", again=[[20, ["ok"]], [21, ["ok"]]]),
         "rows-exactly-once:answered-twice"),
        ([], write(0, [["insert", "b", ONE]], 20, "ok", again=[[20, ["already-present"]]]),
         "rows-exactly-once:answered-twice"),
        # two writes with the same timestamp
        ([write(0, [up("a", "1")], 10)], write(1, [up("b", "2")], 10),
         "rows-exactly-once:one-timestamp"),
        # a client reads its own writes, unless it asks for a timestamp
        (BOTH, scan(0, {"a": ONE}, 15, mode="read-your-writes"),
         "read-your-writes:read-your-writes"),
        ([*BOTH, scan(1, {"a": ONE}, 15, mode="read-your-writes"), scan(0, {"a": ONE}, 15, at=15)],
         scan(0, {"a": ONE}, None, mode="read-your-writes"), "read-your-writes:read-your-writes"),
    ],
)  # fmt: skip
def test_the_last_step_breaks_these_rules(steps, last, rules):
    """`rules` names checkers, some with the broken rule; `...` allows further checkers."""
    h = Rows().play(steps)
    assert verdicts(h) == {}
    last(h)
    found = verdicts(h)
    wanted = dict(word.partition(":")[::2] for word in rules.removesuffix(" ...").split())
    assert set(found) >= set(wanted) if rules.endswith("...") else set(found) == set(wanted)
    for checker, rule in wanted.items():
        assert not rule or found[checker] == rule


def test_a_client_that_hung_leaves_a_write_of_unknown_outcome():
    h = Rows()
    h.write(0, [up("a", "0")], 5)
    call = {"table": "r", "nonce": "hung", "rows": [up("a", "1"), up("b", "1")]}
    h.call(1, "write", call)
    h.ret(1, OpType.INFO, call)
    h.read(2, "a", {"v": "1"}, 10)
    assert verdicts(h) == {}
    h.read(2, "a", {"v": "2"}, 12)
    assert verdicts(h) != {}


def test_half_of_a_lost_batch():
    h = Rows()
    h.write(0, [up("a", "0", balance="5"), up("b", "0", balance="5")], 5)
    h.read(1, "c", None, 6)
    h.lose(1, [up("a", "1", balance="9"), up("b", "1", balance="1")])
    h.scan(2, {"a": {"v": "1", "balance": "9"}, "b": {"v": "0", "balance": "5"}}, 10)
    assert set(verdicts(h)) >= {"bank-sums", "elle-rows"}
    assert "snapshot-scans" not in verdicts(h)
    text = " ".join(judge(BankSums(), h.history).explanation)
    assert "a = 9 and b = 5 which add up to 14" in text


def test_a_lost_write_of_unknown_tablets_is_as_many_parts_as_other_answers_show():
    h = Rows()
    for key, tablet in (("a", "T"), ("b", "U"), ("c", "U")):
        h.write(0, [up(key, "0")], 5 + ord(key), tablet=tablet)
    h.lose(1, [up("a", "1"), up("b", "1"), up("c", "1"), up("d", "1")])
    lost = [[row.key for row in part.rows] for part in rows_history(h.history).parts[3:]]
    assert lost == [["a"], ["b", "c"], ["d"]]


def test_rows_that_are_also_written_alone_are_no_group():
    h = Rows()
    h.write(0, [up("a", "0", balance="5"), up("b", "0", balance="5")], 5)
    h.write(0, [up("a", "1", balance="6")], 6)
    h.scan(2, {"a": {"v": "1", "balance": "6"}, "b": {"v": "0", "balance": "5"}}, 7)
    assert verdicts(h) == {}
    assert judge(BankSums(), h.history).verdict is Verdict.UNKNOWN
    case: Any = SimpleNamespace(workload_options={"groups": 0})
    assert BankSums().check(h.history, case, time_limit_s=1).verdict is Verdict.VALID


def test_a_row_that_was_refused_and_is_there():
    h = Rows()
    h.write(0, [["insert", "a", {"v": "1"}]], 10, "already-present")
    h.scan(1, {"a": {"v": "1"}}, 20)
    assert verdicts(h)["rows-exactly-once"] == "refused"


def test_a_row_that_was_seen_before_it_was_asked_for():
    h = Rows()
    h.write(0, [up("a", "0")], 5)
    h.scan(1, {"a": {"v": "1"}}, 10)
    h.write(0, [up("a", "1")], 9)
    assert verdicts(h) == {"rows-exactly-once": "too-early"}


def test_a_row_that_a_scan_shows_twice():
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    h.scan(1, {"a": {"v": "1"}}, 10)
    h.lines[-1].value["parts"][0]["rows"] *= 2
    assert verdicts(h) == {"rows-exactly-once": "one-timestamp"}


@pytest.mark.parametrize("lose", [False, True])
def test_later_changes_by_others_excuse_a_missing_own_row(lose):
    h = Rows()
    h.write(0, [up("a", "1")], 10)
    if lose:
        h.lose(1, [["delete", "a", {}]])
    h.scan(0, {}, None, mode="read-your-writes")
    assert ("read-your-writes" in verdicts(h)) is not lose


@pytest.mark.parametrize("name", ["r", "t"])
def test_a_lost_write_may_be_in_another_table_only_where_its_own_was_renamed(name):
    h = Rows()
    h.write(0, [up("a", "0")], 10)
    h.lose(1, [up("a", "1")])  # an answer to this write would identify the table
    h.lost(2, "rename", {"name": name, "new_name": "u", "nonce": "x"})
    h.call(3, "read", {"table": "s", "key": "a"})
    h.ret(3, OpType.OK, {"table_id": "other", "tablet": "O", "row": {"v": "1"}}, "t1")
    rules = verdicts(h)
    assert ("phantom" in rules.values()) is (name == "t")


def test_known_parts_of_a_partly_lost_operation_count():
    h = Rows()
    h.call(0, "write", {"table": "r", "nonce": "n", "rows": [up("a", "1"), up("b", "2")]})
    parts = [
        {"tablet": "T", "node": "t1", "timestamp": 10, "rows": [0]},
        {"tablet": "U", "node": None, "timestamp": None, "rows": [1]},
    ]
    h.ret(0, OpType.INFO, {"table_id": "id", "rows": ["ok", None], "parts": parts})
    assert verdicts(h) == {}
    h.read(1, "b", None)
    assert verdicts(h) == {}
    h.read(1, "a", None)
    assert verdicts(h) == {"linearizable-rows": "stale-row"}


def test_rows_that_failed_did_nothing():
    h = Rows()
    h.call(0, "write", {"table": "r", "nonce": "n", "rows": [up("a", "1"), up("b", "2")]})
    parts = [
        {"tablet": "T", "node": "t1", "timestamp": 10, "rows": [0]},
        {"tablet": "U", "node": None, "timestamp": None, "rows": [1]},
    ]
    h.ret(0, OpType.INFO, {"table_id": "id", "rows": ["ok", "failed"], "parts": parts})
    h.read(1, "b", {"v": "2"})
    assert set(verdicts(h)) == {"linearizable-rows", "rows-exactly-once"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"table_id": "id", "rows": [], "parts": []}, "rows must be 1 of"),
        ({"table_id": "id", "rows": [None], "parts": []}, "every row must have a result"),
        ({"table_id": "id", "rows": ["fine"], "parts": []}, "rows must be 1 of"),
        ({"table_id": "id", "rows": ["ok"], "parts": [{}]}, "does not match the vocabulary"),
    ],
)
def test_answers_outside_the_vocabulary_are_refused(value, words):
    h = Rows()
    h.call(0, "write", {"table": "r", "nonce": "n", "rows": [up("a", "1")]})
    h.ret(0, OpType.OK, value)
    with pytest.raises(HistoryError, match=words):
        rows_history(h.history)


# --- what a profile permits ----------------------------------------------------------------------


def permitting(*names: str) -> Rows:
    h = Rows()
    permits = [Permit(name=name, why="so it is") for name in names]
    h.fact("permits", fact_of("modern", permits))
    return h


def led(h: Rows, process: int, value: str, timestamp: int, node: str, term: int) -> int:
    index = h.write(process, [up("a", value)], timestamp)
    h.lines[-1].value["parts"][0] |= {"node": node, "term": term}
    return index


def looked(h: Rows, process: int, value: str, node: str, term: int) -> int:
    index = h.read(process, "a", {"v": value})
    h.lines[-1] = msgspec.structs.replace(h.lines[-1], node=node)
    h.lines[-1].value["term"] = term
    return index


@pytest.mark.parametrize(
    ("node", "term", "permits", "expected"),
    [
        ("t1", 1, ("stale-read",), Verdict.PERMITTED),
        ("t1", 1, (), Verdict.INVALID),
        ("t2", 2, ("stale-read",), Verdict.INVALID),  # the leader of the term was t2 itself
        # t2 has already answered in a later term
        (
            "t2",
            1,
            ("stale-read",),
            Verdict.INVALID,
        ),
        ("t1", 3, ("stale-read",), Verdict.INVALID),
    ],
)
def test_a_deposed_leader_may_answer_from_the_past(node, term, permits, expected):
    h = permitting(*permits)
    led(h, 0, "1", 10, "t1", 1)
    led(h, 0, "2", 20, "t2", 2)
    looked(h, 1, "1", node, term)
    result = judge(LinearizableRows(), h.history)
    assert result.verdict is expected
    if expected is Verdict.PERMITTED:
        assert result.details["permitted"] == {"stale-read": 1}
        assert result.operations == (5,)


def test_a_stale_leader_does_not_take_back_what_it_showed_nor_excuse_other_rows():
    h = permitting("stale-read")
    led(h, 0, "1", 10, "t1", 1)
    led(h, 0, "2", 20, "t1", 1)
    led(h, 0, "3", 30, "t2", 2)
    looked(h, 1, "1", "t1", 1)
    assert judge(LinearizableRows(), h.history).verdict is Verdict.INVALID
    h = permitting("stale-read")
    led(h, 0, "1", 10, "t1", 1)
    led(h, 0, "2", 20, "t2", 2)
    looked(h, 1, "1", "t1", 1)
    h.write(0, [up("b", "1")], 30)
    h.read(1, "b", None)
    assert judge(LinearizableRows(), h.history).verdict is Verdict.INVALID


@pytest.mark.parametrize("cut", [None, "between", "after"])
def test_a_power_cut_may_take_back_what_came_before_it(cut):
    h = permitting("lost-after-power-cut")
    h.write(0, [up("a", "1")], 10)
    value = {"action": "inject", "fault": "f1", "targets": ["t1"], "kind": "power-cut"}
    if cut == "between":
        h.nemesis("power-cut-all", value)
    h.read(1, "a", None)
    h.scan(1, {}, 30)
    if cut == "after":
        h.nemesis("power-cut-all", value)
    expected = Verdict.PERMITTED if cut == "between" else Verdict.INVALID
    for checker in (LinearizableRows(), SnapshotScans(), ElleRows()):
        assert judge(checker, h.history).verdict is expected


def test_a_long_history_needs_no_search():
    history = random_history(3, count=1500, keys=8, processes=8, lost=0.0)
    result = judge(LinearizableRows(), history)
    assert result.verdict is Verdict.VALID
    assert result.details["rows_searched"] == 0
    assert judge(SnapshotScans(), history).details["rows_searched"] == 0


def test_looks_are_of_the_parts_that_they_say():
    read = rows_history(random_history(5))
    assert all(isinstance(look, Look) for look in read.looks)
    assert {look.tablet for look in read.looks} <= {"T0", "T1"}
