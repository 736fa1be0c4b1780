"""Soaks in a real environment run one seed at a time, and keep no interrupted run."""

from types import SimpleNamespace

import msgspec
import pytest

from harness.case import Case
from harness.errors import EXIT_INTERRUPTED, HistoryError, TargetError
from harness.soak import SeedJob, SeedResult, identity, real
from harness.store import load_run
from tests.soak.commands import journaled, soak, start

WORK = (
    *("--env", "process", "--target", "toy-register", "--workload", "register"),
    *("--nemesis", "none", "--label", "real"),
)


INTERRUPTED = """
import os, signal
import harness.run.keep as keeping

conduct = keeping.conduct

def interrupted(plan, *arguments, listener, **options):
    def hear(op):
        if listener is not None:
            listener(op)
        if op.f == "phase" and op.value["phase"] == "warm-up":
            os.kill(os.getpid(), signal.SIGINT)

    return conduct(plan, *arguments, listener=hear, **options)

keeping.conduct = interrupted
"""
"""A program that interrupts a soak from within, because the right moment is hard to hit."""


def runs(store):
    folders = [path for path in (store / "n").iterdir() if path.name[0] != "."]
    return sorted(path for path in folders if not path.is_symlink())


class Marked:
    """A fake of the environment `process`, whose runs are made up."""

    name = "process"


@pytest.mark.parametrize(
    ("digests", "counted", "runs_made"),
    [
        (["old"] * 6, [None] * 3, 3),
        (["old", "old", "new"], [None, "stop"], 1),  # the code changes between two runs
        (["old", "new"], ["stop"], 1),  # the code changes during a run
    ],
)
def test_a_run_by_other_code_than_the_soak_began_with_does_not_count(
    digests, counted, runs_made, monkeypatch
):
    made, taken, given = [], [], iter(digests)
    monkeypatch.setattr(identity, "code_digest", lambda *_: next(given))

    def run(job, *_):
        made.append(job.case.seed)
        return SeedResult(seed=job.case.seed, verdict="valid", reason=""), None

    def take(result):
        taken.append(result)
        return result.stop is None

    monkeypatch.setattr(real, "_run", run)
    case = Case(seed=0, target="toy-register", workload="register")
    job = SeedJob(case=case, store="s", name="n", run_prefix="p", code="old")
    real.soak_one_by_one(
        (job.of_seed(seed) for seed in (1, 2, 3)), Marked(), on_result=take, listen=None
    )
    assert [result.stop and "stop" for result in taken] == counted
    assert len(made) == runs_made
    assert all("the code changed" in result.stop for result in taken if result.stop)


@pytest.mark.parametrize("error", [HistoryError("2**70 is too large"), TargetError("not up")])
def test_a_failed_run_affects_its_seed_only(error, tmp_path, monkeypatch):
    def conduct(*_, **__):
        raise error

    plan = SimpleNamespace(case=Case(seed=0, target="toy-register", workload="register"))
    monkeypatch.setattr(real, "plan_case", lambda *_: plan)
    monkeypatch.setattr("harness.run.keep.conduct", conduct)
    taken = []
    job = SeedJob(case=plan.case, store=str(tmp_path), name="n", run_prefix="p")
    work = (job.of_seed(seed) for seed in (1, 2))
    real.soak_one_by_one(work, Marked(), on_result=lambda found: not taken.append(found))
    assert [(found.seed, found.verdict, found.stop) for found in taken] == [
        (1, "crash", None),
        (2, "crash", None),
    ]
    assert all(str(error) in found.reason for found in taken)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.xdist_group("process")
def test_seeds_run_one_by_one_and_an_interrupted_one_runs_again(tmp_path):
    code, found, said = soak(tmp_path, *WORK, "--time-limit", "1", "--seeds", "1..2")
    # On a busy machine, one second may prove nothing, so the verdict is not checked.
    assert (code, found["seeds"]) == (0 if found["verdicts"]["valid"] == 2 else 2, 2), said
    assert found["verdicts"]["invalid"] == found["verdicts"]["crash"] == 0
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

    process = start(tmp_path, *WORK, "--time-limit", "1", "--seeds", "1..3", prelude=INTERRUPTED)
    out, err = process.communicate(timeout=240)
    assert process.returncode == EXIT_INTERRUPTED, err.decode()
    assert b"2 of 3 seeds (2 of them before)" in out
    assert journaled(tmp_path) == 2
    assert load_run(runs(tmp_path)[2]).record.interrupted
    assert msgspec.json.decode((runs(tmp_path)[2] / "case.json").read_bytes())["seed"] == 3

    code, found, _ = soak(tmp_path, *WORK, "--time-limit", "1", "--seeds", "1..3")
    assert code == (0 if found["verdicts"]["valid"] == 3 else 2)
    assert (found["done_before"], found["seeds"]) == (2, 3)
    assert len(runs(tmp_path)) == 4
