"""Two ways to do units on this machine: in this process, or in a pool of processes.

Each yields a `Done` for every unit, in any order; their results are equal. A pool takes a tenth of
a second to start; units in this process are easiest to debug. Spark has tasks of its own
(`results.spark.range_checks`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from results.judging.work_units import Done, RoundConfig, Unit

__all__ = ["Executor"]


class Executor(Protocol):
    """Does units."""

    name: str

    def run(self, units: Sequence[Unit], config: RoundConfig) -> Generator[Done, None, None]:
        """Do units in their order; one that could not be done at all yields nothing."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...
