"""Isolated worker processes, each fed one case at a time.

A worker is `python -m harness.soak`: it reads jobs as JSON lines, runs each in the simulation,
judges it, keeps it and answers with one JSON line. It is replaced after `CASES_A_WORKER` cases, so
that nothing can leak from one world into a later one, and when it dies. A seed whose worker died
is run once more, since somebody else may have killed it; one that kills two is a crash.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from harness.errors import InfrastructureError
from harness.soak.result import SeedJob, SeedResult
from harness.soak.seed import crashed

__all__ = ["soak"]

CASES_A_WORKER: Final = 100
ATTEMPTS_MAX: Final = 2
SEED_TIMEOUT_S: Final = 900.0
LINE_BYTES_MAX: Final = 64 * 1024 * 1024


async def soak(
    work: Iterator[SeedJob], *, jobs: int, on_result: Callable[[SeedResult], bool]
) -> None:
    """Run all of `work` on `jobs` worker processes.

    `on_result` is called as results arrive and returns whether to go on; what it raises ends the
    soak. Raises `InfrastructureError` when workers cannot be started at all.
    """
    go_on = True

    async def feed() -> None:
        nonlocal go_on
        hands = _Hands()
        try:
            while go_on:
                job = next(work, None)
                if job is None:
                    return
                result = await hands.run(job)
                if not on_result(result):
                    go_on = False
        finally:
            await hands.close()

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


class _WorkerDiedError(Exception):
    """The worker ended, or said nothing that can be understood, before it had an answer."""


def _how_ended(code: int) -> str:
    """What the exit code of a worker tells."""
    if code >= 0:
        return f"exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the kernel does where memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"


class _Hands:
    """One worker after the other."""

    def __init__(self) -> None:
        self._worker: _Worker | None = None

    async def run(self, job: SeedJob) -> SeedResult:
        """The result of `job`, whatever it does to the workers."""
        begin_s = time.perf_counter()
        reason = ""
        for _ in range(ATTEMPTS_MAX):
            if self._worker is None or self._worker.spent:
                await self.close()
                self._worker = await _Worker.start()
            try:
                return await self._worker.run(job)
            except TimeoutError:
                reason = f"no answer within {SEED_TIMEOUT_S:g} s"
                break  # a second time would take as long
            except _WorkerDiedError as error:
                reason = f"{ATTEMPTS_MAX} workers died of it; the last one {error}"
        return crashed(job, reason, time.perf_counter() - begin_s)

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()


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
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C is for us alone: we end it
            )
        except OSError as error:
            raise InfrastructureError(f"cannot start a soak worker: {error}") from error
        return _Worker(process)

    @property
    def spent(self) -> bool:
        """Whether it died or had its share."""
        return self._dead or self._cases >= CASES_A_WORKER

    async def run(self, job: SeedJob) -> SeedResult:
        """Raises `TimeoutError`, or `_WorkerDiedError` that says how."""
        self._cases += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
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
        except (ConnectionError, msgspec.DecodeError, ValueError) as error:
            if self._process.returncode is None and not isinstance(error, ConnectionError):
                raise _WorkerDiedError(f"sent an unreadable answer: {error!r}") from error
        async with asyncio.timeout(SEED_TIMEOUT_S):
            code = await self._process.wait()
        raise _WorkerDiedError(_how_ended(code))

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
