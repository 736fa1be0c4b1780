"""A long-lived cluster (`harness up`) on top of a fake cluster."""

import asyncio
from types import SimpleNamespace

from harness.case import Case
from harness.environments.process import ProcessEnvironment
from harness.environments.process.cluster import CAPABILITIES
from harness.errors import InfrastructureError
from harness.plan.planning import TargetPlan
from harness.plugins import Convergence, Target, TargetSettings
from harness.up.cluster import StandingCluster, open_target
from harness.up.records import Standing
from tests.support.cluster import FakeCluster, FakeEnv, FakeSystem


class Cluster(FakeCluster):
    environment = "process"
    capabilities = CAPABILITIES
    failing = False

    async def set_links(self, wanted, *, lease_s):
        if self.failing:
            raise InfrastructureError("it resists")
        return await super().set_links(wanted, lease_s=lease_s)


class Waiting(FakeSystem):
    async def ready(self):
        return Convergence(ok=False, pending=("a leader",))


class FakeTarget(Target, groups=("catalog",), operations=("step-down",)):
    name = "fake"
    nodes = None

    def open(self, deployment):
        return Waiting()


def standing(cluster=None):
    """Build a long-lived cluster on a fake one, in which m2 leads."""
    target = FakeTarget()
    plan = TargetPlan(
        case=Case(seed=1, target="fake"),
        target=target,
        settings=TargetSettings(profile="strict", bugs=(), options={}),
        nodes=(),
        nemeses={},
    )
    session = SimpleNamespace(
        cluster=cluster or Cluster(), env=FakeEnv(), interrupted=asyncio.Event()
    )
    return StandingCluster(open_target(plan, session), ProcessEnvironment())


def record_of(**fields):
    return Standing(**{
        "name": "dev", "environment": "process", "target": "kudu", "profile": "strict",
        "bugs": (), "seed": 1, "run_id": "up-dev-1", "holder": "1:1", "started": "",
        "folder": "/state/dev", "nodes": (), **fields,
    })  # fmt: skip
