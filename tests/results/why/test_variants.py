"""Variants of a case, each of which lacks one part."""

import msgspec
import pytest

from harness.environments.sim import SimEnvironment
from harness.ops import NS_PER_S, History
from harness.plan.planning import plan_case
from harness.timeline import phases_of
from results.why.variants import FAULTS_EACH_MAX, variants_of, with_recorded_ops
from tests.results.run.page.runs import small_run
from tests.results.why.fakes import FAULTS, OPS, case

SIM = SimEnvironment()


def variants(planned):
    found = variants_of(planned, History(()), SIM)
    return {(each.kind, each.name): each for each in found}


def test_every_part_is_left_out_once():
    planned = plan_case(case(bugs=("NO-LEASE", "KUDU-765"), knobs={"cpu_us": 100.0}), SIM).case
    found = variants(planned)
    assert list(found) == [
        ("all-faults", ""),
        ("faults", "kill-leader"),
        ("fault", "k1"),
        ("fault", "k2"),
        ("fault", "p1"),
        ("bug", "NO-LEASE"),
        ("bug", "KUDU-765"),
        ("operations", "create"),
        ("operations", "get"),
        ("knobs", "cpu"),
    ]
    assert found["all-faults", ""].case.faults == ()
    assert found["all-faults", ""].case.nemeses == ("none",)
    assert found["fault", "p1"].case.nemeses == ("kill-leader",)
    assert found["fault", "k1"].case.nemeses == planned.nemeses
    assert [each.id for each in found["faults", "kill-leader"].case.faults] == ["p1"]
    assert [each.id for each in found["fault", "k2"].case.faults] == ["k1", "p1"]
    assert found["bug", "NO-LEASE"].case.bugs == ("KUDU-765",)
    assert found["operations", "get"].case.ops == OPS[:1]
    assert found["knobs", "cpu"].case.knobs == {}
    assert not any(each.recorded for each in found.values())


def test_knobs_of_a_group_go_together_since_their_bounds_must_fit():
    knobs = {"disk_ms_min": 5.0, "disk_ms_max": 50.0, "latency": "tail", "latency_ms_max": 9.0}
    found = variants(plan_case(case(knobs=knobs), SIM).case)
    assert found["knobs", "disk"].case.knobs == {"latency": "tail", "latency_ms_max": 9.0}
    assert found["knobs", "latency"].case.knobs == {"disk_ms_min": 5.0, "disk_ms_max": 50.0}


def test_options_and_fields_return_to_their_defaults():
    planned = plan_case(
        case(target_options={"masters": 5}, workload_options={"names": 3}, concurrency=4), SIM
    ).case
    found = variants(planned)
    assert found["option", "masters"].case.target_options["masters"] == 3
    assert found["option", "names"].case.workload_options["names"] != 3
    assert found["option", "concurrency"].case.concurrency == 10
    assert ("option", "rate") not in found


def test_a_part_that_the_rest_needs_cannot_be_left_out():
    options = {"hms": True}
    planned = plan_case(
        case(workload="kudu-hms", target_options=options, faults=(), nemeses=("none",), ops=None),
        SIM,
    ).case
    found = variants(planned)["option", "hms"]
    assert found.case is None
    assert "--hms" in found.why_not


def test_many_faults_are_left_out_in_consecutive_groups():
    many = tuple(
        msgspec.structs.replace(FAULTS[0], id=f"k{number}", at_ns=number * NS_PER_S)
        for number in range(3 * FAULTS_EACH_MAX)
    )
    found = variants(plan_case(case(faults=many, nemeses=("kill-leader",)), SIM).case)
    groups = [each.case for (kind, _), each in found.items() if kind == "fault"]
    assert len(groups) == FAULTS_EACH_MAX
    left_out = [{each.id for each in many} - {each.id for each in one.faults} for one in groups]
    assert set.union(*left_out) == {each.id for each in many}
    assert sum(map(len, left_out)) == len(many)


def test_recorded_operations_keep_their_distance_to_the_faults():
    history = small_run()
    plain = case(ops=None)
    recorded = with_recorded_ops(plain, history)
    assert with_recorded_ops(recorded, history) is recorded
    times = [pair.invoke.time for pair in history.pairs if pair.invoke.f == "create"]
    created = [op.at_ns for op in recorded.ops if op.f == "create"]
    warm_up_ns = next((t for t, name in phases_of(history) if name == "warm-up"), 0)
    assert created == [time - warm_up_ns for time in times]
    shift = {
        after.at_ns - before.at_ns
        for before, after in zip(plain.faults, recorded.faults, strict=True)
    }
    assert shift == {2 * NS_PER_S}
    assert recorded.time_limit_s == plain.time_limit_s + 2
    assert {each.recorded for each in variants_of(plan_case(plain, SIM).case, history, SIM)} == {
        True,
        False,
    }


@pytest.mark.parametrize("faults", [(), FAULTS[:1]])
def test_few_faults_need_no_group(faults):
    found = variants(plan_case(case(faults=faults, nemeses=("kill-leader",)), SIM).case)
    assert [key for key in found if "fault" in key[0]] == [("fault", each.id) for each in faults]
