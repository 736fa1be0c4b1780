"""Adds to a report the problems with a store's run folders. The store's lake lacks them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from results.facts.problems import NO_LOSS, SEED_WITHOUT_RUN, Problem, Problems
from results.lake.log.refusals import is_seen
from results.report.addresses import folder_in, short

if TYPE_CHECKING:
    from results.judging.pipeline import Checked

HISTORY_FILES: Final = ("history.parquet", "history", "ops.log")


def with_problems(checked: Checked, found: Problems, store: Path | None) -> Checked:
    """Add a store's problems, and name runs by `NAME/ID`. Without a store, change nothing."""
    if store is None:
        return checked
    every = Problems()
    for problem in found.kept:
        every.add(problem)
    for problem in checked.problems:
        every.add(msgspec.structs.replace(problem, run=short(problem.run)))
    more = found.total - len(found.kept) + checked.problems_total - len(checked.problems)
    lost = {problem.run for problem in found.kept if problem.kind not in NO_LOSS}
    lost -= {problem.run for problem in crashed_runs(store, found.kept)}
    unjudged = sum(_is_run(store, run) for run in lost)
    return msgspec.structs.replace(
        checked,
        problems=every.kept,
        problems_total=every.total + more,
        runs_unjudged=checked.runs_unjudged + unjudged,
    )


def crashed_runs(store: Path, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that are about crashed runs. Such a run left only its case."""
    return [
        problem
        for problem in problems
        if problem.kind == SEED_WITHOUT_RUN
        or (problem.kind == "history" and _only_a_case(folder_in(store, problem.run)))
    ]


def _only_a_case(folder: Path) -> bool:
    return is_seen(folder / "case.json") and not any(
        is_seen(folder / name) for name in HISTORY_FILES
    )


def _is_run(store: Path, run: str) -> bool:
    folder = folder_in(store, run)
    return is_seen(folder / "case.json") or (
        "/" in run and folder.is_dir() and not os.access(folder, os.X_OK)
    )
