"""Draws from a seed are repeatable, and fit the environment."""

from collections import Counter

import msgspec
import pytest

from harness.case import Case
from harness.cli.parser import Parser
from harness.cli.run.case_options import case_from, parse_case_options
from harness.cluster import Capability, Fidelity
from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.plan.random_case import ANY, DRAWABLE, draw_case, expand_any, undrawn
from harness.pytesting.markers import case_from_settings
from harness.registry import load_plugin
from results.facts.setting import setting_of
from targets.kudu.flags import parse_flags

SIM = load_plugin("environments", "sim")
PROCESS = load_plugin("environments", "process")


def planned(seed, environment=SIM, **fields):
    return plan_case(Case(seed=seed, **fields), environment).case


def test_a_seed_draws_up_to_two_nemeses_of_which_one_may_be_extra():
    cases = [planned(seed, nemeses=(ANY,)) for seed in range(60)]
    target = load_plugin("targets", "kudu")
    assert all(case.draw == 0 for case in cases)
    assert all(len(set(case.nemeses)) == len(case.nemeses) for case in cases)
    usual = [[name for name in case.nemeses if name in target.nemeses] for case in cases]
    extra = [[name for name in case.nemeses if name in target.extras] for case in cases]
    assert all(a + b == [*case.nemeses] for a, b, case in zip(usual, extra, cases, strict=True))
    assert Counter(map(len, usual)).keys() == {0, 1, 2}
    assert Counter(map(len, extra)).keys() == {0, 1}
    assert {len(case.nemeses) for case in cases} == {1, 2}
    assert {name for names in usual for name in names} == set(target.nemeses)
    assert ["at-points"] in extra
    assert len({name for names in extra for name in names}) > 4
    for case in cases:
        assert {fault.nemesis for fault in case.faults} == set(case.nemeses)


def test_the_draw_depends_on_the_seed_alone_and_a_planned_case_draws_no_more():
    case = planned(7, nemeses=(ANY,))
    assert planned(7, nemeses=(ANY,), rate=20.0).nemeses == case.nemeses
    assert plan_case(case, SIM).case == case
    assert msgspec.json.decode(case.encode(), type=Case) == case


def test_a_seed_draws_the_workload_unless_the_user_chose_one():
    def workloads(**fields):
        return {planned(seed, nemeses=(ANY,), **fields).workload for seed in range(40)}

    assert workloads() == set(load_plugin("targets", "kudu").workloads)
    assert workloads(given=("workload",)) == {"ddl"}
    assert workloads(workload_options={"names": 3}) == {"ddl"}
    # Workloads that move replicas need a spare server, which this user's option excludes.
    assert workloads(target_options={"tservers": 3}) == {"ddl", "rows", "members"}
    assert {planned(seed).workload for seed in range(10)} == {"ddl"}
    asked = undrawn(planned(3, nemeses=(ANY,)))
    assert (asked.workload, asked.workload_options) == ("ddl", {})


def test_any_draws_only_faults_that_the_environment_supports():
    for environment in (PROCESS, SIM):
        names = expand_any(Case(seed=1, nemeses=(ANY,)), environment).nemeses
        assert {"kill-all", "power-cut-all"} <= set(names)


@pytest.mark.parametrize(
    ("workload", "options", "wanted"),
    [
        ("hms-ddl", {"token_store": "zookeeper"}, True),
        ("hms-tokens", {}, True),
        ("hms-tokens", {"token_store": "zookeeper"}, False),
        ("hms-tokens", {"token_store": "memory"}, False),
    ],
)
def test_any_holds_no_faults_at_events_that_never_come(workload, options, wanted):
    asked = Case(seed=1, target="hive", workload=workload, nemeses=(ANY,), target_options=options)
    names = expand_any(asked, SIM).nemeses
    assert ("restart-database" in names, "at-points" in names) == (wanted, wanted)
    assert "kill-database" in names


def test_any_holds_no_power_cut_where_programs_are_foreign():
    asked = Case(seed=1, target="http-register", workload="register", nemeses=(ANY,))
    names = expand_any(asked, PROCESS).nemeses
    assert "kill-all" in names
    assert not [name for name in names if name.startswith("power-cut")]
    with pytest.raises(UsageError, match="foreign"):
        plan_case(msgspec.structs.replace(asked, nemeses=("power-cut-all",)), PROCESS)


def test_a_draw_from_given_nemeses_takes_no_other():
    given = ("kill-leader", "pause-random", "kill-all")
    drawn = [planned(seed, nemeses=given, draw=1).nemeses for seed in range(30)]
    assert set(drawn) == {(name,) for name in given}
    assert planned(1, nemeses=given).nemeses == given


def test_worlds_vary_by_seed_except_for_given_knobs():
    cases = [planned(seed, nemeses=(ANY,), knobs={"cpu_us": 7.0}) for seed in range(40)]
    assert {case.knobs["cpu_us"] for case in cases} == {7.0}
    assert len({case.knobs.get("latency_ms_max", 1.0) for case in cases}) == 3
    assert {case.knobs.get("disk_ms_max", 2.0) for case in cases} == {2.0, 25.0, 50.0}
    assert planned(3).knobs == {}
    assert planned(3, PROCESS, nemeses=(ANY,)).knobs == {}


def paces(cases):
    return {(case.interval_s, case.duration_s) for case in cases}


def test_real_nodes_are_given_the_time_that_their_start_takes():
    cases = [planned(seed, PROCESS, nemeses=(ANY,)) for seed in range(30)]
    assert paces(cases) == {(10.0, 5.0)}
    assert len({case.concurrency for case in cases}) == 2


def test_pace_clients_and_options_differ_from_seed_to_seed():
    cases = [planned(seed, nemeses=(ANY,)) for seed in range(60)]
    assert paces(cases) == {(10.0, 5.0), (5.0, 2.5), (4.0, 1.0)}
    assert {(case.concurrency, case.op_timeout_s) for case in cases} == {(10, 2.0), (60, 5.0)}
    assert {case.target_options["masters"] for case in cases} == {3, 5}
    assert len({case.target_options["kudu_flag"] for case in cases}) > 10
    assert len({case.workload_options["partitions"] for case in cases}) > 1


def test_given_options_are_not_drawn_and_change_no_other_draw():
    free = [planned(seed, nemeses=(ANY,), given=("workload",)) for seed in range(30)]
    given = {
        "given": ("interval_s", "workload"),
        "concurrency": 7,
        "target_options": {"masters": 1, "kudu_flag": "log_segment_size_kb=64"},
        "workload_options": {"names": 5},
    }
    bound = [planned(seed, nemeses=(ANY,), **given) for seed in range(30)]
    assert paces(bound) == {(10.0, 5.0)}
    for one, other in zip(free, bound, strict=True):
        assert (other.concurrency, other.target_options["masters"]) == (7, 1)
        flags, others = (parse_flags(case.target_options["kudu_flag"]) for case in (one, other))
        assert others == msgspec.structs.replace(flags, log_segment_size_kb=64)
        assert other.workload_options == {**one.workload_options, "names": 5}
        assert (other.nemeses, other.knobs) == (one.nemeses, one.knobs)


def test_cases_of_seeds_differ_only_in_their_draws():
    asked = Case(seed=1, nemeses=(ANY,), rate=20.0, target_options={"masters": 5})
    bare = [
        msgspec.structs.replace(
            undrawn(plan_case(msgspec.structs.replace(asked, seed=seed), SIM).case),
            seed=0, faults=None, checkers=(),
        )
        for seed in range(10)
    ]  # fmt: skip
    assert all(case == bare[0] for case in bare)
    assert bare[0].target_options == {"masters": 5}
    settings = {setting_of(planned(seed, nemeses=(ANY,)), "sim") for seed in range(10)}
    assert len(settings) == 1
    assert settings != {setting_of(planned(1, nemeses=(ANY,), rate=20.0), "sim")}


def test_a_case_of_an_older_version_still_names_the_requested_options():
    old = {"nemeses": ["kill-leader", "kill-all"], "knobs": {}, "draw": 2}
    case = Case(seed=1, nemeses=("kill-all",), knobs={"cpu_us": 100.0}, drawn=old)
    assert undrawn(case) == Case(seed=1, nemeses=("kill-leader", "kill-all"), draw=2)


def test_a_target_that_draws_nothing_keeps_its_options():
    fields = {"target": "toy-register", "workload": "register"}
    drawn = planned(1, nemeses=("pause-random",), draw=1, **fields)
    assert drawn.target_options == planned(1, **fields).target_options


def test_options_of_the_command_line_are_given():
    parser = Parser(allow_abbrev=False)
    parsed = parse_case_options(parser, ["--nemesis", ANY, "--duration", "5", "--rate", "40"])
    case = case_from(parsed, 1)
    assert case.given == ("duration_s",)
    assert set(case.given) < set(DRAWABLE)
    assert case_from_settings({"seed": 1, "concurrency": 10}).given == ("concurrency",)


def test_any_stands_alone():
    with pytest.raises(UsageError):
        expand_any(Case(seed=1, nemeses=(ANY, "kill-leader")), SIM)


def test_where_nothing_can_be_drawn_it_is_refused():
    class Unable:
        name = "unable"
        capabilities = dict.fromkeys(Capability, Fidelity.NONE)
        owns_programs = False

    with pytest.raises(UsageError):
        expand_any(Case(seed=1, nemeses=(ANY,)), Unable())


def test_no_draw_leaves_the_case_as_it_is():
    case = Case(seed=1, nemeses=("kill-leader", "kill-all"))
    assert draw_case(case, SIM) is case
    with pytest.raises(UsageError):
        Case(seed=1, draw=-1)
