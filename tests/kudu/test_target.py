"""The nodes, options and flags that the target `kudu` declares."""

import random

import msgspec
import pytest

from harness.errors import UsageError
from harness.plugins import Deployment, TargetSettings
from harness.plugins.options import default_values
from harness.registry import load_plugin
from targets.kudu import KuduTarget
from targets.kudu.flags import DRAWN, RANGES, Flags, draw_flags, parse_flags
from tests.support.programs import python


def settings(*, profile: str = "strict", bugs: tuple[str, ...] = (), **options) -> TargetSettings:
    defaults = default_values(KuduTarget.options)
    return TargetSettings(profile=profile, bugs=bugs, options=defaults | options)


def test_is_found_through_its_entry_point():
    assert isinstance(load_plugin("targets", "kudu"), KuduTarget)


def test_nodes_by_default():
    nodes = KuduTarget().nodes(settings())
    assert [node.name for node in nodes] == ["m1", "m2", "m3", "t1", "t2", "t3"]
    assert {node.role: node.ports for node in nodes} == {"master": (7051,), "tserver": (7050,)}
    for node in nodes:
        assert node.entry == f"targets.kudu.{node.role}.node:main"
        assert node.config["masters"] == ["m1:7051", "m2:7051", "m3:7051"]
        assert node.config["address"] == f"{node.name}:{node.ports[0]}"


def test_flags_and_switches_reach_every_node():
    chosen = settings(
        masters=1, tservers=1, kudu_flag="heartbeat_interval_ms=100", bugs=("NO-LEASE",)
    )
    for node in KuduTarget().nodes(chosen):
        assert node.config["flags"]["heartbeat_interval_ms"] == 100
        assert node.config["bugs"] == ["NO-LEASE"]


def test_lists_of_tablet_servers_may_name_a_master_twice():
    chosen = settings(masters=1, spare_masters=1, tservers=1, named_twice="m1")
    told = {node.name: node.config["masters"] for node in KuduTarget().nodes(chosen)}
    assert told["t1"] == ["m1:7051", "m2:7051", "m1:7051"]
    assert told["m1"] == ["m1:7051"]


def test_the_changed_variant_may_be_told_of_other_masters():
    chosen = settings(
        masters=1, spare_masters=2, told_spares=False, tservers=1, changed_masters="m1,m3"
    )
    told = {
        node.name: (node.config["masters"], node.variants["changed"].config["masters"])
        for node in KuduTarget().nodes(chosen)
    }
    new = ["m1:7051", "m3:7051"]
    assert told == {
        "m1": (["m1:7051"], new),
        "m2": (["m1:7051", "m2:7051"], [*new, "m2:7051"]),  # a master always knows itself
        "m3": (["m1:7051", "m3:7051"], new),
        "t1": (["m1:7051"], new),
    }


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (settings(masters=2), "--masters is 2"),
        (settings(masters=9), "--masters is 9"),
        (settings(kudu_flag="heartbeat_interval_ms"), "has no value"),
        (settings(kudu_flag="no_such=1"), "no_such"),
        (settings(changed_masters="m1,m9"), "'m9' is not a master"),
        (settings(profile="modern", spare_masters=1, told_spares=False), "never learn"),
        (settings(named_twice="m9"), "m9"),
        (settings(named_twice="m4", spare_masters=1, told_spares=False), "named-twice"),
        (settings(profile="ancient"), "'ancient'"),
        (settings(bugs=("KUDU-0",)), "'KUDU-0'"),
    ],
)
def test_impossible_settings_are_usage_errors(chosen, text):
    with pytest.raises(UsageError, match=text):
        KuduTarget().nodes(chosen)


@pytest.mark.parametrize(
    "flag",
    [
        "heartbeat_interval_ms=0",
        "log_segment_size_kb=0",
        "tablet_snapshot_every=-1",
        "log_max_segments_to_retain=0",
        "consensus_rpc_timeout_ms=1",
        "master_read_confirm_timeout_ms=0",
        "raft_heartbeat_interval_ms=0",
        "raft_heartbeat_interval_ms=-5",
        "leader_failure_max_missed_heartbeat_periods=0",
        "leader_failure_max_missed_heartbeat_periods=0.1",
        "leader_failure_max_missed_heartbeat_periods=nan",
        "leader_failure_max_missed_heartbeat_periods=inf",
    ],
)
def test_flags_with_which_no_cluster_works_are_usage_errors(flag):
    name, _, value = flag.partition("=")
    within = RANGES[name]
    with pytest.raises(UsageError) as refused:
        parse_flags(f"raft_enable_pre_election=true,{flag}")
    for part in (name, value, f"from {within.least} to {within.most}"):
        assert part in str(refused.value)


def test_every_number_has_a_range_with_its_default_and_what_soaks_draw():
    usual = msgspec.structs.asdict(Flags())
    assert set(RANGES) == {name for name, value in usual.items() if not isinstance(value, bool)}
    for name, (least, most) in RANGES.items():
        for value in (usual[name], *DRAWN.get(name, ()), least, most):
            assert getattr(parse_flags(f"{name}={value}"), name) == value
        for value in (least - 1, most + 1):
            with pytest.raises(UsageError, match=name):
                parse_flags(f"{name}={value}")


def test_seeds_draw_flags_and_given_ones_win():
    name = "follower_unavailable_considered_failed_sec"
    drawn = [draw_flags(random.Random(seed), "") for seed in range(60)]
    assert drawn == [draw_flags(random.Random(seed), "") for seed in range(60)]
    assert {getattr(parse_flags(one), name) for one in drawn} == set(DRAWN[name]) == {3, 10, 300}
    options = KuduTarget().draw_options(random.Random(1), {"kudu_flag": f"{name}=77"})
    assert getattr(parse_flags(options["kudu_flag"]), name) == 77
    # the flags that were drawn first; stored seeds must keep these draws
    first = ("master_snapshot_every", "tablet_snapshot_every")
    first += ("consensus_max_batch_size_bytes", "log_segment_size_kb")
    assert tuple(DRAWN)[:4] == first
    assert drawn[0].startswith(
        "master_snapshot_every=30,tablet_snapshot_every=4,"
        "consensus_max_batch_size_bytes=1048576,log_segment_size_kb=8,"
    )


@pytest.mark.parametrize(("masters", "core"), [(1, 1), (3, 2), (5, 3), (7, 4)])
def test_a_core_is_a_majority_of_masters_and_all_tablet_servers(masters, core):
    system = KuduTarget().open(Deployment(None, settings(masters=masters), {}))
    seen = set()
    for seed in range(30):
        nodes = system.core(random.Random(seed))
        assert nodes == system.core(random.Random(seed))
        assert [n for n in nodes if n.startswith("t")] == ["t1", "t2", "t3"]
        assert len({n for n in nodes if n.startswith("m")}) == len(nodes) - 3 == core
        seen.add(tuple(nodes))
    assert len(seen) > 1 or masters == 1


def test_node_processes_do_not_load_the_plug_in():
    code = (
        "import sys, targets.kudu.tserver.node; "
        "assert 'targets.kudu.target' not in sys.modules; "
        "assert 'harness.plugins' not in sys.modules, 'plug-in machinery'"
    )
    python(code, timeout_s=60)
