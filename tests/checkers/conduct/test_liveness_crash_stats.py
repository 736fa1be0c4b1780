"""The checkers `liveness`, `crash` and `stats`. `stats` also judges whether a run tested enough."""

from collections.abc import Callable, Sequence
from operator import methodcaller as do
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.conduct.crash import CrashChecker
from checkers.conduct.liveness import LivenessChecker
from checkers.conduct.load import Load
from checkers.conduct.stats import StatsChecker
from harness.ops import CheckResult, History, OpType, Verdict
from harness.permits import Permit, fact_of, permitted_in
from tests.checkers.catalog.stale_histories import permitting
from tests.support.histories import Writer, case

Step = Callable[[Writer], Any]

# --- liveness ---------------------------------------------------------------------------------


def live(h: Writer, ok: bool = True) -> int:
    missing = [] if ok else ["create", "alter"]
    value = {"ok": ok, "took_s": 1.5, "bound_s": 60.0, "missing": missing, "core": ["m1", "m2"]}
    return h.fact("live", value)


def converged(h: Writer, ok: bool = True) -> int:
    pending = [] if ok else ["tablet T is CREATING"]
    return h.fact("converged", {"ok": ok, "took_s": 2.0, "bound_s": 90.0, "pending": pending})


def liveness(h: Writer) -> CheckResult:
    return LivenessChecker().check(h.history, None, time_limit_s=300)


def test_live_and_settled_is_valid():
    h = Writer()
    live(h)
    converged(h)
    result = liveness(h)
    assert result.verdict is Verdict.VALID
    assert result.reason == "live after 1.5 s of 60 s and at rest after 2.0 s of 90 s"


@pytest.mark.parametrize(
    ("facts", "verdict", "words"),
    [
        ([], Verdict.UNKNOWN, "ended before"),
        ([live], Verdict.UNKNOWN, "ended before"),
        ([converged], Verdict.UNKNOWN, "ended before"),
        (
            [lambda h: live(h, ok=False), converged],
            Verdict.INVALID,
            "Within 60.0 s of healing (with m1, m2 healed) this did not succeed again: create,",
        ),
        ([lambda h: converged(h, ok=False)], Verdict.INVALID, "tablet T is CREATING"),
    ],
)
def test_a_promise_that_was_not_kept_or_not_looked_at_is_named(facts, verdict, words):
    h = Writer()
    indices = [fact(h) for fact in facts]
    result = liveness(h)
    assert result.verdict is verdict
    assert words in result.reason
    if verdict is Verdict.INVALID:
        assert result.operations == (indices[0],)


def failed(h: Writer, at_s: int = 60, **more: Any) -> int:
    """Add a probe that failed; by default 60 s after the heal."""
    h.at(at_s * 1_000)
    value = {"ok": False, "took_s": 60.0, "bound_s": 60.0, "missing": ["create"], "core": ["m1"]}
    return h.fact("live", {**value, **more})


HIGH = "REPLICATION_FACTOR_TOO_HIGH/INVALID_ARGUMENT"
BAD = "INVALID_SCHEMA/INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("asked_s", "missing", "error", "accepts", "verdict"),
    [
        (10, ["create", "alter"], HIGH, {"replicas": [1, 1]}, Verdict.UNKNOWN),
        (10, ["create", "alter"], BAD, {"columns": 1}, Verdict.UNKNOWN),
        (10, ["create", "alter"], HIGH, {"replicas": [1, 3]}, Verdict.INVALID),
        (10, ["create", "alter"], BAD, {"columns": 2}, Verdict.INVALID),
        (10, ["create", "alter"], BAD, {}, Verdict.INVALID),
        (10, ["alter"], HIGH, {"replicas": [1, 1]}, Verdict.INVALID),  # creates succeeded
        (10, [], HIGH, {"replicas": [1, 1]}, Verdict.INVALID),
        (0, ["create"], HIGH, {"replicas": [1, 1]}, Verdict.INVALID),  # asked before the healing
    ],
)
def test_a_probe_that_declared_limits_refuse_proves_nothing(
    asked_s, missing, error, accepts, verdict
):
    h = Writer()
    h.nemesis("kill", {"action": "inject", "fault": "f1", "targets": ["t1"]})
    h.at(asked_s * 1_000)
    h.call(1, "create", {"name": "p", "columns": ["v"], "partitions": 1, "replicas": 3})
    h.add(1, OpType.FAIL, "create", None, "m1", error=f"{error}: no")
    failed(h, at_s=65, missing=missing)
    converged(h)
    h.fact("snapshot", {"accepts": accepts})
    assert liveness(h).verdict is verdict


def at(time_s: float) -> Step:
    return do("at", round(time_s * 1000))


def gap(begin_s: float, end_s: float) -> Step:
    value = {"from_s": begin_s, "to_s": end_s, "gap_s": end_s - begin_s}
    return do("fact", "heartbeat-gap", value)


def phase(name: str) -> Step:
    return do("fact", "phase", {"phase": name})


ENGINE_FAILED = do("fact", "infrastructure", {"node": None, "what": "the engine did not answer"})
ENDED_BY_HOST = do("fact", "node-exit", {"node": "m1", "code": -9, "expected": False, "by": "host"})
STOPPED = do("fact", "infrastructure", {"node": "m1", "what": "m1 was stopped", "lasts": True})
CONTINUED = do("fact", "infrastructure", {"node": "m1", "what": "that is over", "over": True})


@pytest.mark.parametrize("f", ["live", "converged"])
def test_a_bound_that_was_passed_is_never_valid(f):
    h = Writer()
    for name in ("live", "converged"):
        took = 93.0 if name == f else 1.0
        h.fact(name, {"ok": True, "took_s": took, "bound_s": 90.0})
    result = liveness(h)
    assert result.verdict is Verdict.UNKNOWN
    assert "93.0" in result.reason
    assert result.details["rule"] == f


@pytest.mark.parametrize(
    ("steps", "took_s", "excuse"),
    [
        ([at(20), gap(10, 40)], 60, "did not run"),
        ([at(20), ENGINE_FAILED], 60, "engine"),
        ([at(20), ENDED_BY_HOST], 60, "host"),
        # No excuse if the bound of 60 s passes again, undisturbed, after the gap in the heartbeats.
        ([gap(61.5, 70)], 70, "did not run"),
        ([gap(3, 11.5)], 70, "did not run"),
        ([gap(0.5, 9)], 70, None),
        # A node that the harness starts again before the check is no excuse; any other node is.
        ([at(5), ENDED_BY_HOST, at(9), phase("heal-core")], 60, None),
        ([at(5), ENDED_BY_HOST, at(9), phase("heal-all")], 60, None),
        ([phase("heal-core"), at(5), ENDED_BY_HOST], 60, "host"),
        ([phase("heal-all"), at(5), ENDED_BY_HOST], 60, "host"),
        # A node that was stopped from outside excuses the failure until it continues.
        ([at(5), STOPPED], 60, "m1 was stopped"),
        ([at(5), STOPPED, CONTINUED], 60, None),
        # A disturbance that ended before the healing excuses nothing.
        ([at(9), gap(1, 9.9), phase("heal-core")], 60, None),
        ([at(9), ENGINE_FAILED, phase("heal-core")], 60, None),
    ],
)
def test_a_disturbance_within_the_bound_excuses_a_failed_probe(steps, took_s, excuse):
    h = Writer().play(steps)
    failed(h, at_s=70, took_s=took_s)
    converged(h)
    result = liveness(h)
    assert result.verdict is (Verdict.UNKNOWN if excuse else Verdict.INVALID)
    assert (excuse or "") in result.reason


@pytest.mark.parametrize(
    ("begin_s", "end_s", "verdict"),
    [
        (10, 17, Verdict.UNKNOWN),
        (10, 15, Verdict.INVALID),  # starved for less than a tenth of the bound
        (0, 4, Verdict.INVALID),
    ],
)
def test_nodes_that_get_no_processor_need_not_come_back_in_time(begin_s, end_s, verdict):
    for f in ("live", "converged"):
        h = Writer()
        h.fact("starvation", {"from_s": begin_s, "to_s": end_s, "waited_s": {"m1": 3.0}})
        h.at(65_000)
        for name in ("live", "converged"):
            took = 60.2 if name == f else 1.0
            h.fact(name, {"ok": name != f, "took_s": took, "bound_s": 60.0})
        result = liveness(h)
        assert result.verdict is verdict
        assert ("processors: m1 waited" in result.reason) is (verdict is Verdict.UNKNOWN)


def test_service_within_the_bound_counts_despite_a_gap():
    h = Writer()
    gap(0, 100)(h)
    live(h)
    converged(h)
    assert liveness(h).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ({"rest": ["m2"], "asked_late": ["m2"]}, Verdict.UNKNOWN),
        ({"rest": ["m2"], "asked_late": []}, Verdict.UNKNOWN),
        ({"rest": ["m2"], "asked_late": ["m1", "m2"]}, Verdict.INVALID),
        ({"rest": [], "asked_late": []}, Verdict.INVALID),
        ({}, Verdict.INVALID),
    ],
)
def test_a_probe_that_reached_no_core_node_never_convicts(asked, verdict):
    h = Writer()
    failed(h, **asked)
    converged(h)
    assert liveness(h).verdict is verdict


def test_equal_problems_are_listed_once_with_their_count() -> None:
    h = Writer()
    live(h)
    ids = ["03b6" + "0" * 28, "2056" + "0" * 28]
    pending = [f"{node} holds tablet {i}, which is lost" for i in ids for node in ("t2", "t1")]
    pending.append("table t7 is ALTERING")
    value = {"ok": False, "took_s": 2.0, "bound_s": 90.0, "pending": pending}
    h.fact("converged", value)
    assert liveness(h).reason.endswith(
        ": each of t1 and t2 holds tablet 03b600… and 205600…, which is lost (4 in all); "
        "table t7 is ALTERING."
    )


# --- crash ------------------------------------------------------------------------------------


def crash(h: Writer) -> CheckResult:
    return CrashChecker().check(h.history, None, time_limit_s=300)


@pytest.mark.parametrize(
    ("exits", "verdict"),
    [
        ([], Verdict.VALID),
        ([{"expected": True, "log": ["bye"]}], Verdict.VALID),
        ([{}], Verdict.INVALID),  # the exit is not marked as expected
        ([{"expected": False, "by": "itself"}], Verdict.INVALID),
        ([{"expected": False, "by": "host"}], Verdict.UNKNOWN),
        ([{"expected": False, "by": "unknown"}], Verdict.UNKNOWN),
        ([{"by": "host"}, {"node": "m2", "by": "itself"}], Verdict.INVALID),
    ],
)
def test_exits_are_the_nemesis_s_the_hosts_or_the_nodes_own(exits, verdict):
    h = Writer()
    indices = [h.fact("node-exit", {"node": "m1", "code": -9, **more}) for more in exits]
    result = crash(h)
    assert result.verdict is verdict
    assert result.operations == (() if verdict is Verdict.VALID else (indices[-1],))


def test_a_crash_shows_the_end_of_the_log():
    h = Writer()
    log = [f"line {n}" for n in range(50)]
    at = h.fact("node-exit", {"node": "m2", "code": 1, "expected": False, "log": log})
    result = crash(h)
    assert result.verdict is Verdict.INVALID
    assert result.operations == (at,)
    first, end = result.explanation
    assert first == "m2 exited with code 1 at 0.000 s; the last line of its log: line 49."
    assert end.splitlines() == ["The log of m2 ends with:", *log[-10:]]


def test_a_crash_begins_with_its_cause() -> None:
    h = Writer()
    log = ["Traceback (most recent call last):", '  File "a.py"', "ValueError: disk full", ""]
    for node in ("m2", "m3"):
        h.fact("node-exit", {"node": node, "code": 1, "expected": False, "log": log})
    result = crash(h)
    assert result.reason.startswith("m2 exited with code 1 at 0.000 s: disk full (and 1 more")
    assert result.explanation[0] == "m2 exited with code 1 at 0.000 s: disk full."
    assert len(result.explanation) == 4


@pytest.mark.parametrize(
    ("node", "after_ms", "verdict"),
    [
        ("m2", 0, Verdict.UNKNOWN),
        (None, 5_000, Verdict.UNKNOWN),
        ("m1", 0, Verdict.INVALID),  # the failure is on another node
        ("m2", 60_000, Verdict.INVALID),  # the failure is at another time
    ],
)
def test_an_exit_beside_a_failure_of_the_infrastructure_is_unknown(node, after_ms, verdict):
    for infrastructure_first in (True, False):
        h = Writer()
        facts = [
            ("infrastructure", {"node": node, "what": "the log stream broke"}),
            ("node-exit", {"node": "m2", "code": None, "expected": False}),
        ]
        for f, value in facts if infrastructure_first else reversed(facts):
            h.fact(f, value)
            h.at(after_ms + 1)
        assert crash(h).verdict is verdict


@pytest.mark.parametrize(
    ("node", "at_ms", "healed", "verdict"),
    [
        ("m1", 100, True, Verdict.VALID),
        # a fault may end the node up to 10 s after its heal
        (
            "m1",
            1_000 + 9_000,
            True,
            Verdict.VALID,
        ),
        ("m1", 1_000 + 11_000, True, Verdict.INVALID),
        ("m1", 60_000, False, Verdict.VALID),
        ("m1", 0, True, Verdict.INVALID),  # the exit precedes the fault
        ("m2", 100, True, Verdict.INVALID),
    ],
)
@pytest.mark.parametrize("may_end", [True, False])
def test_an_end_under_a_fault_that_may_end_nodes_is_excused_and_no_other(
    node, at_ms, *, healed, verdict, may_end
):
    h = Writer()
    value = {"action": "inject", "fault": "f1", "targets": ["m1"], "note": ""}
    steps: list[tuple[int, Any]] = [
        (50, lambda: h.nemesis("disk", {**value, "may_end": may_end})),
        (at_ms, lambda: h.fact("node-exit", {"node": node, "code": 1, "expected": False})),
    ]
    if healed:
        steps.append((1_000, lambda: h.nemesis("disk", {**value, "action": "heal"})))
    for time_ms, step in sorted(steps, key=lambda pair: pair[0]):
        h.at(time_ms)
        step()
    result = crash(h)
    assert result.verdict is (verdict if may_end else Verdict.INVALID)
    assert result.details["excused"] == (result.verdict is Verdict.VALID)


# --- stats ------------------------------------------------------------------------------------


def busy(
    reads: int = 7, leaders: Sequence[dict[str, Any]] = ({"node": "m1", "term": 1},)
) -> Writer:
    h = Writer()
    h.fact("phase", {"phase": "warm-up"})
    for leader in leaders:
        h.fact("leader", leader)
    for n in range(4):
        h.create(1, f"t{n}", f"T{n}")
    h.fact("phase", {"phase": "chaos"})
    for n in range(3):
        h.delete(2, f"t{n}", f"T{n}")
    for _ in range(reads):
        h.get(3, "t3", "T3")
    h.fail(3, "get", {"name": "t3"}, None)
    h.lost(4, "create", {"name": "z", "nonce": "zz", "columns": []})
    h.fact("snapshot", {})
    return h


def inject(h: Writer, fault: str = "f1", targets: tuple[str, ...] = ("m1",)) -> None:
    value = {"action": "inject", "fault": fault, "targets": list(targets), "note": ""}
    h.nemesis("kill-leader", value)


def heal(h: Writer, count: int | None, fault: str = "f1") -> None:
    value = {
        "action": "heal",
        "fault": fault,
        "targets": ["m1"],
        "note": "",
        "bite": {"count": count, "unit": "processes"},
    }
    h.nemesis("kill-leader", value)


def stats(h: Writer, *nemeses: str) -> CheckResult:
    return StatsChecker().check(h.history, case(*nemeses), time_limit_s=300)


@pytest.mark.parametrize(
    ("lacks", "succeeds", "verdict"),
    [
        (("add-master",), False, Verdict.PERMITTED),
        (("add-master",), True, Verdict.VALID),
        (("remove-master",), False, Verdict.UNKNOWN),
        ((), False, Verdict.UNKNOWN),
    ],
)
def test_operations_that_a_profile_lacks_need_not_succeed(lacks, succeeds, verdict):
    h = busy()
    for _ in range(2):
        h.fail(5, "add-master", {"node": "m4"}, None)
    if succeeds:
        h.call(5, "add-master", {"node": "m4"})
        h.ret(5, OpType.OK, {"result": "ok"})
    history = permitting(h.history, "offline-members", lacks=lacks)
    result = StatsChecker().check(history, case("none"), time_limit_s=300)
    assert result.verdict is verdict, result
    expected = {"offline-members": 2} if verdict is Verdict.PERMITTED else {}
    assert permitted_in(result) == expected
    assert result.details["certificate"]


def test_a_busy_run_without_faults_is_valid_and_counted():
    result = stats(busy(), "none")
    assert result.verdict is Verdict.VALID, result
    details = result.details
    assert details["by_f"]["create"] == {"info": 1, "ok": 4}
    assert details["by_f"]["get"] == {"fail": 1, "ok": 7}
    assert details["by_phase"]["warm-up"] == {"create ok": 4}
    assert details["by_phase"]["chaos"]["delete ok"] == 3
    assert details["errors"] == {"create info TIMED_OUT": 1}
    assert details["latencies_ms"]["create"] == {
        "p50_ms": 1.0, "p90_ms": 1.0, "p99_ms": 1.0, "p100_ms": 1.0
    }  # fmt: skip
    certificate = details["certificate"]
    assert certificate["operations"] == {"fail": 1, "info": 1, "ok": 14}
    assert certificate["ok_by_kind"] == {"create": 4, "delete": 3, "get": 7}
    assert certificate["acknowledged_changes"] == 7
    assert certificate["ok_by_phase"] == {"warm-up": 4, "chaos": 10}
    assert certificate["unknown_outcomes"] == 1
    assert certificate["leaders"] == "m1@1"
    assert certificate["changes_of_leader"] == 0


def test_a_fault_that_bit_is_certified_with_what_was_in_flight():
    h = busy()
    h.call(7, "get", {"name": "a"})
    inject(h)
    h.ret(7, OpType.OK, {"result": "not-found"})
    h.fact("leader", {"node": "m2", "term": 2})
    heal(h, 1)
    result = stats(h, "kill-leader")
    assert result.verdict is Verdict.VALID, result
    fault = result.details["faults"][0]
    assert (fault["in_flight_begin"], fault["in_flight_end"]) == (1, 0)
    assert fault["bite"] == {"count": 1, "unit": "processes"}
    certificate = result.details["certificate"]
    assert certificate["changes_of_leader"] == 1
    assert certificate["faults_by_nemesis"] == {"kill-leader": "1 injected, 1 with a target, 1 bit"}
    assert "1 process; 1 operation in flight at its start, 0 at its end" in certificate["faults"][0]


def test_how_soon_after_their_events_faults_struck_is_certified():
    h = busy()
    for number in range(1, 21):
        value = {"action": "inject", "fault": f"f{number}", "targets": ["m1"], "note": ""}
        h.nemesis("kill-leader", {**value, "after_event_ms": float(number)})
        heal(h, 1, f"f{number}")
    certificate = stats(h, "kill-leader").details["certificate"]
    assert certificate["faults_at_events"] == "20 faults struck, 95 % within 19.0 ms of the event"


@pytest.mark.parametrize(
    ("terms", "expected"), [((), "not observed"), ((1,), "not observed"), ((1, 2), "at least 1")]
)
def test_unannounced_leader_changes_are_not_counted_as_zero(terms, expected):
    h = busy(leaders=[{"node": "n1", "term": term, "asked": True} for term in terms])
    assert stats(h).details["certificate"]["changes_of_leader"] == expected


def test_too_few_changes_are_unknown_and_reads_alone_have_nothing_to_lose():
    h = Writer()
    h.create(1, "a", "A")
    reads = Writer()
    for writer in (h, reads):
        for _ in range(10):
            writer.get(1, "a", None)
        writer.fact("snapshot", {})
    result = stats(h)
    assert result.verdict is Verdict.UNKNOWN
    assert "acknowledged changes: 1;" in result.reason
    assert stats(reads).verdict is Verdict.UNKNOWN
    assert stats(reads).details["rule"] == "few-changes"


def without_final_reads(h: Writer) -> None:
    h.lines = [op for op in h.lines if op.f != "snapshot"]


def empty(h: Writer) -> None:
    h.lines.clear()


RENAME = {"name": "a", "new_name": "b", "nonce": "r"}


@pytest.mark.parametrize(
    ("steps", "nemeses", "reason"),
    [
        ([do("fact", "interrupted", {"phase": "chaos"})], "none", "the user cut the run short"),
        ([empty], "none", "no operation was invoked at all"),
        ([empty, do("get", 1, "a", None)], "none", "only 1 operation succeeded; fewer than 10"),
        ([without_final_reads], "none", "the run ended before its final reads"),
        ([do("fail", 5, "rename", RENAME, None)], "none", "no 'rename' ever succeeded (1 fail)"),
        ([], "kill-leader", "the nemesis kill-leader was never injected"),
        ([lambda h: inject(h, targets=())], "kill-leader", "injected 1 time, but had no target"),
        ([inject, lambda h: heal(h, 0)], "kill-leader", "hit 1 time without measurable effect"),
        ([inject, lambda h: heal(h, 3)], "kill-leader pause-leader",
         "the nemesis pause-leader was never injected"),
    ],
)  # fmt: skip
def test_a_run_that_proves_too_little_is_unknown_and_says_why(steps, nemeses, reason):
    h = busy().play(steps)
    result = stats(h, *nemeses.split())
    assert result.verdict is Verdict.UNKNOWN
    assert reason in result.reason


def test_faults_that_a_search_made_may_hit_nothing():
    judge = StatsChecker().check
    for searched, verdict in ((False, Verdict.UNKNOWN), (True, Verdict.VALID)):
        asked = case("kill-leader", planned=("pause-leader",), searched=searched)
        assert judge(busy().history, asked, time_limit_s=300).verdict is verdict


def test_only_operations_and_nemeses_of_the_chaos_count():
    assert stats(busy(reads=6)).reason.startswith("only 9 operations succeeded during chaos")
    # a user has edited the faults of the case
    planned = case("none", planned=("pause-leader",))
    result = StatsChecker().check(busy().history, planned, time_limit_s=300)
    assert result.reason == "the nemesis pause-leader was never injected"


@pytest.mark.parametrize(("node", "verdict"), [("m1", Verdict.UNKNOWN), ("m2", Verdict.VALID)])
def test_a_pause_ended_by_others_proves_nothing(node, verdict):
    h = busy()
    value = {"action": "inject", "fault": "f1", "targets": ["m1"], "note": "", "kind": "pause"}
    h.nemesis("pause-leader", value)
    h.fact("infrastructure", {"node": node, "what": "ended", "lasts": True, "undid": "pause"})
    bite = {"count": 1, "unit": "processes"}
    h.nemesis("pause-leader", {**value, "action": "heal", "bite": bite})
    result = stats(h, "pause-leader")
    assert result.verdict is verdict
    assert result.details.get("rule") == (None if verdict is Verdict.VALID else "no-bite")


def test_a_fault_ended_by_others_does_not_count_as_bitten():
    h = busy()
    value = {"action": "inject", "fault": "f1", "targets": ["m1"], "note": "", "kind": "cut"}
    h.nemesis("cut", value)
    bite = {"bite": {"count": 9, "unit": "bytes"}}
    h.nemesis("cut", {**value, "action": "heal", "undone": True, **bite})
    result = stats(h, "cut")
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "no-bite")
    certificate = result.details["certificate"]
    assert "0 bit" in certificate["faults_by_nemesis"]["cut"]
    assert "from outside" in certificate["faults"][0]
    h.nemesis("cut", {**value, "fault": "f2"})
    h.nemesis("cut", {**value, "fault": "f2", "action": "heal", **bite})
    assert stats(h, "cut").verdict is Verdict.VALID


def test_an_unmeasurable_bite_is_not_assumed():
    h = busy()
    inject(h)
    heal(h, None)
    result = stats(h, "kill-leader")
    assert result.verdict is Verdict.UNKNOWN
    assert "the effect of kill-leader was not measurable here" in result.reason
    inject(h, "f2")
    heal(h, 2, "f2")
    assert stats(h, "kill-leader").verdict is Verdict.VALID


@pytest.mark.parametrize("counts", [[None, 0], [0, None]])
def test_an_unmeasured_fault_does_not_vouch_for_one_that_did_nothing(counts):
    h = busy()
    for number, count in enumerate(counts):
        inject(h, f"f{number}")
        heal(h, count, f"f{number}")
    result = stats(h, "kill-leader")
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "no-bite")


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ({}, Verdict.UNKNOWN),
        ({"stats": ("unread",)}, Verdict.PERMITTED),
        ({"stats": ("rate",)}, Verdict.UNKNOWN),
        ({"liveness": ("unread",)}, Verdict.UNKNOWN),
    ],
)
def test_final_reads_are_answered_unless_a_permit_lets_them_be(rules, verdict):
    h = busy()
    h.fact("permits", fact_of("old", [Permit(name="evicted-first", why="so it was", rules=rules)]))
    assert stats(h).verdict is Verdict.VALID
    h.fact("unread", {"count": 2, "of": 9, "bound_s": 120.0})
    result = stats(h)
    assert result.verdict is verdict
    if verdict is Verdict.UNKNOWN:
        assert result.details["rule"] == "unread"
        assert "2 of 9" in result.reason


def test_refusals_and_failures_are_counted_by_kind():
    h = busy()
    h.fail(5, "create", {"name": "t3"}, "exists")
    h.ok(5, "delete", {"name": "none"}, {"result": "not-found"})
    details = stats(h).details
    assert details["refusals"]["create"] == {"refused": 1, "failed": 0, "of": 6, "share": 0.167}
    assert details["refusals"]["delete"]["refused"] == 1
    assert details["refusals"]["get"] == {"refused": 0, "failed": 1, "of": 8, "share": 0.125}
    assert set(details["certificate"]["refused_or_failed"]) == {"create", "delete", "get"}


# --- stats: the load --------------------------------------------------------------------------


def loaded(
    spans: list[tuple[int, int, str]], chaos_s: float = 10.0, starved_s: float = 0.0
) -> History:
    """Build a history of operations at these times in ms; each has its own process and name."""
    edges = [(begin, 0, n) for n, (begin, _, _) in enumerate(spans)]
    edges += [(end, 1, n) for n, (_, end, _) in enumerate(spans)]
    h = Writer()
    h.fact("phase", {"phase": "chaos"})
    for time_ms, is_end, n in sorted(edges):
        h.at(time_ms)
        if is_end:
            h.ret(n, OpType.OK, {"result": "ok"})
        else:
            h.call(n, "create", {"name": spans[n][2]})
    h.at(int(chaos_s * 1000))
    if starved_s:
        waited = {"m1": starved_s}
        h.fact("starvation", {"from_s": 1.0, "to_s": 1.0 + starved_s, "waited_s": waited})
    h.fact("phase", {"phase": "heal-core"})
    h.fact("snapshot", {})
    return h.history


def doubted(history: History, **load: Any) -> str | None:
    asked = case("none", **{"rate": 40.0, "time_limit_s": 10.0, **load})
    return StatsChecker().check(history, asked, time_limit_s=300).details.get("rule")


def steadily(count: int, every_ms: int, length_ms: int) -> list[tuple[int, int, str]]:
    return [(n * every_ms, n * every_ms + length_ms, "a") for n in range(count)]


def test_a_load_that_was_never_reached_is_unknown_and_says_which_it_was():
    history = loaded(steadily(200, 50, 60))
    assert doubted(history, rate=20.0) is None
    assert doubted(history, rate=39.0) is None
    assert doubted(history, rate=50.0) == "rate"
    assert doubted(history, rate=2000.0, ops=[object()]) is None
    result = StatsChecker().check(history, case("none", rate=2000.0), time_limit_s=300)
    assert "of 2000 requested" in result.reason
    certificate = result.details["certificate"]
    assert certificate["requested_rate"] == "2000 /s"
    assert certificate["achieved_rate"] == "20.0 /s, at best 20.0 /s"


def test_scarce_processors_are_named_for_a_load_that_was_not_reached():
    for starved_s, named in ((0.0, False), (0.5, False), (2.0, True)):
        history = loaded(steadily(200, 50, 60), starved_s=starved_s)
        asked = case("none", rate=50.0, time_limit_s=10.0)
        result = StatsChecker().check(history, asked, time_limit_s=300)
        assert ("processors were scarce for 2.0 s" in result.reason) is named
        assert ("too_few_processors" in result.details["certificate"]) is (starved_s > 0)


def test_a_chaos_that_left_hardly_any_load_is_unknown():
    burst = loaded(steadily(50, 20, 30), chaos_s=30.0)
    assert doubted(burst, time_limit_s=5.0) is None
    assert doubted(burst, time_limit_s=30.0) == "rate"


def test_operations_that_never_met_raced_nothing():
    apart = loaded(steadily(200, 50, 40))
    assert doubted(apart) == "overlap"
    assert doubted(apart, concurrency=1) is None
    assert doubted(loaded(steadily(90, 50, 40)), rate=15.0) is None
    assert doubted(loaded([*steadily(200, 50, 40), (0, 20, "a")])) is None


def test_operations_that_name_nothing_are_about_one_object():
    h = Writer()
    h.fact("phase", {"phase": "chaos"})
    h.call(1, "write", {"value": 1})
    h.call(2, "read")
    h.ret(1, OpType.OK)
    h.ret(2, OpType.OK)
    load = Load(h.history, case("none"))
    assert (load.overlapping, load.overlap_most) == (2, 2)


ROW_A = [["upsert", "a", {"v": 1}]]


@pytest.mark.parametrize(
    ("one", "other", "met"),
    [
        (("write", {"table": "r", "rows": ROW_A}), ("read", {"table": "r", "key": "a"}), True),
        (("write", {"table": "r", "rows": ROW_A}), ("write", {"table": "r", "rows": ROW_A}), True),
        (("write", {"table": "r", "rows": ROW_A}), ("read", {"table": "r", "key": "b"}), False),
        (("read", {"table": "r", "key": "a"}), ("read", {"table": "s", "key": "a"}), False),
        (("scan", {"table": "r"}), ("scan", {"table": "r"}), False),  # a scan reads all rows
    ],
)
def test_operations_on_rows_meet_on_a_row_of_one_table(one, other, met):
    h = Writer()
    h.fact("phase", {"phase": "chaos"})
    h.call(1, "get", {"name": "t"})
    h.call(2, *one)
    h.call(3, *other)
    for process in (1, 2, 3):
        h.ret(process, OpType.OK)
    load = Load(h.history, case("none"))
    assert load.overlapping == (2 if met else 0)


def test_a_write_of_which_every_row_was_refused_changed_nothing():
    h = busy()
    before = stats(h).details["certificate"]["acknowledged_changes"]
    for results in (["already-present"], ["already-present", "ok"]):
        h.call(1, "write", {"table": "r", "nonce": "n", "rows": ROW_A * len(results)})
        h.ret(1, OpType.OK, {"table_id": "id", "rows": results, "parts": []})
    assert stats(h).details["certificate"]["acknowledged_changes"] == before + 1


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.sampled_from("ab")), max_size=12)
)
def test_overlaps_are_those_of_every_pair(drawn):
    spans = [(begin * 100, (begin + length) * 100, name) for begin, length, name in drawn]

    def meets(one: int, other: int) -> bool:
        (b1, e1, n1), (b2, e2, n2) = spans[one], spans[other]
        return one != other and n1 == n2 and b1 < e2 and b2 < e1

    everyone = range(len(spans))
    met = [one for one in everyone if any(meets(one, other) for other in everyone)]
    at_once = [
        sum(name == other[2] and other[0] <= begin < other[1] for other in spans)
        for begin, _, name in spans
    ]
    load = Load(loaded(spans), case("none"))
    assert load.operations == len(spans)
    assert (load.overlapping, load.overlap_most) == (len(met), max(at_once, default=0))


def test_details_are_bounded():
    h = busy()
    for n in range(300):
        inject(h, f"f{n}")
        heal(h, 1, f"f{n}")
    details = stats(h, "kill-leader").details
    assert len(details["faults"]) == 200
    assert details["faults_not_shown"] == 100
