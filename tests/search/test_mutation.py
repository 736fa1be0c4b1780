"""Each variation of a case is valid, and has exactly the changes that it lists."""

import msgspec
import pytest

from harness.case import Case, stream
from harness.environments.sim.environment import SimEnvironment
from harness.errors import UsageError
from harness.faults.nemesis_from_text import load_nemesis
from harness.plan.planning import plan_case
from harness.plan.random_case import ANY
from harness.search.mutation import CHANGES, CHANGES_MAX, FAULTS_MAX, Material, vary

SIM = SimEnvironment()
CANDIDATES = ("kill-leader", "partition-halves", "pause-random")
BASE = Case(seed=1, nemeses=(ANY,), time_limit_s=30.0)


def planned(seed):
    return plan_case(msgspec.structs.replace(BASE, seed=seed), SIM).case


PARENT = planned(2)
MATERIAL = Material(
    candidates=CANDIDATES,
    moments={"leader": [5_000_000_000, 9_000_000_000], "catalog-ready": [6_000_000_000]},
    other=planned(5),
    fresh=planned(6),
)


def changed(name, **fields):
    parent = msgspec.structs.replace(PARENT, **fields)
    for seed in range(50):
        case = CHANGES[name](stream(seed, name), parent, MATERIAL)
        if case is not None and case != parent:
            return case, parent
    raise AssertionError(f"{name} changed nothing")


def different(one, other):
    return {f for f in one.__struct_fields__ if getattr(one, f) != getattr(other, f)}


@pytest.mark.slow
def test_variations_are_valid_bounded_and_equal_for_equal_streams():
    case, refused = PARENT, 0
    for number in range(150):
        varied, names = vary(stream(number, "x"), case, MATERIAL)
        assert (varied, names) == vary(stream(number, "x"), case, MATERIAL)
        assert 1 <= len(names) <= CHANGES_MAX
        assert set(names) <= CHANGES.keys()
        times = [fault.at_ns for fault in varied.faults]
        assert times == sorted(times)
        assert len(times) <= FAULTS_MAX
        try:
            again = plan_case(varied, SIM).case
        except UsageError:
            refused += 1
            continue
        assert again.faults == varied.faults
        case = again
    assert refused < 15


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("move", {"at_ns"}),
        ("stretch", {"duration_ns"}),
        ("swap", {"nemesis", "args"}),
        ("at-event", {"nemesis", "at_ns", "duration_ns", "args"}),
    ],
)
def test_a_change_of_one_fault_leaves_the_others(name, fields):
    case, parent = changed(name)
    assert different(case, parent) == {"faults"}
    pairs = [(one, two) for one, two in zip(case.faults, parent.faults, strict=True) if one != two]
    assert len(pairs) == 1
    assert different(*pairs[0]) <= fields


def test_retarget_draws_arguments_again():
    fault = msgspec.structs.replace(PARENT.faults[0], nemesis="pause-random", args={"draw": 1})
    case, parent = changed("retarget", faults=(fault,))
    assert different(case.faults[0], parent.faults[0]) == {"args"}


def test_add_and_remove_change_the_number_of_faults():
    case, parent = changed("add")
    assert len(case.faults) == len(parent.faults) + 1
    case, parent = changed("remove")
    assert len(case.faults) == len(parent.faults) - 1
    assert CHANGES["remove"](stream(1, "x"), case_of_one(), MATERIAL) is None


def case_of_one():
    return msgspec.structs.replace(PARENT, faults=PARENT.faults[:1])


def test_full_cases_get_no_more_faults():
    full = msgspec.structs.replace(PARENT, faults=PARENT.faults[:1] * FAULTS_MAX)
    assert CHANGES["add"](stream(1, "x"), full, MATERIAL) is None


def test_a_fault_at_an_event_waits_for_it():
    kinds = set()
    for seed in range(40):
        case = CHANGES["at-event"](stream(seed, "x"), PARENT, MATERIAL)
        for fault in case.faults:
            if fault not in PARENT.faults:
                kinds.add(load_nemesis(fault.nemesis).trigger_of(fault).event)
    assert kinds == set(MATERIAL.moments)


def test_faults_are_spliced_at_a_moment():
    case, parent = changed("splice")
    ours = [fault for fault in case.faults if fault in parent.faults]
    theirs = [fault for fault in case.faults if fault in MATERIAL.other.faults]
    assert len(ours) + len(theirs) == len(case.faults)
    assert not ours or not theirs or max(f.at_ns for f in ours) < min(f.at_ns for f in theirs)


def test_seed_and_options_come_from_other_cases():
    case, parent = changed("reseed")
    assert different(case, parent) == {"seed"}
    assert case.seed == MATERIAL.fresh.seed
    case, parent = changed("options")
    groups = ({"knobs"}, {"target_options"}, {"workload_options"}, {"concurrency", "op_timeout_s"})
    assert any(different(case, parent) <= group for group in groups)


def test_without_candidates_and_moments_nothing_is_added():
    bare = msgspec.structs.replace(MATERIAL, candidates=(), moments={})
    for name in ("add", "swap", "at-event"):
        assert CHANGES[name](stream(1, "x"), PARENT, bare) is None
