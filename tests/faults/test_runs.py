"""Every nemesis on the bundled target in the simulation: it bites, and convicts nobody."""

import pytest

from harness.case import Case
from harness.checking import judge
from harness.planning import plan_case
from harness.registry import load_plugin, plugin_names
from harness.run import conduct
from harness.timeline import faults_of

USUAL = ("partition-ring", "partition-one-way", "restart-random", "slow-links", "reset-links",
         "clock-strobe", "slow-cpu", "disk-errors", "slow-disk", "bit-rot")  # fmt: skip
ALL = [name for name in plugin_names("nemeses") if name != "none"]
RARE = [pytest.param(name, marks=pytest.mark.nightly) for name in ALL if name not in USUAL]


def run(nemesis, seed, *others, time_limit_s=6.5, damage="minority", **options):
    nemeses = (nemesis, *others)
    case = Case(
        seed=seed,
        nemeses=nemeses,
        target_options=options,
        interval_s=3.0,
        duration_s=2.0,
        time_limit_s=time_limit_s,
        damage=damage,
    )
    sim = load_plugin("environments", "sim")
    plan = plan_case(case, sim)
    history = conduct(plan, sim, run_id="test", folder=None).history
    return history, judge(history, plan.case, plan.checkers)


@pytest.mark.parametrize("nemesis", [*USUAL, *RARE])
def test_a_nemesis_bites_and_a_clean_target_is_valid(nemesis):
    history, judgement = run(nemesis, 1)
    assert any(fault.bitten for fault in faults_of(history))
    assert judgement.verdict == "valid", judgement
    injected = [op.value for op in history if op.f == nemesis and op.value["action"] == "inject"]
    assert all(value["what"]["fault"] for value in injected if value["targets"])


def test_words_strike_when_they_say():
    history, judgement = run("pause follower every 2s for 1s", 1)
    chaos = next(op.time for op in history.facts("phase") if op.value["phase"] == "chaos")
    starts = [round((fault.start - chaos) / 1e9) for fault in faults_of(history)]
    assert starts == [2, 4, 6]
    assert judgement.verdict == "valid"


def test_a_fault_at_an_event_strikes_the_node_that_had_it_at_that_very_time():
    text = "kill it when event leader group=master for 2s"
    history, judgement = run(text, 1, "kill leader every 3s for 1s")
    leaders = {(op.time, op.value["node"]) for op in history.facts("leader")}
    hit = [fault for fault in faults_of(history) if fault.targets and fault.nemesis == text]
    assert hit
    assert {(fault.start, fault.targets[0]) for fault in hit} <= leaders
    assert {fault.after_event_ms for fault in hit} == {0.0}
    assert judgement.verdict == "valid", judgement


@pytest.mark.parametrize("damage", ["minority", "majority"])
def test_a_case_decides_whether_a_majority_may_be_damaged(damage):
    text = "disk role:tserver bitrot=100% at 1s for 1s"
    history, judgement = run(text, 1, time_limit_s=3.0, damage=damage)
    (fault,) = faults_of(history)
    hit = damage == "majority"
    assert fault.targets == (("t1", "t2", "t3") if hit else ())
    assert fault.begin.value.get("refused", False) is not hit
    assert judgement.verdict == ("valid" if hit else "unknown"), judgement


def test_an_event_that_never_comes_is_a_fault_that_missed():
    history, judgement = run("kill it when event no-such-event", 1)
    notes = [op.value["note"] for op in history if op.f.startswith("kill it")]
    assert notes
    assert all("missed" in note for note in notes)
    assert judgement.verdict == "unknown"


def test_a_leader_steps_down_and_nodes_restart_with_another_flag_under_faults():
    history, judgement = run(
        "do step-down on leader every 3s", 1,
        "do rolling-restart on all variant=changed at 1s",
        "cut leader from members every 4s for 1s", "kill one every 4500ms for 1s",
        changed_flag="raft_heartbeat_interval_ms=400", time_limit_s=10.0,
    )  # fmt: skip
    told = [fault.heal.value["note"] for fault in faults_of(history) if fault.heal]
    assert any("stepped down" in note for note in told)
    assert any("in turn as changed" in note for note in told)
    assert judgement.verdict == "valid", judgement
