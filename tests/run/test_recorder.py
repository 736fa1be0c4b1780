"""The recorder writes the history of a run, including events of the cluster."""

from types import SimpleNamespace

import pytest

from harness.cluster import ClusterEvent, NodeSpec
from harness.errors import InfrastructureError, TargetError
from harness.ops import HARNESS, Attempt, History, Op, OpType, Verdict
from harness.plugins import Completion, NodeRole, Roles, TargetSettings
from harness.run.announcements import DRIVER_KINDS
from harness.run.live_target import OpenedTarget
from harness.run.recorder import EventScribe, Recorder
from tests.support.env import Clock
from tests.up.fakes import FakeTarget

SETTINGS = TargetSettings(profile="strict", bugs=(), options={})
ROLES = Roles({"m1": NodeRole("leader", term=3)}, ("m1", "m2"))


def scribe(**node):
    recorder = Recorder(SimpleNamespace(monotonic_ns=lambda: 0))
    spec = NodeSpec(name="m1", role="master", ports=(1,), **(node or {"entry": "m:main"}))
    return EventScribe(recorder, [spec]), recorder


def event(node, kind, **data):
    return ClusterEvent(0, node, kind, data, by_driver=kind in DRIVER_KINDS)


def facts(recorder, f):
    return [op.value for op in recorder.history().facts(f)]


def leading(*pairs):
    lines = [
        Op(n, n, HARNESS, OpType.INFO, "leader", {"node": node, "term": term})
        for n, (node, term) in enumerate(pairs)
    ]
    return [(op.value["node"], op.value["term"]) for op in History(lines).leaders()]


@pytest.mark.parametrize("member", [*OpType, *Verdict])
def test_types_and_verdicts_are_their_strings(member):
    assert member == member.value
    assert f"{member}" == member.value


def test_every_leader_of_a_term_is_written_down_once():
    scribe_, recorder = scribe()
    scribe_.observe_roles(ROLES)
    for node, term in [("m1", 3), ("m2", 3), ("m2", 4), ("m2", 3), ("m1", 2), ("x", 9)]:
        scribe_.on_event(event(node, "leader", term=term))
    scribe_.on_event(event("m1", "leader", term=7, main=False))
    led = [(fact["node"], fact["term"]) for fact in facts(recorder, "leader")]
    assert led == [("m1", 3), ("m2", 3), ("m2", 4), ("m1", 2)]


def test_an_exit_is_expected_only_if_the_environment_says_so():
    scribe_, recorder = scribe()
    for data in ({"code": -9, "expected": True}, {"code": 1, "expected": False}, {"code": 1}):
        scribe_.on_event(event("m1", "node-exited", **data))
    assert [fact["expected"] for fact in facts(recorder, "node-exit")] == [True, False, False]


def test_attempts_have_times_of_the_run():
    recorder = Recorder(Clock(1_000))
    attempt = Attempt("m1", 1_200, 1_300, "ok")
    op = recorder.complete(0, "get", Completion(OpType.OK, attempts=(attempt,)))
    assert [(each.start, each.end) for each in op.attempts] == [(200, 300)]


def test_without_terms_each_change_of_leader_is_written_down():
    scribe_, recorder = scribe()
    scribe_.observe_roles(ROLES)
    for node in ("m1", "m1", "m2", "m2", "m1"):
        scribe_.on_event(event(node, "leader"))
    assert [fact["node"] for fact in facts(recorder, "leader")] == ["m1", "m2", "m1"]


def test_polled_leaders_are_marked_as_asked():
    scribe_, recorder = scribe(command=("etcd",))
    for node, term in [("m1", 3), ("m1", 3), ("m2", 4)]:
        scribe_.observe_roles(Roles({node: NodeRole("leader", term=term)}, ("m1", "m2")))
    assert facts(recorder, "leader") == [
        {"node": "m1", "term": 3, "asked": True},
        {"node": "m2", "term": 4, "asked": True},
    ]


def test_starvation_is_written_down_from_when_to_when_it_was():
    now_ns = 10_000_000_000  # the run begins at 10 s
    recorder = Recorder(SimpleNamespace(monotonic_ns=lambda: now_ns))
    scribe_ = EventScribe(recorder, [])
    for seen_s, took_s in [(9, 1), (10.5, 1), (14, 2)]:
        data = {"until_ns": int(seen_s * 1e9), "took_s": took_s, "waited_s": {"m1": 0.7}}
        scribe_.on_event(ClusterEvent(now_ns, "", "starvation", data, by_driver=True))
    assert facts(recorder, "starvation") == [
        {"from_s": 0.0, "to_s": 0.5, "waited_s": {"m1": 0.7}},
        {"from_s": 2.0, "to_s": 4.0, "waited_s": {"m1": 0.7}},
    ]


def test_the_leader_follows_terms_and_the_first_claim_of_each():
    assert leading(("m1", 1), ("m2", 1), ("m2", 3), ("m1", 2), ("m1", 4)) == [
        ("m1", 1),
        ("m2", 3),
        ("m1", 4),
    ]
    assert leading(("m1", 0), ("m1", 0), ("m2", 0), ("m1", 0)) == [("m1", 0), ("m2", 0), ("m1", 0)]


@pytest.mark.parametrize("kind", sorted(DRIVER_KINDS))
def test_a_node_cannot_announce_facts_of_the_driver(kind):
    scribe_, recorder = scribe()
    data = {"code": 0, "what": "all", "lasts": True, "group": "g", "until_ns": 1, "took_s": 1}
    with pytest.raises(TargetError, match=f"'m1' announced the event '{kind}'"):
        scribe_.on_event(ClusterEvent(0, "m1", kind, data))
    scribe_.on_event(ClusterEvent(0, "m1", "config-overruled", {"group": "g"}))
    assert list(recorder.history()) == []


def test_failures_of_the_harness_are_facts_of_their_node():
    scribe_, recorder = scribe()
    scribe_.on_event(event("m1", "infrastructure", what="the log stream broke"))
    scribe_.on_event(event("", "infrastructure", what="the engine did not answer"))
    assert facts(recorder, "infrastructure") == [
        {"node": "m1", "what": "the log stream broke"},
        {"node": None, "what": "the engine did not answer"},
    ]


def test_an_exit_names_its_cause_where_the_environment_knows_it():
    scribe_, recorder = scribe()
    scribe_.on_event(event("m1", "node-exited", code=-9, expected=False, by="host"))
    scribe_.on_event(event("m2", "node-exited", code=1, expected=False))
    host, other = facts(recorder, "node-exit")
    assert host["by"] == "host"
    assert "by" not in other


def test_a_history_that_lacks_an_op_is_never_given_out():
    class FullOnce:
        full = True

        def append(self, op):
            full, self.full = self.full, False
            if full:
                raise InfrastructureError("no space left")

    recorder = Recorder(SimpleNamespace(monotonic_ns=lambda: 0), FullOnce())
    for _ in range(2):  # the disk has space again, but the first op is missing
        with pytest.raises(InfrastructureError, match="no space"):
            recorder.fact("phase", {"phase": "setup"})
    with pytest.raises(InfrastructureError, match="no space"):
        recorder.history()


@pytest.mark.parametrize("asked_meanwhile", [True, False])
def test_without_terms_a_leader_that_ended_leads_again_once_it_has_started(asked_meanwhile):
    scribe_, recorder = scribe()
    led = Roles({"m1": NodeRole("leader")}, ("m1",))
    scribe_.observe_roles(led)
    scribe_.on_event(event("m1", "node-exited", code=-9, expected=True, log=[]))
    if asked_meanwhile:  # meanwhile the system answered that the node is down
        scribe_.observe_roles(led)
    scribe_.on_event(event("m1", "node-started", boot=1))
    scribe_.observe_roles(led)
    assert [op.f for op in recorder.history()] == ["leader", "node-exit", "leader"]


def test_exits_before_the_first_subscriber_are_recorded():
    early = [event("m1", "node-exited", code=1, expected=False, log=[])]

    def subscribe(callback):
        while early:
            callback(early.pop())

    recorder = Recorder(SimpleNamespace(monotonic_ns=lambda: 0))
    target = FakeTarget()
    plan = SimpleNamespace(
        target=target,
        settings=SETTINGS,
        case=SimpleNamespace(damage="minority", system="t", target="t"),
    )
    cluster = SimpleNamespace(nodes={}, clients=(), subscribe=subscribe)
    session = SimpleNamespace(cluster=cluster, env=SimpleNamespace())
    OpenedTarget(plan, session, recorder, {})
    assert [fact["node"] for fact in facts(recorder, "node-exit")] == ["m1"]
