"""A run in which an administrator forces a configuration, and acknowledged rows are lost."""

import asyncio
import json

import pytest

from harness.case import Case
from harness.cluster import Link
from harness.ops import Verdict
from harness.plan.planning import plan_case
from harness.plugins import Deployment, TargetSettings
from harness.registry import load_plugin
from harness.run.phases import conduct
from harness.verdict.judge import judge
from harness.verdict.unsafe_change import UNSAFE_CHANGE
from targets.kudu import KuduTarget
from tests.faults.door import door

CASE = Case(
    seed=3,
    workload="rows",
    nemeses=("none",),
    time_limit_s=25.0,
    target_options={"kudu_flag": "follower_unavailable_considered_failed_sec=3"},
)


async def lose_two_of_three(session, case):
    """Cut t3 off until it falls behind; then lose the two servers that have the newest rows."""
    settings = TargetSettings(profile=case.profile, bugs=case.bugs, options=case.target_options)
    system = KuduTarget().open(Deployment(session.env, settings, session.cluster.nodes))
    cluster = session.cluster
    await asyncio.sleep(8)
    cut = await door(session).cut(Link.between(["t3"], ["t1", "t2"]))
    await asyncio.sleep(4)
    for node in ("t1", "t2"):
        await cluster.kill(node)
        await cluster.wipe(node)
    await door(session).heal(cut)
    said = await system.tool(["table", "list", "--tablets", "--format", "json"])
    listed = json.loads(said.text)
    for tablet in (tablet for table in listed["tables"] for tablet in table["tablets"]):
        (left,) = (r for r in tablet["replicas"] if r["ts_address"] == "t3:7050")
        line = f"t3:7050 {tablet['tablet_id']} {left['ts_uuid']}"
        said = await system.tool(["remote_replica", "unsafe_change_config", *line.split()])
        assert said.exit_code == 0, said
    for node in ("t1", "t2"):
        await cluster.start(node)


class Administered:
    def __init__(self, case):
        self._case = case

    def execute(self, plan, main):
        async def run(session):
            session.env.spawn(lose_two_of_three(session, self._case), name="administrator")
            return await main(session)

        return load_plugin("environments", "sim").execute(plan, run)


@pytest.fixture(scope="module")
def administered():
    plan = plan_case(CASE, load_plugin("environments", "sim"))
    return plan, conduct(plan, Administered(plan.case), run_id="test", folder=None).history


@pytest.mark.slow
def test_abandoned_data_never_convict(administered):
    plan, history = administered
    judged = judge(history, plan.case, plan.checkers)
    verdicts = {result.checker: result for result in judged.results}
    lost = [name for name, result in verdicts.items() if result.details.get("rule") == "overruled"]
    assert "linearizable-rows" in lost, judged
    assert judged.verdict is Verdict.UNKNOWN, [r for r in judged.results if r.verdict == "invalid"]
    assert verdicts["liveness"].verdict is Verdict.VALID
    assert verdicts["crash"].verdict is Verdict.VALID


def test_each_change_is_a_fact_before_anything_came_of_it(administered):
    _, history = administered
    facts = [op.value for op in history.facts(UNSAFE_CHANGE)]
    assert facts
    assert {fact["node"] for fact in facts} == {"t3"}
    assert all(sorted(fact["left_out"]) == ["t1:7050", "t2:7050"] for fact in facts)
    assert len({fact["group"] for fact in facts}) == len(facts)


@pytest.mark.slow
def test_without_the_fact_it_is_a_violation(administered, monkeypatch):
    plan, history = administered
    monkeypatch.setattr("harness.verdict.judge.temper", lambda _, result, __: result)
    assert judge(history, plan.case, plan.checkers).verdict is Verdict.INVALID
