"""The conductor of faults: whom it aims at, and who hears of it."""

import asyncio
from types import SimpleNamespace

from harness.case import Fault
from harness.faults import FaultConductor
from harness.plugins import Injection, NodeRole, Roles
from harness.recorder import Recorder

SEEN = Roles({"n2": NodeRole("leader", term=7)}, ("n1", "n2"))


class Target:
    async def roles(self, env, settings):
        return SEEN


class Nemesis:
    async def inject(self, cluster, roles, fault, *, lease_s):
        return Injection(targets=(roles.leader,), note="")


def test_the_roles_that_a_fault_saw_are_told():
    observed = []
    conductor = FaultConductor(
        cluster=None, env=None, target=Target(), settings=None, nemeses={"x": Nemesis()},
        recorder=Recorder(SimpleNamespace(monotonic_ns=lambda: 0)), observe_roles=observed.append,
    )  # fmt: skip

    injection = asyncio.run(conductor.strike(Fault("f", "x", at_ns=0, duration_ns=1)))

    assert injection.targets == ("n2",)
    assert observed == [SEEN]
