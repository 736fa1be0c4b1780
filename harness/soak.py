"""Many seeds in parallel: isolated worker processes, each fed one case at a time.

A worker is `python -m harness.soak`: it reads cases as JSON lines, runs each in the simulation,
judges it and answers with one JSON line. It is replaced after `CASES_A_WORKER` cases, so that
nothing can leak from one world into a later one, and when it dies, which costs its seed the
verdict `crash` and nobody else anything.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness import __version__
from harness.case import Case
from harness.checking import Judgement, judge
from harness.errors import (
    EXIT_CRASH,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
    InfrastructureError,
    UsageError,
)
from harness.ops import History, OpType, Verdict
from harness.planning import plan_case
from harness.plugins import Environment, load_plugin
from harness.run import conduct
from harness.store import RunFolder, RunRecord

__all__ = ["CRASH", "SeedResult", "exit_code_of", "run_seed", "soak"]

CRASH: Final = "crash"
CASES_A_WORKER: Final = 100
SEED_TIMEOUT_S: Final = 900.0
LINE_BYTES_MAX: Final = 64 * 1024 * 1024


class SeedJob(msgspec.Struct, frozen=True):
    """What a worker is told."""

    case: Case
    store: str | None  # failing runs are kept whole in store/name
    name: str


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one seed; small, since passing runs leave nothing else."""

    seed: int
    verdict: str  # a Verdict's value, or "crash"
    reason: str
    checker: str | None = None
    digest: str | None = None
    ops: int = 0
    ok: int = 0
    leader_changes: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    run: str | None = None


def run_seed(job: SeedJob) -> SeedResult:
    """Run and judge one case in this process; a crash of ours becomes a result, too."""
    begin_s = time.perf_counter()
    try:
        return _run_seed(job, begin_s)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - one seed's crash must not end the campaign
        last = [line.strip() for line in traceback.format_exc().splitlines()[-6:]]
        return crashed(job, f"{error!r} | {' | '.join(last)}", time.perf_counter() - begin_s)


def _run_seed(job: SeedJob, begin_s: float) -> SeedResult:
    environment: Environment = load_plugin("environments", "sim")
    plan = plan_case(job.case, environment)
    outcome = conduct(plan, environment, run_id=f"seed-{job.case.seed}", folder=None)
    judgement = judge(outcome.history, plan.case, plan.checkers)
    worst = max(judgement.results, key=lambda result: result.verdict.rank)
    passing = judgement.verdict is Verdict.VALID
    result = SeedResult(
        seed=job.case.seed,
        verdict=judgement.verdict.value,
        reason="" if passing else worst.reason,
        checker=None if passing else worst.checker,
        digest=outcome.history.digest(),
        ops=len(outcome.history),
        ok=sum(1 for pair in outcome.history.pairs if pair.type is OpType.OK),
        leader_changes=max(0, sum(1 for _ in outcome.history.facts("leader")) - 1),
        simulated_s=outcome.wall_ns / 1e9,
        wall_s=time.perf_counter() - begin_s,
    )
    if passing or job.store is None:
        return result
    try:
        return _keep(job, plan.case, outcome.history, judgement, result)
    except InfrastructureError as error:  # a full disk must not turn a verdict into a crash
        return msgspec.structs.replace(result, reason=f"{result.reason} (not kept: {error})")


def _keep(
    job: SeedJob, case: Case, history: History, judgement: Judgement, result: SeedResult
) -> SeedResult:
    """Keep a failing run whole, in a folder like any other run's."""
    assert job.store is not None
    folder = RunFolder(Path(job.store), job.name, _folder_name(case.seed))
    folder.write_case(case)
    folder.seal(history)
    folder.write_results(list(judgement.results), {"verdict": judgement.verdict})
    folder.finish(
        RunRecord(
            run=folder.path.name,
            environment="sim",
            started=dt.datetime.now(tz=dt.UTC).isoformat(),
            wall_s=result.wall_s,
            verdict=judgement.verdict,
            digest=result.digest or "",
            ops=len(history),
            versions={"harness": __version__, "python": platform.python_version()},
        )
    )
    return msgspec.structs.replace(result, run=str(folder.path))


def crashed(job: SeedJob, reason: str, wall_s: float) -> SeedResult:
    """The result of a seed that has no verdict; its case is kept, so that it can be run again."""
    run = None
    if job.store is not None:
        try:
            folder = RunFolder(Path(job.store), job.name, _folder_name(job.case.seed))
            folder.write_case(job.case)
            run = str(folder.path)
        except InfrastructureError as error:
            reason = f"{reason} (not kept: {error})"
    return SeedResult(seed=job.case.seed, verdict=CRASH, reason=reason, wall_s=wall_s, run=run)


def _folder_name(seed: int) -> str:
    """Unique even when the same seed fails again, in this soak or a later one."""
    return f"seed-{seed}-{os.getpid()}-{time.time_ns()}"


def exit_code_of(results: Iterable[SeedResult]) -> int:
    """One code for many runs: any invalid dominates, then crash, then unknown."""
    verdicts = {result.verdict for result in results}
    if Verdict.INVALID.value in verdicts:
        return EXIT_INVALID
    if CRASH in verdicts:
        return EXIT_CRASH
    if Verdict.UNKNOWN.value in verdicts or not verdicts:
        return EXIT_UNKNOWN
    return EXIT_VALID


async def soak(
    cases: Iterator[Case],
    *,
    jobs: int,
    store: Path | None,
    name: str,
    on_result: Callable[[SeedResult], bool],
) -> list[SeedResult]:
    """Run all `cases` on `jobs` worker processes; results come in seed order at the end.

    `on_result` is called as results arrive and returns whether to go on. Raises
    `InfrastructureError` when workers cannot be started at all.
    """
    results: list[SeedResult] = []
    go_on = True

    async def feed() -> None:
        nonlocal go_on
        worker: _Worker | None = None
        try:
            while go_on:
                case = next(cases, None)
                if case is None:
                    return
                if worker is None or worker.spent:
                    if worker is not None:
                        await worker.close()
                    worker = await _Worker.start()
                job = SeedJob(case, None if store is None else str(store), name)
                result = await worker.run(job)
                results.append(result)
                if not on_result(result):
                    go_on = False
        finally:
            if worker is not None:
                await worker.close()

    feeders = [asyncio.create_task(feed()) for _ in range(jobs)]
    try:
        await asyncio.gather(*feeders)
    except asyncio.CancelledError:
        raise  # the feeders are cancelled with us; a second time would cut their cleaning up short
    except BaseException:
        for feeder in feeders:
            feeder.cancel()
        raise
    finally:
        await asyncio.gather(*feeders, return_exceptions=True)
    return sorted(results, key=lambda result: result.seed)


class _Worker:
    """One worker process and how many cases it has had."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._cases = 0
        self._dead = False  # or as good as: busy with a case, and so of no use until it answers

    @staticmethod
    async def start() -> _Worker:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # modules that lie about in the current folder are none of ours
                "-m",
                "harness.soak",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot start a soak worker: {error}") from error
        return _Worker(process)

    @property
    def spent(self) -> bool:
        """Whether it died or had its share."""
        return self._dead or self._cases >= CASES_A_WORKER

    async def run(self, job: SeedJob) -> SeedResult:
        self._cases += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        begin_s = time.perf_counter()
        reason = "the worker died"
        self._dead = True
        try:
            async with asyncio.timeout(SEED_TIMEOUT_S):
                self._process.stdin.write(msgspec.json.encode(job) + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
            if line:
                result = msgspec.json.decode(line, type=SeedResult)
                self._dead = False
                return result
            code = await self._process.wait()
            reason = f"the worker exited with {code}"
        except TimeoutError:
            reason = f"no answer within {SEED_TIMEOUT_S:g} s"
        except (ConnectionError, msgspec.DecodeError, ValueError) as error:
            reason = f"the worker broke: {error!r}"
        return crashed(job, reason, time.perf_counter() - begin_s)

    async def close(self) -> None:
        """End the process; by force when it does not end by itself."""
        if self._process.returncode is None:
            assert self._process.stdin is not None
            if self._dead:
                self._process.kill()  # before the first wait, which a second Ctrl-C may cut short
            self._process.stdin.close()
            try:
                async with asyncio.timeout(5.0):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


def _jobs_from(lines: Iterable[bytes]) -> Iterator[SeedJob]:
    decoder = msgspec.json.Decoder(SeedJob)
    for line in lines:
        yield decoder.decode(line)


def _worker_main() -> None:
    """The worker: one JSON line in, one out. Whatever else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    gc.freeze()
    for job in _jobs_from(sys.stdin.buffer):
        answers.write(msgspec.json.encode(run_seed(job)) + b"\n")
        answers.flush()
        gc.collect()


if __name__ == "__main__":
    try:
        _worker_main()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(EXIT_CRASH)  # the soak is gone: there is nobody to answer
