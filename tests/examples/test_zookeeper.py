"""Real ZooKeeper, tested as by a user: linearizable reads after a sync, stale reads without."""

import json

import pytest

from harness.cli import main
from harness.errors import EXIT_INVALID, EXIT_USAGE, EXIT_VALID

JUDGES = {"register": "linearizable-register", "list-append": "elle-list-append"}


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.zookeeper
@pytest.mark.xdist_group("process")
@pytest.mark.parametrize("workload", JUDGES)
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "plain"])
def test_its_answers_are_judged(capsys, tmp_path, workload, sync):
    # Pinned clients keep asking the server that is cut off, until it notices the cut.
    how = ("--sync",) if sync else ("--pinned", "--concurrency", "9")
    for seed in range(1, 2 if sync else 5):
        code = main(
            [
                *("run", "--target", "zookeeper", "--workload", workload, "--env", "process"),
                *("--nemesis", "partition-halves", "--time-limit", "15", "--interval", "7"),
                *("--duration", "4", "--seed", str(seed), "--json", "--store", str(tmp_path), *how),
            ]
        )
        report = json.loads(capsys.readouterr().out)
        verdicts = {result["checker"]: result["verdict"] for result in report["checkers"]}
        if sync or code == EXIT_INVALID:
            break

    if sync:
        assert (code, set(verdicts.values())) == (EXIT_VALID, {"valid"}), verdicts
    else:
        convicted = {name for name, verdict in verdicts.items() if verdict == "invalid"}
        assert convicted == {JUDGES[workload]}, verdicts


@pytest.mark.process
def test_a_machine_without_it_is_told_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("--env", "process", "--nemesis", "none", "--store", str(tmp_path))
    code = main(["run", "--target", "zookeeper", "--workload", "register", *words])

    assert code == EXIT_USAGE
    assert "Debian's package zookeeper" in capsys.readouterr().err
