"""Ids of results. An id is a hash of everything that a result depends on, except its run.

A result depends on the code that reads and judges, on the budget, and on the checker with its
`version`. For a checker without a `version`, hashes of its package and of the bundled checkers
count instead. The run is identified separately, by its key and by the batch that appended it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from harness import __version__
from harness.case import Case
from harness.errors import HarnessError
from harness.plugins import Checker
from harness.verdict.judge import checker_names, load_checker
from results.facts.extraction import FACTS_VERSION
from results.judging.budgets import Budget

READING_MODULES: Final = (
    "harness.case",
    "harness.ops",
    "results.lake.log.run_streams",
    "results.lake.tables.rebuild",
    "results.lake.tables.schema",
    "results.lake.tables.values",
    "results.judging.staged_results",
    "results.judging.unit_judge",
)
"""The modules that rebuild histories from the rows of a lake."""
VERDICT_MODULES: Final = (
    *READING_MODULES,
    "harness.verdict.coverage",
    "harness.verdict.judge",
    "harness.case",
    "harness.verdict.limits",
    "harness.verdict.unsafe_change",
    "harness.verdict.signature",
    "harness.verdict.explain",
    "harness.timeline",
    "results.judging.budgets",
    "results.judging.by_key",
    "results.judging.verdict_rows",
)
"""Modules, apart from checkers, on which verdicts depend. After a change, all runs are rejudged."""
FACTS_MODULES: Final = (
    *READING_MODULES,
    "harness.store.buckets",
    "harness.timeline",
    "results.facts.extraction",
    "results.facts.intervals",
    "results.facts.operations",
    "results.facts.fault_roles",
    "results.facts.timeline",
    "results.facts.schema",
    "results.facts.setting",
)
"""Modules on which facts depend. After a change, all facts are extracted again."""
_ID_DIGITS: Final = 32


class Check(msgspec.Struct, frozen=True):
    """One checker to run, and the id of its result."""

    checker: str
    result_id: str

    @property
    def key_range(self) -> int | None:
        """The number of the key range that the result covers; `None` for a whole run."""
        return range_of(self.result_id)


class Registry:
    """The checkers of cases and their versions, cached for one plan."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self.trouble = functools.cache(self._trouble)
        # Workers also use `load_checker`, so they judge with the same version of a checker.
        self.checker: Callable[[str], Checker] = functools.cache(load_checker)
        self.version = functools.cache(lambda name: checker_version(self.checker(name)))

    def checkers_of(self, case: Case) -> tuple[str, ...]:
        key = (case.workload, case.checkers)
        if key not in self._names:
            self._names[key] = checker_names(case)
        return self._names[key]

    def _trouble(self, name: str) -> str:
        try:
            self.version(name)
        except HarnessError as error:
            return str(error)
        return ""


def verdict_id(checker: str, version: str, budget: Budget) -> str:
    """Return the id of verdicts by a checker, from its name, its version and the budget."""
    return hash_of(
        "verdicts",
        [package_hash(module) for module in VERDICT_MODULES],
        checker,
        version,
        msgspec.structs.asdict(budget),
    )[:_ID_DIGITS]


def range_id(result_id: str, number: int) -> str:
    """Return the id of a result that covers one range of a run's keys."""
    return f"{result_id}.{number}"


def range_of(result_id: str) -> int | None:
    """Return the number of the key range that a result covers; `None` for a whole run."""
    number = result_id.partition(".")[2]
    return int(number) if number else None


def facts_id() -> str:
    """Return the id of the result that holds a run's facts."""
    return hash_of(
        "facts",
        FACTS_VERSION,
        [package_hash(module) for module in FACTS_MODULES],
    )[:_ID_DIGITS]


def hash_of(*parts: Any) -> str:
    """Return the SHA-256 of the JSON of some values, in hex."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def checker_version(checker: Checker) -> str:
    """Return the harness's version, plus the checker's `version` or, without one, code hashes."""
    if checker.version is not None:
        return f"{__version__} {checker.version}"
    package = type(checker).__module__.partition(".")[0]
    return f"{__version__} {package_hash(package)} {package_hash('checkers')}"


@functools.lru_cache(maxsize=256)
def package_hash(module: str) -> str:
    """Return the SHA-256 of the sources and compiled parts of a package, or of a single module."""
    total = hashlib.sha256()
    spec = importlib.util.find_spec(module)
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    if spec is not None and not roots and spec.origin is not None:
        total.update(Path(spec.origin).read_bytes())
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.suffix in {".py", ".so", ".pyd", ".sql"} and path.is_file():
                total.update(str(path.relative_to(root)).encode())
                total.update(path.read_bytes())
    return total.hexdigest()
