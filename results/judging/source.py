"""Where runs come from and what is found goes to: a store of run folders, or a lake.

`results.judging.pipeline` asks a source what there is to do, has an executor do it, and asks again
until nothing is left; then the source gathers the tables of a report. What a source answers:

* which results are wanted and not there (`plan`), without those that had their chance already;
* what a worker has to know to get at the runs and put the results away (`begin`);
* the tables of all results (`gather`).

Results are addressed by what they depend on, whichever the source: the content of the history, the
code that judges it, the case and the budget. A store has to hash its files for that; in a lake a
run's key stands for its content.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from results.judging.problems import Problems
from results.judging.work import AnyConfig, AnyUnit

__all__ = ["Gathered", "Plan", "Source"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to do, and how much is wanted and known in all."""

    units: tuple[AnyUnit, ...]
    wanted: int
    known: int  # results that need no work


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a report; none of them where some results were damaged and are to be remade."""

    tables: dict[str, tuple[Path, ...]]  # columns besides those of the schema do no harm
    counting: dict[str, str] = {}  # in SQL, which rows `here` of such a table count; else: all
    unsettled: int  # results that are unknown for want of time, memory or a worker
    unjudged: int = 0  # runs of which there is no result at all, and so no row
    damaged: int = 0


class Source(Protocol):
    """Runs, and the results about them."""

    results: str  # where results are kept, for messages
    problems: Problems

    def forget_unsettled(self) -> None:
        """Have what an earlier report left unsettled made anew."""
        ...

    def plan(self) -> Plan:
        """The work that is left."""
        ...

    def begin(self, *, limit_memory: bool) -> AnyConfig:
        """Begin a round; what its workers have to know."""
        ...

    def end(self, units: Sequence[AnyUnit], config: AnyConfig) -> None:
        """The round is over: these units had their chance."""
        ...

    def lose(self, unit: AnyUnit) -> None:
        """Name a unit that did not come to an end."""
        ...

    def gather(self) -> Gathered:
        """The tables of all results."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
