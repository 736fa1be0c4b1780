"""Every nemesis affects the simulated bundled target, and the target is not blamed."""

import msgspec
import pytest

from harness.case import Case
from harness.errors import UsageError
from harness.faults.nemesis_from_text import load_nemesis
from harness.plan.planning import plan_case
from harness.plan.reach import client_ends
from harness.registry import load_plugin, plugin_names
from harness.run.phases import conduct
from harness.timeline import faults_of
from harness.verdict.judge import judge

USUAL = ("partition-ring", "partition-one-way", "restart-random", "slow-links", "reset-links",
         "clock-strobe", "slow-cpu", "disk-errors", "slow-disk", "bit-rot")  # fmt: skip
ELSEWHERE = frozenset({  # nemeses for metastores, ZooKeeper or real Kudu
    "kill-database", "kill-metastore", "kill-zookeeper", "metastore-membership",
    "partition-metastore", "partition-zookeeper", "pause-database", "pause-metastore",
    "pause-zookeeper", "power-cut-database", "restart-database", "restart-metastores",
    "rolling-upgrade", "set-flag",
})  # fmt: skip
ALL = [name for name in plugin_names("nemeses") if name not in {"none", *ELSEWHERE}]
SEEDS = {"at-points": 2}  # with seed 1, too few operations succeed for a verdict
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
    history, judgement = run(nemesis, SEEDS.get(nemesis, 1))
    assert any(fault.bitten for fault in faults_of(history))
    assert judgement.verdict == "valid", judgement
    injected = [op.value for op in history if op.f == nemesis and op.value["action"] == "inject"]
    assert all(value["what"]["fault"] for value in injected if value["targets"])


@pytest.mark.parametrize("nemesis", sorted(ELSEWHERE))
def test_a_nemesis_of_other_targets_is_refused(nemesis):
    with pytest.raises(UsageError):
        run(nemesis, 1)


def outcomes_by_client(history, fault, concurrency=10):
    """Return the outcomes of operations during a fault, by client."""
    found = {number: set() for number in range(concurrency)}
    for pair in history.pairs:
        done = pair.completion
        if done is not None and fault.start < pair.invoke.time and done.time < fault.end:
            found[pair.invoke.process % concurrency].add(done.type.value)
    return found


def test_one_client_is_cut_off_and_the_others_go_on():
    history, judgement = run("cut client:1 from all at 1s for 4s", 1)
    (fault,) = faults_of(history)
    assert fault.bitten
    assert fault.clients == ("client:1",)
    assert set(fault.targets) == {"m1", "m2", "m3", "t1", "t2", "t3"}
    found = outcomes_by_client(history, fault)
    assert found.pop(1) <= {"fail", "info"}
    assert all("ok" in each for each in found.values())
    assert judgement.verdict == "valid", judgement


def test_an_outage_of_cut_off_clients_convicts_no_target():
    history, judgement = run("cut client from all at 0s for 20s", 1, time_limit_s=16)
    (fault,) = faults_of(history)
    assert fault.clients == ("client",)
    bounds = next(each for each in judgement.results if each.checker == "bounds")
    assert bounds.verdict == "valid"
    assert "invalid" not in {each.verdict for each in judgement.results}


def test_only_a_run_that_tells_clients_apart_has_links_for_each():
    def ends_of(*nemeses):
        return client_ends({text: load_nemesis(text) for text in nemeses}, 2)

    assert ends_of("cut client from leader", "kill one") == ("client",)
    for text in (
        "cut client:0 from leader",
        "reset one@clients from all",
        "cut halves with clients",
    ):
        assert ends_of("kill one", text) == ("client", "client:0", "client:1")


def test_a_client_that_there_is_not_is_refused_before_the_start():
    case = Case(seed=1, nemeses=("cut client:9 from leader",), concurrency=9)
    with pytest.raises(UsageError, match=r"client:9.*client:8"):
        plan_case(case, None)
    plan_case(msgspec.structs.replace(case, concurrency=10), None)


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


def test_a_fault_strikes_a_little_after_a_point():
    text = "kill it when event appended group=master after=5ms for 1s"
    history, judgement = run(text, 1)
    hit = [fault for fault in faults_of(history) if fault.targets]
    assert hit
    assert all(0 <= fault.after_event_ms < 1 for fault in hit)
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


def test_an_operation_is_done_at_an_event_that_it_waits_for():
    text = "do rolling-restart on it when event leader group=master"
    history, judgement = run(text, 1, "kill leader every 3s for 1s")
    leaders = {(op.time, op.value["node"]) for op in history.facts("leader")}
    done = [fault for fault in faults_of(history) if fault.targets and fault.nemesis == text]
    assert done
    assert {(fault.start, fault.targets[0]) for fault in done} <= leaders
    ends = [op.value for op in history if op.f == text and op.value["action"] == "heal"]
    assert [end["bite"]["count"] for end in ends] == [1] * len(done)
    assert judgement.verdict == "valid", judgement


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
