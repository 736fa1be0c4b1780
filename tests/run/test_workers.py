"""Every job gets a result or a reason, even if workers die, hang or send garbage."""

import itertools
import os
import time

import msgspec
import pytest

from harness.support import workers
from harness.support.workers import Busy, WorkerPool, how_ended

PROGRAM = """
import json, os, sys, time
from harness.support.workers import serve

def work(lines):
    print("no answer: it goes to stderr")
    for line in lines:
        job = json.loads(line)
        answer = {"pid": os.getpid(), "arguments": sys.argv[2:]}
        for step in job["does"]:
            if step == "die":
                os._exit(9)
            if step == "die once" and not os.path.exists(job["mark"]):
                open(job["mark"], "w").close()
                os.kill(os.getpid(), 9)
            if step == "hang once" and not os.path.exists(job["mark"]):
                open(job["mark"], "w").close()
                time.sleep(1e6)
            if step == "half":
                os.write(answers, b'{"pid"')
                time.sleep(1e6)
            if step == "babble":
                yield b"no answer"
            if step == "endless":
                while True:
                    os.write(answers, b"x" * 65536)
            if step == "part":
                yield json.dumps({**answer, "part": 0.5}).encode()
            if isinstance(step, float):
                time.sleep(step)
        yield json.dumps(answer).encode()

answers = os.dup(1)
serve(work)
"""


class Job(msgspec.Struct):
    does: tuple = ()
    mark: str = ""


class Answer(msgspec.Struct):
    pid: int
    arguments: list = []
    part: float = 1.0


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """Return a function that makes a pool. Its workers do what each job says."""
    (tmp_path / "toy_worker.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(**options):
        given = {"timeout_s": lambda _: 60.0, "deaths_max": lambda _: 2, **options}
        return WorkerPool(
            module="toy_worker", answer=Answer, is_last=lambda found: found.part >= 1.0, **given
        )

    return make


def outcomes(made, *jobs, slots=1):
    """Return each job's result in order, and ignore other messages of the pool."""
    found = [(job, said) for job, said in made.run(jobs, slots) if not isinstance(said, Busy)]
    return [[said for job, said in found if job is wanted] for wanted in jobs]


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_jobs_are_done_by_as_many_workers_as_there_are_slots(pool):
    made = pool(arguments=["one", "two"])
    answers = [answer for (answer,) in outcomes(made, *(Job((0.2,)) for _ in range(6)), slots=2)]
    assert len({answer.pid for answer in answers}) == 2
    assert all(answer.arguments == ["one", "two"] for answer in answers)
    assert all(gone(answer.pid) for answer in answers)


def test_without_jobs_nothing_starts(pool, monkeypatch):
    monkeypatch.setattr(workers, "_Worker", None)
    assert list(pool().run([], 2)) == []


def test_a_worker_is_replaced_after_its_share(pool):
    answers = [answer for (answer,) in outcomes(pool(jobs_max=2), *(Job() for _ in range(5)))]
    pids = [answer.pid for answer in answers]
    assert [len(list(same)) for _, same in itertools.groupby(pids)] == [2, 2, 1]


def test_a_job_of_a_killed_worker_is_done_by_another(pool, tmp_path):
    first, killed, last = outcomes(
        pool(), Job(), Job(("die once",), str(tmp_path / "mark")), Job(), slots=1
    )
    assert [len(said) for said in (first, killed, last)] == [1, 1, 1]
    assert first[0].pid != killed[0].pid == last[0].pid


def test_a_job_that_kills_is_lost_and_the_next_is_done(pool):
    (lost,), (answer,) = outcomes(pool(), Job(("die",)), Job())
    assert lost.reason == "2 workers died of it; the last one exited with 9"
    assert 0.0 < lost.wall_s < 60.0
    assert isinstance(answer, Answer)
    ((lost,),) = outcomes(pool(deaths_max=lambda _: 3), Job(("die",)))
    assert lost.reason.startswith("3 workers died of it")


@pytest.mark.parametrize("step", ["half", 1e6])
def test_a_job_that_hangs_is_lost(pool, step):
    (lost,), (answer,) = outcomes(
        pool(timeout_s=lambda job: 1.0 if job.does else 60.0), Job((step,)), Job()
    )
    assert lost.reason == "its worker gave no answer within 1 s"
    assert isinstance(answer, Answer)


def test_a_job_that_hangs_may_be_given_to_another_worker(pool, tmp_path):
    made = pool(timeout_s=lambda _: 3.0, retry_hung=True)
    ((answer,),) = outcomes(made, Job(("hang once",), str(tmp_path / "mark")))
    assert isinstance(answer, Answer)


@pytest.mark.parametrize(
    ("step", "how"), [("babble", "sent an unreadable answer"), ("endless", "in one answer")]
)
def test_an_invalid_answer_counts_as_a_dead_worker(pool, monkeypatch, step, how):
    monkeypatch.setattr(workers, "LINE_BYTES_MAX", 1 << 20)
    ((lost,),) = outcomes(pool(), Job((step,)))
    assert lost.reason.startswith("2 workers died of it; the last one sent ")
    assert how in lost.reason


def test_partial_answers_give_new_time(pool):
    made = pool(timeout_s=lambda _: 2.0)
    ((*parts, last),) = outcomes(made, Job(("part", 1.2, "part", 1.2, "part")))
    assert [answer.part for answer in (*parts, last)] == [0.5, 0.5, 0.5, 1.0]


def test_memory_of_workers_is_reported_at_rest(pool, monkeypatch):
    monkeypatch.setattr(workers, "BEAT_S", 0.1)
    said = list(pool().run([Job((0.5,))], 1))
    beats = [beat.memory_bytes for _, beat in said if isinstance(beat, Busy)]
    assert beats
    assert beats[-1] > 1 << 20


def test_closing_ends_all_workers_at_once(pool):
    running = pool().run([Job(("part", 1e6)), Job(("part", 1e6))], 2)
    pids = [next(running)[1].pid, next(running)[1].pid]
    assert all(os.getpgid(pid) != os.getpgrp() for pid in pids)  # Ctrl-C does not reach the workers
    begin_s = time.monotonic()
    running.close()
    assert time.monotonic() - begin_s < 20.0
    assert all(map(gone, pids))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "exited with 3"),
        (-9, "was ended by SIGKILL, as the kernel does where memory runs out"),
        (-11, "was ended by SIGSEGV"),
        (-99, "was ended by signal 99"),
    ],
)
def test_exits_of_workers_are_described(code, text):
    assert how_ended(code) == text
