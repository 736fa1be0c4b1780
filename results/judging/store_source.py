"""A store of run folders as a source: plans from files, results one file each below the store.

`results.judging.manifest` plans, `results.judging.markers` keeps; here is what lies between the two
in the course of one report.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from results.facts.extraction import bare
from results.judging.budgets import Budget
from results.judging.manifest import Manifest, Unit, Wanted, plan
from results.judging.markers import (
    RESULTS,
    forget_markers,
    forget_unsettled,
    gather,
    index,
    is_unsettled,
)
from results.judging.problems import NO_LOSS, Problem, Problems, RunInfo, folders_in
from results.judging.source import Gathered, Plan
from results.judging.units import Config, no_verdict, table_of
from results.judging.work import AnyConfig, AnyUnit
from results.lake.log.refusals import require_writable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LOST", "StoreSource"]

LOST = "the executor lost it: its results are missing, try again"


class StoreSource:
    """The chosen runs of one store, in one report."""

    def __init__(
        self,
        store: Path,
        *,
        runs: Sequence[RunInfo],
        problems: Problems,
        budgets: Sequence[Budget],
        checkers: Sequence[str] | None = None,
        facts: bool = True,
    ) -> None:
        """`budgets` are tried level after level; `checkers` replaces those of the cases."""
        self.problems = problems
        self.runs = tuple(runs)
        self._results = store / RESULTS
        self.results = str(self._results)
        self._budgets = budgets
        self._checkers = checkers
        self._facts = facts
        self._given_up: set[str] = set()  # ids of results that had their chance
        self._manifest: Manifest | None = None

    def forget_unsettled(self) -> None:
        """See `Source`."""
        there = index(self._results)
        ids = {result_id for want in self._planned().wanted for result_id in want.ids}
        forget_unsettled(there[result_id] for result_id in ids & there.keys())

    def plan(self) -> Plan:
        """See `Source`."""
        manifest = self._manifest = self._planned()
        left = [_without(unit, self._given_up) for unit in manifest.units]
        units = tuple(unit for unit in left if unit is not None)
        return Plan(units=units, wanted=len(manifest.wanted), known=manifest.known)

    def _planned(self) -> Manifest:
        return plan(
            self.runs,
            index(self._results),
            budgets=self._budgets,
            checkers=self._checkers,
            facts=self._facts,
            problems=self.problems,
        )

    def begin(self, *, limit_memory: bool) -> Config:
        """See `Source`."""
        self._require_writable()
        return Config(
            results=str(self._results.resolve()),
            round=uuid.uuid4().hex,
            limit_memory=limit_memory,
        )

    def _require_writable(self) -> None:
        """Before any work: all workers write there, each into several folders."""
        repair = "copy the store to where it can be written"
        require_writable(self._results, repair)
        for folder in folders_in(self._results):
            require_writable(self._results / folder, repair)

    def end(self, units: Sequence[AnyUnit], config: AnyConfig) -> None:
        """See `Source`."""
        forget_markers(self._results, config.round)
        self._given_up.update(
            result_id for unit in units if isinstance(unit, Unit) for result_id in _ids(unit)
        )

    def lose(self, unit: AnyUnit) -> None:
        """See `Source`."""
        self.problems.add(Problem(unit.key, "lost", LOST))

    def gather(self) -> Gathered:
        """See `Source`; `plan` comes before."""
        assert self._manifest is not None
        there = index(self._results)
        wanted: list[tuple[str, str, Path]] = []
        missing: list[Wanted] = []
        for want in self._manifest.wanted:
            # The result of the largest budget that there is; none where it could not be made.
            for result_id in reversed(want.ids):
                if result_id in there:
                    wanted.append((want.run, result_id, there[result_id]))
                    break
            else:
                missing.append(want)
        unsettled = sum(is_unsettled(path) for _, _, path in wanted)
        begun = {run for run, _, _ in wanted}
        tables, damaged = gather(self._results, wanted, self._besides(missing, begun))
        found: dict[str, tuple[Path, ...]] = {name: (path,) for name, path in tables.items()}
        unjudged = len({info.key for info in self.runs} - begun)
        return Gathered(tables=found, unsettled=unsettled, unjudged=unjudged, damaged=len(damaged))

    def _besides(
        self, missing: Sequence[Wanted], begun: AbstractSet[str]
    ) -> dict[str, dict[str, pa.Table]]:
        """What stands in for results that could not be made, of runs that have others.

        Without it a run would be valid for want of a verdict, or an invalid one of no table.
        """
        named = {item.run for item in self.problems.kept if item.kind not in NO_LOSS}
        infos = {info.key: info for info in self.runs}
        found: dict[str, dict[str, pa.Table]] = {}
        for want in missing:
            what = "its facts" if want.checker is None else f"the verdict of {want.checker}"
            if want.run not in named:
                self.problems.add(Problem(want.run, "lost", f"{what} could not be had; try again"))
            if want.run not in begun:
                continue
            if want.checker is None:
                found[f"{want.run} {want.ids[0]}"] = bare(infos[want.run])
            else:
                row = no_verdict(want.checker)
                found[f"{want.run} {want.checker}"] = {"verdicts": table_of([row], want.run, "")}
        return found

    def close(self) -> None:
        """Nothing is held."""


def _ids(unit: Unit) -> list[str]:
    """The results that a unit makes."""
    found = [check.result_id for check in unit.checks]
    return found if unit.facts_id is None else [*found, unit.facts_id]


def _without(unit: Unit, given_up: AbstractSet[str]) -> Unit | None:
    """The unit without results that had their chance; `None` if nothing is left of it."""
    left = msgspec.structs.replace(
        unit,
        checks=tuple(check for check in unit.checks if check.result_id not in given_up),
        facts_id=None if unit.facts_id in given_up else unit.facts_id,
    )
    return left if _ids(left) else None
