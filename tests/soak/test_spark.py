"""Seeds on Spark's executors give the same results and the same store as seeds on this machine."""

import itertools
import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Case
from harness.cli import main
from harness.errors import InfrastructureError
from harness.soak import SeedJob, SeedResult
from harness.soak.identity import code_digest
from results import open as open_tables
from results.spark import soak as soak_spark
from results.spark.soak import SparkSoak, run_ranges, split
from tests.soak.commands import LEASELESS, contents, results
from tests.support.spark_session import spark_test

TOY = Case(seed=0, target="toy-register", workload="register", time_limit_s=1.0)


@given(st.sets(st.integers(0, 60)).map(sorted), st.integers(1, 9))
def test_ranges_hold_just_the_seeds_and_spread_them(seeds, tasks):
    ranges = split(seeds, tasks)
    assert [seed for _, first, last in ranges for seed in range(first, last + 1)] == seeds
    numbers = [task for task, _, _ in ranges]
    assert sorted(set(numbers)) == list(range(min(tasks, len(seeds))))
    sizes = [
        sum(last - first + 1 for _, first, last in part)
        for _, part in itertools.groupby(ranges, key=lambda item: item[0])
    ]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def job(**fields):
    given = {"case": TOY, "store": None, "name": "n", "run_prefix": "r-"}
    return msgspec.json.encode(SeedJob(**{**given, **fields}))


def answers(batches, work):
    rows = [row for batch in run_ranges(iter(batches), job=work) for row in batch.to_pylist()]
    return {row["seed"]: msgspec.json.decode(row["result"], type=SeedResult) for row in rows}


def batch(*ranges):
    columns = [pa.array(column, pa.int64()) for column in zip(*ranges, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["first", "last"])


@pytest.mark.process
def test_a_task_puts_its_runs_into_a_lake(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "staging"))
    (tmp_path / "staging").mkdir()
    lake = tmp_path / "lake"
    for _ in range(2):  # a repeated task changes nothing
        answer = answers([batch((3, 4))], job(store="/not/here", lake=str(lake)))
    runs = open_tables(lake).table("runs").pandas()
    assert sorted(zip(runs["seed"], runs["id"], runs["digest"], strict=True)) == [
        (seed, f"r-{seed}", answer[seed].digest) for seed in (3, 4)
    ]
    assert list((tmp_path / "staging").iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("artefacts", [0, 1, 9])
def test_a_task_makes_pages_of_the_first_that_fail(artefacts, tmp_path):
    case = Case(
        seed=0, nemeses=("partition-leader",), bugs=("NO-LEASE",), rate=20.0,
        time_limit_s=3.0, interval_s=1.0, duration_s=1.0,
    )  # fmt: skip
    asked = {"reporters": ("page",), "artefacts": artefacts, "lake": str(tmp_path / "lake")}
    answer = answers([batch((1, 2))], job(case=case, **asked))
    failed = [f"r-{seed}" for seed, result in sorted(answer.items()) if result.failed]
    assert failed == ["r-1", "r-2"]
    kept = {path.name.partition("@")[0]: path for path in (tmp_path / "lake/folders/n").iterdir()}
    assert sorted(kept) == failed
    assert [run for run in failed if (kept[run] / "report.html").is_file()] == failed[:artefacts]


@spark_test
@pytest.mark.process
def test_a_soak_on_spark_into_a_lake(tmp_path, capsys):
    words = [
        *("soak", "--store", str(tmp_path / "s"), "--seeds", "1..3", "--name", "n", *LEASELESS),
        *("--lake", str(tmp_path / "lake"), "--spark-master", "local[2]", "--json"),
    ]
    assert main(words) == 1
    content = msgspec.json.decode(capsys.readouterr().out)
    runs = open_tables(tmp_path / "lake").table("runs").pandas()
    assert dict(zip(runs["seed"], runs["digest"], strict=True)) == {
        result["seed"]: result["digest"] for result in content["results"]
    }
    kept = list((tmp_path / "lake/folders/n").iterdir())
    assert [path for path in kept if not (path / "report.html").is_file()] == []
    assert {path.name for path in kept} == {
        Path(result["run"]).name for result in content["results"] if result["verdict"] != "valid"
    }
    assert [path.name for path in (tmp_path / "s/n").iterdir()] == [".soak"]


@pytest.mark.process
def test_a_task_runs_its_ranges(tmp_path):
    code = code_digest(TOY, "sim")
    answer = answers([batch((3, 4), (9, 9)), batch((12, 12))], job(store=str(tmp_path), code=code))
    assert {seed: result.verdict for seed, result in answer.items()} == dict.fromkeys(
        (3, 4, 9, 12), "valid"
    )
    assert sorted(path.name for path in (tmp_path / "n").iterdir()) == ["r-12", "r-3", "r-4", "r-9"]


@pytest.mark.parametrize("before", [None, "/before"])
def test_workers_of_an_executor_find_packages_sent_to_it(before, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    with soak_spark._packages_for_children():
        assert os.environ.get("PYTHONPATH") == before
    monkeypatch.syspath_prepend("/sent/harness-packages.zip")
    with soak_spark._packages_for_children():
        found = os.environ["PYTHONPATH"].split(":")
        assert found == ["/sent/harness-packages.zip", *([before] if before else [])]
    assert os.environ.get("PYTHONPATH") == before


def test_an_executor_with_other_code_runs_nothing():
    answer = answers([batch((3, 4))], job(code="0123456789ab"))
    assert sorted(answer) == [3, 4]
    for result in answer.values():
        assert "has other code" in result.stop
        assert "(0123456789ab)" in result.stop


class Waves(list):
    """A record of each wave: its seeds, its tasks, and the number of requested artefacts."""

    def __init__(self):
        self.artefacts, self.tasks = [], []
        self.now_s, self.took_s = 0.0, 0.0


def result_of(seed):
    verdict = "valid" if seed % 9 else "invalid"
    return msgspec.json.encode(SeedResult(seed=seed, verdict=verdict, reason=""))


def seed_of(data):
    return msgspec.json.decode(data, type=SeedResult).seed


@pytest.fixture
def waves(monkeypatch):
    """Replace Spark by waves that answer at once; every ninth seed fails."""
    seen = Waves()
    wanted = seen.artefacts

    def run_wave(_, work, ranges, rights):
        assert all(name.startswith("AWS_") for name in rights)
        wanted.append(msgspec.json.decode(work, type=SeedJob).artefacts)
        seeds = [seed for _, first, last in ranges for seed in range(first, last + 1)]
        seen.append(seeds)
        seen.tasks.append(len({task for task, _, _ in ranges}))
        seen.now_s += seen.took_s
        return [{"seed": seed, "result": result_of(seed)} for seed in seeds if seed != 13]

    monkeypatch.setattr(soak_spark, "_run_wave", run_wave)
    monkeypatch.setattr(soak_spark.time, "monotonic", lambda: seen.now_s)
    monkeypatch.setattr("results.spark.session.get_spark", lambda _: None)
    monkeypatch.setattr("results.spark.session.prepare_workers", lambda _: 2)
    return seen


def test_waves_grow_and_every_seed_is_taken_once(waves):
    taken = []
    SparkSoak().run(
        job(artefacts=4), iter(range(100, 200)), url="x", take=lambda data: not taken.append(data)
    )
    assert [seed_of(data) for data in taken] == list(range(100, 200))
    assert [len(wave) for wave in waves] == [8, 32, 60]
    # no seed of the first wave fails, and four of the second do
    assert waves.artefacts == [4, 4, 0]


@pytest.mark.parametrize(
    ("lake", "took_s", "sizes"),
    [
        (None, 40.0, [8] * 12 + [4]),
        (None, 10.0, [8, 16, 32, 44]),
        ("/l", 40.0, [8, 12, 18, 27, 35]),
    ],
    ids=["slow", "quick", "a lake"],
)
def test_waves_are_as_long_as_they_should_be_and_never_of_few_seeds(lake, took_s, sizes, waves):
    waves.took_s = took_s
    SparkSoak().run(job(lake=lake), iter(range(100, 200)), url="x", take=lambda _: True)
    assert [len(wave) for wave in waves] == sizes
    assert waves.tasks == [max(2, min(6, size // 4)) for size in sizes]


def test_a_wave_is_taken_to_its_end_and_no_other_begins(waves):
    taken = []

    def take(data):
        taken.append(seed_of(data))
        return len(taken) != 3

    SparkSoak().run(job(), iter(range(100, 200)), url="x", take=take)
    assert taken == waves[0]
    assert len(waves) == 1


def test_lost_results_are_noticed(waves):
    with pytest.raises(InfrastructureError, match="lost the results of 1 seed, first 13"):
        SparkSoak().run(job(), iter(range(10, 20)), url="x", take=lambda _: True)
    assert len(waves) == 1


def test_nothing_to_do_starts_no_spark():
    SparkSoak().run(job(), iter(()), url="no such url", take=lambda _: True)


def soak(capture, store, *arguments):
    work = (
        *("soak", "--store", str(store), "--name", "n", "--label", "v1", "--json"),
        *("--reporters", "none", *LEASELESS),
    )
    code = main([*work, *arguments])
    out, err = capture.readouterr()
    return code, msgspec.json.decode(out), err


@spark_test
@pytest.mark.process
def test_on_spark_it_comes_to_the_same(tmp_path, capfd):
    one = soak(capfd, tmp_path / "here", "--seeds", "1..6", "--jobs", "1")
    # Spark finishes soaks begun on this machine, and vice versa.
    soak(capfd, tmp_path / "spark", "--seeds", "3..4", "--jobs", "1")
    two = soak(capfd, tmp_path / "spark", "--seeds", "1..5", "--spark-master", "local[2]")
    assert two[1]["done_before"] == 2
    assert "log level" not in two[2]  # by default, Spark's launcher prints a message about itself
    three = soak(capfd, tmp_path / "spark", "--seeds", "1..6", "--jobs", "1")
    assert three[1]["done_before"] == 5
    assert three[0] == one[0] == 1
    assert results(three[1]) == results(one[1])
    assert contents(tmp_path / "spark") == contents(tmp_path / "here")
