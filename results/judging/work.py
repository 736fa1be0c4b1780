"""What executors carry: pieces of work and the round that they belong to, of either source.

A piece is a `Unit` (the history of one run of a store, or a part of it) or a `LakeUnit` (many runs
of a lake). Both travel as JSON, cost so and so much, and end in a `Done`; the config of their
round says which of them it is.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from results.judging.budgets import Budget
from results.judging.manifest import Check, Unit
from results.judging.required_results import range_of
from results.judging.units import Config, Done, check_units

__all__ = [
    "STAGES_BESIDE_CHECKS",
    "AnyConfig",
    "AnyUnit",
    "LakeConfig",
    "LakeUnit",
    "do_units",
    "stages_of",
]

STAGES_BESIDE_CHECKS: Final = 2
"""Reading, and facts."""
COLLECTIONS: Final = (50_000, 20, 50)
"""When Python looks for cycles: its own (700, 10, 10) take an eighth of the time of checks."""


class LakeUnit(msgspec.Struct, frozen=True, kw_only=True, tag="lake"):
    """Some runs of a lake that lie in the same files and want the same results.

    `files` are names of files by table, of which the rows of these runs are taken; `runs` are their
    keys, sorted.
    """

    files: dict[str, tuple[str, ...]]
    runs: tuple[str, ...]
    checks: tuple[Check, ...]
    facts_id: str | None = None
    budget: Budget
    n_ops: int
    cost: int

    @property
    def key_range(self) -> int | None:
        """The range of keys that it is about; `None` for whole runs, and for facts."""
        return range_of(self.checks[0].result_id) if self.checks else None

    @property
    def key(self) -> str:
        """Stands for all of them, in what is said about the unit as a whole."""
        return self.runs[0]

    @property
    def unit_id(self) -> str:
        """The hash of what it is about."""
        ids = [check.result_id for check in self.checks]
        parts = (*self.runs, *ids, str(self.facts_id), str(self.budget.level))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


class LakeConfig(msgspec.Struct, frozen=True, kw_only=True, tag="lake"):
    """What all units of a round share, of a lake. Credentials come from the environment."""

    uri: str
    scratch: str  # a folder of this machine: counts attempts, see `Marker`
    round: str
    since_s: float  # when the round began, s since 1970
    limit_memory: bool
    elsewhere: bool = False  # another machine may have begun the same units


AnyUnit = Unit | LakeUnit
AnyConfig = Config | LakeConfig


def do_units(units: Iterable[AnyUnit], *, config: AnyConfig) -> Iterator[Done]:
    """Do them, one after another; all are of the kind of `config`."""
    with _collecting_seldom():
        if isinstance(config, Config):
            own = (unit for unit in units if isinstance(unit, Unit))
            yield from check_units(own, config=config)
            return
        from results.judging.lake_work import check_lake_units

        of_lake = (unit for unit in units if isinstance(unit, LakeUnit))
        yield from check_lake_units(of_lake, config=config)


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Look for cycles of garbage seldom: histories have none, and are gone over again and again."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def stages_of(unit: AnyUnit) -> int:
    """How many stages a worker goes through, each of which may kill it."""
    stages = len(unit.checks) + STAGES_BESIDE_CHECKS
    return stages if isinstance(unit, Unit) else stages * len(unit.runs)
