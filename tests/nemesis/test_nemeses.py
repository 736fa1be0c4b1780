"""Plans are data drawn from the seed; injections hit the role they aim at, and nothing else."""

import asyncio

import pytest

from harness.case import Case, Fault, stream
from harness.cluster import Bite, Link, NodeSpec
from harness.plugins import NodeRole, Roles, load_plugin, plugin_names

S = 1_000_000_000
MASTERS = ("m1", "m2", "m3")
ROLES = Roles(
    {"m1": NodeRole("follower", 3), "m2": NodeRole("leader", 3), "m3": NodeRole("leader", 2)},
    MASTERS,
)
NOBODY = Roles({"m1": NodeRole("follower", 3)}, MASTERS)


class FakeCluster:
    """Records what it is told."""

    def __init__(self, down=()):
        self.down = set(down)
        self.nodes = {name: NodeSpec(name=name, role="x", ports=()) for name in (*MASTERS, "t1")}
        self.calls = []
        self.cuts = []

    async def cut(self, links, *, lease_s):
        self.cuts.append(list(links))
        self.calls.append(("cut", lease_s))
        return f"cut-{len(self.cuts)}"

    async def heal(self, fault):
        self.calls.append(("heal", fault))
        return Bite(7, "frames")

    async def kill(self, node, *, lose_unsynced=False, torn=False):
        self.calls.append(("kill", node, lose_unsynced, torn))
        return node not in self.down

    async def start(self, node):
        self.calls.append(("start", node))
        return True

    async def pause(self, node, *, lease_s):
        self.calls.append(("pause", node, lease_s))
        return True

    async def resume(self, node):
        self.calls.append(("resume", node))
        return True


def plan(name, seed=1, horizon_s=60):
    nemesis = load_plugin("nemeses", name)
    return nemesis.plan(
        stream(seed, name), horizon_ns=horizon_s * S, interval_ns=10 * S, duration_ns=5 * S
    )


def inject(name, args, roles=ROLES, down=()):
    nemesis, cluster = load_plugin("nemeses", name), FakeCluster(down)
    fault = Fault(f"{name}-1", name, 0, 5 * S, args)

    async def go():
        injection = await nemesis.inject(cluster, roles, fault, lease_s=9.0)
        return injection, await nemesis.heal(cluster, injection)

    injection, bite = asyncio.run(go())
    return cluster, injection, bite


@pytest.mark.parametrize("name", [name for name in plugin_names("nemeses") if name != "none"])
@pytest.mark.parametrize("seed", range(20))
def test_one_fault_an_interval_the_last_outliving_the_chaos(name, seed):
    faults = plan(name, seed)
    assert len(faults) == 6
    assert [fault.at_ns // (10 * S) for fault in faults] == list(range(6))
    ends = [fault.at_ns + fault.duration_ns for fault in faults]
    assert all(end <= (slot + 1) * 10 * S for slot, end in enumerate(ends[:-1]))
    assert ends[-1] > 60 * S
    assert faults == plan(name, seed)


def test_short_runs_get_one_fault():
    assert len(plan("kill-leader", horizon_s=3)) == 1


def test_none_plans_nothing():
    assert list(plan("none")) == []


def test_a_plan_survives_the_case_file():
    faults = tuple(plan("partition-halves"))
    case = Case(seed=1, faults=faults)
    import msgspec

    assert msgspec.json.decode(case.encode(), type=Case).faults == faults


def test_partition_leader_cuts_the_leader_of_the_highest_term():
    cluster, injection, bite = inject("partition-leader", {"keep_others": True})
    assert injection.targets == ("m2",)
    assert cluster.cuts == [Link.between(["m2"], ["m1", "m3"])]
    assert bite == Bite(7, "frames")


def test_partition_leader_may_cut_all_others_too():
    cluster, _, _ = inject("partition-leader", {"keep_others": False})
    assert cluster.cuts == [Link.between(["m2"], ["m1", "m3", "t1"])]


@pytest.mark.parametrize("draw", range(30))
def test_halves_leave_a_majority_of_candidates_on_one_side(draw):
    cluster, injection, _ = inject("partition-halves", {"draw": draw})
    minority = [name for name in injection.targets if name in MASTERS]
    assert len(minority) == 1
    right = set(injection.targets)
    left = set(cluster.nodes) - right
    assert {link.source for link in cluster.cuts[0]} == left | right
    assert all((link.source in left) != (link.destination in left) for link in cluster.cuts[0])


@pytest.mark.parametrize("draw", range(8))
def test_random_node_is_cut_from_everybody(draw):
    cluster, injection, _ = inject("partition-random-node", {"draw": draw})
    (target,) = injection.targets
    others = [name for name in cluster.nodes if name != target]
    assert cluster.cuts == [Link.between([target], others)]


@pytest.mark.parametrize("name", ["kill-leader", "power-cut-leader"])
def test_kill_and_restart(name):
    cluster, injection, bite = inject(name, {})
    power_cut = name == "power-cut-leader"
    assert injection.targets == ("m2",)
    assert cluster.calls == [("kill", "m2", power_cut, power_cut), ("start", "m2")]
    assert bite == Bite(1, "processes")


def test_pause_and_resume_with_a_lease():
    cluster, _, bite = inject("pause-leader", {})
    assert cluster.calls == [("pause", "m2", 9.0), ("resume", "m2")]
    assert bite == Bite(1, "processes")


@pytest.mark.parametrize("name", ["partition-leader", "kill-leader", "pause-leader"])
def test_without_a_leader_nothing_is_touched(name):
    cluster, injection, _ = inject(name, {}, NOBODY)
    assert injection.targets == ()
    assert "missed" in injection.note
    assert [call for call in cluster.calls if call[0] not in {"start", "resume", "heal"}] == []


NODES = (*MASTERS, "t1")


@pytest.mark.parametrize("name", ["kill-all", "power-cut-all"])
def test_all_nodes_go_down_and_come_back_without_a_leader(name):
    cluster, injection, bite = inject(name, {}, NOBODY)
    cut = name == "power-cut-all"
    assert injection.targets == NODES
    assert cluster.calls == [
        *(("kill", node, cut, cut) for node in NODES),
        *(("start", node) for node in NODES),
    ]
    assert bite == Bite(4, "processes")


def test_a_kill_starts_again_only_what_it_ended_itself():
    cluster, injection, _ = inject("kill-all", {}, down=("m2", "t1"))
    assert injection.targets == ("m1", "m3")
    assert [call for call in cluster.calls if call[0] == "start"] == [
        ("start", "m1"),
        ("start", "m3"),
    ]


@pytest.mark.parametrize("draw", range(8))
def test_kill_random_takes_any_node_and_kill_tserver_one_that_cannot_lead(draw):
    _, injection, _ = inject("kill-random", {"draw": draw}, NOBODY)
    assert injection.targets == (NODES[draw % 4],)
    _, injection, _ = inject("kill-tserver", {"draw": draw}, NOBODY)
    assert injection.targets == ("t1",)


def test_kill_tserver_misses_where_every_node_can_lead():
    _, injection, _ = inject("kill-tserver", {"draw": 1}, Roles({}, NODES))
    assert injection.targets == ()
    assert "missed" in injection.note


@pytest.mark.parametrize("draw", range(4))
def test_pause_random_takes_any_node(draw):
    cluster, injection, _ = inject("pause-random", {"draw": draw}, NOBODY)
    assert injection.targets == (NODES[draw],)
    assert cluster.calls == [("pause", NODES[draw], 9.0), ("resume", NODES[draw])]


@pytest.mark.parametrize("name", plugin_names("nemeses"))
def test_every_nemesis_says_what_kind_of_fault_it_is_and_whether_it_waits_for_a_leader(name):
    nemesis = load_plugin("nemeses", name)
    prefix = name.split("-")[0]
    kinds = {"partition": "cut", "kill": "kill", "pause": "pause", "power": "power-cut"}
    assert nemesis.kind == kinds.get(prefix, "other")
    assert nemesis.needs_leader == name.endswith("-leader")
