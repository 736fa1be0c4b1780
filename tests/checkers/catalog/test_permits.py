"""Violations that a profile permits are `permitted`, never `valid`. All others are `invalid`."""

import random
import time
from collections.abc import Callable
from operator import methodcaller as do
from typing import Any

import pytest

from checkers.catalog import permits
from checkers.catalog.invariants import CatalogInvariantsChecker
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.permits import judge_permitted
from checkers.conduct.crash import CrashChecker
from checkers.conduct.liveness import LivenessChecker
from harness.errors import EXIT_VALID
from harness.ops import Attempt, CheckResult, History, OpType, Verdict, worst
from harness.permits import permits_of, permitted_in, permitted_of
from harness.verdict.judge import EXIT_CODES, Judgement
from tests.checkers.catalog.catalogs import oracle, spoil
from tests.checkers.catalog.stale_histories import permitting, stale_history, stale_oracle
from tests.checkers.catalog.test_invariants import edit, tablet
from tests.checkers.catalog.test_named_invariants import good_history, good_snapshot
from tests.support.histories import Writer

Step = Callable[[Writer], Any]
LOSSY_SEEDS = range(400, 600)
TWICE = (Attempt("m1", 0, 1, "TIMED_OUT"), Attempt("m1", 2, 3, "ok"))


def lin(h: Writer, *permits: str) -> CheckResult:
    return CatalogLinearizable().check(permitting(h.history, *permits), None, time_limit_s=60)


def at(h: Writer, f: str, value: Any, answer: Any, *, term: int, node: str) -> int:
    index = h.call(term, f, value)
    h.ret(term, OpType.OK, {"result": "ok", "term": term, **answer}, node)
    return index


def create(h: Writer, name: str, ident: str, *, term: int, node: str) -> int:
    call = {"name": name, "nonce": f"n-{ident}", "columns": ["a"]}
    return at(h, "create", call, {"table_id": ident, "schema_version": 0}, term=term, node=node)


def listing(h: Writer, *tables: tuple[str, str], term: int = 1, node: str = "m1") -> int:
    entries = [[name, ident, 0] for name, ident in tables]
    return at(h, "list", None, {"tables": entries}, term=term, node=node)


# --- stale reads ---------------------------------------------------------------------------------


def test_only_explainable_violations_are_permitted():
    permitted = refused = needed = 0
    for seed in range(500):
        rng = random.Random(seed)
        history = stale_history(seed, count=rng.randint(4, 9))
        if seed % 3:
            history = spoil(history, rng)
        history = permitting(history, "stale-read")
        wanted = stale_oracle(history)
        relaxed = judge_permitted(history, permits_of(history), end_s=time.monotonic() + 60)
        assert relaxed is not None
        assert relaxed.exhausted, seed
        assert (relaxed.counts is not None) == wanted, seed
        assert wanted or seed % 3, f"seed {seed} must be permitted"
        permitted, refused = permitted + wanted, refused + (not wanted)
        needed += wanted and not oracle(history)
    assert min(permitted, refused) > 100
    assert needed > 5


@pytest.mark.parametrize(("stale", "misled"), [(False, False), (False, True), (True, False)])
def test_only_losses_in_power_cuts_are_permitted(stale, misled, monkeypatch):
    """The search agrees with brute force, even with hints that suggest the opposite order."""
    if misled:
        monkeypatch.setattr(permits._History, "_hint", lambda _, index: (-index, -index))
    counts = {True: 0, False: 0}
    names = ["lost-after-power-cut", *["stale-read"] * stale]
    for seed in LOSSY_SEEDS:
        rng = random.Random(seed)
        history = stale_history(
            seed, count=rng.randint(3, 6), stale=0.3 * stale, cuts=rng.randint(1, 2)
        )
        history = permitting(spoil(history, rng) if seed % 2 else history, *names)
        if oracle(history):
            continue
        wanted = stale_oracle(history, stale=stale, lossy=True)
        relaxed = judge_permitted(history, permits_of(history), end_s=time.monotonic() + 60)
        assert relaxed is not None
        assert relaxed.exhausted, seed
        assert (relaxed.counts is not None) == wanted, seed
        assert wanted or seed % 2, f"what the masters of seed {seed} do is permitted"
        counts[wanted] += 1
    assert min(counts.values()) > 5


def test_the_checker_says_so():
    for seed in range(6):
        history = stale_history(seed, count=300, names=4, stale=0.2)
        assert CatalogLinearizable().check(history, None, time_limit_s=60).verdict is (
            Verdict.INVALID
        )
        result = CatalogLinearizable().check(
            permitting(history, "stale-read"), None, time_limit_s=60
        )
        assert result.verdict is Verdict.PERMITTED, result
        assert permitted_in(result)["stale-read"] >= 1
        assert result.details["rule"] == "stale-read"


def deposed(h: Writer) -> None:
    """Begin a history in which m1 led in term 1, and m2 leads in term 2 and has created `b`."""
    create(h, "a", "A", term=1, node="m1")
    create(h, "b", "B", term=2, node="m2")


def listed(*tables: tuple[str, str], **by: Any) -> Step:
    return lambda h: listing(h, *tables, **by)


A, B, C = ("a", "A"), ("b", "B"), ("c", "C")
MERELY_STALE = "lacks what a later term acknowledged"
STALE: dict[str, tuple[Step, ...]] = {
    MERELY_STALE: (listed(A),),
    "lacks what its own term acknowledged": (listed(term=1),),
    "lacks it though of a later term still": (listed(A, term=3, node="m3"),),
    "lacks it though it says no term": (
        lambda h: h.ok(1, "list", None, {"tables": [["a", "A", 0]]}),
    ),
    "lacks what the same node acknowledged": (listed(A, node="m2"),),
    "shows what never was": (listed(A, C),),
    "takes back what it showed": (listed(A, B), listed(A)),
    "a change that acts on the past": (lambda h: create(h, "b", "B2", term=1, node="m1"),),
}


@pytest.mark.parametrize("name", STALE)
def test_a_stale_answer_is_permitted_and_a_wrong_one_is_not(name):
    verdict = Verdict.PERMITTED if name == MERELY_STALE else Verdict.INVALID
    h = Writer()
    deposed(h)
    h.play(STALE[name])
    assert lin(h).verdict is Verdict.INVALID
    result = lin(h, "stale-read")
    assert result.verdict is verdict, result
    if verdict is Verdict.INVALID:
        assert result.explanation[-1].startswith("Nor does what the profile permits (stale-read)")
    else:
        assert permitted_in(result) == {"stale-read": 1}
        assert any("deviat" in line for line in result.explanation)
        assert not any("no order" in line for line in result.explanation)


def test_a_refused_change_is_an_observation():
    h = Writer()
    deposed(h)
    at(h, "delete", {"name": "a", "nonce": "d"}, {"table_id": "A", "schema_version": 0},
       term=2, node="m2")  # fmt: skip
    index = h.call(1, "create", {"name": "a", "nonce": "n", "columns": ["a"]})
    h.ret(1, OpType.FAIL, {"result": "exists", "term": 1}, "m1")
    assert lin(h).verdict is Verdict.INVALID
    result = lin(h, "stale-read")
    assert result.verdict is Verdict.PERMITTED
    # the fact about permits that `lin` adds shifts the indexes by one
    assert result.operations == (index + 1,)


# --- the other permits ---------------------------------------------------------------------------


def renamed_during(h: Writer, inside: Step) -> None:
    """Rename `a` to `z`, and perform `inside` while the rename is in progress."""
    h.create(1, "a", "A")
    h.create(1, "b", "B")
    h.call(2, "rename", {"name": "a", "new_name": "z", "nonce": "r"})
    inside(h)
    h.ret(2, OpType.OK, {"result": "ok", "table_id": "A", "schema_version": 1})


def shown(h: Writer, *tables: list[Any]) -> int:
    return h.ok(3, "list", None, {"tables": list(tables)})


def history_of(name: str) -> Writer:
    h = Writer()
    match name:
        case "torn":
            renamed_during(h, lambda h: shown(h, ["b", "B", 0]))
        case "torn too far":  # no client touched `b`, so the list must show it
            renamed_during(h, lambda h: shown(h, ["a", "A", 0]))
        case "torn twice the same":
            renamed_during(h, lambda h: shown(h, ["a", "A", 0], ["z", "A", 1], ["b", "B", 0]))
        case "gap":
            renamed_during(h, lambda h: h.get(3, "a", None) + h.get(4, "z", None))
            h.get(3, "z", "A", 1)
        case "gap elsewhere":
            renamed_during(h, lambda h: h.get(3, "b", None))
        case "made twice" | "made twice, sent once":
            index = h.call(1, "create", {"name": "a", "nonce": "n", "columns": ["a"]})
            h.get(2, "a", "A1", comment="n")
            h.delete(2, "a", "A1")
            sent = TWICE if name == "made twice" else TWICE[1:]
            h.add(1, OpType.OK, "create", {"result": "ok", "table_id": "A2", "schema_version": 0},
                  "m1", attempts=sent)  # fmt: skip
            assert index == 0
            h.get(2, "a", "A2", comment="n")
        case "deleted twice" | "deleted twice, sent once":
            h.create(1, "a", "A")
            h.call(1, "delete", {"name": "a", "nonce": "d"})
            h.get(2, "a", None)
            h.create(2, "a", "B")
            sent = TWICE if name == "deleted twice" else TWICE[1:]
            h.add(1, OpType.OK, "delete", {"result": "ok", "table_id": "B", "schema_version": 0},
                  "m1", attempts=sent)  # fmt: skip
        case "dirty":
            h.call(1, "create", {"name": "a", "nonce": "n", "columns": ["a"]})
            h.get(2, "a", "A", comment="n")
            h.fail(3, "create", {"name": "a", "nonce": "n2", "columns": []}, "exists")
            h.ret(1, OpType.FAIL, None)
            h.get(2, "a", None)
        case "dirty forever":
            h.call(1, "create", {"name": "a", "nonce": "n", "columns": ["a"]})
            h.ret(1, OpType.FAIL, None)
            h.get(2, "a", "A", comment="n")
            h.get(2, "a", None)
        case _:
            raise AssertionError(name)
    return h


@pytest.mark.parametrize(
    ("name", "permit", "verdict"),
    [
        ("torn", "torn-list", Verdict.PERMITTED),
        ("torn too far", "torn-list", Verdict.INVALID),
        ("torn twice the same", "torn-list", Verdict.INVALID),
        ("gap", "name-gap", Verdict.PERMITTED),
        ("gap elsewhere", "name-gap", Verdict.INVALID),
        ("made twice", "ddl-twice", Verdict.PERMITTED),
        ("made twice, sent once", "ddl-twice", Verdict.INVALID),
        ("deleted twice", "ddl-twice", Verdict.PERMITTED),
        ("deleted twice, sent once", "ddl-twice", Verdict.INVALID),
        ("dirty", "dirty-create", Verdict.PERMITTED),
        ("dirty forever", "dirty-create", Verdict.INVALID),
    ],
)
def test_each_permit_covers_its_case_and_no_more(name, permit, verdict):
    h = history_of(name)
    assert lin(h).verdict is Verdict.INVALID
    result = lin(h, permit)
    assert result.verdict is verdict, result
    if verdict is Verdict.PERMITTED:
        assert set(permitted_in(result)) == {permit}
        others = {"stale-read", "torn-list", "name-gap", "ddl-twice", "dirty-create"} - {permit}
        assert lin(h, *sorted(others)).verdict is Verdict.INVALID
        both = lin(h, *sorted(others), permit)
        assert set(permitted_in(both)) == {permit}, "another permit took the blame"


def power_cut(h: Writer) -> int:
    inject = {"action": "inject", "fault": "f1", "targets": ["m1"], "kind": "power-cut"}
    return h.nemesis("power-cut-leader", inject)


@pytest.mark.parametrize("revision", [3, 30])
def test_changes_lost_in_a_power_cut_are_found_among_lost_answers(revision):
    """The loss shows only after the new leader has made further changes. A search that tries all
    outcomes of unanswered changes before it assumes a loss would never end.
    """
    h = Writer()
    for number in range(20):
        call = {"name": f"u{number}", "nonce": f"nu{number}", "columns": ["a"]}
        h.call(100 + number, "create", call)

    def changed(name: str, ident: str, term: int, revision: int) -> None:
        call = {"name": name, "nonce": f"n-{ident}", "columns": ["a"]}
        answer = {"table_id": ident, "schema_version": 0, "revision": revision}
        at(h, "create", call, answer, term=term, node="m1")

    for number in range(6):
        changed(f"t{number}", f"T{number}", 1, number + 1)
    power_cut(h)
    for number in range(4):
        changed(f"p{number}", f"P{number}", 2, revision + number)
    left = ["t0", "t1", "p0", "p1", "p2", "p3"]
    entries = [[name, name.upper(), 0] for name in left]
    at(h, "list", None, {"tables": entries, "revision": revision + 3}, term=2, node="m2")
    result = lin(h, "lost-after-power-cut")
    assert permitted_in(result) == {"lost-after-power-cut": 1}
    assert result.details["permit_steps"] < 20_000


MADE_A, MADE_B = do("create", 1, "a", "A"), do("create", 1, "b", "B")
NO_A, NO_B = do("get", 2, "a", None), do("get", 2, "b", None)


def missed_cut(**more: Any) -> Step:
    """Add a power cut of nodes that were already down; their disks may still lose data."""
    value = {"action": "inject", "fault": "f1", "targets": [], "kind": "power-cut", **more}
    return do("nemesis", "power-cut-all", value)


def altered(column: str) -> Step:
    steps = {"name": "a", "nonce": column, "steps": [["add", column]]}
    return do("ok", 1, "alter", steps, {"table_id": "A", "schema_version": 1})


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ([MADE_A, MADE_B, power_cut, NO_B, do("create", 2, "b", "C"), do("get", 2, "a", "A"),
          do("get", 2, "b", "C")], Verdict.PERMITTED),
        ([MADE_A, missed_cut(disks=["m1"]), NO_A], Verdict.PERMITTED),
        ([MADE_A, altered("x"), power_cut, altered("y"),
          do("get", 2, "a", "A", 1, columns=["a", "y"])], Verdict.PERMITTED),
        ([MADE_A, missed_cut(), NO_A], Verdict.INVALID),
        # the table was already missing before the cut
        ([MADE_A, NO_A, power_cut, NO_A], Verdict.INVALID),
        # the later create of `b` survived, so the earlier one of `a` must have, too
        ([MADE_A, MADE_B, power_cut, NO_A, do("get", 2, "b", "B")], Verdict.INVALID),
        ([MADE_A, power_cut, MADE_B, NO_B], Verdict.INVALID),  # `b` was created after the cut
    ],
)  # fmt: skip
def test_a_power_cut_takes_back_the_end_of_what_was_before_it(steps, verdict):
    h = Writer().play(steps)
    assert lin(h).verdict is Verdict.INVALID
    assert lin(h, "stale-read").verdict is Verdict.INVALID
    result = lin(h, "stale-read", "lost-after-power-cut")
    assert result.verdict is verdict
    if verdict is Verdict.PERMITTED:
        assert permitted_in(result) == {"lost-after-power-cut": 1}
    else:
        assert result.explanation[-1].startswith("Nor does what the profile permits")


# --- other checkers ------------------------------------------------------------------------------


def invariants(h: Writer, *permits: str) -> CheckResult:
    checker = CatalogInvariantsChecker()
    return checker.check(permitting(h.history, *permits), None, time_limit_s=60)


def with_revisions(node: str = "m1", term: int = 1) -> Writer:
    h = Writer()
    changes = {"table_id": "B", "schema_version": 0, "revision": 9}
    at(h, "create", {"name": "b", "nonce": "n-B"}, changes, term=2, node="m2")
    at(h, "list", None, {"tables": [], "revision": 5}, term=term, node=node)
    return h


def test_an_older_revision_is_stale_only_of_an_older_term_and_another_node():
    result = invariants(with_revisions(), "stale-read")
    assert result.verdict is Verdict.UNKNOWN, "it has no snapshot, but nothing is broken"
    assert result.details["violations"] == 0
    for wrong in (with_revisions(node="m2"), with_revisions(term=2)):
        assert invariants(wrong, "stale-read").verdict is Verdict.INVALID
    assert invariants(with_revisions()).verdict is Verdict.INVALID


def test_a_stale_answer_is_held_against_the_newest_that_it_had_to_know():
    """A leader's term has acknowledged revision 7, so its stale answer may not show revision 5.

    Revision 9 belongs to a later term, so the answer may miss it.
    """
    h = Writer()
    for term, node, ident, revision in ((1, "m3", "A", 7), (2, "m2", "B", 9)):
        answer = {"table_id": ident, "schema_version": 0, "revision": revision}
        at(h, "create", {"name": ident, "nonce": f"n-{ident}"}, answer, term=term, node=node)
    at(h, "list", None, {"tables": [], "revision": 5}, term=1, node="m1")
    result = invariants(h, "stale-read")
    assert result.details["by_invariant"] == {"revisions": 1}
    assert "from 7 to 5" in result.reason


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        ("TABLE_ALREADY_PRESENT/SERVICE_UNAVAILABLE: the name is reserved", {}),
        ("UNKNOWN_ERROR/INVALID_ARGUMENT: bad", {"refusals": 1}),
        ("EVEN_REPLICATION_FACTOR/INVALID_ARGUMENT: even", {"refusals": 1}),
    ],
)
def test_a_deposed_leader_refuses_by_what_it_has_but_reads_requests_as_all_do(error, broken):
    h = Writer()
    h.fact("leader", {"node": "m1", "term": 1})
    h.fact("leader", {"node": "m2", "term": 2})
    h.call(5, "create", {"name": "a", "nonce": "n", "columns": ["a"], "replicas": 3})
    h.add(5, OpType.FAIL, "create", None, "m1", error=error)
    assert invariants(h).details["by_invariant"] == {"refusals": 1}
    assert invariants(h, "stale-read").details["by_invariant"] == broken


def test_nodes_may_differ_after_a_power_cut_and_names_stay_unique():
    def told(*edits: tuple[str, Any], cut: bool = True) -> CheckResult:
        h = good_history(edit(good_snapshot(), *edits))
        if cut:
            power_cut(h)
        return invariants(h, "lost-after-power-cut")

    other = ("tservers.t3.tablets.2.columns.2.0", 7)
    assert told(other, cut=False).verdict is Verdict.INVALID
    assert permitted_in(told(other)) == {"lost-after-power-cut": 1}
    twice = ("masters.m2.tablets.+", tablet("B1", "B", "", "", "DELETED"))
    assert told(other, twice).verdict is Verdict.INVALID


def test_violations_proven_before_a_power_cut_are_not_attributed_to_it():
    def told(*, cut_first: bool) -> CheckResult:
        h = Writer()
        if cut_first:
            power_cut(h)
        for version, ids in enumerate(([1, 2], [1], [1, 2])):  # the id 2 reappears
            columns = ["a", "b"][: len(ids)]
            h.get(6, "a", "X", version, column_ids=ids, columns=columns)
        if not cut_first:
            power_cut(h)
        return invariants(h, "lost-after-power-cut")

    assert told(cut_first=False).details["by_invariant"] == {"column-ids": 1}
    assert told(cut_first=True).details["by_invariant"] == {}


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("by_rows", [True, False])
def test_violations_visible_only_after_a_power_cut_may_be_attributed_to_it(by_rows, cut):
    h, rows = Writer(), good_snapshot()
    h.get(6, "a", "A", 0, column_ids=[1], columns=["lost"])
    h.call(6, "get", {"name": "a"})
    if cut:
        power_cut(h)
    answer = {"table_id": "A", "applied_schema_version": 1}
    other = {"column_ids": [1], "columns": ["made"]}
    h.ret(6, OpType.OK, {"result": "ok", **answer, **({} if by_rows else other)})
    if by_rows:
        h.fact("snapshot", rows)
    broken = invariants(h, "lost-after-power-cut").details["by_invariant"]
    assert ("column-ids" in broken) is not cut


def exited(*log: str, **more: Any) -> History:
    h = Writer()
    h.fact("node-exit", {"node": "m1", "code": 1, "expected": False, "log": list(log), **more})
    signs = ("not caught up within",)
    return permitting(h.history, "catch-up-exit", signs=signs)


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        (exited("I started", "F not caught up within 30 s"), Verdict.PERMITTED),
        (exited("F out of memory"), Verdict.INVALID),
        (exited(), Verdict.INVALID),
        (exited("F not caught up within 30 s", by="host"), Verdict.UNKNOWN),
    ],
)
def test_an_exit_is_permitted_by_what_its_log_says(history, verdict):
    result = CrashChecker().check(history, None, time_limit_s=60)
    assert result.verdict is verdict
    assert permitted_in(result) == ({"catch-up-exit": 1} if verdict is Verdict.PERMITTED else {})
    plain = CrashChecker().check(History(list(history)[1:]), None, time_limit_s=60)
    assert plain.verdict is not Verdict.PERMITTED


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_an_exit_that_a_fault_leads_to_is_permitted_only_after_it(when):
    h = Writer()
    if when == "before":
        power_cut(h)
    log = ["AssertionError: a committed entry was lost: truncation from 3"]
    h.fact("node-exit", {"node": "m2", "code": 1, "expected": False, "log": log})
    if when == "after":
        power_cut(h)
    signs = ("a committed entry was lost",)
    history = permitting(h.history, "lost-after-power-cut", signs=signs, after="power-cut")
    result = CrashChecker().check(history, None, time_limit_s=60)
    assert result.verdict is (Verdict.PERMITTED if when == "before" else Verdict.INVALID), result


def unmade(h: Writer, *, seen: str) -> None:
    """Begin a history in which an answer shows a table `x` that the snapshot lacks."""
    if seen == "of no create":
        h.get(5, "x", "X", comment="")
    elif seen == "acknowledged":
        h.create(5, "x", "X")
    else:
        h.call(5, "create", {"name": "x", "nonce": "n", "columns": ["a"]})
        h.ok(6, "list", None, {"tables": [["x", "X", 0]]})
        h.ret(5, OpType.FAIL, None)
    if seen == "after it":
        h.get(6, "x", "X", comment="n")


@pytest.mark.parametrize("seen", ["under way", "after it", "acknowledged", "of no create"])
def test_a_table_without_a_row_is_permitted_only_as_a_dirty_create(seen):
    def told(*permits: str) -> CheckResult:
        h = Writer()
        unmade(h, seen=seen)
        for op in good_history().lines:
            h.add(op.process, op.type, op.f, op.value, op.node)
        return invariants(h, *permits)

    assert told().details["by_invariant"] == {"acknowledged": 1}
    result = told("dirty-create")
    assert result.verdict is (Verdict.PERMITTED if seen == "under way" else Verdict.INVALID), result


@pytest.mark.parametrize(
    ("ids", "version", "ended", "verdict"),
    [
        ([], 0, False, Verdict.PERMITTED),
        ([], 0, True, Verdict.INVALID),
        ([], 1, False, Verdict.INVALID),
        ([2], 0, False, Verdict.INVALID),
    ],
)
def test_a_table_under_way_has_no_columns_yet(ids, version, ended, verdict):
    def told(*permits: str) -> CheckResult:
        h = Writer()
        h.get(6, "a", "X", column_ids=[1])
        h.call(5, "create", {"name": "a", "nonce": "n-X", "columns": ["a"]})
        if ended:
            h.ret(5, OpType.FAIL, None)
        h.get(6, "a", "X", version, column_ids=ids)
        h.get(6, "a", "X", version + 1, column_ids=[1, 2])
        return invariants(h, *permits)

    assert told().details["by_invariant"]["column-ids"] >= 1
    result = told("dirty-create")
    assert ("column-ids" in result.details["by_invariant"]) == (verdict is Verdict.INVALID), result


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ({"liveness": ("converged",)}, Verdict.PERMITTED),
        ({"liveness": ("live",)}, Verdict.INVALID),
        ({"bounds": ("converged",)}, Verdict.INVALID),
    ],
)
@pytest.mark.parametrize("serves", [True, False])
def test_a_permit_may_give_up_a_rule_of_one_checker(rules, verdict, serves):
    h = Writer()
    missing = [] if serves else ["create"]
    h.fact("live", {"ok": serves, "took_s": 1.0, "bound_s": 60.0, "missing": missing})
    h.fact("converged", {"ok": False, "took_s": 90.0, "bound_s": 90.0, "pending": ["it alters"]})
    history = permitting(h.history, "reports-once", rules=rules)
    result = LivenessChecker().check(history, None, time_limit_s=60)
    assert result.verdict is (verdict if serves else Verdict.INVALID), result


@pytest.mark.parametrize(
    ("after", "led", "verdict"),
    [
        ("leader-change", ["m1"], Verdict.INVALID),
        ("leader-change", ["m1", "m1"], Verdict.INVALID),
        ("leader-change", ["m1", "m2"], Verdict.PERMITTED),
        ("leader-back", ["m1", "m2"], Verdict.INVALID),
        ("leader-back", ["m1", "m1", "m2"], Verdict.INVALID),
        ("leader-back", ["m1", "m2", "m1"], Verdict.PERMITTED),
        ("power-cut", ["m1", "m2", "m1"], Verdict.INVALID),
    ],
)
def test_a_permit_needs_its_cause(after, led, verdict):
    h = Writer()
    for term, node in enumerate(led, start=1):
        h.fact("leader", {"node": node, "term": term})
    result = at_rest(h, "it alters", rules={"liveness": ("converged",)}, after=after)
    assert result.verdict is verdict, result


def at_rest(h: Writer, *pending: str, **permit: Any) -> CheckResult:
    h.fact("live", {"ok": True, "took_s": 1.0, "bound_s": 60.0, "missing": []})
    fact = {"took_s": 90.0, "bound_s": 90.0, "pending": list(pending)}
    h.fact("converged", {"ok": not pending, **fact})
    history = permitting(h.history, "may-exit", **permit)
    return LivenessChecker().check(history, None, time_limit_s=60)


@pytest.mark.parametrize(
    ("log", "healed_after", "pending", "verdict"),
    [
        ("F gave up", False, ["m1 does not answer"], Verdict.PERMITTED),
        ("F gave up", True, ["m1 does not answer"], Verdict.INVALID),
        ("F gave up", False, ["m2 does not answer"], Verdict.INVALID),
        ("F gave up", False, ["m1 does not answer", "m2 does not answer"], Verdict.INVALID),
        ("F gave up", False, ["m1 does not answer", "it alters"], Verdict.INVALID),
        ("F broke", False, ["m1 does not answer"], Verdict.INVALID),
    ],
)
def test_nodes_that_were_allowed_to_end_are_not_awaited(log, healed_after, pending, verdict):
    h = Writer()
    h.fact("phase", {"phase": "heal-all"})
    h.fact("node-exit", {"node": "m1", "code": 1, "expected": False, "log": [log]})
    if healed_after:
        h.fact("phase", {"phase": "heal-all"})
    result = at_rest(h, *pending, signs=("gave up",))
    assert result.verdict is verdict, result
    assert permitted_in(result) == ({"may-exit": 1} if verdict is Verdict.PERMITTED else {})


@pytest.mark.parametrize("asked", [{}, {"asked_late": ["m3"], "rest": ["m3"]}])
@pytest.mark.parametrize(
    ("node", "log", "healed_before", "verdict"),
    [
        ("m1", "F gave up", True, Verdict.PERMITTED),
        ("m1", "F gave up", False, Verdict.INVALID),
        ("m1", "F broke", True, Verdict.INVALID),
        ("m3", "F gave up", True, Verdict.INVALID),
    ],
)
def test_a_core_may_lack_nodes_that_were_allowed_to_end(node, log, healed_before, verdict, asked):
    h = Writer()
    end = {"node": node, "code": 1, "expected": False, "log": [log]}
    if healed_before:
        h.fact("phase", {"phase": "heal-core"})
        h.fact("node-exit", end)
    else:
        h.fact("node-exit", end)
        h.fact("phase", {"phase": "heal-core"})
    fact = {"took_s": 61.0, "bound_s": 60.0, "missing": ["create"]}
    h.fact("live", {"ok": False, "core": ["m1", "m2"], **fact, **asked})
    h.fact("phase", {"phase": "heal-all"})
    h.fact("converged", {"ok": True, "took_s": 1.0, "bound_s": 90.0, "pending": []})
    history = permitting(h.history, "may-exit", signs=("gave up",))
    result = LivenessChecker().check(history, None, time_limit_s=60)
    if asked and verdict is Verdict.INVALID:
        verdict = Verdict.UNKNOWN  # the probe asked no node of the core
    assert result.verdict is verdict, result


def test_an_answer_may_arrive_after_the_power_cut_of_its_sender():
    def told(asked_first: bool) -> CheckResult:
        h = Writer()
        calls = [lambda: h.call(1, "create", {"name": "b", "nonce": "n"}), lambda: power_cut(h)]
        for act in calls if asked_first else reversed(calls):
            act()
        h.ret(1, OpType.OK, {"result": "ok", "table_id": "B", "schema_version": 0, "revision": 9})
        h.ok(2, "list", None, {"tables": [], "revision": 5})
        return invariants(h, "lost-after-power-cut")

    assert told(asked_first=True).details["violations"] == 0
    assert told(asked_first=False).details["by_invariant"] == {"revisions": 1}


@pytest.mark.parametrize(("log", "verdict"), [("gave up", Verdict.PERMITTED), ("F broke", None)])
def test_the_catalog_is_judged_without_a_master_that_ended_as_it_may(log, verdict):
    def told(*edits: tuple[str, Any]) -> CheckResult:
        h = good_history(edit(good_snapshot(), ("masters.m3", None), *edits))
        end = {"node": "m3", "code": 1, "expected": False, "log": [log]}
        h.fact("node-exit", end)
        history = permitting(h.history, "may-exit", signs=("gave up",))
        return CatalogInvariantsChecker().check(history, None, time_limit_s=60)

    assert told().verdict is (verdict or Verdict.UNKNOWN), told()
    twice = ("masters.m2.tablets.+", tablet("B1", "B", "", "", "DELETED"))
    assert told(twice).verdict is Verdict.INVALID


# --- the verdict ---------------------------------------------------------------------------------


def test_permitted_is_worse_than_valid_and_better_than_unknown():
    order = [Verdict.VALID, Verdict.PERMITTED, Verdict.UNKNOWN, Verdict.INVALID]
    for place, verdict in enumerate(order):
        assert worst([Verdict.VALID, verdict]) is verdict
        assert all(worst([other, verdict]) is verdict for other in order[:place])
    assert [verdict.holds for verdict in order] == [True, True, False, False]


def test_permitted_behaviour_is_no_failure_of_a_command():
    results = [
        CheckResult("a", Verdict.PERMITTED, "", details={"permitted": {"x": 3, "y": 1}}),
        CheckResult("b", Verdict.PERMITTED, "", details={"permitted": {"x": 2}}),
        CheckResult("c", Verdict.VALID, ""),
    ]
    judgement = Judgement(tuple(results))
    assert judgement.verdict is Verdict.PERMITTED
    assert judgement.exit_code == EXIT_CODES[Verdict.PERMITTED] == EXIT_VALID
    assert permitted_of(results) == {"x": 3, "y": 1}
