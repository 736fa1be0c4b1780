"""Runs the seeds of all rows of an exam, on worker processes or on Spark.

The first seed of every row is tried first, then the second seed of every row, and so on. So if the
CPU time runs out, all rows have had about equally many seeds. The outcome does not depend on the
number of workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.plugins import SoakExecutor
from harness.registry import load_plugin
from harness.run.keep import SIM
from harness.soak.identity import code_digest
from harness.soak.planting import defect_digest
from harness.soak.pool import results_of
from harness.soak.result import SeedJob, SeedResult
from harness.support.interrupts import holding_interrupts
from harness.trials.memory import Memory, trial_key
from results.exam.rows import Row

SPARK: Final = "spark"
Results = Mapping[int, SeedResult]
OnResult = Callable[[Row, SeedResult], None]


class Sitting:
    """Runs the seeds of one exam, and holds the results so far.

    `cpu_s` is the CPU time of all results, including results saved by earlier calls. `cpu_s_max`
    limits it. Raises `UsageError` if a plug-in or the module of planted defects does not load, and
    `InfrastructureError` for disk errors.
    """

    def __init__(self, rows: Sequence[Row], memory: Memory, *, cpu_s_max: float) -> None:
        """Create an exam without results. `run` first takes the saved results from `memory`."""
        self.rows = [row for row in rows if row.case is not None]
        self.cpu_s = 0.0
        self.runs = 0
        self._cpu_s_max = cpu_s_max
        self._memory = memory
        self._results: dict[str, dict[int, SeedResult]] = {row.key: {} for row in rows}
        self._hits: dict[str, int] = {}  # the lowest seed with a hit, by key of row
        self._codes: dict[str, str] = {}
        self._digests = {row.key: defect_digest(row.defect) for row in self.rows}

    @property
    def exhausted(self) -> bool:
        """Whether the CPU time is used up."""
        return self.cpu_s >= self._cpu_s_max

    def results(self, row: Row) -> Results:
        """Return a row's results by seed. With several workers, earlier seeds may be missing."""
        return self._results[row.key]

    def is_found(self, row: Row) -> bool:
        """Whether any seed of the row was a hit (`Row.is_hit`)."""
        return row.key in self._hits

    def left(self, row: Row) -> int:
        """Return the number of seeds of a row that have no result yet."""
        if row.first and self.is_found(row):
            return 0
        return len(row.seeds) - len(self._results[row.key])

    def run(self, *, jobs: int, on_result: OnResult) -> None:
        """Run all seeds on `jobs` worker processes, until the CPU time is used up."""
        by_key = {row.key: row for row in self.rows}
        with contextlib.closing(results_of(self._jobs(on_result), jobs=jobs)) as results:
            for job, result in results:
                with holding_interrupts():
                    self._take(by_key[job.name], result, on_result)

    def run_on_spark(self, url: str, *, on_result: OnResult) -> None:
        """Run all seeds on Spark, row after row, until the CPU time is used up.

        Spark gets the seeds in groups. A row that stops at its first detection still completes its
        group.
        """
        executor: SoakExecutor = load_plugin("soak_executors", SPARK)
        for row in self.rows:
            pending = [seed for seed in row.seeds if not self._remembered(row, seed, on_result)]
            if not pending or self.exhausted or self._is_over(row, pending[0]):
                continue

            def take(data: bytes, row: Row = row) -> bool:
                self._take(row, msgspec.json.decode(data, type=SeedResult), on_result)
                return not (self.exhausted or (row.first and self.is_found(row)))

            job = self._job(row, pending[0])
            executor.run(msgspec.json.encode(job), iter(pending), url=url, take=take)

    def _jobs(self, on_result: OnResult) -> Iterator[SeedJob]:
        for place in range(max((len(row.seeds) for row in self.rows), default=0)):
            for row in self.rows:
                if place >= len(row.seeds) or self._is_over(row, row.seeds[place]):
                    continue
                if self.exhausted:
                    return
                if not self._remembered(row, row.seeds[place], on_result):
                    yield self._job(row, row.seeds[place])

    def _is_over(self, row: Row, seed: int) -> bool:
        """Whether a row does not need `seed`, because it stopped at a hit on a lower seed."""
        return row.first and self._hits.get(row.key, seed) < seed

    def _remembered(self, row: Row, seed: int, on_result: OnResult) -> bool:
        if self.exhausted or self._is_over(row, seed):
            return True
        result = self._memory.get(self._key(row, seed))
        if result is None:
            return False
        self._count(row, result, on_result)
        return True

    def _take(self, row: Row, result: SeedResult, on_result: OnResult) -> None:
        if result.stop is not None:
            raise UsageError(result.stop)
        self._memory.add(self._key(row, result.seed), result)
        self._count(row, result, on_result)

    def _count(self, row: Row, result: SeedResult, on_result: OnResult) -> None:
        self._results[row.key][result.seed] = result
        self.cpu_s += result.cost_s
        self.runs += 1
        if row.is_hit(result):
            self._hits[row.key] = min(result.seed, self._hits.get(row.key, result.seed))
        on_result(row, result)

    def _job(self, row: Row, seed: int) -> SeedJob:
        case = _with_seed(row, seed)
        code = self._code(row, case)
        return SeedJob(
            case=case, store=None, name=row.key, run_prefix="", code=code, defect=row.defect
        )

    def _key(self, row: Row, seed: int) -> str:
        case = _with_seed(row, seed)
        return trial_key(case, self._code(row, case) + self._digests[row.key])

    def _code(self, row: Row, case: Case) -> str:
        if row.key not in self._codes:
            self._codes[row.key] = code_digest(case, SIM)
        return self._codes[row.key]


def _with_seed(row: Row, seed: int) -> Case:
    assert row.case is not None
    return msgspec.structs.replace(row.case, seed=seed)
