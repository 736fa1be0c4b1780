"""Docker runs of a healthy target are never invalid, even if another program interferes."""

import subprocess
import sys

import pytest

from harness.environments.docker.engine.labels import CONTROLLER_LABEL, RUN_LABEL
from harness.errors import EXIT_CRASH, EXIT_UNKNOWN, EXIT_VALID
from tests.docker.ways import WAYS, Victim

RUN = ("run", "--target", "kudu", "--env", "docker", "--time-limit", "12", "--seed", "1")


def run_of(engine, pid):
    for row in engine.networks(RUN_LABEL):
        if row.labels[CONTROLLER_LABEL].startswith(f"{pid}:"):
            return row.labels[RUN_LABEL]
    raise AssertionError(f"the process {pid} has no run")


@pytest.mark.docker
@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, _ in WAYS])
def test_interference_of_others_never_convicts(engine, tmp_path, name):
    nemesis = "partition-some-clients" if "relay" in name else "none"
    words = [*RUN, "--nemesis", nemesis, "--store", str(tmp_path)]
    driver = subprocess.Popen(
        [sys.executable, "-m", "harness", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stderr is not None
    verdicts = []
    for line in driver.stderr:
        verdicts.append(line)
        if "chaos: " in line:
            break
    run_id = run_of(engine, driver.pid)
    dict(WAYS)[name](Victim(engine, run_id, "m1"))
    verdicts += driver.stderr
    driver.stderr.close()
    code = driver.wait()
    text = "".join(line for line in verdicts if line.startswith("harness: "))
    assert code in {EXIT_VALID, EXIT_UNKNOWN, EXIT_CRASH}, text
    assert "bug in the harness" not in text
    if code == EXIT_CRASH:
        assert f"{run_id}-" in text, "the message must name the container"
    assert engine.containers(f"{RUN_LABEL}={run_id}") == []
