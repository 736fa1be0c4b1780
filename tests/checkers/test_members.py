"""Lists of masters follow from what was acknowledged; what nobody can know convicts nobody."""

from types import SimpleNamespace

import pytest

from checkers.members import MembersChecker
from harness.ops import CheckResult, OpType, Verdict
from tests.checkers.histories import Writer


def judged(h: Writer) -> CheckResult:
    return MembersChecker().check(h.history, None, time_limit_s=5.0)


def listed(h: Writer, *nodes: str, term: int = 1) -> int:
    masters = [[node, "LEADER" if node == nodes[0] else "FOLLOWER", "VOTER"] for node in nodes]
    return h.ok(1, "list-masters", {}, {"masters": masters, "term": term})


def changed(h: Writer, f: str, node: str, term: int = 1) -> int:
    return h.ok(0, f, {"node": node}, {"term": term})


def history() -> Writer:
    """m4 comes, m2 goes."""
    h = Writer()
    listed(h, "m1", "m2", "m3")
    changed(h, "add-master", "m4")
    listed(h, "m1", "m2", "m3", "m4")
    changed(h, "remove-master", "m2")
    return h


def test_lists_that_follow_the_changes():
    h = history()
    listed(h, "m1", "m3", "m4")
    result = judged(h)
    assert result.verdict is Verdict.VALID, result
    assert (result.details["changes"], result.details["looked"]["members"]) == (2, 9)


@pytest.mark.parametrize(
    "nodes", [("m1", "m3"), ("m1", "m2", "m3", "m4"), ("m3", "m4"), ("m1", "m3", "m4", "m9")]
)
def test_one_master_too_many_or_too_few(nodes):
    h = history()
    index = listed(h, *nodes)
    result = judged(h)
    assert result.verdict is Verdict.INVALID
    assert index in result.operations


def test_a_leader_of_an_older_term_proves_nothing():
    h = history()
    changed(h, "add-master", "m5", term=3)
    listed(h, "m1", "m3", "m4", term=2)
    assert judged(h).verdict is Verdict.VALID
    listed(h, "m1", "m3", "m4", term=3)
    assert judged(h).verdict is Verdict.INVALID


def test_a_change_of_unknown_outcome_excuses_its_master_only():
    h = history()
    h.lost(2, "add-master", {"node": "m2"})
    listed(h, "m1", "m2", "m3", "m4")
    listed(h, "m1", "m3", "m4")
    assert judged(h).verdict is Verdict.VALID
    listed(h, "m1", "m2", "m3")
    assert judged(h).verdict is Verdict.INVALID


def test_a_change_under_way_may_be_seen_or_not():
    h = history()
    h.call(3, "add-master", {"node": "m2"})
    listed(h, "m1", "m2", "m3", "m4")
    listed(h, "m1", "m3", "m4")
    h.ret(3, OpType.OK, {"result": "ok", "term": 1})
    assert judged(h).verdict is Verdict.VALID
    listed(h, "m1", "m3", "m4")
    assert judged(h).verdict is Verdict.INVALID


def test_a_refused_change_changes_nothing():
    h = history()
    h.fail(2, "remove-master", {"node": "m1"}, None)
    listed(h, "m3", "m4")
    assert judged(h).verdict is Verdict.INVALID


def test_without_lists_nothing_is_proven():
    h = Writer()
    changed(h, "add-master", "m4")
    assert judged(h).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("weight", "verdict"), [(2, Verdict.UNKNOWN), (0, Verdict.VALID)])
def test_members_that_nobody_changed_prove_nothing_unless_nobody_was_to(weight, verdict):
    h = Writer()
    for _ in range(2):
        listed(h, "m1", "m2", "m3")
    h.fail(2, "add-master", {"node": "m4"}, None)
    case = SimpleNamespace(workload_options={"members": weight})
    assert MembersChecker().check(h.history, case, time_limit_s=5.0).verdict is verdict
