"""The conductor of faults chooses targets, and records what it did."""

import asyncio
from types import SimpleNamespace

import pytest

from harness.case import Fault
from harness.nodes.faults import Aim, Kill
from harness.ops import NS_PER_S
from harness.plugins import NodeRole, Roles
from harness.run import conductor as faults
from harness.run.conductor import FaultConductor
from harness.run.recorder import Recorder
from nemesis.none import NoNemesis
from tests.support.cluster import FakeCluster, FakeEnv, FakeSystem

SEEN = Roles({"m2": NodeRole("leader", term=7)}, ("m1", "m2"))


class Clock:
    """The run's clock, and a target that answers after one second."""

    def __init__(self, leads_after_s):
        self.leads_after_ns = leads_after_s * NS_PER_S
        self.now_ns = 0

    def monotonic_ns(self):
        return self.now_ns

    async def groups(self):
        self.now_ns += NS_PER_S
        return {"g": SEEN if self.now_ns > self.leads_after_ns else Roles({}, ("m1", "m2"))}


class Seeing(FakeSystem):
    async def groups(self):
        return {"g": SEEN}


class Striking(NoNemesis):
    def needs_leader(self, fault):
        return True

    def aim(self, scene, fault):
        return Aim(what=Kill(), targets=(scene.roles().leader,))


def test_roles_at_the_time_of_a_fault_are_named():
    observed = []
    conductor = FaultConductor(
        cluster=FakeCluster(), env=FakeEnv(), system=Seeing(),
        nemeses={"x": Striking()},
        recorder=Recorder(SimpleNamespace(monotonic_ns=lambda: 0)), observe_roles=observed.append,
    )  # fmt: skip

    injection = asyncio.run(conductor.strike(Fault("f", "x", at_ns=0, duration_ns=1)))

    assert injection.targets == ("m2",)
    assert observed == [SEEN]


@pytest.mark.parametrize(
    ("leads_after_s", "duration_s", "hits"),
    [(0, 1, True), (3, 1, True), (7, 1, False), (7, 9, True), (10, 9, False)],
)
def test_a_fault_waits_for_a_leader_as_long_as_it_would_have_lasted(
    leads_after_s, duration_s, hits, monkeypatch
):
    monkeypatch.setattr(faults, "AIM_POLL_S", 1e-4)
    clock = Clock(leads_after_s)
    recorder = Recorder(clock)

    class Waiting(Striking):
        def aim(self, scene, fault):
            conductor.end()  # otherwise the fault would last
            struck_ns.append(clock.now_ns)
            return Aim(what=Kill(), targets=tuple(filter(None, [scene.roles().leader])))

    struck_ns = []
    conductor = FaultConductor(
        cluster=FakeCluster(), env=FakeEnv(),
        system=clock, nemeses={"x": Waiting()}, recorder=recorder,
        observe_roles=lambda roles: None,
    )  # fmt: skip

    asyncio.run(conductor.run((Fault("f", "x", at_ns=0, duration_ns=duration_s * NS_PER_S),)))

    limit_s = max(faults.AIM_TIMEOUT_S, duration_s)
    (time_ns,) = struck_ns
    assert time_ns <= (limit_s + 1) * NS_PER_S
    (op,) = recorder.history()
    assert op.value["targets"] == (["m2"] if hits else [])
    assert op.time == time_ns  # the history has the time of the strike, not of the answer
