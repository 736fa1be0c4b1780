"""Third-party targets are found by entry point, and are broken and judged like the bundled ones."""

import json

import pytest

from harness.cli import main

SHORT = ["--duration", "1", "--json"]
FOREIGN_PROCESS = pytest.param(
    "process",
    marks=[pytest.mark.nightly, pytest.mark.process, pytest.mark.xdist_group("process")],
)
PROCESS = pytest.param("process", marks=[pytest.mark.process, pytest.mark.xdist_group("process")])
SMOKE = pytest.param("process", marks=[*PROCESS.marks, pytest.mark.quick])
DOCKER = pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.xdist_group("docker")])


@pytest.fixture
def run(capsys, tmp_path):
    """Return a function that runs `harness run` with these arguments, and returns the exit code and
    the JSON report.

    On a busy machine, nodes start late, and operations and faults may have no effect. In a real
    environment, an undecided run is therefore repeated, at most twice, with more time and fewer
    operations.
    """

    def go(environment, *arguments, decided=("valid", "invalid")):
        words = ["run", "--env", environment, "--store", str(tmp_path), *SHORT, *arguments]
        for seed in range(1, 4):
            pace = ["--time-limit", str(4 * seed), "--interval", str(2 * seed)]
            pace += ["--rate", str(40 / seed)]
            code = main([*words, *pace, "--op-timeout", str(seed), "--seed", str(seed)])
            report = json.loads(capsys.readouterr().out)
            if environment == "sim" or report["verdict"] in decided:
                break
        return code, report

    return go


def bitten(report):
    """Return the number of effective faults per nemesis, as the certificate counts them."""
    (stats,) = [item for item in report["checkers"] if item["checker"] == "stats"]
    return stats["details"]["certificate"]["faults_by_nemesis"]


@pytest.mark.parametrize("environment", ["sim", SMOKE, DOCKER])
def test_a_register_on_env_survives_kills_and_pauses(run, environment):
    code, report = run(
        environment, "--target", "toy-register", "--workload", "register",
        "--nemesis", "kill-leader,pause-leader",
    )  # fmt: skip
    assert (code, report["verdict"]) == (0, "valid"), report["checkers"]
    assert set(bitten(report)) == {"kill-leader", "pause-leader"}


@pytest.mark.parametrize("environment", [FOREIGN_PROCESS, DOCKER])
def test_a_foreign_program_survives_kill_pause_and_partition(run, environment):
    code, report = run(
        environment, "--target", "http-register", "--workload", "register",
        "--nemesis", "kill-leader,pause-leader,partition-halves",
    )  # fmt: skip
    assert (code, report["verdict"]) == (0, "valid"), report["checkers"]
    assert set(bitten(report)) == {"kill-leader", "pause-leader", "partition-halves"}


@pytest.mark.parametrize("environment", [FOREIGN_PROCESS, DOCKER])
def test_its_stale_variant_is_caught(run, environment):
    code, report = run(
        environment, "--target", "http-register", "--workload", "register",
        "--nemesis", "none", "--stale", decided=("invalid",),
    )  # fmt: skip
    assert (code, report["verdict"]) == (1, "invalid")
    (result,) = [item for item in report["checkers"] if item["verdict"] == "invalid"]
    assert result["checker"] == "linearizable-register"
    assert result["operations"]
