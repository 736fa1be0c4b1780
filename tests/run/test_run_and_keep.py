"""All ways to run a case store the same record. A full disk does not lose the verdict."""

import msgspec
import pytest

from harness.case import Case
from harness.cli import main
from harness.errors import InfrastructureError
from harness.ops import Verdict
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from harness.run.keep import run_and_keep
from harness.soak import SeedJob, real, run_seed
from harness.store import RunFolder, load_run, new_run_id
from harness.store.footer import read_footer

CASE = Case(seed=3, target="toy-register", workload="register", time_limit_s=1.0)


def job(store, **fields):
    return SeedJob(case=CASE, store=str(store), name="n", run_prefix="r-", label="v1", **fields)


def by_verb(store):
    (store / "case.json").write_bytes(plan_case(CASE, None).case.encode())
    words = ["--case", str(store / "case.json"), "--store", str(store), "--name", "n", "--json"]
    assert main(["run", "--env", "sim", "--quiet", "--reporters", "none", *words]) == 0


def by_seed(store):
    assert run_seed(job(store, code="0a")).verdict == "valid"


def by_real_soak(store):
    environment = load_plugin("environments", "sim")
    results = []
    real.soak_one_by_one(iter([job(store)]), environment, on_result=results.append)
    assert [result.simulated_s > 0 for result in results] == [True]


@pytest.mark.parametrize(
    ("way", "label", "files"),
    [
        (by_verb, None, {"results.json", "logs"}),
        (by_seed, "v1", set()),
        (by_real_soak, "v1", {"results.json", "logs"}),
    ],
)
def test_every_way_to_run_a_case_keeps_the_same_record(way, label, files, tmp_path):
    direct = RunFolder(tmp_path, "direct", "r")
    environment = load_plugin("environments", "sim")
    kept = run_and_keep(plan_case(CASE, environment), environment, direct, run_id="r")

    way(tmp_path)

    (folder,) = (path for path in (tmp_path / "n").iterdir() if not path.is_symlink())
    names = {path.name for path in folder.iterdir()}
    assert names == {"case.json", "history.parquet", "run.json", *files}
    record = load_run(folder).record
    versions = {**kept.record.versions, **({"code": "0a"} if way is by_seed else {})}
    assert record == msgspec.structs.replace(
        kept.record,
        run=folder.name,
        label=label,
        versions=versions,
        started=record.started,
        wall_s=record.wall_s,
    )
    assert record.simulated_s == kept.outcome.wall_ns / 1e9
    assert read_footer(folder / "history.parquet").label == label


@pytest.mark.parametrize("step", ["write_results", "finish"])
def test_a_run_that_cannot_be_kept_has_its_verdict(step, tmp_path, monkeypatch):
    def full(*_, **__):
        raise InfrastructureError("the disk is full")

    monkeypatch.setattr(RunFolder, step, full)
    environment = load_plugin("environments", "sim")
    folder = RunFolder(tmp_path, "n", new_run_id(3))
    kept = run_and_keep(
        plan_case(CASE, environment), environment, folder, run_id=folder.run_id, replay="again"
    )
    assert kept.judgement.verdict is kept.record.verdict is Verdict.VALID
    assert str(kept.unkept) == "the disk is full"
    assert load_run(folder.path).history.digest() == kept.record.digest
