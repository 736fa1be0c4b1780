"""The same test bodies run unchanged in all three environments.

One body uses the interface `Env` (a target and its client), the other `Cluster` (faults and
healing).
"""

import asyncio
import itertools
import secrets

from harness.case import Case
from harness.cluster import CLIENT, Bite, Link, NodeState
from harness.ops import OpType
from harness.plugins import Deployment, DeploymentPlan, Request, TargetSettings
from harness.plugins.options import with_defaults
from harness.registry import load_plugin
from tests.faults.door import door

READY_S = 120.0
# One tablet server is enough, because this test breaks only masters.
SETTINGS = TargetSettings(
    profile="strict", bugs=(), options={"masters": 3, "tservers": 1, "resend": 0, "kudu_flag": ""}
)


def deploy(environment, main, run_id):
    """Run `main(session, system)` on three serving masters and a tablet server."""
    target = load_plugin("targets", "kudu")
    run_id = f"{run_id}-{secrets.token_hex(4)}"  # another suite may use the same engine
    plan = DeploymentPlan(
        run_id=run_id, nodes=tuple(target.nodes(SETTINGS)), seed=3, knobs={}, folder=None
    )

    async def body(session):
        system = target.open(Deployment(session.env, SETTINGS, session.cluster.nodes))
        async with asyncio.timeout(READY_S):
            while not (await system.ready()).ok:  # noqa: ASYNC110 - a poll
                await asyncio.sleep(0.1)
        return await main(session, system)

    return environment.execute(plan, body)


async def leader_other_than(system, node):
    async with asyncio.timeout(READY_S):
        while True:
            roles = await system.roles()
            leader = roles.leader
            if leader not in {None, node} and roles.by_node[leader].ready:
                return leader
            await asyncio.sleep(0.1)


async def a_target_serves_the_life_of_a_table(system):
    workload = load_plugin("workloads", "ddl")
    options = with_defaults("workload", "ddl", workload.options, {"replicas": 1})
    case = Case(seed=3, workload_options=options)
    client = system.client(0)
    done = {}
    async with asyncio.timeout(READY_S):
        for position in range(len(workload.probe(case, 0, 0))):
            for retry in itertools.count():
                request = workload.probe(case, 0, retry)[position]
                completion = await client.invoke(request, timeout_s=READY_S / 2)
                if completion.type is not OpType.FAIL:
                    break
                await asyncio.sleep(0.1)
            done[request.f] = completion
    listed = await client.invoke(Request("list", {}), timeout_s=READY_S / 2)
    await client.close()

    assert {completion.type for completion in done.values()} == {OpType.OK}
    ids = {completion.value["table_id"] for f, completion in done.items() if f != "list"}
    assert len(ids) == 1
    assert done["get"].value["comment"].startswith("p0.")
    assert (done["alter"].value["schema_version"], done["rename"].value["schema_version"]) == (1, 2)
    assert listed.value["tables"] == []


async def a_nemesis_cuts_pauses_and_kills_and_everything_heals(session, system):
    cluster = session.cluster
    async with asyncio.timeout(2 * READY_S):
        bite = Bite(0, "")
        while bite.count == 0:  # on a busy machine, the leader may change before it is cut off
            first = await leader_other_than(system, None)
            peers = [name for name in ("m1", "m2", "m3") if name != first]
            fault = await door(session).cut(Link.between([first], peers))
            second = await leader_other_than(system, first)
            bite = await door(session).heal(fault)
    assert bite.count > 0

    assert await cluster.pause(second, lease_s=600.0)
    assert cluster.state(second) is NodeState.PAUSED
    third = await leader_other_than(system, second)
    assert await cluster.resume(second)

    assert await cluster.kill(third)
    assert cluster.state(third) is NodeState.DOWN
    fourth = await leader_other_than(system, third)
    assert await cluster.start(third)
    await door(session).heal_all()

    one_way = await door(session).cut([Link(CLIENT, fourth)])
    client = system.client(0)
    try:
        async with asyncio.timeout(READY_S):
            while not (await system.converged()).ok:
                if one_way:
                    await asyncio.sleep(1.0)
                    assert (await door(session).heal(one_way)).count > 0
                    one_way = ""
                await asyncio.sleep(0.2)
    finally:
        await client.close()
    assert not one_way
    assert {cluster.state(name) for name in cluster.nodes} == {NodeState.RUNNING}


def test_a_target_serves_and_survives_a_nemesis(environment):
    async def main(session, system):
        await a_target_serves_the_life_of_a_table(system)
        await a_nemesis_cuts_pauses_and_kills_and_everything_heals(session, system)

    deploy(environment, main, "worlds")
