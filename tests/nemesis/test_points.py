"""Faults at points in the target's code; a run draws the point, or the fault's words name it."""

import pytest

from harness.case import Case, Fault, stream
from harness.cluster import NodeSpec
from harness.errors import UsageError
from harness.faults.parser import parse
from harness.plan.planning import plan_case
from harness.plugins import NodeRole, Roles, Scene
from harness.registry import load_plugin
from nemesis.points import AT_A_POINT, FAULTS_PER_INTERVAL, PLOTS, PROVOKING, AtPoints
from tests.support.repeated import for_each

S = 1_000_000_000
POINTS = {"election": ("voted", "candidate term=3"), "log": ("written", "synced")}
OF_PLOTS = {"all": ("voted group=a", "leader", "appended", "committed", "voted group=b")}


def plan(seed, points=POINTS):
    return AtPoints(points).plan(
        stream(seed, "x"), horizon_ns=60 * S, interval_ns=10 * S, duration_ns=5 * S
    )


@for_each("seed", range(20))
def test_a_run_strikes_at_points_of_the_target_and_provokes_elections(seed):
    faults = plan(seed)
    assert len(faults) == 6 * FAULTS_PER_INTERVAL
    assert [fault.at_ns for fault in faults] == sorted(fault.at_ns for fault in faults)
    nemesis = AtPoints(POINTS)
    triggers = [nemesis.trigger_of(fault) for fault in faults]
    struck = {trigger.event for trigger in triggers if trigger is not None}
    assert struck <= {"voted", "candidate", "written", "synced"}
    assert struck
    plain = [f.args["fault"] for f, t in zip(faults, triggers, strict=True) if t is None]
    assert plain
    assert set(plain) <= set(PROVOKING)
    for fault in faults:
        nemesis.check_args(fault.args)
    assert plan(seed) == faults


def test_most_runs_keep_to_one_group_of_points():
    def groups(seed):
        triggers = [parse(fault.args["fault"]).trigger for fault in plan(seed)]
        kinds = {trigger.event for trigger in triggers if trigger is not None}
        return frozenset(
            name for name, points in POINTS.items() if kinds & {p.split()[0] for p in points}
        )

    seen = [groups(seed) for seed in range(40)]
    assert {frozenset({"election"}), frozenset({"log"}), frozenset(POINTS)} == set(seen)
    assert sum(len(each) == 1 for each in seen) > 20


def test_half_of_the_runs_follow_a_plot_if_the_target_has_its_points():
    def words(seed, points):
        return [fault.args["fault"] for fault in plan(seed, points)]

    kept = {seed: words(seed, POINTS) for seed in range(40)}
    assert all(len(each) == 6 * FAULTS_PER_INTERVAL for each in kept.values())
    runs = [words(seed, OF_PLOTS) for seed in range(40)]
    plots = [each for each in runs if len(each) != 6 * FAULTS_PER_INTERVAL]
    assert 10 <= len(plots) <= 30
    assert len({frozenset(each) for each in plots}) == len(PLOTS)  # all rounds are alike
    named = {word for each in plots for text in each for word in text.split()}
    assert {"voted", "group=a", "committed"} <= named
    assert "group=b" not in named  # only the first point of this kind is named


@for_each("seed", range(20))
def test_the_faults_of_a_plot_are_sorted_and_replay(seed):
    faults = plan(seed, OF_PLOTS)
    assert [fault.at_ns for fault in faults] == sorted(fault.at_ns for fault in faults)
    for fault in faults:
        AtPoints(OF_PLOTS).check_args(fault.args)
    assert plan(seed, OF_PLOTS) == faults


def test_every_fault_is_one_in_words():
    for words in (*PROVOKING, *(f"{fault} when event x" for fault in AT_A_POINT)):
        parse(words)


def test_the_fault_hits_the_node_of_the_event():
    specs = {name: NodeSpec(name=name, role="r", ports=(1,), entry="x:y") for name in "abc"}
    roles = Roles({"a": NodeRole("leader", 1)}, tuple(specs))
    fault = Fault("f", "at-points", 0, S, {"fault": "kill it when event voted after=3ms"})
    nemesis = load_plugin("nemeses", "at-points")
    assert nemesis.aim(Scene(specs, {"g": roles}, it="b"), fault).targets == ("b",)
    assert nemesis.trigger_of(fault).after_ns == 3_000_000
    assert nemesis.needs_leader(fault) is False


@pytest.mark.parametrize(
    "args", [{}, {"fault": 3}, {"fault": "melt it"}, {"fault": "kill one", "x": 1}]
)
def test_other_arguments_are_refused(args):
    with pytest.raises(UsageError):
        load_plugin("nemeses", "at-points").check_args(args)


def test_a_target_without_points_is_refused():
    case = Case(seed=1, target="toy-register", workload="register", nemeses=("at-points",))
    with pytest.raises(UsageError, match="points"):
        plan_case(case, load_plugin("environments", "sim"))


def test_the_bundled_targets_declare_events_in_words():
    for name in ("kudu", "hive"):
        target = load_plugin("targets", name)
        for point in (point for group in target.points.values() for point in group):
            assert parse(f"kill it when event {point}").trigger is not None
