"""Facts of a run, extracted from hand-written histories and compared with literal definitions."""

import time
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.case import Case
from harness.ops import History, ScheduledOp
from harness.plan.random_case import draw_case
from results.facts.extraction import extract
from results.facts.intervals import OUTAGE_NS_MIN, Outage, outages_of
from results.facts.schema import COLUMNS, FACT_TABLES, ddl, schema
from results.facts.setting import asked_nemeses, setting_of
from tests.results.report import oracle
from tests.results.report.histories import MS, Script, run_of
from tests.tiers import examples


def rows(history, table, **changes):
    return extract(run_of(**changes), history)[table].to_pylist()


def spans(history):
    """Return the start and the end of each fault, in ms."""
    return [(fault["start_ns"] // MS, fault["end_ns"] // MS) for fault in rows(history, "faults")]


# --- intervals -----------------------------------------------------------------------------------

STEP = OUTAGE_NS_MIN // 5  # a tenth of a second


class Try(NamedTuple):
    """One operation, from its invocation to its completion or to the end of the run."""

    start: int
    end: int
    completed: bool
    answered: bool


def outages(tries, end_ns):
    """Compute outages operation by operation."""
    answered = [item.completed and item.answered for item in tries]
    starts, ends = [item.start for item in tries], [item.end for item in tries]
    columns = np.array(starts, np.int64), np.array(ends, np.int64), np.array(answered, np.bool_)
    return outages_of(*columns, end_ns)


@st.composite
def tries(draw):
    """Draw operations on a grid of tenths of a second, up to eight seconds."""
    found = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, 60))
        length = draw(st.integers(0, 20))
        completed = draw(st.booleans())
        end = min(start + length, 80) if completed else 80
        answered = completed and draw(st.booleans())
        found.append(Try(start * STEP, end * STEP, completed, answered))
    return found


@settings(max_examples=examples(300))
@given(tries())
def test_outages_are_what_their_definition_says(operations):
    found = outages(operations, 80 * STEP)

    rows = [
        {"start": op.start, "end": op.end, "answered": op.answered, "line": op.completed or None}
        for op in operations
    ]
    expected = oracle.outages_of(rows, 80 * STEP)
    assert [(item.start, item.end, item.ended) for item in found] == expected
    for item in found:
        inside = [
            op
            for op in operations
            if item.start <= op.start < item.end
            or op.start < item.start < op.end
            # an operation that starts when an idle outage ends counts as tried during the outage
            or (item.ended == "idle" and op.start == item.end)
        ]
        assert item.tried == len(inside)


def test_an_outage_of_each_ending():
    second = 1_000_000_000

    def failing(start, end):
        return Try(start * second, end * second, True, False)

    answered = Try(9 * second, 10 * second, True, True)
    open_end = Try(20 * second, 30 * second, False, False)
    found = outages([failing(1, 2), failing(3, 4), failing(6, 7), answered, open_end], 30 * second)

    assert found == [
        # a gap of one second is bridged by the outage around it
        Outage(1 * second, 4 * second, 2, "idle"),
        Outage(6 * second, 7 * second, 1, "idle"),
        Outage(9 * second, 10 * second, 1, "answered"),
        Outage(20 * second, 30 * second, 1, "end"),
    ]


# --- facts of a run ------------------------------------------------------------------------------


def test_an_empty_history_has_all_tables():
    found = extract(run_of(), History([]))

    assert tuple(found) == FACT_TABLES
    for name, table in found.items():
        assert table.schema == schema(name)
        if name != "exposure_time":
            assert table.num_rows == 0
    assert [row["ns"] for row in found["exposure_time"].to_pylist()] == [0, 0]


def test_a_fault_is_active_from_its_injection_up_to_just_before_its_heal():
    script = Script()
    script.phase(0, "chaos")
    script.do(99, 99)
    script.do(100, 100)  # the line precedes the injection, but only the time counts, which is equal
    script.inject(100, "kill", "k1")
    script.do(100, 150)
    script.do(199, 250)
    script.heal(200, "kill", "k1", count=7)
    script.do(200, 210)
    history = script.history()

    counts = rows(history, "ops")
    assert sum(row["n"] for row in counts if row["active"] == "kill") == 3
    assert sum(row["n"] for row in counts if row["active"] == "") == 2
    fault = rows(history, "faults")[0]
    assert spans(history) == [(100, 200)]
    assert (fault["bite"], fault["hit"], fault["healed"]) == (7, True, True)


def test_overlapping_faults_of_one_nemesis_are_one_exposure_and_two_faults():
    script = Script()
    script.phase(0, "chaos")
    script.inject(100, "kill", "a")
    script.inject(200, "kill", "b")
    script.heal(300, "kill", "a")
    script.do(350, 360)
    script.heal(400, "kill", "b")
    script.do(500, 510)
    script.phase(1000, "heal-core")
    history = script.history()

    times = {row["active"]: row["ns"] for row in rows(history, "exposure_time")}
    assert times == {True: 300 * MS, False: 700 * MS}
    assert [row["active"] for row in rows(history, "exposure")] == [False, True]
    assert spans(history) == [(100, 300), (200, 400)]


def test_a_missed_fault_lasts_no_time_and_one_never_healed_lasts_to_the_end():
    script = Script()
    script.phase(0, "chaos")
    script.inject(100, "kill", "missed", targets=())
    script.do(150, 160)
    script.inject(200, "pause", "forever", targets=("m2", "m1"))
    script.do(300, 310)
    script.fact(900, "snapshot")
    missed, forever = rows(script.history(), "faults")

    assert spans(script.history()) == [(100, 100), (200, 900)]
    assert (missed["hit"], missed["healed"], forever["healed"]) == (False, False, False)
    assert forever["targets"] == "m1+m2"
    assert forever["bite"] is None
    assert [row["active"] for row in rows(script.history(), "ops")] == ["", "pause"]
    assert rows(script.history(), "recoveries") == []


def test_an_id_used_twice_is_healed_in_order_and_a_stray_heal_is_nothing():
    script = Script()
    script.heal(10, "kill", "k")
    script.inject(100, "kill", "k")
    script.inject(200, "kill", "k")
    script.heal(300, "kill", "k")
    script.heal(400, "kill", "k")
    script.heal(500, "kill", "k")

    assert spans(script.history()) == [(100, 300), (200, 400)]


def test_an_answer_at_the_moment_of_a_heal_precedes_it():
    """In virtual time, the last answer and the heal may have equal times; their order decides."""
    script = Script()
    script.inject(100, "kill", "k")
    script.do(150, 500, f="get")
    script.heal(500, "kill", "k")
    slow = script.invoke(600, f="get")
    script.end(900, slow, f="get")
    script.do(700, 800, kind="info", f="create")
    found = {row["f"]: row for row in rows(script.history(), "recoveries")}

    assert (found["get"]["first_try_ns"], found["get"]["first_ok_ns"]) == (100 * MS, 400 * MS)
    assert (found["create"]["first_try_ns"], found["create"]["first_ok_ns"]) == (200 * MS, None)


def test_operations_under_way_at_a_heal_count_as_tried_at_once():
    script = Script()
    script.inject(0, "kill", "k")
    waiting = script.invoke(100)
    never = script.invoke(150, f="get")
    script.heal(300, "kill", "k")
    script.end(450, waiting)
    found = {row["f"]: row for row in rows(script.history(), "recoveries")}

    assert (found["create"]["first_try_ns"], found["create"]["first_ok_ns"]) == (0, 150 * MS)
    assert (found["get"]["first_try_ns"], found["get"]["first_ok_ns"]) == (0, None)
    assert never


def test_outages_after_a_heal_count_only_those_it_fell_into():
    script = Script()
    script.inject(0, "kill", "k1")
    script.do(100, 2000, kind="info")
    script.heal(2000, "kill", "k1")
    script.do(2100, 3000)
    script.inject(3100, "kill", "k2")
    script.heal(3200, "kill", "k2")
    script.do(3300, 3310)
    script.inject(4000, "kill", "k3")
    script.do(4100, 6000, kind="info")
    script.heal(5000, "kill", "k3")
    script.fact(9000, "snapshot")
    first, second, third = rows(script.history(), "faults")

    assert first["mutation_outage_ns"] == 1000 * MS
    assert second["mutation_outage_ns"] == 0
    assert third["mutation_outage_ns"] is None  # the clients had given up
    assert [f["read_outage_ns"] for f in (first, second, third)] == [0, 0, 0]
    assert first["mutation_down_ns"] == 1900 * MS


def test_operations_without_completion_are_info_and_have_no_latency():
    script = Script()
    script.phase(0, "chaos")
    script.invoke(100)
    script.do(200, 203, node="m1")
    script.do(300, 300, kind="fail", error="NOT_THE_LEADER/X: text: more", value=None)
    script.do(400, 401, kind="fail", error="EXISTS: no", value={"result": "exists"})
    # a completion that repeats the request is not an answer
    script.do(500, 501, kind="info", value={"result": "exists"})
    found = rows(script.history(), "ops")

    names = ("type", "answered", "error_code", "node")
    assert [(*(r[name] for name in names), r["lat_bucket"] is None) for r in found] == [
        ("fail", False, "NOT_THE_LEADER/X", None, False),
        ("fail", True, "EXISTS", None, False),
        ("info", False, None, None, True),
        ("info", False, None, None, False),
        ("ok", True, None, "m1", False),
    ]
    assert rows(script.history(), "infos") == [
        {"run": "n/r", "f": "create", "nemesis": "none", "n": 2}
    ]


def test_the_first_leader_is_no_election():
    script = Script()
    script.fact(10, "leader", node="m1", term=1)
    script.inject(20, "kill", "k")
    script.fact(30, "leader", node="m2", term=2)
    script.fact(40, "snapshot")
    result = rows(script.history(), "elections")

    assert [(r["node"], r["term"], r["first"], r["active"]) for r in result] == [
        ("m1", 1, True, ""),
        ("m2", 2, False, "kill"),
    ]


def test_only_the_chaos_phase_is_exposure():
    script = Script()
    script.phase(0, "warm-up")
    script.do(10, 11)
    script.phase(100, "chaos")
    script.inject(200, "kill", "k")
    script.do(250, 260, kind="info")
    script.do(99, 120)
    script.phase(300, "heal-core")
    script.do(310, 320)
    script.heal(400, "kill", "k")
    result = rows(script.history(), "exposure")

    counts = {"n": 1, "ok": 0, "unanswered": 0, "info": 1}
    assert result == [{"run": "n/r", "nemesis": "kill", "f": "create", "active": True, **counts}]
    times = {row["active"]: row["ns"] for row in rows(script.history(), "exposure_time")}
    assert times == {False: 100 * MS, True: 100 * MS}


def test_strange_histories_make_facts_all_the_same():
    script = Script()
    script.fact(10, "leader", node=None, term="seven")
    script.fact(11, "leader")
    script.fact(12, "phase")
    script.inject(20, "a+b", "k", targets=("<script>",))
    script.heal(30, "a+b", "k", count="many")
    script.inject(40, "none", "k2")
    script.do(-5, 3, f="")
    found = extract(run_of(bugs=("x", "x")), script.history())

    assert [row["term"] for row in found["elections"].to_pylist()] == [None, None]
    assert found["faults"].to_pylist()[0]["bite"] is None


@pytest.mark.parametrize("said", [{"result": "exists"}, ["k", {"result": "exists"}]])
def test_a_definite_no_is_an_answer_with_and_without_a_key(said):
    script = Script()
    script.do(1, 2, "fail", value=said)
    script.do(3, 4, "fail", value=["k", {}])
    result = rows(script.history(), "ops")
    assert sorted((row["type"], row["answered"], row["n"]) for row in result) == [
        ("fail", False, 1),
        ("fail", True, 1),
    ]


def test_a_setting_may_ignore_the_bugs_and_the_profile():
    plain, bug = (Case(seed=1, bugs=bugs, profile="strict") for bugs in ((), ("B",)))
    relaxed = msgspec.structs.replace(bug, profile="relaxed")

    assert setting_of(bug, None, ["bugs"]) == setting_of(plain, None)
    assert setting_of(relaxed, None, ["bugs"]) != setting_of(plain, None)
    both = ["bugs", "profile"]
    assert setting_of(relaxed, None, both) == setting_of(plain, None, both)


def test_runs_of_given_operations_are_a_setting_of_their_own():
    def setting(**case):
        return setting_of(Case(**{"seed": 1, **case}), None)

    given_op = ScheduledOp(0, 0, "read", {})
    assert setting(seed=1) == setting(seed=2) != setting(seed=1, rate=50.0)
    assert setting(seed=1) == setting(seed=2, faults=())
    assert len({setting(), setting(ops=(given_op,)), setting(ops=(given_op, given_op))}) == 3


def test_a_run_of_1400_operations_takes_little_time():
    script = Script()
    script.phase(0, "chaos")
    for number in range(1400):
        if number % 100 == 0:
            script.inject(number * 25, "kill", f"k{number}")
        script.do(number * 25, number * 25 + 3 + number % 40, f=("get", "create")[number % 2])
        if number % 100 == 40:
            script.heal(number * 25 + 20, "kill", f"k{number - 40}")
    history = script.history()
    times = []
    while min(times, default=1.0) >= 0.15 and len(times) < 50:  # takes 20 ms on a quiet machine
        begin = time.process_time()
        extract(run_of(), History(list(history)))
        times.append(time.process_time() - begin)

    assert min(times) < 0.15, times


# --- schemas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COLUMNS)
def test_every_table_begins_with_the_run_and_has_a_ddl(name):
    found = schema(name)

    assert found.names[0] == "run"
    assert len(ddl(found).split(", ")) == len(found)
    assert f"`run` STRING, `{found.names[1]}`" in ddl(found)


def test_a_type_unknown_to_spark_is_refused():
    with pytest.raises(KeyError):
        ddl(pa.schema([("x", pa.float32())]))


def test_seeds_that_drew_their_nemeses_have_one_setting():
    case = Case(seed=1, nemeses=("a", "b", "c", "d"), draw=2, knobs={"x": 1})
    cases = [draw_case(msgspec.structs.replace(case, seed=seed), None) for seed in range(9)]

    assert len({case.nemeses for case in cases}) > 1
    assert {asked_nemeses(case) for case in cases} == {"1 to 2 of 4 nemeses"}
    (setting,) = {setting_of(case, None) for case in cases}
    assert setting_of(msgspec.structs.replace(cases[0], rate=1.0), None) != setting
