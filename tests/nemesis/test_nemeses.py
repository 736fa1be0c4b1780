"""The plan of a nemesis depends only on the seed, and its faults hit only nodes of its role."""

import asyncio
import itertools

import pytest

from harness.case import Case, Fault, stream
from harness.cluster import CLIENT, Bite, Link
from harness.errors import UsageError
from harness.faults.ledger import Ledger
from harness.faults.nemesis_from_text import load_nemesis
from harness.nodes.faults import Cut, Kill, Shape
from harness.plugins import NodeRole, Roles, Scene
from harness.registry import load_plugin, plugin_names
from tests.support.cluster import MASTERS, FakeCluster, FakeEnv, conductor_of
from tests.support.repeated import for_each

S = 1_000_000_000
ROLES = Roles(
    {"m1": NodeRole("follower", 3), "m2": NodeRole("leader", 3), "m3": NodeRole("leader", 2)},
    MASTERS,
)
GROUPS = {"g": MASTERS}
NOBODY = Roles({"m1": NodeRole("follower", 3)}, MASTERS)


def plan(name, seed=1, horizon_s=60):
    nemesis = load_plugin("nemeses", name).for_target(load_plugin("targets", "kudu"))
    return nemesis.plan(
        stream(seed, name), horizon_ns=horizon_s * S, interval_ns=10 * S, duration_ns=5 * S
    )


def inject(name, args, roles=ROLES, down=()):
    nemesis, cluster = load_plugin("nemeses", name), FakeCluster(down)
    fault = Fault(f"{name}-1", name, 0, 5 * S, args)

    async def go():
        ledger = Ledger(cluster, FakeEnv())
        injection = await ledger.inject(
            nemesis.aim(Scene(cluster.nodes, {"g": roles}), fault), lease_s=9.0, groups=GROUPS
        )
        bite = await ledger.heal(injection.id) if injection.targets else None
        return injection, bite

    injection, bite = asyncio.run(go())
    return cluster, injection, bite


FLAPPING = ("crash-loop", "partition-flapping", "reset-links")
STEADY = [
    n for n in plugin_names("nemeses") if n not in {"none", "at-points", "swizzle", *FLAPPING}
]


@pytest.mark.parametrize("name", STEADY)
@for_each("seed", range(20))
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


@for_each("draw", range(30))
def test_halves_leave_a_majority_of_candidates_on_one_side(draw):
    cluster, injection, _ = inject("partition-halves", {"draw": draw})
    minority = [name for name in injection.targets if name in MASTERS]
    assert len(minority) == 1
    right = set(injection.targets)
    left = set(cluster.nodes) - right
    assert {link.source for link in cluster.cuts[0]} == left | right
    assert all((link.source in left) != (link.destination in left) for link in cluster.cuts[0])


@for_each("draw", range(8))
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


def test_a_kill_restarts_only_nodes_that_it_ended():
    cluster, injection, _ = inject("kill-all", {}, down=("m2", "t1"))
    assert injection.targets == ("m1", "m3")
    assert [call for call in cluster.calls if call[0] == "start"] == [
        ("start", "m1"),
        ("start", "m3"),
    ]


@for_each("draw", range(8))
def test_kill_random_takes_any_node_and_kill_tserver_one_that_cannot_lead(draw):
    _, injection, _ = inject("kill-random", {"draw": draw}, NOBODY)
    assert injection.targets == (NODES[draw % 4],)
    _, injection, _ = inject("kill-tserver", {"draw": draw}, NOBODY)
    assert injection.targets == ("t1",)


def test_kill_tserver_misses_where_every_node_can_lead():
    _, injection, _ = inject("kill-tserver", {"draw": 1}, Roles({}, NODES))
    assert injection.targets == ()
    assert "missed" in injection.note


@for_each("draw", range(4))
def test_pause_random_takes_any_node(draw):
    cluster, injection, _ = inject("pause-random", {"draw": draw}, NOBODY)
    assert injection.targets == (NODES[draw],)
    assert cluster.calls == [("pause", NODES[draw], 9.0), ("resume", NODES[draw])]


@pytest.mark.parametrize("name", FLAPPING)
@for_each("seed", range(5))
def test_what_flaps_is_on_four_times_in_an_interval_with_rests_between(name, seed):
    faults = plan(name, seed)
    assert len(faults) == 24
    for first in range(0, 24, 4):
        burst = faults[first : first + 4]
        assert all(fault.args == burst[0].args for fault in burst)
        for before, after in itertools.pairwise(burst):
            assert before.at_ns + before.duration_ns < after.at_ns
    assert faults[-1].at_ns + faults[-1].duration_ns > 60 * S
    assert len({fault.id for fault in faults}) == 24


@for_each("seed", range(10))
def test_swizzle_takes_three_nodes_one_by_one_and_all_are_down_for_a_while(seed):
    for first in range(0, 18, 3):
        three = plan("swizzle", seed)[first : first + 3]
        starts = [fault.at_ns for fault in three]
        ends = [fault.at_ns + fault.duration_ns for fault in three]
        assert starts == sorted(starts)
        assert max(starts) < min(ends)
        assert len(set(ends)) == 3
        assert len({fault.args["draw"] % len(NODES) for fault in three}) == 3


def test_the_order_in_which_a_swizzle_lets_go_is_drawn():
    orders = set()
    for seed in range(20):
        three = plan("swizzle", seed)[:3]
        ends = [fault.at_ns + fault.duration_ns for fault in three]
        orders.add(tuple(sorted(range(3), key=ends.__getitem__)))
    assert len(orders) > 1


WAITS = {"partition-leader", "partition-pair",
         "partition-one-way", "partition-clients", "partition-flapping",
         "kill-leader", "kill-follower", "power-cut-leader", "pause-leader"}  # fmt: skip
MIXED = {"partition", "partition-some-clients", "kill", "pause", "clock", "disk", "slow-cpu",
         "slow-disk", "bit-rot", "at-points", "set-flag"}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in plugin_names("nemeses") if name != "none"])
def test_a_nemesis_waits_for_a_leader_only_if_it_needs_one(name):
    nemesis = load_plugin("nemeses", name)
    faults = [fault for seed in range(20) for fault in plan(name, seed)]
    waits = {bool(nemesis.needs_leader(fault)) for fault in faults}
    assert waits == ({True, False} if name in MIXED else {name in WAITS})


def test_a_choice_of_an_old_case_means_what_it_meant():
    for keep, choice in ((True, 0), (False, 1)):
        old, _, _ = inject("partition-leader", {"keep_others": keep})
        new, _, _ = inject("partition-leader", {"choice": choice})
        assert old.cuts == new.cuts
    load_plugin("nemeses", "partition-leader").check_args({"keep_others": True})
    with pytest.raises(UsageError):
        load_plugin("nemeses", "kill-leader").check_args({"keep_others": True})


def test_what_was_injected_is_a_struct():
    _, injection, _ = inject("power-cut-leader", {})
    assert injection.what == Kill(power_cut=True, torn=True)
    _, injection, _ = inject("partition-one-way", {"choice": 1})
    assert injection.what == Cut(one_way=True)


def test_one_way_cuts_lead_one_way():
    cluster, _, _ = inject("partition-one-way", {"choice": 0})
    assert cluster.cuts == [[Link("m2", "m1"), Link("m2", "m3")]]
    cluster, _, _ = inject("partition-one-way", {"choice": 1})
    assert cluster.cuts == [[Link("m1", "m2"), Link("m3", "m2")]]


def test_a_restart_stops_in_order_and_starts_again():
    cluster, injection, bite = inject("restart-random", {"draw": 3})
    assert injection.targets == ("t1",)
    assert cluster.calls == [("stop", "t1"), ("start", "t1")]
    assert bite == Bite(1, "processes")


def test_bad_links_are_shaped_and_healed():
    cluster, injection, bite = inject("slow-links", {"draw": 0})
    assert isinstance(injection.what, Shape)
    ((_, quality),) = cluster.laid
    assert (quality.delay_ms, quality.jitter_ms) == (200, 50)
    assert cluster.calls[0] == ("set-links", 9.0)
    assert bite == Bite(7, "frames")


def test_resets_are_counted_at_once_and_leave_nothing_to_heal():
    cluster, _, bite = inject("reset-links", {"draw": 0})
    assert bite == Bite(5, "connections")
    assert [call[0] for call in cluster.calls] == ["reset"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cut leader from members", "cut leader m2 off from m1, m3"),
        ("cut members to leader", "cut all that goes from m1, m3 to leader m2"),
        ("cut leader to node:t1", "cut all that goes from leader m2 to t1"),
        ("cut role:x from client", "cut client from m1, m2, m3, t1"),
        ("shape client from leader loss=5%", "made the links between leader m2 and client worse"),
        ("reset node:t1 from others", "reset the connections between t1 and m1, m2, m3"),
        ("pause followers", "paused m1, m3"),
        ("restart node:m1", "stopped m1"),
        ("clock leader offset=-2s", "changed the clock of m2"),
        ("cpu followers factor=4", "slowed down m1, m3"),
        ("disk node:t1 full=yes", "spoiled the disk of t1"),
    ],
)
def test_effects_of_a_fault_in_words_are_described(text, told):
    nemesis, cluster = load_nemesis(text), FakeCluster()
    fault = Fault("f", text, 0, 5 * S, {})

    async def go():
        aim = nemesis.aim(Scene(cluster.nodes, {"g": ROLES}), fault)
        return await Ledger(cluster, FakeEnv()).inject(aim, lease_s=9.0, groups=GROUPS)

    assert asyncio.run(go()).note == told


ENDS = (CLIENT, "client:0", "client:1")


@pytest.mark.parametrize(
    ("text", "nodes", "clients"),
    [
        ("cut client:1 from leader", {"m2"}, ["client:1"]),
        ("cut client from leader", {"m2"}, ["client"]),
        ("cut leader from members", {"m2"}, None),
        ("cut halves with clients", None, ["client:0", "client:1"]),
        ("shape half@clients from all delay=5ms", {*NODES}, ["client:1"]),
    ],
)
def test_the_history_names_nodes_and_clients_apart(text, nodes, clients):
    cluster = FakeCluster(clients=ENDS)
    fault = Fault("f", text, 0, 5 * S, {"draw": 4} if "hal" in text else {})

    async def go():
        conductor, recorder = conductor_of(text, cluster)
        await conductor.strike(fault)
        return [op.value for op in recorder.history()]

    (told,) = asyncio.run(go())
    assert nodes is None or set(told["targets"]) == nodes
    assert {*told["targets"]} <= {*NODES}
    assert told.get("clients") == clients
    assert told.get("clients_only", False) is (clients is not None and nodes is not None)
