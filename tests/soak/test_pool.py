"""Every seed gets a result and no verdict is lost, even with failing workers and full disks."""

import itertools
import os
import re
import signal

import msgspec
import pytest

from harness.case import Case
from harness.errors import (
    EXIT_CRASH,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    HistoryError,
    InfrastructureError,
)
from harness.ops import History
from harness.run import keep as run_and_keep
from harness.soak import CRASH, SeedJob, SeedResult, Tally, exit_code_of, pool, run_seed, soak
from harness.soak.result import PASSING
from harness.store import RunFolder, load_run
from tests.support.programs import python

BUG = Case(
    seed=1,
    nemeses=("partition-leader",),
    bugs=("NO-LEASE",),
    rate=20.0,
    interval_s=1.0,
    duration_s=1.0,
    time_limit_s=3.0,
)
TOY = Case(seed=0, target="toy-register", workload="register", time_limit_s=1.0)


def job(case, store=None, **fields):
    store = None if store is None else str(store)
    return SeedJob(case=case, store=store, name="soak", run_prefix="x-seed-", **fields)


def toys(*seeds, time_limit_s=1.0):
    base = job(msgspec.structs.replace(TOY, time_limit_s=time_limit_s))
    return iter([base.of_seed(seed) for seed in seeds])


def test_a_job_of_another_seed_is_named_after_that_seed():
    template = job(TOY, number=7)
    assert [template.of_seed(seed).seed for seed in (3, 4)] == [3, 4]


def in_workers(work, jobs=1, until=lambda _: True):
    found = []

    def take(result):
        found.append(result)
        return until(result)

    soak(work, jobs=jobs, on_result=take)
    return sorted(found, key=lambda result: result.seed)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], EXIT_UNKNOWN),
        (["valid"], EXIT_VALID),
        (["valid", "permitted"], EXIT_VALID),
        (["permitted", "unknown"], EXIT_UNKNOWN),
        (["valid", "unknown"], EXIT_UNKNOWN),
        (["unknown", CRASH], EXIT_CRASH),
        ([CRASH, "invalid", "valid"], EXIT_INVALID),
        (["invalid", "unknown", "valid"], EXIT_INVALID),
    ],
)
def test_the_worst_seed_decides(verdicts, code):
    for order in itertools.permutations(verdicts):
        assert exit_code_of(order) == code
        tally = Tally()
        for verdict in order:
            tally.take(SeedResult(seed=1, verdict=verdict, reason=""))
        assert tally.exit_code == code
        assert tally.failed == sum(verdict not in PASSING for verdict in verdicts)


def test_a_passing_run_is_kept_small_and_a_failing_one_whole(tmp_path):
    failing = run_seed(job(BUG, tmp_path, label="v1"))
    passing = run_seed(job(msgspec.structs.replace(BUG, bugs=(), seed=5), tmp_path))
    assert (failing.verdict, passing.verdict) == ("invalid", "valid")
    small = {"case.json", "history.parquet", "run.json"}
    whole = small | {"results.json", "logs"}
    for result, files, label in ((failing, whole, "v1"), (passing, small, None)):
        folder = result.folder(tmp_path, "soak")
        assert {path.name for path in folder.iterdir()} == files
        assert result.kept_bytes == sum(
            path.stat().st_size for path in folder.rglob("*") if path.is_file()
        )
        stored = load_run(folder)
        assert stored.note is None
        assert stored.history.digest() == result.digest == stored.record.digest
        assert stored.record.verdict.value == result.verdict
        assert stored.record.label == label
        assert stored.record.simulated_s == result.simulated_s > 0
        assert stored.case.seed == result.seed
    assert [said.verdict for said in failing.checkers if said.checker == failing.checker] == [
        "invalid"
    ]
    assert not [path for path in (tmp_path / "soak").iterdir() if path.name.startswith(".")]


def test_a_failing_seed_is_kept_with_the_logs_of_its_nodes_in_the_same_run(tmp_path):
    result = run_seed(job(BUG, tmp_path))
    assert result.verdict == "invalid"
    folder = tmp_path / "soak" / result.run
    logs = {path.stem: path.read_text() for path in (folder / "logs").glob("*.log")}
    assert {"m1", "m2", "m3"} <= set(logs)
    leaders = {
        (op.value["node"], op.value["term"]) for op in load_run(folder).history.facts("leader")
    }
    assert leaders
    for node, term in leaders:
        assert re.search(rf"leader .*\"?term\"?\W+{term}\b", logs[node]), (node, term)


def test_logs_of_another_run_are_never_kept(tmp_path, monkeypatch):
    real, calls = run_and_keep.conduct, []

    def conduct(plan, *arguments, **options):
        calls.append(plan)
        outcome = real(plan, *arguments, **options)
        if len(calls) == 1:
            return outcome
        return msgspec.structs.replace(outcome, history=History(outcome.history[:-1]))

    monkeypatch.setattr(run_and_keep, "conduct", conduct)
    result = run_seed(job(BUG, tmp_path))
    assert (result.verdict, len(calls)) == ("invalid", 2)
    assert not (tmp_path / "soak" / result.run / "logs").exists()


def test_only_failing_runs_are_kept_if_so_asked(tmp_path):
    assert run_seed(job(BUG, tmp_path, keep="failing")).run is not None
    assert run_seed(job(TOY, tmp_path, keep="failing")).run is None
    assert run_seed(job(TOY, tmp_path)).run is not None


def test_a_run_takes_the_place_of_an_older_one_of_its_seed(tmp_path):
    folder = tmp_path / "soak" / "x-seed-0"
    folder.mkdir(parents=True)
    (folder / "half").write_text("of a run")
    result = run_seed(job(TOY, tmp_path))
    assert sorted(path.name for path in folder.iterdir()) == [
        "case.json",
        "history.parquet",
        "run.json",
    ]
    assert load_run(folder).record.digest == result.digest
    assert [path.name for path in (tmp_path / "soak").iterdir()] == ["x-seed-0"]


def test_a_store_that_takes_nothing_stops_the_soak_and_changes_no_verdict(tmp_path):
    (tmp_path / "file").write_text("no folder")
    kept = run_seed(job(BUG, tmp_path / "store"))
    lost = run_seed(job(BUG, tmp_path / "file"))
    assert (kept.verdict, lost.verdict) == ("invalid", "invalid")
    assert kept.digest == lost.digest
    assert (kept.stop, lost.run) == (None, None)
    assert "seed 1 (invalid) could not be kept" in lost.stop


@pytest.mark.parametrize("step", ["write_case", "seal", "write_results", "finish", "publish"])
def test_a_run_that_cannot_be_kept_leaves_nothing_half_done(tmp_path, monkeypatch, step):
    def full(*_, **__):
        raise InfrastructureError("the disk is full")

    monkeypatch.setattr(RunFolder, step, full)
    result = run_seed(job(BUG, tmp_path))
    assert (result.verdict, result.run) == ("invalid", None)
    assert "the disk is full; with room in the store" in result.stop
    assert list((tmp_path / "soak").iterdir()) == []


@pytest.mark.parametrize(
    ("case", "verdict"), [(BUG, "invalid"), (msgspec.structs.replace(BUG, bugs=()), CRASH)]
)
def test_a_history_that_no_column_holds_concerns_its_seed_alone(
    tmp_path, monkeypatch, case, verdict
):
    def cannot(*_, **__):
        raise HistoryError("value 2**70 is too large")

    monkeypatch.setattr(RunFolder, "seal", cannot)
    result = run_seed(job(case, tmp_path))
    assert (result.verdict, result.run, result.stop) == (verdict, None, None)
    assert "value 2**70 is too large" in result.reason
    # A proven failure is reported even if its run was not kept; such a run never counts as valid.
    assert ("not linearizable" in result.reason) == (verdict == "invalid")
    assert list((tmp_path / "soak").iterdir()) == []


def test_an_interrupted_run_is_not_the_seeds(tmp_path, monkeypatch):
    def cut_short(*arguments, **options):
        return msgspec.structs.replace(conduct(*arguments, **options), stop_asked=True)

    conduct = run_and_keep.conduct
    monkeypatch.setattr(run_and_keep, "conduct", cut_short)
    result = run_seed(job(BUG, tmp_path))
    assert (result.stop, result.verdict) == ("seed 1 was interrupted", CRASH)
    assert list(tmp_path.iterdir()) == []


def test_a_seed_that_never_ends_is_a_crash(monkeypatch):
    monkeypatch.setattr(pool, "SEED_TIMEOUT_S", 0.5)
    (result,) = in_workers(toys(1, time_limit_s=1e6))
    assert (result.verdict, result.reason) == (CRASH, "its worker gave no answer within 0.5 s")


def test_a_result_is_taken_before_an_interrupt_is():
    taken = []

    def take(result):
        os.kill(os.getpid(), signal.SIGINT)
        taken.append(result.seed)
        return True

    with pytest.raises(KeyboardInterrupt):
        soak(toys(1, 2), jobs=1, on_result=take)
    assert taken == [1]


def test_the_result_of_another_seed_is_not_taken(monkeypatch):
    def answer_about_the_next(_, work, *__):
        for each in work:
            yield each, SeedResult(seed=each.case.seed + 1, verdict="valid", reason="")

    monkeypatch.setattr(pool.WorkerPool, "run", answer_about_the_next)
    (result,) = in_workers(toys(7))
    assert (result.seed, result.verdict) == (7, CRASH)
    assert "seed 8" in result.reason


def test_enough_is_enough():
    results = in_workers(toys(*range(50)), until=lambda found: found.seed < 2)
    assert [found.seed for found in results] == [0, 1, 2]


def test_a_worker_refuses_work_for_other_code():
    (result,) = in_workers(iter([job(TOY, code="0123456789ab")]))
    assert "the code changed" in result.stop


def test_workers_load_only_modules_in_the_code_digest():
    script = (
        "import sys, msgspec\n"
        "from harness.soak import SeedJob, run_seed\n"
        "import harness.soak.__main__\n"
        "result = run_seed(msgspec.json.decode(sys.argv[1], type=SeedJob))\n"
        "assert result.verdict == 'invalid', result\n"
        "print(*sys.modules)\n"
    )
    said = python(script, msgspec.json.encode(job(BUG)).decode())
    loaded = [name.replace(".", "/") for name in said.split()]
    assert "harness/run" in loaded
    from harness.soak.identity import NOT_OF_WORKERS

    assert [name for name in loaded if name.startswith(NOT_OF_WORKERS)] == []
