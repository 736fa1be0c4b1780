"""Runs a soak's seeds one after the other in a real environment, and keeps every run.

During a run, the environment handles Ctrl-C: the first Ctrl-C ends the workload, the run heals and
is judged, and then the soak stops. A run whose workload ended early is kept, but its seed is not
finished, so the next soak runs the seed again. No two runs of a seed are equal here, so the name of
a run's folder contains the seed and the time. Nodes load their code when they start. So the code is
compared before and after each run: if it has changed since the soak began, the run does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from harness.errors import HistoryError, UsageError
from harness.ops import Op
from harness.plan.planning import plan_case
from harness.plugins import Environment
from harness.run.keep import run_and_keep
from harness.run.phases import Outcome
from harness.soak.identity import other_code
from harness.soak.result import SeedJob, SeedResult, memory_bytes_max
from harness.soak.seed import crash_reason, crashed, result_of, stopped
from harness.store import RunFolder, new_run_id


def soak_one_by_one(
    work: Iterator[SeedJob],
    environment: Environment,
    *,
    on_result: Callable[[SeedResult], bool],
    listen: Callable[[int], Callable[[Op], None]] | None = None,
    conducting: Callable[..., Outcome] | None = None,
) -> bool:
    """Run the seeds of `work` one after the other; returns whether the user interrupted the soak.

    The soak ends early if `on_result` returns false, or if a run has frozen. `listen` is called
    before each seed and returns the listener for the run's ops. `conducting` is called in place of
    `conduct` (see `run_and_keep`).

    Raises `UsageError` for cases that this environment refuses. Raises `KeyboardInterrupt` for a
    second Ctrl-C, or for a Ctrl-C between runs.
    """
    for job in work:
        why = other_code(job.case, environment.name, job.code)
        if why is not None:
            on_result(stopped(job, why))
            return False
        begin_s, begin_cpu_s = time.monotonic(), time.process_time()
        listener = None if listen is None else listen(job.seed)
        result, outcome = _run(job, environment, listener, conducting)
        interrupted = outcome is not None and outcome.stop_asked
        frozen = outcome is not None and outcome.frozen is not None
        result = msgspec.structs.replace(
            result,
            wall_s=time.monotonic() - begin_s,
            cpu_s=time.process_time() - begin_cpu_s,
            memory_bytes=memory_bytes_max(),
        )
        why = result.stop or other_code(job.case, environment.name, job.code)
        if not on_result(msgspec.structs.replace(result, stop=why)) or interrupted or frozen:
            return interrupted
    return False


def _run(
    job: SeedJob,
    environment: Environment,
    listener: Callable[[Op], None] | None,
    conducting: Callable[..., Outcome] | None,
) -> tuple[SeedResult, Outcome | None]:
    """Run one seed; returns its result, and the run's outcome (`None` after a crash)."""
    plan = plan_case(job.case, environment)
    assert job.store is not None
    folder = RunFolder(Path(job.store), job.name, new_run_id(job.seed))
    try:
        kept = run_and_keep(
            plan,
            environment,
            folder,
            run_id=folder.run_id,
            label=job.label,
            code=job.code,
            listener=listener,
            conducting=conducting,
        )
    except (Exception, SystemExit) as error:  # this seed gets no verdict, but the soak continues
        if isinstance(error, UsageError) and not isinstance(error, HistoryError):
            raise
        crash = crashed(job, crash_reason(error))
        return msgspec.structs.replace(crash, run=folder.run_id), None
    result = result_of(job, kept)
    if kept.outcome.interrupted and result.stop is None:
        stop = f"the run of seed {job.seed} was interrupted"
        result = msgspec.structs.replace(result, stop=stop)
    return result, kept.outcome
