"""Runs the seeds of a soak on Spark. The rows of a DataFrame are ranges of seeds for tasks.

Each task runs the seeds of its ranges one after the other in an isolated worker process. So a seed
that kills its process does not affect Spark. A task writes runs to the store, which all executors
must share. With a lake, a task writes runs to a local folder and appends them to the lake. A task
returns the results of its seeds as rows, and the driver journals them.

A driver that is killed loses the seeds that it last sent, so seeds are sent in waves (batches) of
about `WAVE_S`. With a lake, waves are longer: finished runs are not lost, and a task appends only
once.

With a lake, the task also makes the pages of runs that are not valid, because only the task has the
folders of its runs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from harness.cli.run.artefacts import make_artefacts
from harness.errors import InfrastructureError, counted
from harness.plugins import SoakExecutor
from harness.soak.identity import code_digest
from harness.soak.pool import soak
from harness.soak.result import CRASH, SeedJob, SeedResult
from harness.support.distributions import PACKAGES_ZIP
from results.lake.transfer.soak_sink import LakeSink

WAVE_S: Final = 20.0
WAVE_LAKE_S: Final = 60.0
GROWTH_MAX: Final = 4.0
SEEDS_A_SLOT_MIN: Final = 4
WAVE_SEEDS_MAX: Final = 50_000
TASKS_A_SLOT: Final = 3
"""Tasks per slot (a core for one task). Slots that finish early get another task. Each task costs
the start of a worker, about 0.3 s.
"""
_NONE: Final[Mapping[str, str]] = {}
PATH: Final = "PYTHONPATH"
ROWS_DDL: Final = "`seed` BIGINT, `result` BINARY"


class SparkSoak(SoakExecutor):
    """The soak executor `spark`, which runs seeds on the Spark cluster in `--spark-master`."""

    api_version = 1
    name = "spark"
    doc = "the executors of a Spark cluster, each with ranges of seeds and with the same store"

    def run(
        self, job: bytes, seeds: Iterator[int], *, url: str, take: Callable[[bytes], bool]
    ) -> None:
        """Run all seeds, in waves. `harness.plugins.SoakExecutor` explains the arguments."""
        from results.spark.session import get_spark, prepare_workers

        first = next(seeds, None)
        if first is None:
            return
        seeds = itertools.chain([first], seeds)
        spark = get_spark(url)
        slots = prepare_workers(spark)
        size = least = slots * SEEDS_A_SLOT_MIN
        rights = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        template = msgspec.json.decode(job, type=SeedJob)
        long_s = WAVE_S if template.lake is None else WAVE_LAKE_S
        while wave := list(itertools.islice(seeds, size)):
            begin_s = time.monotonic()
            job = msgspec.json.encode(template)
            tasks = max(slots, min(slots * TASKS_A_SLOT, len(wave) // SEEDS_A_SLOT_MIN))
            rows = _run_wave(spark, job, split(wave, tasks), rights)
            took_s = time.monotonic() - begin_s
            missing = set(wave) - {row["seed"] for row in rows}
            if missing:
                raise InfrastructureError(
                    f"Spark lost the results of {counted(len(missing), 'seed')}, first "
                    f"{min(missing)}; the same command runs these seeds again"
                )
            failed = sum(msgspec.json.decode(row["result"], type=SeedResult).failed for row in rows)
            left = max(0, template.artefacts - failed)
            template = msgspec.structs.replace(template, artefacts=left)
            # take all answers, even if one ends the soak
            answers = [take(row["result"]) for row in rows]
            if not all(answers):
                return
            growth = min(GROWTH_MAX, long_s / max(took_s, 1e-3))
            size = max(least, min(WAVE_SEEDS_MAX, int(len(wave) * growth)))


def split(seeds: Sequence[int], tasks: int) -> list[tuple[int, int, int]]:
    """Split sorted `seeds` evenly among tasks, as ranges (task, first, last) of adjacent seeds."""
    tasks = min(tasks, len(seeds))
    ranges: list[tuple[int, int, int]] = []
    for task in range(tasks):
        part = seeds[len(seeds) * task // tasks : len(seeds) * (task + 1) // tasks]
        first = part[0]
        for previous, seed in itertools.pairwise([*part, -1]):
            if seed != previous + 1:
                ranges.append((task, first, previous))
                first = seed
    return ranges


def _run_wave(
    spark: Any, job: bytes, ranges: Sequence[tuple[int, int, int]], rights: Mapping[str, str]
) -> list[Any]:
    from results.spark.session import cause_of, map_tasks, raise_if_interrupted

    tasks, firsts, lasts = zip(*ranges, strict=True)
    names = ["task", "first", "last"]
    arrays = [
        pa.array(tasks, pa.int32()),  # `repartitionById` accepts only this type
        pa.array(firsts, pa.int64()),
        pa.array(lasts, pa.int64()),
    ]
    try:
        work = functools.partial(run_ranges, job=job, rights=rights)
        table = pa.table(arrays, names=names)
        rows: list[Any] = map_tasks(spark, table, work, ROWS_DDL, tasks[-1] + 1).to_pylist()
    except Exception as error:
        raise_if_interrupted(error)
        raise InfrastructureError(
            f"the Spark job failed: {cause_of(error)}; the journal keeps finished seeds, and the "
            "same command continues"
        ) from error
    return sorted(rows, key=lambda row: int(row["seed"]))


def run_ranges(
    batches: Iterator[pa.RecordBatch], *, job: bytes, rights: Mapping[str, str] = _NONE
) -> Iterator[pa.RecordBatch]:
    """Run every seed of a task's ranges, each in an isolated worker, and yield the results.

    `rights` are `AWS_*` settings for a lake's object store. They override the executor's own.
    """
    template = msgspec.json.decode(job, type=SeedJob)
    refusal = _refusal(template)
    for batch in batches:
        columns = batch.to_pydict()
        seeds = [
            seed
            for first, last in zip(columns["first"], columns["last"], strict=True)
            for seed in range(first, last + 1)
        ]
        if refusal is None:
            results = _run_here(template, seeds, rights)
        else:
            results = [
                SeedResult(seed=seed, verdict=CRASH, reason=refusal, stop=refusal) for seed in seeds
            ]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([result.seed for result in results], pa.int64()),
                pa.array([msgspec.json.encode(result) for result in results], pa.binary()),
            ],
            names=["seed", "result"],
        )


def _refusal(template: SeedJob) -> str | None:
    """Return why this executor must not run seeds (its code is not the driver's), or `None`."""
    digest = code_digest(template.case, "sim")
    if template.code is None or digest == template.code:
        return None
    return (
        f"the Spark executor on {platform.node()} has other code ({digest}) than the driver "
        f"({template.code}); install the same version of every package there, with the same Python"
    )


def _run_here(
    template: SeedJob, seeds: Sequence[int], rights: Mapping[str, str]
) -> list[SeedResult]:
    if template.lake is None:
        return _results(template, seeds)
    with tempfile.TemporaryDirectory(prefix="harness-soak-") as staging:
        job = msgspec.structs.replace(template, store=staging)
        sink = LakeSink().open(
            template.lake, name=job.name, prefix=job.run_prefix, storage_options=rights
        )
        results = _results(job, seeds)
        left = job.artefacts
        for result in results:
            folder = result.folder(Path(staging), job.name)
            if folder is None or result.stop is not None:
                continue
            if left and result.failed:
                left -= 1
                make_artefacts(folder, job.reporters)
            sink.add(folder)
        sink.flush()
    return results


@contextlib.contextmanager
def _packages_for_children() -> Iterator[None]:
    """Let worker processes of this executor import the packages that were sent to it."""
    sent = [entry for entry in sys.path if Path(entry).name == PACKAGES_ZIP]
    before = os.environ.get(PATH)
    if sent:
        os.environ[PATH] = os.pathsep.join([*sent, *([before] if before else [])])
    try:
        yield
    finally:
        if before is not None:
            os.environ[PATH] = before
        elif sent:
            del os.environ[PATH]


def _results(template: SeedJob, seeds: Sequence[int]) -> list[SeedResult]:
    results: list[SeedResult] = []

    def take(result: SeedResult) -> bool:
        results.append(result)
        return True

    with _packages_for_children():
        soak((template.of_seed(seed) for seed in seeds), jobs=1, on_result=take)
    return results
