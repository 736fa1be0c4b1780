"""Disk faults of foreign programs are refused, or deployed on a faulty disk."""

from types import SimpleNamespace

import pytest

from harness.cluster import Capability, NodeSpec
from harness.errors import UsageError
from harness.faults.nemesis_from_text import load_nemesis
from harness.nodes.deployment import check_nodes
from harness.plan.reach import nodes_for, out_of_reach, refuse_nodes, why_no_faulty_disks
from harness.registry import load_plugin

ON_ENV = NodeSpec(name="e", role="r", ports=(1,), entry="tests.process.nodes:main")
OWN_DISK = NodeSpec(name="o", role="r", ports=(1,), command=("true",))
FAULTY = NodeSpec(name="f", role="r", ports=(1,), command=("true",), faulty_disk=True)
NODES = (ON_ENV, OWN_DISK, FAULTY)


@pytest.mark.parametrize(
    ("nemesis", "unreached"),
    [
        ("kill-leader", []),
        ("power-cut-all", ["o"]),
        ("disk-errors", ["o"]),
        ("disk", ["o"]),
        ("bit-rot", ["o", "f"]),
        ("clock-jump", ["o", "f"]),
    ],
)
def test_only_declared_faults_reach_a_node(nemesis, unreached):
    plugin = load_nemesis(nemesis)
    assert out_of_reach(plugin, NODES) == unreached
    if unreached:
        with pytest.raises(UsageError, match=f"cannot reach {', '.join(unreached)}: a foreign"):
            refuse_nodes(
                plugin,
                {node.name: node for node in NODES},
                None,
                SimpleNamespace(reaches_foreign=None, owns_programs=False),
            )


def test_unneeded_disks_are_not_mounted():
    needed = nodes_for(NODES, {"a": load_nemesis("kill-leader"), "b": load_nemesis("slow-disk")})
    assert [node.faulty_disk for node in needed] == [False, False, True]
    spared = nodes_for(NODES, {"a": load_nemesis("kill-leader"), "c": load_nemesis("clock-jump")})
    assert [node.faulty_disk for node in spared] == [False, False, False]


def test_a_simulation_has_none():
    assert "has none" in why_no_faulty_disks(load_plugin("environments", "sim"))
    assert Capability.LOSE_UNSYNCED in load_plugin("environments", "sim").capabilities


def test_a_node_on_env_has_one_already():
    both = NodeSpec(name="b", role="r", ports=(1,), entry=ON_ENV.entry, faulty_disk=True)
    with pytest.raises(UsageError, match="is already the harness's; leave it out"):
        check_nodes([both])
