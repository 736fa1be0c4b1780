"""Selection of the containers that a fault may give a wrong wall clock."""

import os

import pytest

from harness.cluster import NodeSpec, ReadyLog
from harness.environments.docker.engine.labels import RUN_LABEL
from harness.environments.docker.node.clocks import SHARED_MEMORY
from harness.errors import UsageError
from tests.docker.support import plan_of
from tests.docker.test_plan import blueprint, node
from tests.process.test_clocks import PAUSE_S, WALL

NODE = NodeSpec(
    name="x",
    role="r",
    ports=(),
    command=("python3", WALL, str(PAUSE_S)),
    setup=(("sh", "-c", 'echo "setup preload=$LD_PRELOAD"'),),
    ready=ReadyLog("ready"),
    clock_probe=("date", "+%s.%N"),  # runs outside the node, so it sees the true time
)


@pytest.mark.docker
@pytest.mark.xdist_group("docker")
def test_a_probe_that_sees_no_shift_has_the_run_refused(environment, engine):
    async def main(session):
        raise AssertionError("the run began")

    run_id = f"clock-{os.getpid()}-2"
    with pytest.raises(UsageError, match=r"moved by \+2.0 s, but according to its `clock_probe`"):
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
