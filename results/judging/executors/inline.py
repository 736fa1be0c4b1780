"""Units in this process, one after another: nothing to start, and a debugger sees it all.

There is no isolation: a checker that kills the process kills the report. Memory is not limited
either, since the limit would hold for the caller, too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from results.judging.packing import Bin
from results.judging.units import Done
from results.judging.work import AnyConfig, do_units

__all__ = ["InlineExecutor"]


class InlineExecutor:
    """Does units here."""

    name = "inline"
    slots = 1

    def run(self, bins: Sequence[Bin], config: AnyConfig) -> Generator[Done, None, None]:
        """See `Executor`."""
        for found in bins:
            yield from do_units(found.units, config=config)

    def close(self) -> None:
        """Nothing was started."""
