"""Soaks in a real environment: one run at a time, each kept whole, interrupted ones not counted."""

import signal

import msgspec
import pytest

from harness.errors import EXIT_INTERRUPTED
from harness.store import load_run
from tests.soak.commands import journaled, soak, start, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("process")]

WORK = (
    *("--env", "process", "--target", "toy-register", "--workload", "register"),
    *("--label", "real"),
)


def runs(store):
    folders = [path for path in (store / "n").iterdir() if path.name[0] != "."]
    return sorted(path for path in folders if not path.is_symlink())


def test_seeds_run_one_by_one_and_an_interrupted_one_runs_again(tmp_path):
    code, found, said = soak(tmp_path, *WORK, "--time-limit", "1", "--seeds", "1..2")
    assert (code, found["seeds"], found["verdicts"]["valid"]) == (0, 2, 2), said
    assert found["environment"] == "process"
    assert found["simulated_s"] == 0
    for result, folder in zip(found["results"], runs(tmp_path), strict=True):
        assert result["run"] == str(folder)
        stored = load_run(folder)
        assert stored.case.seed == result["seed"]
        assert stored.history.digest() == result["digest"]
        record = stored.record
        assert (record.label, record.interrupted, record.simulated_s) == ("real", False, None)
        names = {path.name for path in folder.iterdir()}
        assert {"results.json", "logs"} <= names

    process = start(tmp_path, *WORK, "--time-limit", "1", "--seeds", "1..3")
    wait_until(lambda: len(runs(tmp_path)) == 3 and any((runs(tmp_path)[2]).glob("ops.log")))
    log = runs(tmp_path)[2] / "ops.log"
    wait_until(lambda: b'"chaos"' in log.read_bytes())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED, err.decode()
    assert b"2 of 3 seeds (2 of them before)" in out
    assert journaled(tmp_path) == 2
    assert load_run(runs(tmp_path)[2]).record.interrupted
    assert msgspec.json.decode((runs(tmp_path)[2] / "case.json").read_bytes())["seed"] == 3

    code, found, _ = soak(tmp_path, *WORK, "--time-limit", "1", "--seeds", "1..3")
    assert (code, found["done_before"], found["seeds"]) == (0, 2, 3)
    assert len(runs(tmp_path)) == 4
