"""A pool of isolated worker processes, each of which does one job at a time.

A worker is `python -m MODULE PARENT ARGUMENT...`; its module calls `serve`. A worker reads each job
as a line of JSON, and answers with one or more lines. It has one job at a time, so if it dies, the
pool knows which job it was doing. A fresh worker retries that job, because something else may have
killed the first worker. A job that has killed too many workers is lost (`Lost`, with the reason). A
worker that is silent for too long counts as hung and is killed. Each answer except a job's last one
reports progress, and restarts the time limit.

Workers have their own session, so that Ctrl-C reaches only the process that started them. On Linux
the kernel kills them when that process (precisely: the thread that started them) ends for any
reason: an orphaned worker would continue to write into a store that the next soak then owns.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from harness.errors import EXIT_CRASH, EXIT_INTERRUPTED, InfrastructureError

Job = TypeVar("Job")
Answer = TypeVar("Answer")

BEAT_S: Final = 2.0
"""If no worker answers for this long, the pool reports the jobs in progress."""
END_S: Final = 10.0
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
READ_BYTES: Final = 1 << 20
PR_SET_PDEATHSIG: Final = 1  # <sys/prctl.h>


class Busy(NamedTuple):
    """A progress report: the job is running, and its worker now uses this much memory."""

    memory_bytes: int


class Lost(NamedTuple):
    """The outcome of a job that will have no answer, with the reason."""

    reason: str
    wall_s: float


class Crew:
    """Idle workers that stay between two runs of a pool, since starting a worker costs a second.

    One crew serves one kind of pool. `close` ends its workers.
    """

    def __init__(self) -> None:
        """Make a crew without workers. A pool adds workers when it has jobs."""
        self.idle: list[_Worker] = []

    def close(self) -> None:
        _end(self.idle)
        self.idle.clear()


@dataclass(frozen=True, kw_only=True)
class WorkerPool(Generic[Job, Answer]):
    """A pool of worker processes with limits for one kind of job.

    A worker may be silent for `timeout_s` during a job. A job is lost if `deaths_max` workers died
    of it, or if one worker hung (unless `retry_hung`). A worker is replaced after `jobs_max` jobs,
    so that nothing leaks from one job into a much later one.
    """

    module: str
    answer: type[Answer]
    timeout_s: Callable[[Job], float]
    deaths_max: Callable[[Job], int]
    retry_hung: bool = False
    arguments: Sequence[str] = ()
    is_last: Callable[[Answer], bool] = lambda _: True
    jobs_max: int | None = None

    def run(
        self, jobs: Iterable[Job], slots: int, crew: Crew | None = None
    ) -> Generator[tuple[Job, Answer | Busy | Lost], None, None]:
        """Do `jobs` on at most `slots` workers, and yield each answer with its job.

        Closing the generator kills all workers, except idle ones of a `crew`. The next of the
        `jobs` is taken when a worker is free. A job ends with its last answer or with `Lost`.
        Raises `InfrastructureError` if no worker can be started.
        """
        waiting = iter(jobs)
        idle = Crew().idle if crew is None else crew.idle
        tasks: list[_Task[Job]] = []
        try:
            while True:
                while len(tasks) < slots and (job := next(waiting, None)) is not None:
                    worker = idle.pop() if idle else _Worker(self.module, self.arguments)
                    tasks.append(_Task(job, worker, time.monotonic()))
                    self._give(tasks[-1])
                if not tasks:
                    return
                ready = _ready(tasks)
                if not ready:
                    yield from [(task.job, Busy(task.worker.memory_bytes())) for task in tasks]
                for task in ready:
                    for answer in self._answers(task):
                        yield task.job, answer
                    if task.ended:
                        tasks.remove(task)
                        if task.worker.jobs == self.jobs_max:
                            _end([task.worker])
                        elif task.worker.process.poll() is None:
                            idle.append(task.worker)
        finally:
            _end(task.worker for task in tasks)
            if crew is None:
                _end(idle)

    def _give(self, task: _Task[Job]) -> None:
        task.deadline_s = time.monotonic() + self.timeout_s(task.job)
        task.worker.give(msgspec.json.encode(task.job))

    def _answers(self, task: _Task[Job]) -> Iterator[Answer | Lost]:
        """Yield the answers of a task's worker that have arrived.

        If the worker died or hung, give the job to a fresh worker, or yield `Lost`.
        """
        how = f"gave no answer within {self.timeout_s(task.job):g} s"
        hung = False
        try:
            for line in task.worker.lines():
                answer = msgspec.json.decode(line, type=self.answer)
                task.ended = self.is_last(answer)
                task.deadline_s = time.monotonic() + self.timeout_s(task.job)
                yield answer
                if task.ended:
                    return
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            how = f"sent an unreadable answer: {error!r}"
        except _DiedError as error:
            how = str(error)
        else:
            if time.monotonic() < task.deadline_s:
                return
            hung = True
        _end([task.worker])
        task.deaths += 1
        if task.deaths < self.deaths_max(task.job) and (self.retry_hung or not hung):
            task.worker = _Worker(self.module, self.arguments)
            self._give(task)
            return
        task.ended = True
        died = f"{task.deaths} workers died of it; the last one {how}"
        reason = f"its worker {how}" if task.deaths == 1 else died
        yield Lost(reason, time.monotonic() - task.begin_s)


@dataclass(eq=False)
class _Task(Generic[Job]):
    """A job and its worker. `deaths` counts earlier workers that died of the job."""

    job: Job
    worker: _Worker
    begin_s: float
    deadline_s: float = 0.0
    deaths: int = 0
    ended: bool = False


def _ready(tasks: Sequence[_Task[Job]]) -> list[_Task[Job]]:
    """Return the tasks whose workers have answered, died or hung. Wait at most `BEAT_S` for one."""
    with selectors.DefaultSelector() as selector:
        for task in tasks:
            selector.register(task.worker.output, selectors.EVENT_READ, task)
        patience_s = min(task.deadline_s for task in tasks) - time.monotonic()
        selected = selector.select(max(0.0, min(BEAT_S, patience_s)))
    readable = [key.data for key, _ in selected]
    now_s = time.monotonic()
    return [task for task in tasks if task in readable or task.deadline_s <= now_s]


def _end(workers: Iterable[_Worker]) -> None:
    """Kill workers at once: they are idle, or their answers are no longer needed."""
    ended = list(workers)
    for worker in ended:
        worker.process.kill()  # kill all before waiting: a second Ctrl-C may end the wait
    for worker in ended:
        worker.close()


class _DiedError(Exception):
    """The worker ended, or became unusable, before it answered."""


class _Worker:
    """One worker process, and the number of jobs that it has had."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self.jobs = 0
        self._read = bytearray()
        try:
            self.process = subprocess.Popen(
                # -P: do not import modules from the current folder.
                [sys.executable, "-P", "-m", module, str(os.getpid()), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot start a worker: {error}") from error
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self.output = self.process.stdin, self.process.stdout
        os.set_blocking(self.output.fileno(), False)

    def give(self, job: bytes) -> None:
        self.jobs += 1
        with contextlib.suppress(OSError):  # if the worker is dead, the end of its output shows it
            self._input.write(job + b"\n")
            self._input.flush()

    def lines(self) -> list[bytes]:
        """Return the complete lines that the worker has written.

        Raises `_DiedError` if the worker has ended.
        """
        try:
            read = os.read(self.output.fileno(), READ_BYTES)
        except BlockingIOError:
            return []
        if not read:
            raise _DiedError(self._how_ended())
        self._read += read
        if b"\n" not in read:
            if len(self._read) > LINE_BYTES_MAX:
                raise _DiedError(f"sent more than {LINE_BYTES_MAX} bytes in one answer")
            return []
        *lines, rest = bytes(self._read).split(b"\n")
        self._read = bytearray(rest)
        return lines

    def _how_ended(self) -> str:
        try:
            return how_ended(self.process.wait(END_S))
        except subprocess.TimeoutExpired:
            return "closed its output"

    def memory_bytes(self) -> int:
        """Return the memory that the worker uses now; 0 if it has ended."""
        try:
            fields = Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()
        except OSError:
            return 0
        return int(fields[1]) * resource.getpagesize()

    def close(self) -> None:
        self.process.wait()
        with contextlib.suppress(OSError):
            self._input.close()
        self.output.close()


def how_ended(code: int) -> str:
    """Return the exit code of a worker in words."""
    if code >= 0:
        return f"exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the kernel does where memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"


def default_jobs() -> int:
    """Return the default number of workers: one per core that this process may use."""
    return len(os.sched_getaffinity(0))


def serve(work: Callable[[Iterable[bytes]], Iterable[bytes]]) -> None:
    """Answer each line of stdin with the results of `work`. Other output goes to stderr."""
    _die_with(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        for answer in work(sys.stdin.buffer):
            answers.write(answer + b"\n")
            answers.flush()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(EXIT_CRASH)  # the parent is gone and cannot read the answer


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies. Exit if the parent is already dead."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(EXIT_CRASH)
