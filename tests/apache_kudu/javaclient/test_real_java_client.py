"""Kudu's Java client runs against real Kudu with faults, judged by the profile `modern`."""

import json

import pytest

from harness.cli import main
from harness.errors import EXIT_UNKNOWN, EXIT_VALID
from harness.store import load_run

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.kudu, pytest.mark.kuduclient]


def test_a_run_with_a_killed_leader_breaks_nothing_that_modern_promises(tmp_path):
    words = [
        *("run", "--env", "process", "--target", "apache-kudu", "--client", "java"),
        *("--workload", "rows", "--rate", "8", "--concurrency", "4", "--time-limit", "6"),
        *("--nemesis", "kill-leader", "--op-timeout", "5"),
        *("--store", str(tmp_path), "--name", "t"),
    ]
    # On a busy machine the run may test too little for a verdict, which is not Kudu's fault.
    assert main(words) in {EXIT_VALID, EXIT_UNKNOWN}
    folder = tmp_path / "t" / "latest"
    results = json.loads((folder / "results.json").read_bytes())
    verdicts = {each["checker"]: each["verdict"] for each in results["checkers"]}
    assert verdicts["linearizable-rows"] in {"valid", "permitted"}, results
    completions = [pair.completion for pair in load_run(folder.resolve()).history.pairs]
    attempts = [each for done in completions if done is not None for each in done.attempts]
    assert {each.node for each in attempts} >= {"m1", "t1"} or len(attempts) > 10


def test_a_run_against_bundled_servers(tmp_path):
    words = [
        *("run", "--env", "process", "--target", "kudu", "--profile", "modern"),
        *("--client", "java", "--workload", "ddl", "--masters", "1", "--rate", "8"),
        *("--concurrency", "3", "--time-limit", "3", "--op-timeout", "5"),
        *("--store", str(tmp_path), "--name", "t"),
    ]
    assert main(words) in {EXIT_VALID, EXIT_UNKNOWN}
