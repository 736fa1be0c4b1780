"""Real Kudu runs as local processes with faults, judged by the profile `modern`."""

import json

import pytest

from harness.cli import main
from harness.errors import EXIT_UNKNOWN, EXIT_VALID
from targets.apache_hive.artefacts import HIVE3

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.kudu]


def verdicts_of(store, *words):
    start = ["run", "--env", "process", "--target", "apache-kudu", "--store", str(store)]
    # On a busy machine the run may test too little for a verdict, which is not Kudu's fault.
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


@pytest.mark.nightly
@pytest.mark.hive
@pytest.mark.postgres
@pytest.mark.skipif(not HIVE3.folder().is_complete, reason="harness fetch hive 3.1.3")
def test_kudu_and_its_metastores_agree_but_for_the_addresses_of_added_masters(tmp_path):
    verdicts = verdicts_of(
        tmp_path,
        *("--hms", "--workload", "kudu-hms", "--masters", "1", "--spare-masters", "2"),
        *("--rate", "10", "--time-limit", "15", "--fault", "kill node:hms1 at 8s for 4s"),
        *("--fault", "do add-master on node:m2 at 3s", "--fault", "do add-master on node:m3 at 6s"),
    )
    assert verdicts["linearizable-catalog"] in {"valid", "permitted"}, verdicts
    assert verdicts["kudu-hms"] in {"permitted", "unknown"}, verdicts


def test_one_master_becomes_three_under_load(tmp_path):
    verdicts = verdicts_of(
        tmp_path,
        *("--workload", "members", "--masters", "1", "--spare-masters", "2", "--members", "20"),
        *("--rate", "20", "--concurrency", "6", "--time-limit", "8"),
        *("--nemesis", "kill-random,set-flag", "--seed", "3"),
    )
    assert verdicts["linearizable-catalog"] in {"valid", "permitted"}, verdicts
    assert verdicts["members"] in {"valid", "unknown"}, verdicts
