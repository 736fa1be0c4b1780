"""The register under chaos: its guarantees as short tests."""

import pytest

from harness.nodes.faults import Kill

pytestmark = pytest.mark.harness(target="abd-register", workload="register", time_limit=20)


@pytest.mark.parametrize("breaks", ["kill-node", "cut-node", "kill-node,cut-node"])
def test_the_register_is_linearizable_and_comes_back(run_case, breaks):
    run_case(nemesis=breaks)


def test_five_nodes_do_as_well(run_case):
    run_case(nodes=5, nemesis="cut-node")


# One frame in ten is up to two seconds late. Only the simulation has such knobs, and repeats a run
# exactly by its seed.
LATE = {"env": "sim", "seed": 1, "knobs": {"latency": "tail"}}


def test_late_frames_do_no_harm(run_case):
    run_case(**LATE)


def test_a_read_without_write_back_is_caught(run_case):
    run_case(**LATE, bug="NO-WRITE-BACK", expect="invalid")


def test_a_write_outlives_any_one_node(cluster, nemesis, history):
    async def body(live):
        await live.invoke("write", {"value": 42})
        async with nemesis("kill-node") as strike:
            seen = await live.invoke("read", process=1)
        return strike.targets, seen

    killed, seen = cluster().run(body)
    assert (len(killed), seen.value) == (1, {"value": 42})
    history.check("linearizable-register")


def test_without_a_majority_nothing_is_answered(cluster):
    async def body(live):
        await live.cluster.inject(Kill(), ["n1", "n2"], lease_s=60)
        return await live.invoke("read", timeout_s=1.0)

    assert cluster().run(body).type.value == "fail"


@pytest.mark.harness_soak
@pytest.mark.parametrize("seed", range(20))
def test_many_seeds(run_case, seed):
    run_case(nemesis="kill-node,cut-node", seed=seed, env="sim", time_limit=60)
