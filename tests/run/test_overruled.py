"""Once an administrator has forced a configuration, lost data do not make a run invalid."""

from types import SimpleNamespace

import pytest

from checkers.conduct.bounds import BoundsChecker
from harness.case import Case
from harness.cluster import CLIENT, ClusterEvent
from harness.ops import CheckResult, OpType, Verdict
from harness.plugins import NodeRole, Roles
from harness.run.recorder import EventScribe, Recorder
from harness.verdict.judge import judge
from harness.verdict.unsafe_change import UNSAFE_CHANGE, temper
from tests.support.histories import Writer

FORCED = {
    "node": "t3", "group": "g", "term": 4, "index": 9, "kept": ["t3:1"], "left_out": ["t1:1"],
}  # fmt: skip


def history(*, forced: bool = True):
    """Build a history with ops 0 and 1 before the change (op 2), and 3 and 4 after it."""
    writer = Writer()
    writer.ok(1, "get", {"name": "a"})
    writer.fact(UNSAFE_CHANGE if forced else "log", FORCED)
    writer.ok(1, "get", {"name": "a"})
    return writer.history


def convicts(*operations: int, checker: str = "linearizable-rows") -> CheckResult:
    return CheckResult(
        checker, Verdict.INVALID, "a row is gone", (), operations, {"rule": "lost", "looked": {}}
    )


FINE = CheckResult("linearizable-rows", Verdict.VALID, "fine")


def test_possibly_abandoned_operations_are_unknown_with_a_reason():
    seen = []

    def check(part):
        seen.append([op.index for op in part])
        return FINE

    found = temper(history(), convicts(0, 3), check)
    assert seen == [[0, 1]]  # the part before the change
    assert (found.verdict, found.details["rule"]) == (Verdict.UNKNOWN, "overruled")
    assert found.details["broken"] == "lost"
    assert found.reason.startswith("a row is gone; but ")
    assert "t1:1 out of the group 'g'" in found.reason
    assert found.operations == (0, 3)


def test_violations_before_the_disturbance_convict():
    before = convicts(0)
    assert temper(history(), convicts(0, 3), lambda _: before) == before


@pytest.mark.parametrize(
    ("result", "forced"),
    [
        (convicts(0, 3), False),
        # still convicts: after the forced change, service should be back
        (convicts(3, checker="liveness"), True),
        (CheckResult("rows", Verdict.VALID, "fine"), True),
        (CheckResult("rows", Verdict.PERMITTED, "stale", (), (3,)), True),
    ],
)
def test_all_else_stays_as_it_is_and_is_judged_once(result, forced):
    assert temper(history(forced=forced), result, lambda _: pytest.fail("judged")) == result


@pytest.mark.parametrize(
    ("forced", "whole", "verdict"),
    [(True, 5, Verdict.UNKNOWN), (True, 2, Verdict.INVALID), (False, 5, Verdict.INVALID)],
)
def test_every_judgement_is_tempered(forced, whole, verdict):
    def check(part, *_, **__):
        found = convicts(0, checker="mine")
        return found if len(part) >= whole else CheckResult("mine", Verdict.VALID, "fine")

    checker = SimpleNamespace(name="mine", check=check)
    assert judge(history(forced=forced), Case(seed=1), [checker]).verdict is verdict


def scribe():
    recorder = Recorder(SimpleNamespace(monotonic_ns=lambda: 0))
    found = EventScribe(recorder, [])
    found.observe_roles(Roles({"m1": NodeRole("follower", 1)}, ("m1", "m2")))
    found.on_event(ClusterEvent(0, CLIENT, "config-forced", {"group": "g"}, by_driver=True))
    return recorder, lambda node, kind, **data: found.on_event(ClusterEvent(0, node, kind, data))


@pytest.mark.parametrize("kind", ["checkpoint", "leader"])
@pytest.mark.parametrize(("group", "told"), [("g", []), ("h", ["divergence"])])
def test_replicas_of_the_group_are_compared_no_more(kind, group, told):
    recorder, event = scribe()
    said = {"checkpoint": ("log", "index"), "leader": ("term", "term")}[kind]
    event("t1", kind, group=group, **{said[1]: 5, **({"log": "a"} if kind == "checkpoint" else {})})
    event("t3", "config-overruled", **{name: FORCED[name] for name in FORCED if name != "node"})
    event("t3", kind, group=group, **{said[1]: 5, **({"log": "b"} if kind == "checkpoint" else {})})
    facts = [(op.f, op.value) for op in recorder.history()]
    assert [f for f, _ in facts] == [UNSAFE_CHANGE, *told]
    assert facts[0][1] == FORCED


def test_earlier_differences_are_still_reported():
    recorder, event = scribe()
    for node, log in (("t1", "a"), ("t2", "b")):
        event(node, "checkpoint", group="g", index=5, log=log)
    event("t3", "config-overruled", **{name: FORCED[name] for name in FORCED if name != "node"})
    assert [op.f for op in recorder.history()] == ["divergence", UNSAFE_CHANGE]


def impostor_at(node_exits):
    """Build four operations, and an impostor (a foreign program on m1's port) after the third.

    Nodes exit after the operations with the given numbers.
    """
    writer = Writer()
    for number in range(4):
        writer.ok(1, "get", {"name": str(number)})
        for node in node_exits.get(number, ()):
            writer.fact("node-exit", {"node": node, "expected": True})
        if number == 2:
            said = {"node": "m1", "what": "m1: somebody listens", "lasts": True, "impostor": True}
            writer.fact("infrastructure", said)
    return writer.history


@pytest.mark.parametrize(
    ("node_exits", "before"), [({}, 0), ({0: ["m1"], 2: ["m2"]}, 2), ({0: ["m1"], 1: ["m1"]}, 5)]
)
def test_answers_of_a_possible_impostor_never_convict(node_exits, before):
    told, judged = impostor_at(node_exits), []

    def check(part):
        judged.append(len(list(part)))
        return CheckResult("mine", Verdict.VALID, "fine")

    found = temper(told, CheckResult("mine", Verdict.INVALID, "lost"), check)
    assert (found.verdict, judged) == (Verdict.UNKNOWN, [before])
    assert "m1: somebody listens" in found.reason
    for checker in ("crash", "liveness"):
        result = CheckResult(checker, Verdict.INVALID, "own rules")
        assert temper(told, result, pytest.fail) == result


def test_what_was_lost_on_a_full_disk_never_convicts():
    writer = Writer()
    writer.ok(1, "get", {"name": "a"})
    said = {"node": None, "what": "the disk was full", "lasts": True, "full": True}
    writer.fact("infrastructure", said)
    writer.ok(1, "get", {"name": "b"})
    lost = CheckResult("mine", Verdict.INVALID, "lost")

    def check(part):
        return lost if len(list(part)) > 2 else CheckResult("mine", Verdict.VALID, "fine")

    judged = temper(writer.history, lost, check)
    assert judged.verdict is Verdict.UNKNOWN
    assert "the disk was full" in judged.reason
    assert temper(writer.history, lost, lambda _: lost) == lost  # it was lost before


def test_two_leaders_of_one_term_after_it_never_convict():
    limits = [{"name": "leaders of a term", "measure": "leaders", "of": "", "limit": 1}]
    for forced, verdict in ((True, Verdict.UNKNOWN), (False, Verdict.INVALID)):
        writer = Writer()
        writer.add(1, OpType.INVOKE, "get", {"name": "a"})
        if forced:
            writer.fact(UNSAFE_CHANGE, {**FORCED, "group": "master"})
        for node in ("m1", "m3"):
            writer.fact("leader", {"node": node, "term": 7})
        writer.fact("snapshot", {"bounds": {"limits": limits}})
        judged = judge(writer.history, Case(seed=1), [BoundsChecker()])
        assert judged.verdict is verdict, judged
