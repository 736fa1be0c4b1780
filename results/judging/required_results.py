"""Which results the runs of a lake are to have, by what their cases name, and the ids of these.

An id is a hash of code, checker and budget, of which there are as many as checkers and levels: a
run is named by its key and by the batch that brought it, and these stand for history and case. A
run over independent keys has a result of a checker for each range of its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from harness.case import Case
from harness.errors import HarnessError
from results.facts.extraction import FACTS_VERSION
from results.judging.budgets import Budget
from results.judging.manifest import FACTS_MODULES, VERDICT_MODULES, Registry, hash_of, package_hash

__all__ = ["Kind", "Wants", "facts_id", "range_of", "verdict_id", "wants_of"]

LAKE_MODULES: Final = (
    "results.lake.log.reading",
    "results.lake.tables.rebuild",
    "results.lake.tables.schema",
    "results.lake.tables.value_codecs",
    "results.lake.tables.values",
    "results.judging.staged_results",
    "results.judging.lake_work",
)
"""Whatever stands between the rows of a lake and what is said of them."""
_ID_DIGITS: Final = 32


class Kind(NamedTuple):
    """What decides which results a run is to have."""

    workload: str
    others: str  # checkers of the case, a JSON list
    key_ranges: int = 0  # of a run over independent keys


class Wants(NamedTuple):
    """The results that runs of a kind are to have."""

    checks: tuple[tuple[str, tuple[str, ...]], ...]  # a checker, and its ids by level of budget
    facts: str | None  # the id of theirs; `None`: they are not asked for
    gone: tuple[tuple[str, str], ...]  # checkers that cannot be had, and why
    trouble: str  # why no checker can be named; mostly empty


def wants_of(
    kind: Kind,
    registry: Registry,
    budgets: Sequence[Budget],
    checkers: Sequence[str] | None = None,
    *,
    facts: bool = True,
) -> Wants:
    """What runs of this kind are to have; `checkers` replaces those of their cases."""
    names, trouble = checkers, ""
    if names is None:
        try:
            names = registry.checkers_of(_like(kind))
        except (HarnessError, msgspec.DecodeError) as error:
            names, trouble = (), str(error)
    checks, gone = [], []
    for name in names:
        if text := registry.trouble(name):
            gone.append((name, text))
            continue
        version = registry.version(name)
        ids = tuple(verdict_id(name, version, each) for each in budgets)
        ranges = range(kind.key_ranges)
        checks += [(name, tuple(range_id(one, number) for one in ids)) for number in ranges]
        if not ranges:
            checks.append((name, ids))
    return Wants(tuple(checks), facts_id() if facts else None, tuple(gone), trouble)


def _like(kind: Kind) -> Case:
    """A case that names the same checkers; raises `UsageError` or `msgspec.DecodeError`."""
    named = msgspec.json.decode(kind.others, type=tuple[str, ...])
    return Case(seed=0, workload=kind.workload, checkers=named)


def range_id(result_id: str, number: int) -> str:
    """The id of a result about one range of keys of a run."""
    return f"{result_id}.{number}"


def range_of(result_id: str) -> int | None:
    """The range of keys that a result is about; `None` for a whole run."""
    number = result_id.partition(".")[2]
    return int(number) if number else None


def verdict_id(checker: str, version: str, budget: Budget) -> str:
    """The id of what a checker of this version finds within a budget."""
    return hash_of(
        "verdicts of a lake's run",
        [package_hash(module) for module in (*VERDICT_MODULES, *LAKE_MODULES)],
        checker,
        version,
        msgspec.structs.asdict(budget),
    )[:_ID_DIGITS]


def facts_id() -> str:
    """The id of a run's facts."""
    return hash_of(
        "facts of a lake's run",
        FACTS_VERSION,
        [package_hash(module) for module in (*FACTS_MODULES, *LAKE_MODULES)],
    )[:_ID_DIGITS]
