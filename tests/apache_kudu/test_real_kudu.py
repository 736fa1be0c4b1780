"""Real Kudu in processes: a run with faults keeps every promise of the profile `modern`."""

import json

import pytest

from harness.cli import main
from harness.errors import EXIT_UNKNOWN, EXIT_VALID

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.kudu]


def test_a_run_with_faults_breaks_nothing_that_modern_promises(tmp_path):
    words = [
        *("run", "--env", "process", "--target", "apache-kudu", "--workload", "mixed"),
        *("--rate", "20", "--concurrency", "8", "--time-limit", "15"),
        *("--nemesis", "partition,kill,pause", "--store", str(tmp_path), "--name", "t"),
    ]
    # On a busy machine the run may prove nothing; that is no failure of Kudu.
    assert main(words) in {EXIT_VALID, EXIT_UNKNOWN}
    results = json.loads((tmp_path / "t" / "latest" / "results.json").read_bytes())
    verdicts = {each["checker"]: each["verdict"] for each in results["checkers"]}
    assert len(verdicts) == 12
    assert verdicts["linearizable-catalog"] in {"valid", "permitted"}, results
    assert verdicts["linearizable-rows"] in {"valid", "permitted"}, results
