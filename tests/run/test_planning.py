"""Before the first node starts, a case is either completed or refused."""

import json

import msgspec
import pytest

from harness.case import Case, Fault, load_case, stream
from harness.cli import main
from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.plugins import Option
from harness.plugins.options import with_defaults
from harness.registry import load_plugin


def planned(environment="sim", **fields):
    return plan_case(Case(seed=1, **fields), load_plugin("environments", environment))


def test_defaults_and_faults_are_filled_in():
    plan = planned(nemeses=("kill-leader", "pause-leader"))
    assert plan.case.workload_options["names"] == 4
    assert plan.case.target_options["masters"] == 3
    assert {fault.nemesis for fault in plan.case.faults} == {"kill-leader", "pause-leader"}
    assert len(plan.case.faults) == 12
    assert [fault.at_ns for fault in plan.case.faults] == sorted(
        fault.at_ns for fault in plan.case.faults
    )


def test_planning_again_changes_nothing():
    case = planned(nemeses=("partition-halves",)).case
    assert plan_case(case, None).case == case


def test_no_nemesis_strikes_only_while_another_does():
    for seed in range(40):
        case = Case(seed=seed, nemeses=("kill-all", "power-cut-all"), time_limit_s=30.0)
        faults = plan_case(case, None).case.faults
        for name in case.nemeses:
            spans = [(f.at_ns, f.at_ns + f.duration_ns) for f in faults if f.nemesis != name]
            begins = [fault.at_ns for fault in faults if fault.nemesis == name]
            assert any(all(not a <= begin < b for a, b in spans) for begin in begins), seed


def test_a_planned_case_survives_its_file(tmp_path):
    case = planned(nemeses=("partition-leader",)).case
    path = tmp_path / "case.json"
    path.write_bytes(case.encode())
    assert load_case(path) == case


def test_one_nemesis_does_not_shift_the_faults_of_another():
    alone = planned(nemeses=("kill-leader",)).case.faults
    composed = planned(nemeses=("kill-leader", "pause-leader")).case.faults
    assert alone == tuple(fault for fault in composed if fault.nemesis == "kill-leader")


def fault(**fields):
    return Fault(**{"id": "k", "nemesis": "kill-leader", "at_ns": 0, "duration_ns": 1, **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target": "mongo"}, "no target 'mongo'"),
        ({"workload": "shop"}, "no workload 'shop'"),
        ({"nemeses": ("earthquake",)}, "no nemesis 'earthquake'"),
        ({"profile": "lax"}, "no profile 'lax'"),
        ({"bugs": ("KUDU-0",)}, "no bug 'KUDU-0'"),
        ({"workload": "register"}, "cannot run the workload 'register'"),
        ({"workload": "rows", "target_options": {"hms": True}}, "it can run kudu-hms"),
        ({"workload": "follower-reads", "profile": "modern"}, "does not support the workload"),
        ({"workload_options": {"nmes": 3}}, "no option 'nmes'"),
        ({"workload_options": {"names": "x"}}, "it takes a number"),
        ({"workload_options": {"names": 0}}, "--names is 0"),
        ({"target_options": {"masters": 2}}, "2"),
        ({"target_options": {"kudu_flag": "x"}}, "NAME=VALUE"),
        ({"target_options": {"kudu_flag": "nope=1"}}, "nope"),
        ({"concurrency": 10**6}, "--concurrency"),
        ({"target": "http-register", "workload": "register"}, "--env process or --env docker"),
        # bounds are checked before any plug-in sees the case
        ({"target_options": {"tservers": 0}}, "it must be in"),
        ({"target_options": {"resend": 101}}, "it must be in"),
        ({"workload_options": {"moves": -1}}, "it must be in"),
        ({"interval_s": 1e-10}, "--interval"),
        ({"duration_s": 1e-6}, "--duration"),
        ({"op_timeout_s": 61.0}, "--op-timeout"),
        ({"faults": (fault(), fault())}, "two faults of the case have the id 'k'"),
        ({"faults": (fault(at_ns=-1),)}, "at_ns -1"),
        ({"faults": (fault(duration_ns=0),)}, "duration_ns 0"),
        ({"faults": (fault(duration_ns=10**18),)}, "duration_ns"),
        ({"faults": (fault(nemesis="earthquake"),)}, "'earthquake'"),
    ],
)
def test_what_cannot_be_is_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        planned(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"rate": 0},
        {"rate": float("inf")},
        {"rate": float("nan")},
        {"time_limit_s": -1},
        {"concurrency": 0},
        {"op_timeout_s": 0},
        {"schema": 9},
    ],
)
def test_ranges_are_checked_when_a_case_is_made(fields):
    with pytest.raises(UsageError):
        Case(seed=1, **fields)


def test_a_fault_the_environment_cannot_do_names_those_that_can():
    with pytest.raises(UsageError, match=r"'drop'; use --env docker, --env sim") as error:
        planned("process", nemeses=("shape one from others loss=5%",))
    assert "shape one from others" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"{",
            b"[]",
            b'{"seed": "x"}',
            b'{"seed": 1, "colour": 2}',
            b'{"seed": 1, "rate": 0}',
        ),
        b'{"seed": 1, "knobs": ' + b'{"a":' * 100_000,
        b'{"seed": 1, "target": "\xff"}',
    ],
)
def test_broken_case_files_are_refused(tmp_path, text):
    path = tmp_path / "case.json"
    path.write_bytes(text)
    with pytest.raises(UsageError, match="case"):
        load_case(path)


def test_options_keep_their_types():
    options = (Option("share", 0.5, ""), Option("on", False, ""), Option("n", 3, ""))
    values = with_defaults("target", "x", options, {"share": 1})
    assert values == {"share": 1.0, "on": False, "n": 3}
    with pytest.raises(UsageError, match="takes a bool"):
        with_defaults("target", "x", options, {"on": 1})


@pytest.mark.parametrize("value", [0, 100])
def test_bounds_of_options_are_allowed(value):
    option = Option("share", 1, "", within=(0, 100))
    assert with_defaults("target", "x", (option,), {"share": value}) == {"share": value}


@pytest.mark.parametrize(
    ("default", "value"), [(1, -1), (1, 101), (1.0, 100.1), (1.0, float("nan"))]
)
def test_values_beyond_the_bounds_of_an_option_are_refused(default, value):
    option = Option("wide-share", default, "", within=(0, 100))
    with pytest.raises(UsageError, match=r"--wide-share is .*; it must be in 0 \.\. 100"):
        with_defaults("workload", "x", (option,), {"wide_share": value})


def test_a_text_among_others_is_refused_by_the_names_of_those():
    option = Option("client", "own", "", among=("own", "other"))
    assert with_defaults("target", "x", (option,), {"client": "other"}) == {"client": "other"}
    with pytest.raises(UsageError, match="--client is 'othr'; did you mean other"):
        with_defaults("target", "x", (option,), {"client": "othr"})


def test_streams_are_independent_and_stable():
    assert [stream(7, "net").randrange(1000) for _ in range(3)] == [
        stream(7, "net").randrange(1000) for _ in range(3)
    ]
    assert stream(7, "net").getrandbits(64) != stream(7, "disk").getrandbits(64)


def test_cases_are_plain_json():
    case = planned(nemeses=("partition-leader",)).case
    assert msgspec.json.decode(case.encode())["faults"][0]["nemesis"] == "partition-leader"


# --- checkers in addition to the workload's ------------------------------------------------------


def test_checkers_that_the_user_adds_judge_beside_the_usual_ones():
    usual = plan_case(Case(seed=1), None)
    plan = plan_case(Case(seed=1, checkers=("elle-list-append", "bounds")), None)
    added = [checker.name for checker in plan.checkers]
    assert added == [*(checker.name for checker in usual.checkers), "elle-list-append"]
    assert plan_case(plan.case, None).case == plan.case


@pytest.mark.parametrize(
    "text", ["+liveness", "default,liveness", "default,-crash", "default,+", ","]
)
def test_checkers_are_only_added(text, capsys):
    assert main(["run", "--dry-run", "--env", "sim", "--seed", "1", "--checkers", text]) == 254
    assert repr(text) in capsys.readouterr().err


def test_added_checkers_are_in_the_case(capsys):
    command = ["run", "--dry-run", "--env", "sim", "--seed", "1", "--checkers"]
    assert main([*command, "default,+elle-list-append"]) == 0
    assert json.loads(capsys.readouterr().out)["checkers"] == ["bounds", "elle-list-append"]
    assert main([*command, "default,+nobody"]) == 254
