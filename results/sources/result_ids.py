"""The ids of what is found about a lake's runs: hashes of the code that finds it and of budgets."""

from __future__ import annotations

from typing import Final

import msgspec

from results.budgets import Budget
from results.facts import FACTS_VERSION
from results.manifest import FACTS_MODULES, VERDICT_MODULES, hash_of, package_hash

__all__ = ["facts_id", "verdict_id"]

_ID_DIGITS: Final = 32
LAKE_MODULES: Final = (
    "results.lake.reading",
    "results.lake.rebuild",
    "results.lake.schema",
    "results.lake.typed",
    "results.lake.values",
    "results.sources.lake_found",
    "results.sources.lake_work",
)
"""Whatever stands between the rows of a lake and what is said of them."""


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
