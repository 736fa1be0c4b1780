"""Three ways to do the same units: in this process, in a pool of processes, on Spark.

Each takes bins of units and yields a `Done` for every unit, in any order; the rows that they store
are equal. Which one to take is a question of size: Spark's start costs seconds, a pool's a tenth of
that, and units in this process are easiest to debug.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from results.judging.packing import Bin
from results.judging.units import Done
from results.judging.work import AnyConfig

__all__ = ["Executor"]


class Executor(Protocol):
    """Does bins of units."""

    name: str
    slots: int  # how many units it does at once

    def run(self, bins: Sequence[Bin], config: AnyConfig) -> Generator[Done, None, None]:
        """Do all units; a unit that could not be done at all yields nothing."""
        ...

    def close(self) -> None:
        """Let go of processes."""
        ...
