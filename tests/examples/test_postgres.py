"""A target with two roles, tested as by a user: set-up, start order, kills and cuts by role."""

import json
import shutil

import pytest

from harness.cli import main
from harness.errors import EXIT_VALID

BIN = "/usr/lib/postgresql/15/bin"
KILL = "kill role:db every 6s for 2s"
CUT = "cut role:app from role:db every 7s for 2s"
WORLDS = [
    pytest.param(
        "process",
        marks=[
            pytest.mark.process,
            pytest.mark.xdist_group("process"),
            pytest.mark.skipif(shutil.which("postgres", path=BIN) is None, reason=f"not in {BIN}"),
        ],
    ),
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.xdist_group("docker")]),
]
AT_NIGHT = pytest.param("docker", marks=[*WORLDS[1].marks, pytest.mark.nightly])


@pytest.mark.slow
@pytest.mark.faketime
@pytest.mark.parametrize("environment", [WORLDS[0], AT_NIGHT])
def test_its_clock_goes_wrong_as_it_says_itself(capsys, tmp_path, environment):
    words = "clock node:db offset=-5s at 1s for 1s"
    main(
        [
            *("run", "--target", "postgres", "--workload", "register", "--env", environment),
            *("--fault", words, "--seed", "4", "--time-limit", "3"),
            *("--store", str(tmp_path), "--json"),
        ]
    )
    report = json.loads(capsys.readouterr().out)
    (stats,) = [result for result in report["checkers"] if result["checker"] == "stats"]
    (fault,) = stats["details"]["faults"]
    assert (fault["bite"]["unit"], fault["targets"]) == ("ms", ["db"])
    assert (
        abs(fault["bite"]["count"] - 10_000) < 2000
    )  # the jump there and back, measured on a busy host


@pytest.mark.slow
@pytest.mark.parametrize("environment", WORLDS)
def test_its_register_survives_kills_and_cuts_by_role(capsys, tmp_path, environment):
    for pace in (1, 2, 3):  # a busy machine may not reach the requested load
        code = main(
            [
                *("run", "--target", "postgres", "--workload", "register", "--cas-percent", "30"),
                *("--env", environment, "--fault", KILL, "--fault", CUT, "--seed", "4"),
                *("--time-limit", str(14 * pace), "--op-timeout", str(pace), "--rate", "20"),
                *("--store", str(tmp_path), "--json"),
            ]
        )
        report = json.loads(capsys.readouterr().out)
        if report["verdict"] != "unknown":
            break

    checkers = {result["checker"]: result for result in report["checkers"]}
    verdicts = {name: result["verdict"] for name, result in checkers.items()}
    assert (code, set(verdicts.values())) == (EXIT_VALID, {"valid"}), verdicts
    assert set(checkers["stats"]["details"]["certificate"]["faults_by_nemesis"]) == {KILL, CUT}
    log = max(tmp_path.glob("*/2*/logs/db.log"))  # of the last run
    text = log.read_text()
    assert text.index("Success. You can now start") < text.index("ready to accept connections")
    assert text.count("Success. You can now start") == 1  # set up only once, despite the kills
    assert text.count("automatic recovery in progress") >= 1
