"""What a seed draws for itself: the same every time, and only what can be."""

from collections import Counter

import msgspec
import pytest

from harness.case import Case
from harness.cluster import Capability, Fidelity
from harness.drawing import ANY, draw_case, expand_any
from harness.errors import UsageError
from harness.planning import plan_case
from harness.plugins import load_plugin

SIM = load_plugin("environments", "sim")
PROCESS = load_plugin("environments", "process")


def planned(seed, environment=SIM, **fields):
    return plan_case(Case(seed=seed, **fields), environment).case


def test_a_seed_draws_one_or_two_nemeses_and_they_are_in_the_case():
    cases = [planned(seed, nemeses=(ANY,)) for seed in range(60)]
    assert all(case.draw == 0 for case in cases)
    assert Counter(len(case.nemeses) for case in cases).keys() == {1, 2}
    assert all(len(set(case.nemeses)) == len(case.nemeses) for case in cases)
    names = load_plugin("targets", "kudu").nemeses
    assert {name for case in cases for name in case.nemeses} == set(names)
    for case in cases:
        assert {fault.nemesis for fault in case.faults} == set(case.nemeses)


def test_the_draw_depends_on_the_seed_alone_and_a_planned_case_draws_no_more():
    case = planned(7, nemeses=(ANY,))
    assert planned(7, nemeses=(ANY,), rate=20.0).nemeses == case.nemeses
    assert plan_case(case, SIM).case == case
    assert msgspec.json.decode(case.encode(), type=Case) == case


def test_any_holds_only_what_the_environment_can_do():
    names = expand_any(Case(seed=1, nemeses=(ANY,)), PROCESS).nemeses
    assert "kill-all" in names
    assert not [name for name in names if name.startswith("power-cut")]
    assert "power-cut-all" in expand_any(Case(seed=1, nemeses=(ANY,)), SIM).nemeses


def test_a_draw_from_given_nemeses_takes_no_other():
    given = ("kill-leader", "pause-random", "kill-all")
    drawn = [planned(seed, nemeses=given, draw=1).nemeses for seed in range(30)]
    assert set(drawn) == {(name,) for name in given}
    assert planned(1, nemeses=given).nemeses == given


def test_worlds_differ_from_seed_to_seed_but_for_what_is_given():
    cases = [planned(seed, nemeses=(ANY,), knobs={"cpu_us": 7.0}) for seed in range(40)]
    assert {case.knobs["cpu_us"] for case in cases} == {7.0}
    assert len({case.knobs.get("latency_ms_max", 1.0) for case in cases}) == 3
    assert {case.knobs.get("disk_ms_max", 2.0) for case in cases} == {2.0, 25.0}
    assert planned(3).knobs == {}
    assert planned(3, PROCESS, nemeses=(ANY,)).knobs == {}


def test_any_stands_alone():
    with pytest.raises(UsageError):
        expand_any(Case(seed=1, nemeses=(ANY, "kill-leader")), SIM)


def test_where_nothing_can_be_drawn_it_is_refused():
    class Unable:
        name = "unable"
        capabilities = dict.fromkeys(Capability, Fidelity.NONE)

    with pytest.raises(UsageError):
        expand_any(Case(seed=1, nemeses=(ANY,)), Unable())


def test_no_draw_leaves_the_case_as_it_is():
    case = Case(seed=1, nemeses=("kill-leader", "kill-all"))
    assert draw_case(case, SIM) is case
    with pytest.raises(UsageError):
        Case(seed=1, draw=-1)
