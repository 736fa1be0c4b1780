"""The engine of trials: variants of a case on worker processes, within a limit of CPU time.

Every result is remembered on disk, so a search that was killed asks for the same variants again and
gets their results at once. A result depends on the case and the code only. A search that must not
depend on the number of workers therefore decides on results in the order of its cases, not in the
order in which they arrive.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.ops import CheckResult, Verdict
from harness.soak.identity import code_digest
from harness.soak.planting import defect_digest
from harness.soak.pool import seed_pool
from harness.soak.result import SeedJob, SeedResult
from harness.soak.seed import crashed
from harness.support.workers import Crew, Lost
from harness.trials.memory import Memory, trial_key
from harness.verdict.signature import SEPARATOR, SIGNATURE

SIM: Final = "sim"


class Kind(NamedTuple):
    """The kind of a failure: the checker that found it and the rule that is broken."""

    checker: str
    rule: str

    def __str__(self) -> str:
        return f"{self.checker}{SEPARATOR}{self.rule}"


class Trial(NamedTuple):
    """A case that was tried, and its result. `CRASH` is a verdict, too (`SeedResult`)."""

    case: Case
    result: SeedResult

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of proven failures, the worst first."""
        return kinds_of(self.result)


def kinds_of(result: SeedResult) -> tuple[Kind, ...]:
    """Return the kinds of the proven failures of a run."""
    kinds = (
        _kind(each.checker, each.signature)
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
        _kind(each.checker, str(each.details.get(SIGNATURE, "")))
        for each in judged.checkers
        if each.verdict is Verdict.INVALID
    )
    return tuple(dict.fromkeys(kinds))


def _kind(checker: str, signature: str) -> Kind:
    name, _, rest = signature.partition(SEPARATOR)
    return Kind(name or checker, rest.partition(SEPARATOR)[0])


class _Results(msgspec.Struct, frozen=True):
    checkers: tuple[CheckResult, ...] = ()


class Trials:
    """Runs cases on `jobs` workers until they have used `cpu_s_max` of CPU time in all.

    The time of remembered results counts, so that a resumed search ends where one that was never
    interrupted would end. `memory` is the file of results; `None` remembers them in this process
    only. `defect` is a defect to plant in all runs (`harness.soak.planting`). Raises `UsageError`
    if a plug-in of the case or the defect does not load, and `InfrastructureError` for disk errors.
    """

    def __init__(
        self,
        *,
        jobs: int,
        cpu_s_max: float,
        memory: Path | None = None,
        defect: str | None = None,
    ) -> None:
        """Open the memory."""
        self.cpu_s = 0.0
        """the CPU time of all results that were returned, each counted once"""
        self.runs = 0
        """the number of different cases whose results were returned"""
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
        """Whether the CPU time is used up: `run` returns nothing more."""
        return self.cpu_s >= self._cpu_s_max

    def spend(self, cpu_s: float) -> None:
        """Count CPU time that the search itself used, outside of the workers."""
        self.cpu_s += cpu_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._crew.close()

    def run(self, cases: Iterable[Case]) -> Generator[Trial, None, None]:
        """Try `cases` and yield each trial as it ends, remembered ones first.

        A case is taken when a worker is free. Closing the iterator kills trials that are running.
        The iterator ends early if `exhausted`.
        """
        ready: list[Trial] = []
        rest = iter(cases)
        for case in rest:
            if self.exhausted:
                return
            if (result := self._memory.get(self._key(case))) is None:
                rest = itertools.chain([case], rest)
                break
            yield self._counted_in(case, result)
        else:
            return

        def new() -> Iterator[SeedJob]:
            for case in rest:
                if self.exhausted:
                    return
                if (result := self._memory.get(self._key(case))) is not None:
                    ready.append(self._counted_in(case, result))
                    continue
                yield SeedJob(
                    case=case,
                    store=None,
                    name="trial",
                    run_prefix="",
                    code=self._code(case),
                    defect=self.defect,
                )

        pool = seed_pool()
        with contextlib.closing(pool.run(new(), self._jobs, self._crew)) as answers:
            for job, answer in answers:
                yield from ready
                ready.clear()
                if isinstance(answer, SeedResult):
                    if answer.stop is not None:
                        raise UsageError(answer.stop)
                    result = answer
                elif isinstance(answer, Lost):
                    crash = crashed(job, answer.reason, answer.wall_s)
                    result = msgspec.structs.replace(crash, cpu_s=answer.wall_s)
                else:
                    continue
                self._memory.add(self._key(job.case), result)
                yield self._counted_in(job.case, result)
        yield from ready

    def in_order(self, cases: Iterable[Case]) -> Generator[Trial, None, None]:
        """Try `cases` as `run` does, but yield the trials in the order of the cases."""
        waiting: dict[int, Trial] = {}
        numbers: dict[str, list[int]] = {}
        count = 0

        def numbered() -> Iterator[Case]:
            nonlocal count
            for case in cases:
                numbers.setdefault(self._key(case), []).append(count)
                count += 1
                yield case

        following = 0
        with contextlib.closing(self.run(numbered())) as trials:
            for trial in trials:
                waiting[numbers[self._key(trial.case)].pop(0)] = trial
                while following in waiting:
                    yield waiting.pop(following)
                    following += 1

    def _counted_in(self, case: Case, result: SeedResult) -> Trial:
        key = self._key(case)
        if key not in self._counted:
            self._counted.add(key)
            self.cpu_s += result.cpu_s
            self.runs += 1
        return Trial(case, result)

    def _key(self, case: Case) -> str:
        return trial_key(case, self._code(case) + self._defect_digest)

    def _code(self, case: Case) -> str:
        """The digest of the code that runs the case, computed once per set of plug-ins."""
        plugins = msgspec.json.encode(
            (
                (case.target, case.workload, case.nemeses, case.checkers),
                sorted({fault.nemesis for fault in case.faults or ()}),
            )
        )
        if plugins not in self._codes:
            self._codes[plugins] = code_digest(case, SIM)
        return self._codes[plugins]
