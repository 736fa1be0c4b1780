"""The plan of a report: which results are wanted, which are there, and the units of work between.

A unit is what one task reads: the history of a run. It travels as
JSON, names files and carries no ops. Result ids say what a result depends on: the history's bytes
(`results.judging.contents`) and the code that reads them, the case, the checker with its version
(`CHECKER_VERSION`, or else the hash of the package that it comes from, and of the bundled checkers
that it may be built on), the budget. A run whose results all exist makes no unit.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness import __version__
from harness.case import Case
from harness.checking import checker_names, load_checker
from harness.errors import HarnessError
from harness.imported import ModelChecker
from harness.plugins import Checker
from results.facts.extraction import FACTS_VERSION
from results.judging.budgets import Budget
from results.judging.markers import is_limited
from results.judging.problems import Problem, Problems, RunInfo

__all__ = [
    "FACTS_MODULES",
    "VERDICT_MODULES",
    "Check",
    "Manifest",
    "Piece",
    "Registry",
    "Unit",
    "Wanted",
    "checker_version",
    "hash_of",
    "package_hash",
    "pieces_of",
    "plan",
]

READING_MODULES: Final = (
    "harness.case",
    "harness.ops",
    "harness.store.footer",
    "harness.store.oplog",
    "harness.store.parquet",
)
"""Whatever stands between the bytes of a history and what is said of it."""
VERDICT_MODULES: Final = (
    *READING_MODULES,
    "harness.certificate",
    "harness.checking",
    "harness.limits",
    "harness.overruled",
    "harness.signatures",
    "harness.situation",
    "harness.timeline",
    "results.judging.budgets",
    "results.judging.by_key",
    "results.judging.units",
)
"""Whatever else has a part in verdicts: a change of any of these has them judged anew."""
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
"""Whatever computes facts: a change of any of these makes them anew."""


class Check(msgspec.Struct, frozen=True):
    """One checker to run, and where its result belongs."""

    checker: str
    result_id: str


class Unit(msgspec.Struct, frozen=True, kw_only=True, tag="store"):
    """One piece of work."""

    folder: str
    name: str
    run: str
    source: str
    files: tuple[str, ...]
    digest: str
    checks: tuple[Check, ...]
    facts_id: str | None = None
    budget: Budget
    n_ops: int
    cost: int

    @property
    def key(self) -> str:
        """`NAME/RUN`."""
        return f"{self.name}/{self.run}"

    @property
    def unit_id(self) -> str:
        """The hash of what it is about; the same in every round."""
        parts = (self.key, self.digest, str(self.budget.level))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


class Wanted(msgspec.Struct, frozen=True):
    """One result that a report needs: of which run, and its id at every level of budget.

    There are no ids where the checker cannot be had; facts have no checker.
    """

    run: str
    ids: tuple[str, ...]
    checker: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """What is wanted, what has to be done for it, and how much was there already."""

    wanted: tuple[Wanted, ...]
    units: tuple[Unit, ...]
    known: int  # results that need no work


def plan(
    runs: Sequence[RunInfo],
    there: Mapping[str, Path],
    *,
    budgets: Sequence[Budget],
    checkers: Sequence[str] | None,
    facts: bool,
    problems: Problems,
) -> Manifest:
    """The manifest for `runs`, given the results that are `there`.

    Of `budgets`, level after level, the next one is planned where the last was not enough.
    """
    wanted: list[Wanted] = []
    units: list[Unit] = []
    registry = Registry()
    known = 0
    for info in runs:
        try:
            names = registry.checkers_of(info.case) if checkers is None else checkers
            gone = {name: text for name in names if (text := registry.trouble(name))}
            for name, text in gone.items():
                problems.add(Problem(info.key, "checker", text))
                wanted.append(Wanted(info.key, (), name))
            names = tuple(name for name in names if name not in gone)
            pieces = pieces_of(info, names, facts=facts)
        except (HarnessError, OSError) as error:
            problems.add(Problem(info.key, "checker", str(error)))
            pieces = pieces_of(info, (), facts=facts)
        for piece in pieces:
            todo: dict[int, list[Check]] = {}
            for name in piece.checkers:
                version = registry.version(name)
                ids = tuple(
                    _result_id(piece.unit, info, budget, name, version) for budget in budgets
                )
                wanted.append(Wanted(info.key, ids, name))
                level = _next_level(ids, there)
                if level is None:
                    known += 1
                else:
                    todo.setdefault(level, []).append(Check(name, ids[level]))
            facts_id = None
            if piece.facts:
                facts_id = _facts_id(info)
                wanted.append(Wanted(info.key, (facts_id,)))
                if facts_id in there:
                    known += 1
                    facts_id = None
                else:
                    todo.setdefault(0, [])
            units.extend(
                msgspec.structs.replace(
                    piece.unit,
                    checks=tuple(checks),
                    facts_id=facts_id if level == 0 else None,
                    budget=budgets[level],
                )
                for level, checks in sorted(todo.items())
            )
    return Manifest(tuple(wanted), tuple(units), known)


def _next_level(ids: Sequence[str], there: Mapping[str, Path]) -> int | None:
    """The first level whose result is missing, unless a level before it was enough."""
    for level, result_id in enumerate(ids):
        if result_id not in there:
            return level
        if not is_limited(there[result_id]):
            return None
    return None


class Registry:
    """What plug-ins say about themselves, asked once a plan."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self.trouble = functools.cache(self._trouble)
        # The plug-in, and what tells its versions apart, however it was installed.
        self.checker: Callable[[str], Checker] = functools.cache(load_checker)  # `UsageError`
        self.version = functools.cache(lambda name: checker_version(self.checker(name)))

    def checkers_of(self, case: Case) -> tuple[str, ...]:
        """The checkers that judge a run of this case."""
        key = (case.workload, case.checkers)
        if key not in self._names:
            self._names[key] = checker_names(case)
        return self._names[key]

    def _trouble(self, name: str) -> str:
        """Why the checker cannot be had; empty if it can."""
        try:
            self.version(name)
        except HarnessError as error:
            return str(error)
        return ""


class Piece(msgspec.Struct, frozen=True):
    """A unit before it is known what of it is left to do."""

    unit: Unit
    checkers: tuple[str, ...]
    facts: bool


def pieces_of(info: RunInfo, names: Sequence[str], *, facts: bool) -> list[Piece]:
    """The whole history."""
    whole = Unit(
        folder=str(info.folder.resolve()),
        name=info.name,
        run=info.run,
        source=info.source,
        files=info.files,
        digest=info.digest,
        checks=(),
        budget=Budget(),
        n_ops=info.n_ops,
        cost=info.cost,
    )
    return [Piece(whole, tuple(names), facts)]


def _result_id(unit: Unit, info: RunInfo, budget: Budget, checker: str, version: str) -> str:
    return hash_of(
        "verdicts",
        [package_hash(module) for module in VERDICT_MODULES],
        unit.digest,
        checker,
        version,
        hashlib.sha256(info.case.encode()).hexdigest(),
        msgspec.structs.asdict(budget),
    )


def _facts_id(info: RunInfo) -> str:
    record = None if info.record is None else msgspec.to_builtins(info.record)
    return hash_of(
        "facts",
        info.digest,
        info.key,
        FACTS_VERSION,
        [package_hash(module) for module in FACTS_MODULES],
        hashlib.sha256(info.case.encode()).hexdigest(),
        record,
        info.label,
    )


def hash_of(*parts: Any) -> str:
    """SHA-256 over values, in hex."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def checker_version(checker: Checker) -> str:
    """`CHECKER_VERSION` of a checker, or the hashes of its package and of the bundled checkers."""
    plugin = checker.model if isinstance(checker, ModelChecker) else checker
    stated = getattr(plugin, "CHECKER_VERSION", None)
    if stated is not None:
        return f"{__version__} {stated}"
    package = type(plugin).__module__.partition(".")[0]
    return f"{__version__} {package_hash(package)} {package_hash('checkers')}"


@functools.lru_cache(maxsize=256)
def package_hash(module: str) -> str:
    """SHA-256 over the sources (and compiled parts) of a package, or of a single module."""
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
