"""Units in this process, one after another: nothing to start, and a debugger sees it all.

There is no isolation: a checker that kills the process kills the report. Memory is not limited
either, since the limit would hold for the caller, too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from results.judging.unit_judge import do_units
from results.judging.work_units import Done, RoundConfig, Unit

__all__ = ["InlineExecutor"]


class InlineExecutor:
    """Does units here."""

    name = "inline"

    def run(self, units: Sequence[Unit], config: RoundConfig) -> Generator[Done, None, None]:
        """See `Executor`."""
        yield from do_units(units, config=config)

    def close(self) -> None:
        """Nothing was started."""
