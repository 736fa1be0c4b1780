"""Three ways to do the same units: in this process, in a pool of processes, on Spark.

Each takes bins of units and yields a `Done` for every unit, in any order; the rows that they store
are equal. Which one to take is a question of size: Spark's start costs seconds, a pool's a tenth of
that, and units in this process are easiest to debug.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from results.packing import Bin
from results.store_scan import Problem
from results.units import Config, manifest_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Done", "Executor", "batch_of", "done_of"]


class Done(msgspec.Struct, frozen=True):
    """One unit that came to an end, well or not."""

    unit: str
    cpu_ns: int
    wall_ns: int
    problems: tuple[Problem, ...]


class Executor(Protocol):
    """Does bins of units."""

    name: str
    slots: int  # how many units it does at once

    def run(self, bins: Sequence[Bin], config: Config) -> Generator[Done, None, None]:
        """Do all units; a unit that could not be done at all yields nothing."""
        ...

    def close(self) -> None:
        """Let go of processes."""
        ...


def batch_of(found: Bin, task: int) -> pa.RecordBatch:
    """A bin as a piece of the manifest."""
    import pyarrow as pa

    texts = [msgspec.json.encode(unit).decode() for unit in found.units]
    columns = [pa.array([task] * len(texts), pa.int32()), pa.array(texts, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=manifest_schema())


def done_of(batch: pa.RecordBatch) -> Iterator[Done]:
    """The summaries of a batch."""
    for row in batch.to_pylist():
        problems = msgspec.json.decode(row["problems"], type=tuple[Problem, ...])
        yield Done(row["unit"], row["cpu_ns"], row["wall_ns"], problems)
