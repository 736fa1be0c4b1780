"""Units on Spark: the manifest goes through `mapInArrow`, file names and no rows.

Bin i lands in partition i (`repartitionById`, Spark 4.1), and partitions start in order, so the
longest start first; older versions pack alike and place at random. A task whose worker dies is
tried again by Spark, and what killed twice is given up by `check_units` (see
`results.judging.markers.Marker`). A job that is lost nevertheless keeps what it finished: what is
missing is submitted again, as long as every submission gets somewhere.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness.errors import InfrastructureError
from results.judging.manifest import Unit
from results.judging.markers import result_exists
from results.judging.packing import Bin, pack
from results.judging.units import Config, Done
from results.judging.work import AnyConfig, do_units
from results.spark.session import (
    cause_of,
    get_spark,
    map_tasks,
    prepare_workers,
    raise_if_interrupted,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SparkExecutor"]

SUBMISSIONS_MAX: Final = 20


class SparkExecutor:
    """Does units on the Spark at `url`."""

    name = "spark"

    def __init__(self, url: str, jobs: int | None) -> None:
        """Start Spark, or use the session of this process that is there already."""
        begin_s = time.perf_counter()
        self._spark = get_spark(url)
        slots = prepare_workers(self._spark)
        self.slots = jobs if jobs is not None else slots
        self.start_s = time.perf_counter() - begin_s

    def run(self, bins: Sequence[Bin], config: AnyConfig) -> Generator[Done, None, None]:
        """See `Executor`; only of a store, which all workers see at the same path."""
        assert isinstance(config, Config)
        results = Path(config.results)
        for number in range(SUBMISSIONS_MAX):
            # A round of its own: whoever is killed because another's job is lost did nothing.
            round_ = msgspec.structs.replace(config, round=f"{config.round}{number:02d}")
            units = [unit for found in bins for unit in found.units if isinstance(unit, Unit)]
            missing = sum(_missing(unit, results) for unit in units)
            try:
                every = self._collect(bins, round_)
            except Exception as error:  # Spark's errors are of many kinds
                raise_if_interrupted(error)
                ended = [unit for unit in units if not _missing(unit, results)]
                yield from (Done(unit.unit_id, 0, ()) for unit in ended)
                left = [unit for unit in units if _missing(unit, results)]
                if not left:
                    return
                if sum(_missing(unit, results) for unit in left) == missing:
                    raise InfrastructureError(
                        f"the Spark job failed and no result of it arrived below {results}: "
                        f"{cause_of(error)}; can every executor write there?"
                    ) from error
                bins = pack(left, len(bins))
                continue
            yield from every
            return

    def _collect(self, bins: Sequence[Bin], config: Config) -> list[Done]:
        import pyarrow as pa

        rows = [(task, unit) for task, found in enumerate(bins) for unit in found.units]
        texts = [msgspec.json.encode(unit).decode() for _, unit in rows]
        tasks = pa.array([task for task, _ in rows], pa.int32())  # what `repartitionById` takes
        manifest = pa.table({"task": tasks, "unit": texts})
        work = functools.partial(check_batches, config=config)
        found = map_tasks(self._spark, manifest, work, "`done` STRING", len(bins))
        return [msgspec.json.decode(text, type=Done) for text in found["done"].to_pylist()]

    def close(self) -> None:
        """The session stays: it serves the SQL that follows, and ends with the process."""


def check_batches(batches: Iterable[pa.RecordBatch], *, config: Config) -> Iterator[pa.RecordBatch]:
    """What a task does: a row a unit as JSON, and so back, as `mapInArrow` wants it."""
    import pyarrow as pa

    texts = (text for batch in batches for text in batch.column("unit").to_pylist())
    units = (msgspec.json.decode(text, type=Unit) for text in texts)
    for done in do_units(units, config=config):
        yield pa.RecordBatch.from_pydict({"done": [msgspec.json.encode(done).decode()]})


def _missing(unit: Unit, results: Path) -> int:
    """How many results of a unit are not there."""
    ids = [check.result_id for check in unit.checks]
    if unit.facts_id is not None:
        ids.append(unit.facts_id)
    return sum(not result_exists(results, result_id) for result_id in ids)
