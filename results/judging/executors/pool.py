"""Units in worker processes of this machine.

A worker gets its units one by one, so that the unit of a worker that dies is known: a fresh worker
tries it again. A unit that keeps killing is given up by `do_units` itself (see
`results.judging.markers.Marker`). A worker that reports nothing for much longer than the unit's
budget allows hangs, and is killed, which counts as a death.
"""

from __future__ import annotations

import collections
import contextlib
import os
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from harness.errors import InfrastructureError
from results.judging.work import STAGES_BESIDE_CHECKS, Done, LakeConfig, LakeUnit, stages_of

__all__ = ["PoolExecutor"]

BEAT_S: Final = 2.0
"""While no unit ends, so often the executor says which are under way."""
_HANG_FACTOR: Final = 4.0
_HANG_S: Final = 60.0
_DEATHS_A_STAGE: Final = 2


class PoolExecutor:
    """Does units in `jobs` processes."""

    name = "pool"

    def __init__(self, jobs: int) -> None:
        """Start nothing yet."""
        self._jobs = jobs
        self._workers: list[_Worker] = []

    def run(self, units: Sequence[LakeUnit], config: LakeConfig) -> Generator[Done, None, None]:
        """See `Executor`."""
        waiting = collections.deque(units)
        deaths: collections.Counter[str] = collections.Counter()
        try:
            self._workers = [_Worker(config) for _ in range(min(self._jobs, len(units)))]
            while self._give_all(waiting):
                ready = _ready(self._workers)
                if not ready:  # nothing ended, which is worth a word as well
                    yield from [worker.beat(found) for worker, found in _busy(self._workers)]
                for worker in ready:
                    done = worker.answer()
                    if done is not None:
                        yield done
                        continue
                    unit = worker.unit
                    worker.end()
                    if unit is not None:
                        deaths[unit.unit_id] += 1
                        if deaths[unit.unit_id] < _attempts_max(unit):
                            waiting.appendleft(unit)
                    self._workers[self._workers.index(worker)] = _Worker(config)
        finally:
            self.close()

    def _give_all(self, waiting: collections.deque[LakeUnit]) -> bool:
        """Have every idle worker begin; returns whether any is busy now."""
        # Every one is asked: `any` of a generator would stop at the first that is busy.
        return max([worker.give(waiting) for worker in self._workers], default=False)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()
        self._workers = []


def _attempts_max(unit: LakeUnit) -> int:
    """Every stage of a unit (reading, each checker, facts) may kill twice; then it is over."""
    return _DEATHS_A_STAGE * stages_of(unit) + 1


def _busy(workers: Sequence[_Worker]) -> list[tuple[_Worker, LakeUnit]]:
    return [(worker, worker.unit) for worker in workers if worker.unit is not None]


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """The workers that have something to say, that died, or that hang; none for a while."""
    busy = [worker for worker, _ in _busy(workers)]
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker.output, selectors.EVENT_READ, worker)
        patience_s = min(worker.deadline_s for worker in busy) - time.monotonic()
        ready = [key.data for key, _ in selector.select(max(0.0, min(BEAT_S, patience_s)))]
    return ready or [worker for worker in busy if worker.deadline_s <= time.monotonic()]


class _Worker:
    """One process, and the unit that it works on."""

    def __init__(self, config: LakeConfig) -> None:
        self.unit: LakeUnit | None = None
        self.deadline_s = 0.0
        text = msgspec.json.encode(config).decode()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "results.judging.executors.worker", text],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the report, which ends us
            )
        except OSError as error:
            raise InfrastructureError(f"cannot start a worker: {error}") from error
        assert self._process.stdout is not None
        self.output: IO[bytes] = self._process.stdout

    def give(self, waiting: collections.deque[LakeUnit]) -> bool:
        """Have it begin its next unit if it has none; returns whether it is busy now."""
        if self.unit is not None:
            return True
        if not waiting:
            return False
        self.unit = waiting.popleft()
        self._set_deadline(self.unit)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # if it is dead, its output will say so
            self._process.stdin.write(msgspec.json.encode(self.unit) + b"\n")
            self._process.stdin.flush()
        return True

    def _set_deadline(self, unit: LakeUnit) -> None:
        """When it hangs, if it says nothing more of this unit: that much a run may take."""
        stages = len(unit.checks) + STAGES_BESIDE_CHECKS
        self.deadline_s = time.monotonic() + _HANG_S + unit.budget.cpu_s * stages * _HANG_FACTOR

    def answer(self) -> Done | None:
        """What became of its unit, or how far it is; `None` if it died or hangs."""
        if self.deadline_s <= time.monotonic():
            return None
        line = self.output.readline()
        if not line.endswith(b"\n"):
            return None
        done = msgspec.json.decode(line, type=Done)
        if done.part >= 1.0:
            self.unit = None
        elif self.unit is not None:
            self._set_deadline(self.unit)
        return done

    def beat(self, unit: LakeUnit) -> Done:
        """That its unit is under way, and how much memory that takes."""
        return Done(unit.unit_id, 0, (), part=0.0, memory_bytes=resident_bytes(self._process.pid))

    def end(self) -> None:
        """End the process, whatever it does."""
        assert self._process.stdin is not None
        if self.unit is not None:
            self._process.kill()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.output.close()


def default_jobs() -> int:
    """As many workers as this process may use cores."""
    return len(os.sched_getaffinity(0))


def resident_bytes(pid: int) -> int:
    """The memory that a process holds now; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text("ascii").split()
    except OSError:
        return 0
    return int(fields[1]) * resource.getpagesize()
