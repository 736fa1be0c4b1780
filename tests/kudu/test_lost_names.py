"""Nodes that cannot resolve a name for a while, and leaders elected in the meantime."""

import asyncio

import pytest

from harness.cluster import NodeState
from targets.kudu.lost_names import LOST_S
from tests.kudu.deploy import Deployed, deploy


@pytest.mark.parametrize(("bugs", "ends"), [(("KUDU-2302",), True), ((), False)])
def test_a_new_leader_survives_a_lost_name_of_a_peer(bugs, ends):
    async def body(deployed: Deployed) -> None:
        cluster, system = deployed.session.cluster, deployed.system
        old = await deployed.leader()
        lost, other = [name for name in ("m1", "m2", "m3") if name != old]
        said = await system.lose_names([lost])
        assert lost in (said or "")
        while cluster.state(other) is not NodeState.DOWN:
            leader = (await system.roles()).leader
            if leader == other:
                break
            if leader is not None:  # the node whose name is lost may win as well
                await system.step_down([leader])
            await asyncio.sleep(0.2)
        assert (cluster.state(other) is NodeState.DOWN) is ends
        if not ends:
            await asyncio.sleep(LOST_S)
            await deployed.ok(deployed.new_client(), "create", name="t")
            await deployed.until_converged()

    deploy(body, bugs=bugs)


def test_an_operator_who_reaches_no_other_node_loses_no_name():
    async def body(deployed: Deployed) -> None:
        cluster, system = deployed.session.cluster, deployed.system
        for name in ("m2", "m3", "t1", "t2", "t3"):
            await cluster.kill(name)
        assert await system.lose_names(["m1"]) is None
        assert await system.lose_names(["x"]) is None

    deploy(body)
