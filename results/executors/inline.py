"""Units in this process, one after another: nothing to start, and a debugger sees it all.

There is no isolation: a checker that kills the process kills the report. Memory is not limited
either, since the limit would hold for the caller, too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from results.executors import Done, batch_of, done_of
from results.packing import Bin
from results.units import Config, check_units

__all__ = ["InlineExecutor"]


class InlineExecutor:
    """Does units here."""

    name = "inline"
    slots = 1

    def run(self, bins: Sequence[Bin], config: Config) -> Generator[Done, None, None]:
        """See `Executor`."""
        for task, found in enumerate(bins):
            for batch in check_units([batch_of(found, task)], config=config):
                yield from done_of(batch)

    def close(self) -> None:
        """Nothing was started."""
