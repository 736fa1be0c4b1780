"""The clock that a PostgreSQL server shows, in both environments."""

import json

import pytest

from harness.cli import main
from tests.docs.pages import ROOT

WORLDS = [
    pytest.param(
        "process",
        marks=[pytest.mark.process, pytest.mark.postgres, pytest.mark.xdist_group("process")],
    ),
    pytest.param(
        "docker",
        marks=[pytest.mark.docker, pytest.mark.nightly, pytest.mark.xdist_group("docker")],
    ),
]


@pytest.mark.slow
@pytest.mark.faketime
@pytest.mark.parametrize("environment", WORLDS)
def test_its_clock_goes_wrong_as_it_says_itself(capsys, tmp_path, environment):
    system = ROOT / "examples" / "postgres" / "postgres.toml"
    main(
        [
            *("run", "--system", str(system), "--env", environment, "--time-limit", "3"),
            *("--fault", "clock node:n1 offset=-5s at 1s for 1s", "--seed", "4"),
            *("--store", str(tmp_path), "--json", "--quiet"),
        ]
    )
    report = json.loads(capsys.readouterr().out)
    (stats,) = [result for result in report["checkers"] if result["checker"] == "stats"]
    (fault,) = stats["details"]["faults"]
    assert (fault["bite"]["unit"], fault["targets"]) == ("ms", ["n1"])
    # 5 s forward and 5 s back; a busy host measures them inexactly
    assert abs(fault["bite"]["count"] - 10_000) < 2000
