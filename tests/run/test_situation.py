"""One sentence that describes the situation at a violation, for hand-written histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Case
from harness.ops import HARNESS, NEMESIS, CheckResult, History, Op, OpType, Verdict
from harness.timeline import faults_of, kind_of, reigns_of
from harness.verdict.explain import Timeline, explained
from harness.verdict.judge import judge
from tests.results.run.page.runs import Script, small_run


def of(history, *operations, verdict=Verdict.INVALID):
    """Return the sentence about a violation with these operations."""
    result = CheckResult("c", verdict, "because", ("As found.",), operations)
    sentence, *rest = explained(history, [result])[0].explanation
    assert rest in (["As found."], [])
    return sentence if rest else None


def index_of(history, f, time_ms):
    return next(
        op.index for op in history if op.f == f and op.time == time_ms * 1_000_000 and op.is_client
    )


def said_of(script, f, time_ms):
    """Return the sentence about the operation of this kind that was called at this time."""
    history = script.history()
    return of(history, index_of(history, f, time_ms))


def deposed(kind=None, *, term=True):
    """Build a history in which m1 was cut off, m2 leads, and m1 answers a read."""
    script = Script().fact(10, "leader", {"node": "m1", "term": 1})
    value = {"fault": "x-1", "targets": ["m1"], "note": ""} | ({"kind": kind} if kind else {})
    script.nemesis(100, "some-nemesis", action="inject", **value)
    script.fact(200, "leader", {"node": "m2", "term": 2})
    script.op(250, 260, 0, "write", {}, "ok", {}, node="m2")
    return script.op(300, 310, 1, "read", {}, "ok", {"term": 1} if term else [["r", 1, []]])


def test_explanations_name_the_answerer_the_leader_and_active_faults():
    history = deposed("cut").history()
    wanted = index_of(history, "read", 300)
    said = of(history, index_of(history, "write", 250), wanted)
    assert said == (
        f"m1 answered op {wanted} (read) in term 1 while m2 led in term 2; "
        "some-nemesis had cut m1 off since 0.1 s."
    )


def test_answers_without_terms_name_the_earlier_leader():
    said = said_of(deposed("cut", term=False), "read", 300)
    assert said.startswith("m1, leader of term 1 before, answered op ")
    assert "while m2 led in term 2" in said


def test_a_leader_that_was_only_asked_for_is_the_last_one_seen():
    script = Script().fact(10, "leader", {"node": "n1", "term": 0, "asked": True})
    script.op(20, 25, 0, "read", {}, "ok", 7, node="n2")
    history = script.history()
    said = of(history, index_of(history, "read", 20))
    assert said == (
        f"n2 answered op {index_of(history, 'read', 20)} (read) while n1 was the last seen to lead."
    )


def test_a_database_that_leads_without_terms_and_serves_no_client_is_not_named():
    script = Script().fact(10, "leader", {"node": "db", "term": 0})
    script.op(20, 25, 0, "read", {}, "ok", 7, node="n2")
    assert of(script.history(), index_of(script.history(), "read", 20)) is None
    script.nemesis(15, "kill", action="inject", fault="x-1", targets=["n1"], kind="kill")
    said = said_of(script, "read", 20)
    assert "answered op" in said
    assert "db" not in said


def test_two_leaders_of_one_term_are_both_named():
    script = Script().fact(10, "leader", {"node": "m1", "term": 2})
    script.fact(11, "leader", {"node": "m2", "term": 2})
    script.op(20, 25, 0, "read", {}, "ok", {"term": 2}, node="m3")
    history = script.history()
    first, second = reigns_of(history)
    assert (first.contested, second.contested, first.end) == (False, True, None)
    said = of(history, index_of(history, "read", 20))
    assert "while m1 led in term 2 and m2 led in term 2, too" in said


def test_a_leader_elected_after_the_call_is_not_a_stale_answerer():
    script = Script().fact(10, "leader", {"node": "m1", "term": 1})
    script.op(20, 60, 0, "read", {}, "ok", {"term": 2}, node="m2")
    script.fact(40, "leader", {"node": "m2", "term": 2})
    script.op(70, 75, 1, "read", {}, "ok", {"term": 1}, node="m1")
    history = script.history()
    elected, stale = (index_of(history, "read", at) for at in (20, 70))
    assert "m2, leader of term 2, answered" in of(history, elected)
    assert f"m1 answered op {stale} (read) in term 1 while m2 led" in of(history, elected, stale)


def test_the_index_of_the_completion_means_the_same_operation():
    history = deposed("cut").history()
    wanted = index_of(history, "read", 300)
    assert of(history, wanted) == of(history, wanted + 1)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cut", "had cut m1 off since 0.1 s"),
        ("kill", "had killed m1 at 0.1 s"),
        ("power-cut", "had cut the power of m1 at 0.1 s"),
        ("pause", "had paused m1 since 0.1 s"),
        ("clock of a plug-in", "had hit m1 since 0.1 s"),
        (None, "had hit m1 since 0.1 s"),
    ],
)
def test_a_fault_is_described_by_its_kind(kind, words):
    assert words in said_of(deposed(kind), "read", 300)


def test_a_fault_on_client_links_has_its_own_description():
    script = deposed(None)
    cut = {"fault": "x-2", "targets": ["m3"], "kind": "cut", "note": "cut client:1 from m3"}
    script.nemesis(150, "some-nemesis", action="inject", clients=["client:1"], **cut)
    said = said_of(script, "read", 300)
    assert "some-nemesis was active since 0.1 s (cut client:1 from m3)" in said
    assert "m3 off" not in said


@pytest.mark.parametrize(
    ("nemesis", "kind"),
    [
        ("pause-leader", "pause"),
        ("power-cut-leader", "power-cut"),
        ("kill-leader", "kill"),
        ("partition-halves", "cut"),
        ("clock-skew", "clock-skew"),
    ],
)
def test_only_histories_that_do_not_say_the_kind_are_read_by_name(nemesis, kind):
    def inject(value):
        return Op(0, 0, NEMESIS, OpType.INFO, nemesis, value)

    assert kind_of(inject({"action": "inject"})) == kind
    assert kind_of(inject({"action": "inject", "kind": "kill"})) == "kill"
    assert kind_of(inject(None)) == kind


def test_without_a_fault_the_last_one_is_named():
    script = Script().fact(10, "leader", {"node": "m1", "term": 1})
    hit = {"fault": "k-1", "targets": ["m2"], "note": ""}
    script.nemesis(20, "kill-random", action="inject", **hit)
    script.nemesis(30, "kill-random", action="heal", **hit)
    script.op(50, 60, 0, "read", {}, "ok", {})
    said = said_of(script, "read", 50)
    assert said.startswith("m1, leader of term 1, answered op ")
    assert said.endswith("no fault was active; the last, kill-random on m2, was healed at 0.0 s.")


def test_a_lost_answer_says_where_it_was_sent_and_who_led():
    history = small_run()
    said = of(history, index_of(history, "alter", 310))
    assert said.startswith(
        f"The answer to op {index_of(history, 'alter', 310)} (alter), sent to m1"
    )
    assert "while m1 led in term 1; partition-leader had cut m1 off since 0.3 s" in said


def test_a_result_about_a_moment_says_who_was_outside_and_who_touched_what_is_stuck():
    script = Script().fact(10, "leader", {"node": "m1", "term": 1})
    script.fact(20, "leader", {"node": "m2", "term": 2})
    kill = {"fault": "k-1", "targets": ["m1"], "note": "", "kind": "kill"}
    script.nemesis(30, "k", action="inject", **kill)
    script.fact(31, "node-exit", {"node": "m1", "code": -9, "expected": True, "log": []})
    script.op(40, 45, 0, "alter", {"name": "t7", "nonce": "n"}, "info", node="m2")
    script.op(50, 55, 1, "alter", {"name": "t8", "nonce": "n2"}, "ok", {}, node="m2")
    script.fact(60, "live", {"ok": False, "core": ["m2", "m3"], "missing": ["alter"]})
    script.fact(90, "converged", {"ok": False, "pending": ["table t7 (aa11) is ALTERING"]})
    history = script.history()
    live, converged = (next(history.facts(f)).index for f in ("live", "converged"))
    said = of(history, live)
    assert said.startswith("At 0.1 s m2 led in term 2; the core was m2 and m3, without m1; ")
    assert "m1 was down since 0.0 s" in of(history, live)
    assert "k had killed m1 at 0.0 s" in said
    stuck = of(history, converged)
    altered = index_of(history, "alter", 40)
    assert f"the stuck table was last changed by op {altered} (alter)" in stuck
    assert "whose answer was lost, during k-1" in stuck


def test_disturbances_of_the_harness_are_named():
    script = deposed("cut")
    script.fact(320, "heartbeat-gap", {"from_s": 0.29, "to_s": 0.305, "gap_s": 0.015})
    script.fact(240, "infrastructure", {"node": "m2", "what": "the engine was gone"})
    starved = {"from_s": 0.29, "to_s": 0.31, "waited_s": {"m2": 0.04, "m3": 0.05}}
    script.fact(310, "starvation", starved)
    said = said_of(script, "read", 300)
    assert "the harness itself did not run from 0.3 s to 0.3 s" in said
    assert "m2 and m3 waited for a processor until 0.3 s" in said
    assert said.endswith("the engine or host had failed at 0.2 s (the engine was gone).")
    quiet = said_of(script, "write", 250)
    assert "did not run" not in quiet
    assert "processor" not in quiet


def test_ids_of_tables_stand_beside_their_names():
    old, new, strange = ("a" * 32, "b" * 32, "c" * 32)
    script = Script()
    script.op(1, 2, 0, "create", {"name": "t1"}, "ok", {"table_id": old})
    script.op(3, 4, 0, "rename", {"name": "t1", "new_name": "t2"}, "ok", {"table_id": old})
    script.op(5, 6, 0, "list", {}, "ok", {"tables": [["t9", new, 0], ["t2", old, 0]]})
    text = f"Table {old} is not table {new} but table {strange} or tablet {new}"
    before = CheckResult("c", Verdict.INVALID, text, (f"{text}.",))
    (after,) = explained(script.history(), [before])
    assert after.reason == (
        f"Table 't1', later 't2' (id aaaaaa…) is not table 't9' (id bbbbbb…) "
        f"but table {strange} or tablet {new}"
    )
    assert after.explanation == (f"{after.reason}.",)


def test_valid_results_and_histories_without_facts_get_no_explanation():
    assert explained(small_run(), [result := CheckResult("c", Verdict.VALID, "fine")]) == (result,)
    bare = Script().op(1, 2, 0, "read", {}, "ok", {}).history()
    assert of(bare, 0) is None
    assert of(small_run(), verdict=Verdict.UNKNOWN) is None


def test_judging_puts_the_sentence_before_the_explanation():
    history = deposed("cut").history()
    wanted = index_of(history, "read", 300)

    class Accuser:
        api_version, name, doc = 1, "accuser", "says invalid"

        def check(self, history, case, *, time_limit_s):
            return CheckResult(self.name, Verdict.INVALID, "so", operations=(wanted,))

    (result,) = judge(history, Case(seed=1), [Accuser()]).results
    assert result.explanation[0].startswith(f"m1 answered op {wanted} ")
    assert result.explanation[1:] == ("so.",)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["m1", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["fault", "action", "targets", "node", "term", "core", "pending", "bite", "kind"]
            ),
            inner | st.sampled_from(["inject", "heal", "m1"]),
            max_size=5,
        )
    ),
    max_leaves=8,
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([HARNESS, NEMESIS]),
            st.sampled_from(["leader", "live", "converged", "node-exit", "phase", "kill", "log"]),
            VALUES,
        ),
        max_size=12,
    ),
    st.lists(st.integers(-1, 14), max_size=4),
)
def test_facts_of_any_shape_cost_no_verdict(lines, operations):
    history = History(
        Op(index, index, process, OpType.INFO, f, value)
        for index, (process, f, value) in enumerate(lines)
    )
    before = CheckResult("c", Verdict.INVALID, "because", ("As found.",), tuple(operations))
    # bypasses `explained`, which would hide errors
    sentence = Timeline.of(history).sentence(before)
    (after,) = explained(history, [before])
    assert after.explanation == ("As found.",) if sentence is None else (sentence, "As found.")
    assert len(faults_of(history)) <= len(lines)
