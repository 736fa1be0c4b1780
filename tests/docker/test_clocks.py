"""The wall clock of a foreign program in a container, over pauses, restarts and a new disk."""

import os

import msgspec
import pytest

from harness.cluster import NodeSpec, ReadyLog
from harness.environments.docker.engine.labels import RUN_LABEL
from harness.environments.docker.node.clocks import SHARED_MEMORY
from harness.environments.host import foreignclock
from harness.errors import UsageError
from tests.docker.support import plan_of
from tests.docker.test_plan import blueprint, node
from tests.process.test_clocks import PAUSE_S, WALL, S, near, new_lines, shift_s
from tests.support.waiting import LIMIT_S

NODE = NodeSpec(
    name="x",
    role="r",
    ports=(),
    command=("python3", WALL, str(PAUSE_S)),
    setup=(("sh", "-c", 'echo "setup preload=$LD_PRELOAD"'),),
    ready=ReadyLog("ready"),
    clock_probe=("date", "+%s.%N"),  # next to the node: it sees the true time
)


@pytest.mark.docker
@pytest.mark.xdist_group("docker")
def test_the_wall_clock_of_a_container_goes_wrong_and_right_again(environment, engine, monkeypatch):
    monkeypatch.setattr(foreignclock, "_FELT_WITHIN_S", LIMIT_S)
    run_id = f"clock-{os.getpid()}-1"

    async def main(session):
        cluster = session.cluster

        async def shift():
            return shift_s((await new_lines(cluster, 2, "x"))[-1])

        assert "setup preload=" in await cluster.logs("x", last_lines=10_000)  # not with it
        assert near(await shift(), 0)
        assert await cluster.skew("x", offset_ns=3 * S) == 3000
        assert near(await shift(), 3)
        await cluster.pause("x", lease_s=600)
        assert await cluster.skew("x", offset_ns=-2 * S) == 0
        await cluster.resume("x")
        assert near(await shift(), -2)
        await cluster.kill("x")
        await cluster.wipe("x")
        await cluster.start("x")
        assert near(await shift(), -2)
        assert await cluster.skew("x", offset_ns=0) == 7000  # 5 s while it stood still, now 2 s
        assert near(await shift(), 0)
        names = {each.name for each in engine.volumes(f"{RUN_LABEL}={run_id}")}
        assert names == {f"harness-{run_id}-x.data", f"harness-{run_id}-x.shm"}

    plain = msgspec.structs.replace(NODE, clock_probe=())
    environment.execute(plan_of([plain], run_id=run_id, clocks=["x"]), main)
    assert engine.volumes(f"{RUN_LABEL}={run_id}") == []


@pytest.mark.docker
@pytest.mark.xdist_group("docker")
def test_a_probe_that_sees_no_shift_has_the_run_refused(environment, engine):
    async def main(session):
        raise AssertionError("the run began")

    run_id = f"clock-{os.getpid()}-2"
    with pytest.raises(UsageError, match=r"moved by \+2.0 s, and by its `clock_probe`"):
        environment.execute(plan_of([NODE], run_id=run_id, clocks=["x"]), main)
    assert engine.volumes(f"{RUN_LABEL}={run_id}") == []


def test_only_nodes_that_may_be_hit_are_started_with_it():
    plans = blueprint(node(), node("b"), clocks=["b"])
    usual, faked = plans.container("a"), plans.container("b")
    assert (usual.environment, list(usual.volumes.values())) == ({}, ["/data"])
    assert plans.keeper("a").volumes == {}
    assert faked.environment["FAKETIME_TIMESTAMP_FILE"].startswith(SHARED_MEMORY)
    assert faked.volumes["harness-r-b.shm"] == SHARED_MEMORY
    assert plans.keeper("b").volumes == {"harness-r-b.shm": SHARED_MEMORY}
    assert plans.setup("b", "base", ("x",)).environment["LD_PRELOAD"] == ""
