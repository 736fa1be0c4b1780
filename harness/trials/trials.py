"""The engine of trials: runs variants of a case on worker processes, within a limit of CPU time.

Every result is stored on disk: when a killed search asks for the same variants again, it gets their
results at once. A result depends only on the case and the code. A search that must not depend on
the number of workers therefore uses results in the order of its cases, not in the order in which
they arrive.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.ops import CheckResult, Verdict
from harness.run.keep import SIM
from harness.soak.identity import code_digest
from harness.soak.planting import defect_digest
from harness.soak.pool import results_of
from harness.soak.result import SeedJob, SeedResult
from harness.support.workers import Crew
from harness.trials.memory import Memory, trial_key
from harness.verdict.signature import SEPARATOR, SIGNATURE


class Kind(NamedTuple):
    """The kind of a failure: the checker that found it, and the broken rule."""

    checker: str
    rule: str

    def __str__(self) -> str:
        return f"{self.checker}{SEPARATOR}{self.rule}"

    @classmethod
    def of(cls, checker: str, signature: str) -> Self:
        """Return the kind of a failure that `checker` reports with this signature."""
        name, _, rest = signature.partition(SEPARATOR)
        return cls(name or checker, rest.partition(SEPARATOR)[0])


class Trial(NamedTuple):
    """A case that was tried, and its result. Here `CRASH` counts as a verdict (`SeedResult`)."""

    case: Case
    result: SeedResult

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the proven failures of the run, the worst first."""
        return kinds_of(self.result)


def kinds_of(result: SeedResult) -> tuple[Kind, ...]:
    """Return the kinds of the proven failures of a run."""
    kinds = (
        Kind.of(each.checker, each.signature)
        for each in result.checkers
        if each.verdict == Verdict.INVALID.value
    )
    return tuple(dict.fromkeys(kinds))


def kinds_in(results: Path) -> tuple[Kind, ...]:
    """Return the kinds of the proven failures in a run's `results.json`; none if it is missing.

    Raises `UsageError` if the file cannot be read.
    """
    try:
        judged = msgspec.json.decode(results.read_bytes(), type=_Results)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{str(results)!r} cannot be read: {error}") from error
    kinds = (
        Kind.of(each.checker, str(each.details.get(SIGNATURE, "")))
        for each in judged.checkers
        if each.verdict is Verdict.INVALID
    )
    return tuple(dict.fromkeys(kinds))


class _Results(msgspec.Struct, frozen=True):
    checkers: tuple[CheckResult, ...] = ()


class Trials:
    """Runs cases on `jobs` workers until they have used `cpu_s_max` of CPU time in all.

    The time of stored results counts, so that a resumed search ends where an uninterrupted one
    would have ended. `memory` is the file of results; if it is `None`, they are kept only in this
    process. `defect` is a defect to plant in all runs (`harness.soak.planting`). Raises
    `UsageError` if a plug-in of the case or the defect does not load, and `InfrastructureError` for
    disk errors.
    """

    def __init__(
        self,
        *,
        jobs: int,
        cpu_s_max: float,
        memory: Path | None = None,
        defect: str | None = None,
    ) -> None:
        """Read the results that earlier searches stored."""
        self.cpu_s = 0.0
        """the CPU time of all results that were returned, each counted once"""
        self.runs = 0
        """how many different cases have returned results"""
        self._jobs = jobs
        self._cpu_s_max = cpu_s_max
        self._memory = Memory(memory)
        self.defect = defect
        self._defect_digest = defect_digest(defect)
        self._counted: set[str] = set()
        self._codes: dict[bytes, str] = {}
        self._crew = Crew()

    @property
    def exhausted(self) -> bool:
        """Whether the CPU time is used up, so that `run` yields nothing more."""
        return self.cpu_s >= self._cpu_s_max

    def spend(self, cpu_s: float) -> None:
        """Count CPU time that the search itself used, outside of the workers."""
        self.cpu_s += cpu_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes."""
        self._crew.close()

    def run(self, cases: Iterable[Case]) -> Generator[Trial, None, None]:
        """Try `cases`, and yield each trial as it ends. Trials with stored results come first.

        The next case is taken when a worker is free. Closing the iterator kills running trials. The
        iterator ends early if `exhausted`.
        """
        with contextlib.closing(self._run((self._key(case), case) for case in cases)) as trials:
            for _, trial in trials:
                yield trial

    def in_order(self, cases: Iterable[Case]) -> Generator[Trial, None, None]:
        """Try `cases` as `run` does, but yield the trials in the order of the cases."""
        waiting: dict[int, Trial] = {}
        numbers: dict[str, list[int]] = {}

        def numbered() -> Iterator[tuple[str, Case]]:
            for number, case in enumerate(cases):
                key = self._key(case)
                numbers.setdefault(key, []).append(number)
                yield key, case

        following = 0
        with contextlib.closing(self._run(numbered())) as trials:
            for key, trial in trials:
                waiting[numbers[key].pop(0)] = trial
                while following in waiting:
                    yield waiting.pop(following)
                    following += 1

    def _run(self, keyed: Iterable[tuple[str, Case]]) -> Generator[tuple[str, Trial], None, None]:
        """Try cases, and yield each trial with the key of its case, which also names its job."""
        ready: list[tuple[str, Trial]] = []
        rest = iter(keyed)
        for key, case in rest:
            if self.exhausted:
                return
            if (result := self._memory.get(key)) is None:
                rest = itertools.chain([(key, case)], rest)
                break
            yield key, self._counted_in(key, case, result)
        else:
            return

        twins: dict[str, list[Case]] = {}  # repetitions of a case whose trial is still running

        def new() -> Iterator[SeedJob]:
            for key, case in rest:
                if self.exhausted:
                    return
                if (result := self._memory.get(key)) is not None:
                    ready.append((key, self._counted_in(key, case, result)))
                    continue
                if key in twins:
                    twins[key].append(case)
                    continue
                twins[key] = []
                yield SeedJob(
                    case=case,
                    store=None,
                    name=key,
                    run_prefix="",
                    code=self._code(case),
                    defect=self.defect,
                )

        with contextlib.closing(results_of(new(), jobs=self._jobs, crew=self._crew)) as results:
            for job, result in results:
                yield from ready
                ready.clear()
                if result.stop is not None:
                    raise UsageError(result.stop)
                self._memory.add(job.name, result)
                for case in (job.case, *twins.pop(job.name)):
                    yield job.name, self._counted_in(job.name, case, result)
        yield from ready

    def _counted_in(self, key: str, case: Case, result: SeedResult) -> Trial:
        if key not in self._counted:
            self._counted.add(key)
            self.cpu_s += result.cost_s
            self.runs += 1
        return Trial(case, result)

    def _key(self, case: Case) -> str:
        return trial_key(case, self._code(case) + self._defect_digest)

    def _code(self, case: Case) -> str:
        """Return the digest of the code that runs the case. It is cached per set of plug-ins."""
        plugins = msgspec.json.encode(
            (
                (case.target, case.workload, case.nemeses, case.checkers),
                sorted({fault.nemesis for fault in case.faults or ()}),
            )
        )
        if plugins not in self._codes:
            self._codes[plugins] = code_digest(case, SIM)
        return self._codes[plugins]
