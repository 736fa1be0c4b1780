"""Real Kudu as local processes: runs with faults break no promise of the profile `modern`."""

import json

import pytest

from harness.cli import main
from harness.errors import EXIT_UNKNOWN, EXIT_VALID

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.kudu]


def verdicts_of(store, *words):
    """Run a case; return its verdicts by checker."""
    start = ["run", "--env", "process", "--target", "apache-kudu", "--store", str(store)]
    # On a busy machine the run may prove nothing; Kudu is not to blame for that.
    assert main([*start, "--name", "t", *words]) in {EXIT_VALID, EXIT_UNKNOWN}
    results = json.loads((store / "t" / "latest" / "results.json").read_bytes())
    return {each["checker"]: each["verdict"] for each in results["checkers"]}


def test_a_run_with_faults_breaks_nothing_that_modern_promises(tmp_path):
    verdicts = verdicts_of(
        tmp_path,
        *("--workload", "mixed", "--rate", "20", "--concurrency", "8", "--time-limit", "15"),
        *("--nemesis", "partition,kill,pause"),
    )
    assert len(verdicts) == 12
    assert verdicts["linearizable-catalog"] in {"valid", "permitted"}, verdicts
    assert verdicts["linearizable-rows"] in {"valid", "permitted"}, verdicts


def test_one_master_becomes_three_under_load(tmp_path):
    verdicts = verdicts_of(
        tmp_path,
        *("--workload", "members", "--masters", "1", "--spare-masters", "2", "--members", "20"),
        *("--rate", "20", "--concurrency", "6", "--time-limit", "8"),
        *("--nemesis", "kill-random,set-flag", "--seed", "3"),
    )
    assert verdicts["linearizable-catalog"] in {"valid", "permitted"}, verdicts
    assert verdicts["members"] in {"valid", "unknown"}, verdicts
