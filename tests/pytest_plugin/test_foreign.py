"""The fixtures `cluster` and `nemesis` with foreign programs, none of which is started."""

from types import SimpleNamespace

import pytest

from harness.cluster import NodeSpec
from harness.environments.host.capabilities import FOREIGN
from harness.environments.process import ProcessEnvironment
from harness.environments.process.cluster import CAPABILITIES
from harness.errors import UsageError
from harness.pytesting.clusters import ClusterFactory
from harness.pytesting.fault_fixture import NemesisFactory

CLOCK = "clock node:r2 offset=5s"
NODES = (
    NodeSpec(name="r2", role="register", ports=(), command=("true",), faulty_disk=True),
    NodeSpec(name="r3", role="register", ports=(), command=("true",)),
)


def clocks_of(**settings):
    """Return the nodes whose clocks can be changed by faults, in a cluster with these settings."""
    runs = SimpleNamespace(
        merged_settings=lambda given: ("process", given),
        environment=lambda _: ProcessEnvironment(),
    )
    settings = {"target": "http-register", "workload": "register", "seed": 1, **settings}
    deployment = ClusterFactory(runs)(**settings)
    assert deployment._plan.case.faults == ()
    return deployment._clocks


def test_a_cluster_is_started_for_the_faults_that_it_names():
    assert clocks_of() == set()
    assert clocks_of(nemesis="kill-leader") == set()
    assert clocks_of(nemesis=CLOCK) == {"r2"}
    assert clocks_of(nemesis=[CLOCK, "clock node:r1 drift=5ppm"]) == {"r1", "r2"}
    with pytest.raises(UsageError, match="'kill-leadr'"):
        clocks_of(nemesis="kill-leadr")
    with pytest.raises(UsageError, match="cannot reach"):
        clocks_of(nemesis="disk node:r2 full=yes")  # the node does not declare a faulty disk


def strike(words, *, clocks=(), why_no_disks=None):
    """Inject the fault `words` into a fake cluster; the nodes in `clocks` have faketime."""
    live = SimpleNamespace(
        cluster=SimpleNamespace(
            environment="process",
            capabilities=CAPABILITIES,
            nodes={node.name: node for node in NODES},
        ),
        plan=SimpleNamespace(case=SimpleNamespace(seed=1), target=SimpleNamespace(groups=())),
        environment=SimpleNamespace(
            name="process",
            owns_programs=False,
            reaches_foreign=FOREIGN,
            why_no_faulty_disks=lambda: why_no_disks,
        ),
        recorder=SimpleNamespace(now_ns=lambda: 0),
        ledger=SimpleNamespace(new_id=lambda: "f1"),
        clocks=frozenset(clocks),
        nemeses={},
    )
    NemesisFactory(SimpleNamespace(live=live))(words)
    assert list(live.nemeses) == [words]


@pytest.mark.parametrize(
    ("words", "clocks"),
    [
        (CLOCK, {"r2"}),
        ("clock node:r2 drift=5ppm", {"r2"}),
        ("clock all offset=5s", {"r2", "r3"}),
        ("disk node:r2 full=yes", ()),
        ("power-cut node:r2", ()),
        ("cpu all factor=10", ()),
    ],
)
def test_a_nemesis_block_reaches_foreign_programs_as_a_run_does(words, clocks):
    strike(words, clocks=clocks)


@pytest.mark.parametrize(
    ("words", "options", "reason"),
    [
        (CLOCK, {"clocks": {"r3"}}, "the clock of r2: a foreign program"),
        ("clock all offset=5s", {"clocks": {"r2"}}, "the clock of r3: a foreign program"),
        ("clock leader offset=5s", {}, "the clock of r2, r3: a foreign program"),
        ("disk node:r3 full=yes", {}, "cannot reach r3: a foreign program"),
        ("disk node:r2 bitrot=5%", {}, "cannot reach r2: a foreign program"),
        ("disk node:r2 full=yes", {"why_no_disks": "there is no fuse"}, "there is no fuse"),
    ],
)
def test_faults_that_do_not_reach_them_are_refused(words, options, reason):
    with pytest.raises(UsageError, match=reason):
        strike(words, **options)
