"""An exam runs seeds in order, stops at first detections, and reuses results."""

import msgspec
import pytest

from harness.errors import UsageError
from harness.soak.result import SeedJob
from harness.support.workers import Busy, Lost
from harness.trials.memory import Memory
from results.exam import sitting as sittings
from results.exam.scores import score
from results.exam.sitting import Sitting
from tests.results.exam.made import TOY, result, row

HITS = {"easy": 1, "hard": 7, "never": 99}


class Pool:
    """A pool without processes: results come `lag` jobs late; `seen` lists all jobs."""

    def __init__(self, lag=0, answer=None):
        self.lag = lag
        self.seen = []
        self.answer = answer or self.scripted

    def scripted(self, job):
        name = job.name.split()[-1]
        return result(job.case.seed, "invalid" if job.case.seed == HITS[name] else "valid")

    def run(self, jobs, slots):
        waiting = []
        for job in jobs:
            self.seen.append((job.name.split()[-1], job.case.seed))
            waiting.append(job)
            yield job, Busy(0)
            if len(waiting) > self.lag:
                first = waiting.pop(0)
                yield first, self.answer(first)
        for job in waiting:
            yield job, self.answer(job)


@pytest.fixture
def pooled(monkeypatch):
    def use(**options):
        pool = Pool(**options)
        monkeypatch.setattr(
            "harness.soak.pool.WorkerPool.run", lambda _, jobs, slots, __: pool.run(jobs, slots)
        )
        return pool

    return use


def sit(rows, memory=None, cpu_s_max=1e9):
    made = Sitting(rows, Memory(memory), cpu_s_max=cpu_s_max)
    made.run(jobs=1, on_result=lambda *_: None)
    return made


def rows(**fields):
    """Return three rows with different cases, because rows with equal cases share results."""
    return [
        row(
            name,
            seeds=range(1, 11),
            case=msgspec.structs.replace(TOY, time_limit_s=1.0 + number),
            **fields,
        )
        for number, name in enumerate(HITS)
    ]


def test_seeds_are_tried_breadth_first_until_each_row_is_found(pooled):
    pool = pooled()
    sit(rows(first=True))
    assert pool.seen[:5] == [("easy", 1), ("hard", 1), ("never", 1), ("hard", 2), ("never", 2)]
    assert ("hard", 8) not in pool.seen
    assert ("never", 10) in pool.seen


def test_without_first_every_seed_is_tried(pooled):
    pool = pooled()
    sit(rows())
    assert sorted(pool.seen) == sorted((name, n) for name in HITS for n in range(1, 11))


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_scores_do_not_depend_on_the_order_of_results(pooled, lag):
    pooled(lag=lag)
    made = sit(rows(first=True))
    scores = [score(each, made.results(each)) for each in rows(first=True)]
    assert [(one.hits, one.seeds) for one in scores] == [(1, 1), (1, 7), (0, 10)]
    assert all(made.left(each) == 0 for each in rows(first=True))


def test_a_second_exam_takes_its_results_from_the_memory(pooled, tmp_path):
    pooled()
    before = sit(rows(), tmp_path / "results.log")
    again = pooled()
    after = sit(rows(), tmp_path / "results.log")
    assert again.seen == []
    assert after.cpu_s == before.cpu_s
    assert [after.results(each) for each in rows()] == [before.results(each) for each in rows()]


def test_results_of_a_case_without_and_with_a_defect_are_different(pooled, tmp_path):
    memory = tmp_path / "results.log"
    planted = [row("easy", seeds=range(1, 4), defect="tests.results.exam.made:harmless")]
    pooled()
    sit([row("easy", seeds=range(1, 4))], memory)
    pool = pooled()
    sit(planted, memory)
    assert len(pool.seen) == 3
    other = pooled()
    sit(planted, memory)
    assert other.seen == []


def test_the_limit_of_cpu_time_cuts_all_rows_alike(pooled):
    pooled()
    made = sit(rows(), cpu_s_max=6.0)
    assert made.exhausted
    assert [len(made.results(each)) for each in rows()] == [2, 2, 2]
    assert sum(made.left(each) for each in rows()) == 24


def test_a_lost_worker_is_a_crash_of_its_seed(pooled):
    pooled(answer=lambda job: Lost("its worker died", 1.0))
    made = sit([row("easy", seeds=range(1, 2))])
    assert made.results(row("easy"))[1].verdict == "crash"
    assert made.cpu_s == 1.0  # a crashed seed counts against the limit


def test_a_result_that_must_not_count_ends_the_exam(pooled):
    pooled(answer=lambda job: result(job.case.seed, stop="the code changed"))
    with pytest.raises(UsageError, match="the code changed"):
        sit(rows())


class Executor:
    """A fake of the Spark executor, which runs whole waves of four seeds."""

    def __init__(self):
        self.calls = []

    def run(self, job, seeds, *, url, take):
        template = msgspec.json.decode(job, type=SeedJob)
        wanted = list(seeds)
        self.calls.append((template.name.split()[-1], template.defect, url, wanted))
        for begin in range(0, len(wanted), 4):
            wave = [template.of_seed(seed) for seed in wanted[begin : begin + 4]]
            answers = [take(msgspec.json.encode(Pool().scripted(each))) for each in wave]
            if not all(answers):
                return


def test_spark_gives_the_same_scores(monkeypatch, tmp_path):
    executor = Executor()
    monkeypatch.setattr(sittings, "load_plugin", lambda group, name: executor)
    made = Sitting(rows(first=True), Memory(tmp_path / "m"), cpu_s_max=1e9)
    made.run_on_spark("local[2]", on_result=lambda *_: None)
    scores = [score(each, made.results(each)) for each in rows(first=True)]
    assert [(one.hits, one.seeds) for one in scores] == [(1, 1), (1, 7), (0, 10)]
    assert [call[0] for call in executor.calls] == list(HITS)

    again = Executor()
    monkeypatch.setattr(sittings, "load_plugin", lambda group, name: again)
    resumed = Sitting(rows(first=True), Memory(tmp_path / "m"), cpu_s_max=1e9)
    resumed.run_on_spark("local[2]", on_result=lambda *_: None)
    assert again.calls == []
