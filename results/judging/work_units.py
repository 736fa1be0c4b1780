"""Units of work of a report and their outcomes. Processes exchange both as JSON."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from results.facts.problems import Problem
from results.judging.budgets import Budget
from results.judging.result_ids import Check

STAGES_BESIDE_CHECKS: Final = 2
"""The number of stages per run, apart from its checks: reading the run, and extracting facts."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """Some runs of a lake that are in the same files and lack the same results.

    `files` has the files' names by table. `runs` has the keys of the runs, sorted.
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
        """The number of the key range that the unit judges; `None` for whole runs and for facts."""
        return self.checks[0].key_range if self.checks else None

    @property
    def key(self) -> str:
        """The key of the first run. Messages refer to the unit by this key."""
        return self.runs[0]

    @property
    def unit_id(self) -> str:
        """The hash of the unit's runs and result ids; the same in every round."""
        ids = [check.result_id for check in self.checks]
        parts = (*self.runs, *ids, str(self.facts_id), str(self.budget.level))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


class RoundConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all units of a round. Credentials come from the environment."""

    uri: str
    scratch: str  # a folder of this machine, where `Marker` counts attempts
    round: str
    since_s: float
    limit_memory: bool
    elsewhere: bool = False  # whether another machine may already have begun units of this round


class Done(msgspec.Struct, frozen=True):
    """The outcome of a finished unit. If `part` is below 1, it is only a progress report."""

    unit: str
    cpu_ns: int
    problems: tuple[Problem, ...]
    part: float = 1.0
    limited: bool = False
    memory_bytes: int = 0


def stages_of(unit: Unit) -> int:
    """Return the number of stages of a unit. Each stage may kill its worker."""
    return (len(unit.checks) + STAGES_BESIDE_CHECKS) * len(unit.runs)
