"""`harness twin` as a whole, on two profiles of the bundled target, and wrong calls."""

import json

import msgspec
import pytest

from harness.case import Case, ScheduledOp
from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_USAGE, EXIT_VALID
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from results.twin.sides import plan_sides, read_case

SHORT = Case(
    seed=1,
    profile="modern",
    time_limit_s=2.0,
    concurrency=1,
    ops=(
        ScheduledOp(500_000_000, 0, "get", {"name": "missing"}),
        ScheduledOp(1_000_000_000, 0, "create", {
            "name": "", "nonce": "n1", "columns": [], "partitions": 1, "replicas": 3,
        }),
    ),
)  # fmt: skip


def written(folder, name, case):
    path = folder / f"{name}.json"
    path.write_bytes(case.encode())
    return str(path)


def test_two_profiles_answer_the_same_requests_and_a_second_call_runs_nothing(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    strict = written(tmp_path, "strict", msgspec.structs.replace(SHORT, profile="strict"))
    words = ["twin", written(tmp_path, "short", SHORT), "--env", "sim", "--with", strict]
    assert main([*words, "--runs", "1", "--json"]) == EXIT_VALID
    answer = json.loads(capsys.readouterr().out)
    assert answer["names"] == ["kudu modern", "kudu strict"]
    requests = [row for row in answer["cases"][0]["rows"] if row["name"].startswith("request/")]
    assert [row["left"]["words"] for row in requests] == [
        ["ok not-found TABLE_NOT_FOUND/NOT_FOUND"],
        ["fail INVALID_SCHEMA/INVALID_ARGUMENT"],
    ]
    assert {row["mark"] for row in requests} == {"same"}
    assert (tmp_path / "store/.twin/kudu-modern-kudu-strict.html").is_file()
    assert len(list((tmp_path / "store/twin-short-kudu").glob("2*"))) == 2
    assert main([*words, "--runs", "1"]) == EXIT_VALID
    assert "no difference shown" in capsys.readouterr().out
    assert len(list((tmp_path / "store/twin-short-kudu").glob("2*"))) == 2


@pytest.mark.slow
def test_longer_elections_show_as_a_difference(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = Case(
        seed=1, nemeses=("kill-leader",), interval_s=5.0, duration_s=4.0, time_limit_s=20.0,
        rate=20.0, target_options={"kudu_flag": ""},
    )  # fmt: skip
    slow = msgspec.structs.replace(
        base, target_options={"kudu_flag": "leader_failure_max_missed_heartbeat_periods=6"}
    )
    words = ["twin", written(tmp_path, "a", base), "--with", written(tmp_path, "b", slow)]
    assert main([*words, "--env", "sim", "--runs", "3", "--json", "--store", "s"]) == EXIT_INVALID
    answer = json.loads(capsys.readouterr().out)
    differing = {row["name"] for row in answer["cases"][0]["rows"] if row["mark"] == "differs"}
    assert "election/kill-leader" in differing


def test_both_sides_have_the_same_faults_operations_and_seeds():
    sim = load_plugin("environments", "sim")
    case = Case(seed=5, nemeses=("kill-leader",), time_limit_s=30.0, profile="modern")
    other = msgspec.structs.replace(case, profile="strict", workload="rows", rate=1.0)
    sides = plan_sides("x", case, other, seeds=2, environments=(sim, sim))
    assert [left.case.seed for left, _ in sides.plans] == [5, 6]
    for left, right in sides.plans:
        assert left.case.faults == right.case.faults != ()
        assert left.case.workload_options == right.case.workload_options
        assert (right.case.profile, right.case.workload, right.case.rate) == ("strict", "ddl", 40.0)
        assert left.case == plan_case(msgspec.structs.replace(case, seed=left.case.seed), sim).case


def test_a_target_by_name_gets_the_options_and_the_profile_that_it_has():
    sim = load_plugin("environments", "sim")
    case = Case(seed=1, profile="strict", bugs=("NO-LEASE",), target_options={"masters": 5})
    ((left, right),) = plan_sides("x", case, "kudu", seeds=1, environments=(sim, sim)).plans
    assert (left.case.bugs, right.case.bugs) == (("NO-LEASE",), ())
    assert right.case.target_options["masters"] == 5


def test_the_folder_of_a_run_is_a_case(tmp_path):
    folder = tmp_path / "name" / "run"
    folder.mkdir(parents=True)
    (folder / "case.json").write_bytes(SHORT.encode())
    assert read_case(folder) == ("name", SHORT)


@pytest.mark.parametrize(
    "words",
    [
        ["missing.json"],
        ["short.json", "--with", "no-such-target"],
        ["short.json", "--runs", "0"],
        ["short.json", "--env", "nowhere"],
        ["short.json", "short.json", "--env", "sim"],
        ["short.json", "hive.json", "--env", "sim"],
        ["hive.json", "--env", "sim"],
        ["drawn.json", "--env", "sim", "--with", "kudu"],
    ],
)
def test_wrong_calls_are_refused(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "short", SHORT)
    written(tmp_path, "hive", msgspec.structs.replace(SHORT, target="hive", profile="hive4"))
    written(tmp_path, "drawn", msgspec.structs.replace(SHORT, drawn={"nemeses": ["any"]}))
    assert main(["twin", *words]) == EXIT_USAGE
