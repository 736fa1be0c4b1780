"""Runs a soak's seeds on isolated local worker processes (`python -m harness.soak`).

If a worker dies, its seed runs once more, because something else may have killed the worker. If the
second worker also dies, the seed counts as a crash.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from harness.soak.result import SeedJob, SeedResult
from harness.soak.seed import crashed
from harness.support.interrupts import holding_interrupts
from harness.support.workers import Crew, Lost, WorkerPool

CASES_A_WORKER: Final = 100
DEATHS_MAX: Final = 2
SEED_TIMEOUT_S: Final = 900.0


def results_of(
    work: Iterable[SeedJob], *, jobs: int, crew: Crew | None = None
) -> Generator[tuple[SeedJob, SeedResult], None, None]:
    """Run `work` on `jobs` worker processes, and yield each job with its result as it arrives.

    A job is taken when a worker is free. Closing the generator kills all workers, except idle
    workers that the `crew` keeps for later calls. Raises `InfrastructureError` if no worker can be
    started.
    """
    pool: WorkerPool[SeedJob, SeedResult] = WorkerPool(
        module="harness.soak",
        answer=SeedResult,
        timeout_s=lambda _: SEED_TIMEOUT_S,
        deaths_max=lambda _: DEATHS_MAX,
        jobs_max=CASES_A_WORKER,
    )
    with contextlib.closing(pool.run(work, jobs, crew)) as answers:
        for job, answer in answers:
            if isinstance(answer, SeedResult):
                reason = f"its worker answered with the result of seed {answer.seed}"
                alike = answer.seed == job.seed
                yield job, answer if alike else crashed(job, reason, answer.wall_s)
            elif isinstance(answer, Lost):
                yield job, crashed(job, answer.reason, answer.wall_s)


def soak(
    work: Iterator[SeedJob],
    *,
    jobs: int,
    on_result: Callable[[SeedResult], bool],
    crew: Crew | None = None,
) -> bool:
    """Run all seeds of `work` on `jobs` worker processes; returns whether to continue.

    `on_result` is called with each result, and returns whether to continue. An exception of
    `on_result` ends the soak. Ctrl-C takes effect only after `on_result` has returned. Workers of
    the `crew` are kept for the next call. Raises `InfrastructureError` if no worker can be started.
    """
    go_on = True

    def wanted() -> Iterator[SeedJob]:
        while go_on and (job := next(work, None)) is not None:
            yield job

    with contextlib.closing(results_of(wanted(), jobs=jobs, crew=crew)) as results:
        for _, result in results:
            with holding_interrupts():
                go_on = on_result(result) and go_on
    return go_on
